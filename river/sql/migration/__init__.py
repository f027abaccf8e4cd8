"""The schema that River's jobs live in: a line of versions, each with its way up and its way down; SQL only.

The SQL stands in files, ``<database>/<line>/<version>_<name>.<direction>.sql``, for people and editors to read:
statements are separated by an empty line and end in a semicolon, and ``{at}`` stands in front of each name for the
schema. Nothing here opens a connection or a transaction, or asks what is there; whoever runs the statements does.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final

from ...engine.migration import Direction
from ...errors import ConfigurationError, near
from ...operation import Database
from ..names import qualifier

_DIRECTIONS: Final[tuple[Direction, ...]] = ("up", "down")

MAIN: Final = "main"
"""The line of versions that all implementations of River share."""

_LINED_SINCE: Final = 5
"""The version that gave the ledger its column ``line``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One version of a line.

    Attributes:
        line: The line that it belongs to.
        version: Its place in it, from 1.
        name: What it is about, in a few words.
    """

    line: str
    version: int
    name: str
    _texts: Mapping[Direction, str] = field(repr=False)

    def script(self, direction: Direction, schema: str | None = None) -> str:
        """The SQL for people to read or to run by hand, comments included; it does not record the version.

        Args:
            direction: Which way.
            schema: Where; None leaves the names unqualified, so that the search path decides.
        """
        at = qualifier(schema)
        # In a text of SQL's, a quotation mark of the schema's name would end it.
        quoted = at.replace("'", "''")
        return self._texts[direction].replace("'{at}", f"'{quoted}").replace("{at}", at).strip()

    def sql(self, direction: Direction, schema: str | None = None) -> list[str]:
        """The statements to run one by one, in one transaction; without parameters, and maybe none at all."""
        pieces = self.script(direction, schema).split("\n\n")
        return [piece.rstrip(";") for piece in pieces if not _is_comment(piece)]

    def record(self, direction: Direction, schema: str | None = None, *, newest: int = 0) -> list[str]:
        """The statement, if any, that tells River's migrators, in that same transaction, that it has been done.

        Args:
            direction: Which way.
            schema: Where; None leaves the names unqualified.
            newest: The newest version that is recorded, which may be a later one if this one was missing.
        """
        table = f"{qualifier(schema)}river_migration"
        if direction == "up" and max(self.version, newest) < _LINED_SINCE:
            return [f"INSERT INTO {table} (version) VALUES ({self.version})"]
        if direction == "up":
            return [f"INSERT INTO {table} (line, version) VALUES ('{self.line}', {self.version})"]
        if self.version == 1:
            return []  # the ledger itself is gone
        if self.version <= _LINED_SINCE:
            return [f"DELETE FROM {table} WHERE version = {self.version}"]
        return [f"DELETE FROM {table} WHERE line = '{self.line}' AND version = {self.version}"]


@functools.cache
def migrations(database: Database, line: str = MAIN) -> tuple[Migration, ...]:
    """All versions of a line that this library knows, in order.

    Raises:
        ConfigurationError: There is no such line, or no migrations for the database.
    """
    if database != "postgresql":
        raise ConfigurationError(f"River's migrations are for PostgreSQL; {database} is not supported yet")
    lines = {entry.name: entry for entry in files(__name__).joinpath(database).iterdir() if entry.is_dir()}
    if line not in lines:
        raise ConfigurationError(f"there is no line of migrations called {line!r}: {near(line, lines)}")
    texts: dict[tuple[int, str], dict[Direction, str]] = {}
    for entry in lines[line].iterdir():
        for direction in _DIRECTIONS:
            stem = entry.name.removesuffix(f".{direction}.sql")
            if stem != entry.name:
                version, _, name = stem.partition("_")
                text = entry.read_text(encoding="utf-8")
                texts.setdefault((int(version), name.replace("_", " ")), {})[direction] = text
    return tuple(
        Migration(line=line, version=version, name=name, _texts=texts[version, name]) for version, name in sorted(texts)
    )


def _is_comment(piece: str) -> bool:
    return all(line.startswith("--") for line in piece.splitlines())


__all__ = ["MAIN", "Direction", "Migration", "migrations"]
