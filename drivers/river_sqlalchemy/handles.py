"""Adopting what the host holds: SQLAlchemy connections and sessions of either colour.

Statements go through SQLAlchemy, never around it, so that the host's events and logging see them. A session is
asked for the connection to which it binds ``river_job``, which neither flushes it nor commits it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from river.errors import HandleClosedError, HandleError
from river.operation import AsyncExecutor, Executor, Rows, Statement

from ._common import check_usable, database_of, refuse_two_phase
from .asynchronous import AsyncConnectionExecutor
from .blocking import ConnectionExecutor
from .schema import river_job

_BIND = {"clause": river_job}


def adopt(handle: Any) -> Executor | AsyncExecutor | None:
    """An executor over a host's connection or session; None for anything else.

    A scoped session is resolved once, here, in the caller's thread or task. A session that has no connection yet
    takes one from its engine, as its first statement would. A closed `Session` cannot be told from a new one.

    Raises:
        HandleClosedError: It is closed.
        TransactionRequiredError: It is in autocommit, or its transaction has failed.
        HandleError: Its transaction is a two-phase one, or it has several engines and none for River's tables.
    """
    match handle:
        case scoped_session() | async_scoped_session():
            return adopt(handle())
        case Session():
            return _adopt_session(handle)
        case Connection():
            check_usable(handle)
            return ConnectionExecutor(handle, database_of(handle.engine))
        case AsyncSession():
            return _AsyncSessionExecutor(handle)
        case AsyncConnection():
            return _adopt_async_connection(handle)
        case _:
            return None


def _adopt_session(session: Session) -> Executor:
    _bind_of(session)
    connection = session.connection(bind_arguments=dict(_BIND))
    check_usable(connection)
    return ConnectionExecutor(connection, database_of(connection.engine))


def _adopt_async_connection(connection: AsyncConnection) -> AsyncExecutor:
    if connection.sync_connection is None:
        raise HandleClosedError("the SQLAlchemy connection is not open: enter it with `async with`, or await it")
    check_usable(connection.sync_connection)
    return AsyncConnectionExecutor(connection, database_of(connection.engine))


class _AsyncSessionExecutor(AsyncExecutor):
    """Runs statements in an asyncio session's transaction; its connection is asked for at the first one."""

    def __init__(self, session: AsyncSession) -> None:
        self.database = database_of(_bind_of(session.sync_session))
        self._session = session
        self._executor: AsyncExecutor | None = None

    async def execute(self, statement: Statement) -> Rows:
        """Run one statement; errors are SQLAlchemy's own."""
        if self._executor is None:
            connection = await self._session.connection(bind_arguments=dict(_BIND))
            self._executor = _adopt_async_connection(connection)
        return await self._executor.execute(statement)


def _bind_of(session: Session) -> Engine:
    """The engine to which a session binds River's tables."""
    if session.twophase:
        refuse_two_phase()
    try:
        bind = session.get_bind(clause=river_job)
    except exc.UnboundExecutionError as error:
        raise HandleError(
            "the session has no engine for River's tables: add one to its binds, as in "
            "Session(binds={..., river_sqlalchemy.river_job: engine})"
        ) from error
    return bind.engine
