"""The parts of the text under a unique key: what of the args counts, and the period."""

from __future__ import annotations

import functools
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, Union

from .. import gojson
from ..errors import InvalidArgsError, InvalidJobError
from .marks import Path

_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f\x80-\U0010ffff]*')

_Tree: TypeAlias = dict[str, Union[str, "_Tree"]]
"""Members by name: each a JSON text, or the members of an object."""


def args_text(kind: str, encoded_args: str, paths: Iterable[Path]) -> str:
    """The JSON of what counts in a job's args, as Go writes it.

    Args:
        kind: The job's, for messages.
        encoded_args: Its args, as any encoder wrote them.
        paths: What counts, in the order of `marks.in_order`; empty for all members, which are then sorted.

    Raises:
        InvalidArgsError: The args are no object, or hold a number that a float64 cannot.
    """
    with hashing(kind):
        text = gojson.recode(encoded_args)
    members = gojson.members(text)
    if members is None:
        raise InvalidArgsError(f"args of {kind!r} cannot be hashed, which by_args asks for: they are no JSON object")
    if not paths:
        firsts = dict(reversed(members))  # of members with one name, the first counts
        return _object_text(dict(sorted(firsts.items())))  # code points sort as their UTF-8 bytes do
    chosen: _Tree = {}
    for path in paths:
        value = _found(members, path)
        if value is not None:
            _put(chosen, path, value)
    # Nothing found is no text at all, and not an empty object.
    return _object_text(chosen) if chosen else ""


@contextmanager
def hashing(kind: str) -> Generator[None]:
    """Where a number beyond a float64 makes an `InvalidArgsError` of the job."""
    try:
        yield
    except OverflowError as error:
        raise InvalidArgsError(
            f"args of {kind!r} cannot be hashed, which by_args asks for: {error}; write it as a text"
        ) from error


def _found(members: Iterable[tuple[str, str]], path: Path) -> str | None:
    for name, value in members:
        if name == path[0]:
            found = value if len(path) == 1 else _found(gojson.members(value) or (), path[1:])
            if found is not None:
                return found
    return None


def _put(tree: _Tree, path: Path, value: str) -> None:
    for name in path[:-1]:
        inner = tree.setdefault(name, {})
        # A text would be a whole object that holds the path already; `in_order` leaves such paths out.
        assert not isinstance(inner, str)
        tree = inner
    tree[path[-1]] = value


def _object_text(tree: _Tree) -> str:
    members = [
        f"{_name_text(name)}:{value if isinstance(value, str) else _object_text(value)}" for name, value in tree.items()
    ]
    return "{" + ",".join(members) + "}"


@functools.lru_cache(maxsize=1024)
def _name_text(name: str) -> str:
    """A name as River writes it into the text: unlike Go's encoder, it leaves ``<``, ``>`` and ``&`` in plain ASCII."""
    return f'"{name}"' if _PLAIN_NAME.fullmatch(name) else gojson.quoted(name)


def period_text(at: datetime, period: int) -> str:
    """The start of the period of *period* nanoseconds in which *at* lies, in UTC and whole seconds.

    Raises:
        InvalidJobError: *at* is naive.
    """
    if at.utcoffset() is None:
        raise InvalidJobError(f"a job that is unique by period needs an aware datetime, not {at!r}")
    since = (at - _BEGINNING) // _MICROSECOND * 1_000
    start = _BEGINNING + timedelta(seconds=(since - since % period) // 1_000_000_000)
    return start.isoformat().replace("+00:00", "Z")


__all__ = ["args_text", "hashing", "period_text"]
