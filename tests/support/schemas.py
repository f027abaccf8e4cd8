"""Schemas for tests of migrations, and what River's migrators have recorded in them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from river.sql.migration import migrations
from tests.support.clients import eventually


def creation(schema: str | None) -> list[str]:
    """All statements that make River's tables in an empty schema; they may run in one transaction."""
    return [
        statement
        for migration in migrations("postgresql")
        for statement in (*migration.sql("up", schema), *migration.record("up", schema))
    ]


class Scratch:
    """A schema of a test's own, in mixed case, where a forgotten quotation mark shows; empty at first.

    Attributes:
        name: Its name.
        connection: In autocommit, with an empty search path.
    """

    def __init__(self, connection: psycopg.Connection[Any], name: str) -> None:
        self.connection = connection
        self.name = name

    def execute(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement, in which ``{at}`` is the schema."""
        cursor = self.connection.execute(text.replace("{at}", f'"{self.name}"').encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    @property
    def versions(self) -> list[int]:
        """What River's migrators have recorded for the line ``main``; empty without their table."""
        if not self.execute(
            "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'river_migration'", self.name
        ):
            return []
        text = "SELECT version FROM {at}.river_migration AS m WHERE coalesce(to_jsonb(m) ->> 'line', 'main') = 'main'"
        return sorted(version for (version,) in self.execute(text))


@contextmanager
def scratch(database_url: str) -> Iterator[Scratch]:
    """A schema with nothing in it, dropped afterwards."""
    name = f"River_Scratch_{secrets.token_hex(4)}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET search_path = ''")
        made = Scratch(connection, name)
        made.execute("CREATE SCHEMA {at}")
        try:
            yield made
        finally:
            # A test that left a transaction open must fail by name, not hang until its timeout.
            made.execute("SET lock_timeout = '10s'")
            made.execute("DROP SCHEMA {at} CASCADE")


def waiting_for(place: Scratch, kind: str) -> int:
    """How many sessions wait for a lock of this kind that concerns the schema."""
    if kind == "advisory":
        # Keys of two halves, as pg_locks shows them.
        text = """
            WITH key AS (SELECT hashtextextended('river_migration ' || %s, 0) AS of_schema)
            SELECT count(*) FROM pg_locks, key
            WHERE locktype = 'advisory' AND NOT granted
              AND (CAST(classid AS bigint) << 32) + CAST(objid AS bigint) = of_schema
        """
    else:
        text = """
            SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation
            WHERE NOT granted AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)
        """
    ((count,),) = place.execute(text, place.name)
    return int(count)


def until_somebody_waits(place: Scratch, count: int = 1, kind: str = "advisory") -> None:
    """Return once so many sessions wait for such a lock."""
    asyncio.run(eventually(lambda: waiting_for(place, kind) == count, f"{count} wait for a lock"))
