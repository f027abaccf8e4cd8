"""Executors that are wrong in one thing each, for the test of the conformance suite; around psycopg's of ours.

Wrong           an executor around a good one
on_values, on_statements, on_errors    make one of what they change
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import psycopg
from psycopg.rows import dict_row

from river.errors import DatabaseError, ErrorClass
from river.operation import Database, Executor, Rows, Statement, Value
from river_psycopg.blocking import ConnectionExecutor


class Wrong(Executor):
    """An executor around a good one."""

    database: Database = "postgresql"

    def __init__(self, good: Executor) -> None:
        self.good = good

    def execute(self, statement: Statement) -> Rows:
        return self.good.execute(statement)

    def abort(self) -> None:
        self.good.abort()

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """What the good one works on."""
        connection: psycopg.Connection[Any] = getattr(self.good, "_connection")  # noqa: B009
        return connection


def on_values(change: Callable[[Value], Any]) -> type[Wrong]:
    """Changes every value of every row."""

    class OnValues(Wrong):
        def execute(self, statement: Statement) -> Rows:
            return [tuple(change(value) for value in row) for row in super().execute(statement)]

    return OnValues


def on_statements(change: Callable[[Statement], Statement]) -> type[Wrong]:
    """Changes every statement."""

    class OnStatements(Wrong):
        def execute(self, statement: Statement) -> Rows:
            return super().execute(change(statement))

    return OnStatements


def with_sql(statement: Statement, text: str) -> Statement:
    return Statement(text, statement.parameters, statement.prepared)


def with_parameters(statement: Statement, parameters: dict[str, Value]) -> Statement:
    return Statement(statement.sql, parameters, statement.prepared)


def set_for_the_session(statement: Statement) -> Statement:
    return with_sql(statement, statement.sql.replace("'1234ms', true", "'1234ms', false"))


class RowsAsDicts(Wrong):
    def execute(self, statement: Statement) -> Rows:
        with psycopg.Cursor(self.connection, row_factory=dict_row) as cursor:
            cursor.execute(re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", statement.sql).encode(), dict(statement.parameters))
            found: Any = cursor.fetchall() if cursor.description else []
            return found  # type: ignore[no-any-return]


class RowsByNameOnly(Wrong):
    """Columns of one name become one."""

    def execute(self, statement: Statement) -> Rows:
        rows = super().execute(statement)
        if "AS a, 2 AS a" in statement.sql:
            return [row[1:] for row in rows]
        return rows


class EachPlaceholderOnce(Wrong):
    """Takes the values in the order in which they were given, one for each place."""

    def execute(self, statement: Statement) -> Rows:
        values = itertools.cycle(statement.parameters.values())
        names = [f"v{number}" for number in range(200)]
        parameters: dict[str, Value] = {}

        def number(match: re.Match[str]) -> str:
            name = names[len(parameters)]
            parameters[name] = next(values)
            return f":{name}"

        text = re.sub(r"(?<![:\w]):(\w+)", number, statement.sql)
        return super().execute(Statement(text, parameters, statement.prepared))


class ByPrefix(Wrong):
    """Puts names in the place of names without looking where they end."""

    def execute(self, statement: Statement) -> Rows:
        text, parameters = statement.sql, dict(statement.parameters)
        for name in parameters:
            text = text.replace(f":{name}", f":{name.lower()}")
        return super().execute(Statement(text, {name.lower(): value for name, value in parameters.items()}))


class NaivePlaceholders(Wrong):
    """Takes every colon with a word behind it for a parameter."""

    def execute(self, statement: Statement) -> Rows:
        with psycopg.Cursor(self.connection) as cursor:
            text = re.sub(r":(\w+)", r"%(\1)s", statement.sql.replace("%", "%%"))
            cursor.execute(text.encode(), {"30": 1, "59": 2} | dict(statement.parameters))
            return cursor.fetchall() if cursor.description else []


class CommentsAsTexts(Wrong):
    """Looks for placeholders outside of quotation marks, and has never heard of comments."""

    def execute(self, statement: Statement) -> Rows:
        pieces = statement.sql.split("'")
        known = "'".join(piece if index % 2 == 0 else piece.replace(":", "\\:") for index, piece in enumerate(pieces))
        if "\\:" in known:
            raise DatabaseError(f"a syntax error in {known}")
        return super().execute(statement)


class SmallIntegersFirst(Wrong):
    """Keeps the types of a statement's first parameters."""

    seen: ClassVar[dict[str, bool]] = {}

    def execute(self, statement: Statement) -> Rows:
        value = next(iter(statement.parameters.values()), None)
        small = not isinstance(value, int) or abs(value) < 2**31
        if self.seen.setdefault(statement.sql, small) and not small:
            raise DatabaseError("integer out of range")
        return super().execute(statement)


