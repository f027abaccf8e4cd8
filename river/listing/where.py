"""A condition of the host's own, in SQL, made safe to stand in a statement of River's.

The text is read as PostgreSQL reads it, so that what looks like a parameter inside a string, a quoted name or a comment
is none. Each ``:name`` becomes a parameter of a name that no statement of River's uses, with a cast, so that every
library sends the same type. What is left holds no colon that a library could take for a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..args import bad_text
from ..errors import InvalidOptionError, near
from ..operation import Value
from ..shapes import is_mapping
from .parameters import parameter

_LETTER, _DIGIT_TOO = r"[a-zA-Z_\x80-\U0010ffff]", r"[a-zA-Z0-9_\x80-\U0010ffff]"
_TAG = rf"(?:{_LETTER}{_DIGIT_TOO}*)?"
_PLAIN = r"'(?:[^']|'')*'(?!')"
_ESCAPED = r"'(?:[^'\\]|''|\\.)*'(?!')"
# Strings with a line break between them, and else only space and line comments, are one, and are all read as the first.
_BREAK = r"(?:[ \t\f\v]|--[^\n\r]*(?=[\n\r]|\Z))*[\n\r](?:[ \t\n\r\f\v]|--[^\n\r]*[\n\r])*"

_TOKEN = re.compile(
    rf"""
      (?P<escaped>[eE]{_ESCAPED}(?:{_BREAK}{_ESCAPED})*(?!{_BREAK}'))
    | (?P<unicode>[uU]&(?:{_PLAIN}(?:{_BREAK}{_PLAIN})*(?!{_BREAK}')|"(?:[^"]|"")*"(?!")))
    | (?P<string>[nN]?{_PLAIN}(?:{_BREAK}{_PLAIN})*(?!{_BREAK}'))
    | (?P<quoted>"(?:[^"]|"")*"(?!"))
    | (?P<dollar>\$(?P<tag>{_TAG})\$.*?\$(?P=tag)\$)
    | (?P<line>--[^\n\r]*)
    | (?P<block>/\*)
    | (?P<open>[eEnN]?'|[uU]&['"]|"|\${_TAG}\$)
    | (?P<positional>\$[0-9]+)
    | (?P<word>{_DIGIT_TOO}(?:{_DIGIT_TOO}|\$)*)
    | (?P<cast>::|:=)
    | (?P<name>:(?P<parameter>{_LETTER}{_DIGIT_TOO}*))
    | (?P<colon>:)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PARTS = {kind: re.compile(rf"({part})|{_BREAK}") for kind, part in (("escaped", _ESCAPED), ("string", _PLAIN))}
_ESCAPE = re.compile(r"\\?:|\\.", re.DOTALL)
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
        if kind is None or kind == "cast" or (":" not in token and kind != "escaped"):
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
        sent = parameter(name, value)
        if sent is None:
            return "NULL" if value is None else "'{}'"  # which takes the type that its place asks for
        bound = f"where_{len(self.parameters) + 1}"
        self.parameters[bound] = sent.value
        if isinstance(sent.value, str) and sent.sql_type != "text":
            return f"CAST(CAST(:{bound} AS text) AS {sent.sql_type})"
        return f"CAST(:{bound} AS {sent.sql_type})"

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


def _without_colons(kind: str, token: str) -> str:
    r"""A string or quoted name written with ``\x3A`` or ``\003A`` for each colon; the same value.

    With a space in front, because a type's name may stand there: ``time'12:30'``.
    """
    if kind == "quoted":
        return ' U&"' + token[1:-1].replace("\\", "\\\\").replace(":", r"\003A") + '"'
    if kind == "dollar":
        content = token[token.index("$", 1) + 1 :]
        return " E'" + _without_escapes(content[: content.rindex("$", 0, -1)].replace("'", "''")) + "'"
    parts = [part[1] for part in _PARTS[kind].finditer(token, token.index("'")) if part[1]]
    if kind == "escaped":
        return "E" + "\n".join(_ESCAPE.sub(_escape_for_all, part) for part in parts)
    # N'...' is a short form, of which no other has escapes.
    return (" NCHAR E" if token[0] in "nN" else " E") + "\n".join(map(_without_escapes, parts))


def _escape_for_all(found: re.Match[str]) -> str:
    # Not every library knows that a string which goes on after a line break may hold \'.
    return r"\x3A" if ":" in found[0] else found[0].replace(r"\'", "''")


def _without_escapes(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", r"\x3A")
