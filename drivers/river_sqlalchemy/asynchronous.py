"""The asyncio driver: an `AsyncEngine`, or connections that the host holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from river.driver import AsyncListener
from river.operation import AsyncExecutor, Database, Rows, Statement

from ._common import (
    begin_autocommit,
    database_of,
    end_autocommit,
    errors,
    is_autocommit,
    leave_autocommit,
    library_errors,
    shut_down,
    to_text,
)
from ._listen import async_listener, can_listen


class AsyncConnectionExecutor(AsyncExecutor):
    """Runs statements on a SQLAlchemy connection, through SQLAlchemy."""

    def __init__(self, connection: AsyncConnection, database: Database) -> None:
        self.database = database
        self._connection = connection

    async def execute(self, statement: Statement) -> Rows:
        """Run one statement; errors are SQLAlchemy's own."""
        result = await self._connection.execute(to_text(statement.sql), statement.parameters)
        return result.fetchall() if result.returns_rows else []


class AsyncOwnedExecutor(AsyncConnectionExecutor):
    """Runs statements on a connection that River checked out itself."""

    def __init__(self, connection: AsyncConnection, database: Database) -> None:
        super().__init__(connection, database)
        pooled = connection.sync_connection
        self._driver_connection = pooled.connection.driver_connection if pooled else None

    async def execute(self, statement: Statement) -> Rows:
        """Run one statement; errors are River's."""
        with library_errors():
            return await super().execute(statement)

    def abort(self) -> None:
        """Shut the connection's socket down."""
        shut_down(self._driver_connection)


class AsyncSQLAlchemyDriver:
    """River on a SQLAlchemy asyncio engine, in the event loop that uses it.

    Args:
        engine: The host's engine; the host disposes of it.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.database: Database = database_of(engine)
        self.supports_listen = can_listen(engine.dialect)
        self._engine = engine
        self._owns_engine = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def owning(cls, engine: AsyncEngine) -> AsyncSQLAlchemyDriver:
        """A driver whose `close` disposes of the engine."""
        driver = cls(engine)
        driver._owns_engine = True
        return driver

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncExecutor]:
        """One transaction: committed when left, rolled back when left by an exception."""
        async with self._connected(self._engine.connect()) as connection:
            if not await connection.run_sync(is_autocommit):
                async with _begun(connection):
                    yield AsyncOwnedExecutor(connection, self.database)
                return
            try:
                # A cancellation may come out of here with the setting made.
                await connection.run_sync(leave_autocommit)
                async with _begun(connection):
                    yield AsyncOwnedExecutor(connection, self.database)
            finally:
                await connection.run_sync(end_autocommit)

    @asynccontextmanager
    async def autocommit(self) -> AsyncGenerator[AsyncExecutor]:
        """A connection on which each statement commits by itself, in one round trip."""
        async with self._connected(self._engine.connect()) as connection:
            try:
                # A cancellation may come out of here with the setting made.
                await connection.run_sync(begin_autocommit)
                yield AsyncOwnedExecutor(connection, self.database)
            finally:
                await connection.run_sync(end_autocommit)

    @asynccontextmanager
    async def listen(self, channels: Sequence[str]) -> AsyncGenerator[AsyncListener]:
        """A connection of its own that listens to *channels*, opened by the engine and detached from its pool."""
        async with self._connected(self._engine.connect()) as connection:
            pooled = await connection.get_raw_connection()
            driver_connection = pooled.driver_connection
            pooled.detach()
            try:
                async with async_listener(driver_connection, channels) as listener:
                    yield listener
            finally:
                await connection.invalidate()  # it is closed, so there is nothing to reset

    async def close(self, *, loop_ends: bool = False) -> None:
        """Dispose of the engine, if River made it or its connections cannot be used after this loop."""
        await self._leave_another_loop()
        if self._owns_engine or loop_ends:
            await self._engine.dispose()

    @asynccontextmanager
    async def _connected(
        self, manager: AbstractAsyncContextManager[AsyncConnection]
    ) -> AsyncGenerator[AsyncConnection]:
        """A connection, from its checkout to its end; errors are River's."""
        with errors():
            async with AsyncExitStack() as stack:
                with library_errors():
                    await self._leave_another_loop()
                    connection = await stack.enter_async_context(manager)
                # Not around this: an insert's hooks run in here, and may have sockets of their own.
                yield connection

    async def _leave_another_loop(self) -> None:
        """Forget connections of an event loop that has ended, which can neither be used nor closed in this one."""
        loop = asyncio.get_running_loop()
        if self._owns_engine and self._loop is not loop:
            self._loop, before = loop, self._loop
            if before is not None:
                await self._engine.dispose(close=False)


@asynccontextmanager
async def _begun(connection: AsyncConnection) -> AsyncGenerator[None]:
    """A transaction. What a DB-API does not call an error of its own may come out of its end, too."""
    with library_errors():
        transaction = await connection.begin()
    try:
        yield
    except BaseException as error:
        with library_errors():
            await transaction.__aexit__(type(error), error, error.__traceback__)
        raise
    with library_errors():
        await transaction.__aexit__(None, None, None)