class OnlySelectsHaveRows(Wrong):
    def execute(self, statement: Statement) -> Rows:
        rows = super().execute(statement)
        return rows if statement.sql.lstrip().startswith(("SELECT", "--")) else []


class FirstRows(Wrong):
    def execute(self, statement: Statement) -> Rows:
        return super().execute(statement)[:10_000]


class NothingWithoutRows(Wrong):
    def execute(self, statement: Statement) -> Rows:
        nothing: Any = None
        return super().execute(statement) or nothing


class Remembering(Wrong):
    """Answers a question that it has been asked before from memory."""

    def __init__(self, good: Executor) -> None:
        super().__init__(good)
        self.memory: dict[str, Rows] = {}

    def execute(self, statement: Statement) -> Rows:
        if not statement.sql.startswith("SELECT count"):
            return super().execute(statement)
        if statement.sql not in self.memory:
            self.memory[statement.sql] = super().execute(statement)
        return self.memory[statement.sql]


class OfAnotherDatabase(Wrong):
    database: Database = "sqlite"


class SwallowsErrors(Wrong):
    def execute(self, statement: Statement) -> Rows:
        with suppress(DatabaseError):
            return super().execute(statement)
        with suppress(psycopg.Error):
            self.connection.execute("ROLLBACK")
            self.connection.execute("BEGIN")
        return []


class RawErrors(Wrong):
    def execute(self, statement: Statement) -> Rows:
        return ConnectionExecutor(self.connection).execute(statement)


def on_errors(change: Callable[[DatabaseError], DatabaseError | None]) -> type[Wrong]:
    """Changes what is said of an error."""

    class OnErrors(Wrong):
        def execute(self, statement: Statement) -> Rows:
            try:
                return super().execute(statement)
            except DatabaseError as error:
                raise (change(error) or error) from error.__cause__

    return OnErrors


def said(error: DatabaseError, **fields: Any) -> DatabaseError:
    known = {"sqlstate": error.sqlstate, "constraint": error.constraint, "error_class": error.error_class}
    return DatabaseError(str(error), **(known | fields))


def lost_is_other(error: DatabaseError) -> DatabaseError | None:
    return said(error, error_class=ErrorClass.OTHER) if error.error_class is ErrorClass.CONNECTION_LOST else None


def transient_is_other(error: DatabaseError) -> DatabaseError | None:
    return said(error, error_class=ErrorClass.OTHER) if error.error_class is ErrorClass.TRANSIENT else None


def cancelled_is_transient(error: DatabaseError) -> DatabaseError | None:
    return said(error, error_class=ErrorClass.TRANSIENT) if error.error_class is ErrorClass.CANCELLED else None


class WithoutCause(Wrong):
    def execute(self, statement: Statement) -> Rows:
        try:
            return super().execute(statement)
        except DatabaseError as error:
            raise said(error) from None


class Translating(Wrong):
    def execute(self, statement: Statement) -> Rows:
        try:
            return super().execute(statement)
        except psycopg.Error as error:
            raise DatabaseError(str(error), error_class=ErrorClass.CONNECTION_LOST) from error


class NeverAborts(Wrong):
    def abort(self) -> None:
        pass


class AbortsAnother(Wrong):
    """Aborts the first that is open."""

    opened: ClassVar[list[Executor]] = []

    def __init__(self, good: Executor) -> None:
        super().__init__(good)
        self.opened.append(good)

    def abort(self) -> None:
        self.opened[-2 if len(self.opened) > 1 else -1].abort()


class Sharing(Wrong):
    """Keeps rows where others find them."""

    rows: ClassVar[list[Rows]] = [[]]
    all_here = threading.Barrier(4)

    def execute(self, statement: Statement) -> Rows:
        self.rows[0] = super().execute(statement)
        with suppress(threading.BrokenBarrierError):
            self.all_here.wait(0.05)
        return self.rows[0]
