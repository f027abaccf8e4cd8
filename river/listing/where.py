"""A condition of the host's own, in SQL, made safe to stand in a statement of River's.

The text is read as PostgreSQL reads it, so that what looks like a parameter inside a string, a quoted name or a comment
is none. Each ``:name`` becomes a parameter of a name that no statement of River's uses, with a cast, so that every
library sends the same type. What is left holds no colon that a library could take for a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from ..args import bad_text
from ..errors import InvalidOptionError, near
from ..operation import Value
from ..shapes import is_mapping, is_sequence
from .values import array, json_object

_TOKEN = re.compile(
    r"""
      (?P<escaped>[eE]'(?:[^'\\]|''|\\.)*')
    | (?P<unicode>[uU]&(?:'(?:[^']|'')*'|"(?:[^"]|"")*"))
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<dollar>\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$)
    | (?P<line>--[^\n]*)
    | (?P<block>/\*)
    | (?P<open>['"]|\$(?:[^\W\d]\w*)?\$)
    | (?P<positional>\$\d+)
    | (?P<word>\w[\w$]*)
    | (?P<cast>::|:=)
    | (?P<name>:(?P<parameter>[^\W\d]\w*))
    | (?P<colon>:)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED_COLON = re.compile(r"(\\[^:])|\\?:", re.DOTALL)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_CLOSES = {")": "(", "]": "["}


@dataclass(frozen=True, slots=True)
class Where:
    """A condition that may stand in a statement.

    Attributes:
        sql: Its text, in which parameters are written ``:where_1`` and cast.
        parameters: Their values.
    """

    sql: str
    parameters: Mapping[str, Value]


def where_of(text: object, parameters: object) -> Where | None:
    """The condition *text* with its *parameters*; None without any.

    Raises:
        InvalidOptionError: It is not one whole condition; a parameter is not given, not used, or of no known type.
    """
    given = _given(parameters)
    if text is None:
        if given:
            raise InvalidOptionError("where_parameters are for where, which is not given: give it, or leave them out")
        return None
    if not isinstance(text, str) or bad_text(text):
        raise InvalidOptionError(f"where must be the text of a condition in SQL, not {text!r}")
    reader = _Reader(text, given)
    sql = reader.read()
    unused = [name for name in given if name not in reader.used]
    if unused:
        raise InvalidOptionError(
            f"where_parameters has {unused[0]!r}, but where does not use it: leave it out, or write :{unused[0]} there"
        )
    return Where(sql, reader.parameters)


def _given(parameters: object) -> Mapping[str, object]:
    if parameters is None:
        return {}
    if not is_mapping(parameters) or not all(isinstance(name, str) for name in parameters):
        raise InvalidOptionError(f"where_parameters must be a mapping of names to values, not {parameters!r}")
    return parameters


class _Reader:
    """Reads one condition, from its beginning to its end."""

    def __init__(self, text: str, given: Mapping[str, object]) -> None:
        self.text = text
        self.given = given
        self.used: dict[str, str] = {}
        self.parameters: dict[str, Value] = {}
        self._open: list[str] = []

    def read(self) -> str:
        parts: list[str] = []
        at, after_word = 0, False
        while at < len(self.text):
            token = _TOKEN.match(self.text, at)
            if token is None:
                raise AssertionError  # the last alternative takes any character
            at = token.end()
            match token.lastgroup:
                case "line":
                    parts.append(" ")
                case "block":
                    parts.append(" ")
                    at = self._after_comment(at)
                case "name" if after_word:
                    parts.append(f": {token['parameter']}")  # a slice, a[i:j]
                case "name":
                    parts.append(self._parameter(token["parameter"]))
                case _:
                    parts.append(self._rewritten(token.lastgroup, token[0]))
            after_word = token.lastgroup == "word"
        if self._open:
            raise self._refused(f"a {self._open[-1]!r} is never closed")
        sql = "".join(parts).strip()
        if not sql:
            raise self._refused("it is empty")
        return sql

    def _rewritten(self, kind: str | None, token: str) -> str:
        """A token as it may stand in a statement, with no colon that a library could take for a parameter's."""
        if kind == "open":
            raise self._refused(f"the string or name that begins with {token} is never closed")
        if kind == "positional":
            raise self._refused(f"{token} is no parameter here: write :name, and give the name in where_parameters")
        if kind == "other":
            self._balance(token)
        if kind == "colon":
            return ": "
        if kind == "cast" or ":" not in token:
            return token
        if kind == "unicode":
            raise self._refused("a U& string with a colon cannot be handed on: use a parameter")
        return _without_colons(kind, token)

    def _parameter(self, name: str) -> str:
        if name not in self.given:
            hint = near(name, self.given) if self.given else "give it in where_parameters"
            raise self._refused(f":{name} has no value; {hint} (a slice is written [a : b])")
        if name not in self.used:
            self.used[name] = self._cast(name, self.given[name])
        return self.used[name]

    def _cast(self, name: str, value: object) -> str:
        for types, sql_type, convert in _TYPES:
            if isinstance(value, types):
                try:
                    return self._bound(convert(value), sql_type)
                except (InvalidOptionError, OverflowError) as error:
                    raise InvalidOptionError(f"where_parameters[{name!r}] cannot be sent: {error}") from error
        if value is None:
            return "NULL"
        if is_mapping(value):
            return self._bound(json_object(f"where_parameters[{name!r}]", value), "jsonb")
        if is_sequence(value):
            return self._list(name, list(value))
        raise InvalidOptionError(
            f"where_parameters[{name!r}] must be a text, number, bool, None, date, aware datetime, timedelta, UUID, a "
            f"list of texts or of whole numbers, or a mapping for jsonb, not {type(value).__qualname__}"
        )

    def _list(self, name: str, values: list[object]) -> str:
        if not values:
            return "'{}'"  # takes the type that its place asks for
        if all(isinstance(each, str) for each in values):
            return self._bound(array(_text(each) for each in values), "text[]")
        if all(isinstance(each, int) and not isinstance(each, bool) for each in values):
            return self._bound(array(str(_integer(each)) for each in values), "bigint[]")
        raise InvalidOptionError(f"where_parameters[{name!r}] must hold texts only, or whole numbers only: {values!r}")

    def _bound(self, value: Value, sql_type: str) -> str:
        bound = f"where_{len(self.parameters) + 1}"
        self.parameters[bound] = value
        if isinstance(value, str) and sql_type != "text":
            return f"CAST(CAST(:{bound} AS text) AS {sql_type})"
        return f"CAST(:{bound} AS {sql_type})"

    def _balance(self, token: str) -> None:
        if token in "([":
            self._open.append(token)
        elif token in _CLOSES and (not self._open or self._open.pop() != _CLOSES[token]):
            raise self._refused(f"it has a {token!r} too many")
        elif token == ";":
            raise self._refused("it must be one condition, without a ';'")

    def _after_comment(self, at: int) -> int:
        depth = 1
        while depth:
            edge = _COMMENT_EDGE.search(self.text, at)
            if edge is None:
                raise self._refused("a comment is never closed")
            depth += 1 if edge[0] == "/*" else -1
            at = edge.end()
        return at

    def _refused(self, why: str) -> InvalidOptionError:
        return InvalidOptionError(f"where {self.text!r} cannot be used: {why}")


def _without_colons(kind: str | None, token: str) -> str:
    r"""A string or quoted name written with ``\x3A`` or ``\003A`` for each colon; the same value.

    With a space in front, because a type's name may stand there: ``time'12:30'``.
    """
    if kind == "quoted":
        return ' U&"' + token[1:-1].replace("\\", "\\\\").replace(":", r"\003A") + '"'
    if kind == "escaped":
        return "E'" + _ESCAPED_COLON.sub(lambda found: found[0] if found[1] else r"\x3A", token[2:-1]) + "'"
    if kind == "dollar":
        content = token[token.index("$", 1) + 1 :]
        content = content[: content.rindex("$", 0, -1)].replace("'", "''")
    else:
        content = token[1:-1]
    return " E'" + content.replace("\\", "\\\\").replace(":", r"\x3A") + "'"


def _text(value: object) -> str:
    # A member of a StrEnum is a str, and libraries send what its class makes of it.
    text = "".join(value) if isinstance(value, str) else ""
    complaint = bad_text(text)
    if complaint:
        raise InvalidOptionError(f"{value!r} {complaint}")
    return text


def _integer(value: object) -> int:
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise InvalidOptionError(f"{value!r} has more than 64 bits")
    return int(value)


def _instant(value: object) -> str:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidOptionError(f"{value!r} is no aware datetime, such as datetime.now(UTC)")
    return value.astimezone(UTC).isoformat()


def _interval(value: object) -> str:
    return f"{value // timedelta(microseconds=1) if isinstance(value, timedelta) else 0} microseconds"


# In this order: a bool is an int, and a datetime a date.
_TYPES: tuple[tuple[type, str, Callable[[object], Value]], ...] = (
    (bool, "boolean", bool),
    (int, "bigint", _integer),
    (float, "double precision", repr),
    (Decimal, "numeric", str),
    (str, "text", _text),
    (datetime, "timestamptz", _instant),
    (date, "date", str),
    (timedelta, "interval", _interval),
    (UUID, "uuid", str),
)
