"""JSON byte for byte as Go's encoder writes it, which is what River's unique keys and list cursors are made of.

`recode` takes the JSON text that any Python encoder wrote, and `dumps` a value. Both keep the order of an object's
members, because Go writes a struct in the order of its declaration. (Go sorts the keys of a *map*; whoever wants that
sorts them first.) What changes:

- no whitespace between tokens;
- in strings ``<``, ``>``, ``&``, U+2028 and U+2029 are escaped, so are control characters (by their letter, where JSON
  has one), quotes and backslashes, and nothing else is: ``\\u00e9`` becomes ``é`` and ``\\/`` becomes ``/``;
- half a surrogate pair, which Go has no string for, becomes U+FFFD, as when Go reads it;
- a number with a fraction or an exponent stands for a float64, and is written as Go writes that one: the fewest digits
  that give it back, ``5`` for ``5.0``, ``1000`` for ``1e3``, an exponent only below 1e-6 and from 1e21 on. One without
  is an integer and stays as it is, whatever its size; so does ``-0``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias, Union

import msgspec

from .shapes import is_mapping, is_sequence

Json: TypeAlias = Union[bool, int, float, str, "Sequence[Json]", "Mapping[str, Json]", None]
"""What `dumps` writes."""

# Half surrogates are among what is special, since they cannot be encoded as UTF-8.
_SPECIAL = "<>&\u2028\u2029\ud800-\udfff"
# What is already as Go writes it, in runs as long as they come: nearly always the whole text is one.
_SAME = r'(?:[{}\[\],:]|"[^"\\' + _SPECIAL + r']*"|-?[0-9]+(?![.eE0-9])|true|false|null)+'
_NOTHING_TO_DO = re.compile(_SAME)
_TOKENS = re.compile(rf'({_SAME})|("(?:[^"\\]|\\.)*")|([-+.0-9eE]+)|\s+')
_TO_ESCAPE = re.compile(f"[{_SPECIAL}]")
_ESCAPES: dict[int, str] = {
    **{ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"},
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}
_PLAIN_NAMES = re.compile(f'[^"\\\\\\x00-\\x1f{_SPECIAL}]*')
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]')

_escaped_as_json = json.JSONEncoder(ensure_ascii=False).encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def recode(text: str) -> str:
    """A JSON text as Go would have written it.

    Args:
        text: Valid JSON; what comes out for anything else is not defined.

    Raises:
        OverflowError: A number is beyond what a float64 can hold.
    """
    if _NOTHING_TO_DO.fullmatch(text):
        return text
    try:
        compact = msgspec.json.format(text, indent=-1)  # only takes the whitespace away
    except msgspec.DecodeError:
        compact = text  # half a surrogate pair
    return compact if _NOTHING_TO_DO.fullmatch(compact) else _TOKENS.sub(_token, compact)


def dumps(value: Json) -> str:
    """A value as Go would write it, an object's members in the order of the mapping.

    An ``int`` is written in full, a ``float`` as Go writes a float64: ``5.0`` as ``5``.

    Raises:
        TypeError: It holds what is not JSON, or a key that is no string.
        OverflowError: It holds an infinity.
        ValueError: It holds NaN.
    """
    return _written(value)


def quoted(text: str) -> str:
    """A string as Go's encoder writes it, quotes included."""
    escaped = _escaped_as_json(text)
    return escaped.translate(_ESCAPES) if _TO_ESCAPE.search(escaped) else escaped


def members(text: str) -> list[tuple[str, str]] | None:
    """The names and the JSON texts of an object's members, in their order; None if it is no object.

    Args:
        text: What `recode` or `dumps` gave. A name that occurs twice is there twice.
    """
    if not text.startswith("{"):
        return None
    try:
        found = [(name, bytes(raw).decode()) for name, raw in _members.decode(text).items()]
    except msgspec.DecodeError:
        return _members_one_by_one(text)
    # A dict keeps only one of two equal names; then the parts are shorter than the whole.
    names = "".join([name for name, _ in found])
    if not _PLAIN_NAMES.fullmatch(names):
        return _members_one_by_one(text)
    # `"name":value,` for each, and the braces; the last has no comma.
    parts = len(names) + sum([len(value) + 4 for _, value in found]) + 2 - bool(found)
    return found if parts == len(text) else _members_one_by_one(text)


def _members_one_by_one(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    name, level, start = "", 0, 1
    for token in _BRACKETS.finditer(text):
        if token[0] in ("[", "{"):
            level += 1
        elif token[0] == ":" and level == 1:
            name, start = json.loads(text[start : token.start()]), token.end()
        elif level == 1 and token[0] in (",", "}"):
            if token.start() > start:
                found.append((name, text[start : token.start()]))
            start = token.end()
            level -= token[0] == "}"
        elif token[0] in ("]", "}"):
            level -= 1
    return found


def _token(found: re.Match[str]) -> str:
    token = found[0]
    if found.lastindex == 1:
        return token
    if found.lastindex == 2:
        return quoted(json.loads(token))
    return _float(token) if found.lastindex == 3 else ""


def _float(text: str) -> str:
    value = float(text)
    if math.isinf(value):
        raise OverflowError(f"the number {text[:40]} is beyond what a float64 can hold")
    if math.isnan(value):
        raise ValueError("NaN is no JSON")
    # Python finds the same shortest digits as Go, and only places the point otherwise.
    shortest = repr(value)
    if value and not 1e-6 <= abs(value) < 1e21:
        mantissa, _, exponent = shortest.partition("e")
        return f"{mantissa}e{'-' if exponent[0] == '-' else '+'}{exponent.lstrip('+-').lstrip('0')}"
    if "e" in shortest:
        return format(Decimal(shortest), "f")
    return shortest.removesuffix(".0")


def _written(value: object) -> str:
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int):
        return int.__repr__(value)  # an IntEnum prints itself otherwise
    if isinstance(value, float):
        return _float(float.__repr__(value))
    if is_mapping(value):
        return "{" + ",".join([f"{_key(key)}:{_written(item)}" for key, item in value.items()]) + "}"
    if is_sequence(value):
        return "[" + ",".join([_written(item) for item in value]) + "]"
    raise TypeError(f"{type(value).__name__} is no JSON")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} is no string")
    return quoted(key)


__all__ = ["Json", "dumps", "members", "quoted", "recode"]
