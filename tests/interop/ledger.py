"""What ``river_migration`` says, as rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import sql


@dataclass(frozen=True, slots=True)
class Ledger:
    """The table's columns, and its rows without what is chance: ids and times."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


BEFORE_LINES = ("id", "created_at", "version")
WITH_LINES = ("line", "version", "created_at")

NO_LEDGER = Ledger((), ())


def expected(version: int) -> Ledger:
    """What River leaves at a version."""
    versions = range(1, version + 1)
    if version == 0:
        return NO_LEDGER
    if version < 5:
        return Ledger(BEFORE_LINES, tuple((each,) for each in versions))
    return Ledger(WITH_LINES, tuple(("main", each) for each in versions))


def read(connection: psycopg.Connection, schema: str) -> Ledger:
    """The whole table, or `NO_LEDGER` if there is none."""
    found = connection.execute(
        "SELECT attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
        " JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = %s AND relname = 'river_migration' AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [schema],
    ).fetchall()
    columns = tuple(name for (name,) in found)
    if not columns:
        return NO_LEDGER
    certain = [sql.Identifier(name) for name in columns if name not in {"id", "created_at"}]
    query = sql.SQL("SELECT {} FROM {} ORDER BY {}")
    table = sql.Identifier(schema, "river_migration")
    rows = connection.execute(query.format(sql.SQL(", ").join(certain), table, sql.SQL(", ").join(certain))).fetchall()
    return Ledger(columns, tuple(rows))


def times(connection: psycopg.Connection, schema: str) -> dict[int, datetime]:
    """When each version was recorded."""
    query = sql.SQL("SELECT version, created_at FROM {}").format(sql.Identifier(schema, "river_migration"))
    return dict(connection.execute(query).fetchall())
