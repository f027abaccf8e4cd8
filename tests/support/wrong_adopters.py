"""Adopters of psycopg connections that are wrong in one thing each, for the test of the conformance suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.rows import dict_row

from river.errors import HandleError
from river.operation import AsyncExecutor, Database, Executor, Rows, Statement
from river_psycopg import handles as handles_of_psycopg
from river_psycopg.blocking import ConnectionExecutor
from tests.support.wrong_executors import Wrong


class CommitsTheHosts(Wrong):
    def execute(self, statement: Statement) -> Rows:
        rows = super().execute(statement)
        self.connection.commit()
        return rows


class RollsTheHostsBack(Wrong):
    def execute(self, statement: Statement) -> Rows:
        self.connection.rollback()
        return super().execute(statement)


class RollsBackAfterErrors(Wrong):
    def execute(self, statement: Statement) -> Rows:
        try:
            return super().execute(statement)
        except psycopg.Error:
            self.connection.rollback()
            raise


class ClosesTheHosts(Wrong):
    def execute(self, statement: Statement) -> Rows:
        rows = super().execute(statement)
        self.connection.commit()
        self.connection.close()
        return rows


class OnAnotherConnection(Wrong):
    def execute(self, statement: Statement) -> Rows:
        with psycopg.connect(self.connection.info.dsn, autocommit=True) as other:
            return ConnectionExecutor(other).execute(statement)


class WithTheHostsRows(Wrong):
    def execute(self, statement: Statement) -> Rows:
        cursor = self.connection.execute(statement.sql.encode()) if not statement.parameters else None
        found: Any = cursor.fetchall() if cursor and cursor.description else None
        return super().execute(statement) if cursor is None else [{"a": 1} for _ in found or ()]  # type: ignore[misc]


class WithSavepoints(Wrong):
    def execute(self, statement: Statement) -> Rows:
        with self.connection.transaction():
            return super().execute(statement)


class ChangesRowFactory(Wrong):
    def execute(self, statement: Statement) -> Rows:
        self.connection.row_factory = dict_row
        return super().execute(statement)


class ChangesTimeZone(Wrong):
    def execute(self, statement: Statement) -> Rows:
        self.connection.execute("SET LOCAL TimeZone = 'UTC'")
        return super().execute(statement)


class ReadsAsTheHostPrints(Wrong):
    """Reads a time as the session's settings print it."""

    def execute(self, statement: Statement) -> Rows:
        zone = self.connection.info.parameter_status("TimeZone")
        return super().execute(statement if zone == "Etc/UTC" or "row_to_json" not in statement.sql else _NOTHING)


_NOTHING = Statement("SELECT 1 WHERE false", {})


class WrongColour(AsyncExecutor):
    database: Database = "postgresql"

    def __init__(self, good: Executor) -> None:
        self.good = good

    async def execute(self, statement: Statement) -> Rows:
        return self.good.execute(statement)


def adopting(executor: Callable[[Executor], Executor | AsyncExecutor]) -> Callable[[Any], Any]:
    def adopt(handle: Any) -> Any:
        adopted: Any = handles_of_psycopg.adopt(handle)
        if adopted is None:
            raise HandleError("unknown")
        return executor(adopted)

    return adopt


def unchecked(handle: Any) -> Executor:
    """Adopts whatever it is given, in whatever state."""
    return ConnectionExecutor(handle)


_adopted: set[int] = set()


def once(handle: Any) -> Any:
    """Adopts a handle no second time."""
    if id(handle) in _adopted:
        raise HandleError("adopted already")
    _adopted.add(id(handle))
    return handles_of_psycopg.adopt(handle)
