"""What the driver and the adopter have in common: how one statement runs on an asyncpg connection, and what went wrong.

asyncpg has no types of its own, so its connections are `Any` here. All that is not in asyncpg's documentation is used
in this module, and in no other: the connection's `_execute`, `_get_statement` and `_stmt_exclusive_section`, the only
way around the codecs that a host has set on its connection; the pool's `_get_new_connection` and `_setup`, the only
way to a connection that is made as the pool makes its own; and the pool's `_loop`.
"""

from __future__ import annotations

import functools
import re
from asyncio import AbstractEventLoop
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement

from river.errors import DatabaseError, ErrorClass
from river.operation import Rows, Statement

Connection: TypeAlias = Any
"""An `asyncpg.Connection`, or the proxy of one that a pool gives out."""
Pool: TypeAlias = Any
"""An `asyncpg.Pool`."""

PLACEHOLDER = re.compile(r"(?<![:\w]):(\w+)")


@functools.lru_cache(maxsize=1024)
def translated(sql: str) -> tuple[str, tuple[str, ...]]:
    """A statement with numbered placeholders, and the names that their values have, in the order of the numbers."""
    numbers: dict[str, int] = {}
    text = PLACEHOLDER.sub(lambda match: f"${numbers.setdefault(match[1], len(numbers) + 1)}", sql)
    return text, tuple(numbers)


async def run(connection: Connection, statement: Statement) -> Rows:
    """Run one statement and return its rows; whatever goes wrong is asyncpg's own error.

    Codecs and the record class of the connection are the host's, and do not apply.
    """
    sql, names = translated(statement.sql)
    values = [statement.parameters[name] for name in names]
    records = await (_kept if statement.prepared else _not_kept)(connection, sql, values)
    return [tuple(record) for record in records]


async def _kept(connection: Connection, sql: str, values: list[Any]) -> list[Any]:
    records: list[Any] = await connection._execute(
        sql, values, 0, None, ignore_custom_codec=True, record_class=asyncpg.Record
    )
    return records


async def _not_kept(connection: Connection, sql: str, values: list[Any]) -> list[Any]:
    # An unnamed statement ends when the next one begins, so nobody may come in between.
    with connection._stmt_exclusive_section:
        unnamed = await connection._get_statement(
            sql, None, named="", use_cache=False, ignore_custom_codec=True, record_class=asyncpg.Record
        )
        return await PreparedStatement(connection, sql, unnamed).fetch(*values)


async def another_connection(pool: Pool) -> Connection:
    """A connection as *pool* makes its own, with the host's callbacks, that does not count as one of its own."""
    connection = await pool._get_new_connection()
    try:
        if pool._setup is not None:
            await pool._setup(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


def loop_of(pool: Pool) -> AbstractEventLoop:
    """The event loop in which alone *pool* works."""
    loop: AbstractEventLoop = pool._loop
    return loop


def is_lost(connection: Connection) -> bool:
    """Whether nothing can be asked on this connection any more: it is closed, or its pool has it back."""
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # of the proxy, when the connection has gone back
        return True


def end(connection: Connection) -> None:
    """Close *connection* without a word to the server; whoever waits on it gets an error. Does not block.

    One that is closed already is taken from its pool's books, too: up to asyncpg 0.31, its pool waits for it otherwise.
    """
    with suppress(asyncpg.InterfaceError):  # of the proxy, when the connection has gone back
        connection.terminate()


def lost() -> DatabaseError:
    """The error of every call on a connection that was lost before."""
    return DatabaseError("the connection is closed", error_class=ErrorClass.CONNECTION_LOST)


@contextmanager
def errors_on(connection: Connection) -> Generator[None]:
    """Turn every error into River's, around calls in which nothing but asyncpg runs, on a connection of River's."""
    if is_lost(connection):
        raise lost()
    try:
        yield
    except Exception as error:
        raise database_error(error, _class_on(connection, error)) from error


@contextmanager
def errors_of_connecting() -> Generator[None]:
    """Turn every error into River's, around a checkout or a connect, callbacks of the host's included."""
    try:
        yield
    except DatabaseError:
        raise
    except Exception as error:
        made = database_error(error, ErrorClass.CONNECTION_LOST)
        if made.error_class is ErrorClass.OTHER:
            # A login that is refused by a code: like any other reason why there is no connection, it may pass.
            made.error_class = ErrorClass.CONNECTION_LOST
        raise made from error


def database_error(error: Exception, otherwise: ErrorClass) -> DatabaseError:
    """River's error for one of asyncpg's; it is of the class *otherwise* if it has no SQLSTATE."""
    sqlstate: str | None = getattr(error, "sqlstate", None) if isinstance(error, asyncpg.PostgresError) else None
    return DatabaseError(
        str(error) or type(error).__name__,
        sqlstate=sqlstate,
        constraint=getattr(error, "constraint_name", None),
        error_class=ErrorClass.of(sqlstate) if sqlstate is not None else otherwise,
    )


def _class_on(connection: Connection, error: Exception) -> ErrorClass:
    if is_lost(connection):
        return ErrorClass.CONNECTION_LOST
    if isinstance(error, TimeoutError):
        # The host's command_timeout: asyncpg has cancelled the statement, and the connection goes on. As an OSError,
        # which it is too, it would pass for the end of the connection.
        return ErrorClass.CANCELLED
    return ErrorClass.CONNECTION_LOST if isinstance(error, OSError) else ErrorClass.OTHER
