"""The asyncio driver: an `AsyncConnectionPool`, or connections that the host holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from river.driver import AsyncListener, Notification
from river.operation import AsyncExecutor, Database, Rows, Statement

from ._common import (
    check_encoding,
    check_url,
    connecting,
    connection_settings,
    database_error,
    errors,
    listen_statement,
    shut_down,
    to_psycopg,
)

CANCEL_AGAIN_SECONDS = 0.1


class AsyncConnectionExecutor(AsyncExecutor):
    """Runs statements on a connection through a cursor of its own.

    The cursor is made here and not by ``connection.cursor()``, so that the host's row factory, cursor class and
    binary setting do not decide what River reads.
    """

    database: Database = "postgresql"

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def execute(self, statement: Statement) -> Rows:
        """Run one statement; errors are psycopg's own."""
        async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(
                to_psycopg(statement.sql), dict(statement.parameters), prepare=None if statement.prepared else False
            )
            return await cursor.fetchall() if cursor.description else []


class AsyncOwnedExecutor(AsyncConnectionExecutor):
    """Runs statements on a connection that River checked out itself."""

    async def execute(self, statement: Statement) -> Rows:
        """Run one statement; errors are River's."""
        try:
            return await super().execute(statement)
        except psycopg.Error as error:
            raise database_error(error) from error

    def abort(self) -> None:
        """Shut the connection's socket down."""
        shut_down(self._connection)


class _PooledConnection(psycopg.AsyncConnection[Any]):
    """A connection of a pool of River's own.

    A worker of the pool that is cancelled while it connects takes that for a failure of the server, and waits for its
    next task: an event loop that ends with all its tasks would wait for it for ever. So it is cancelled once more.
    """

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        try:
            return await super().connect(conninfo, **options)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                asyncio.get_running_loop().call_later(CANCEL_AGAIN_SECONDS, task.cancel)
            raise


class AsyncPsycopgDriver:
    """River on a psycopg connection pool, in the event loop that the pool belongs to.

    Args:
        pool: The host's pool; the host opens and closes it.
    """

    database: Database = "postgresql"
    supports_listen = True

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool
        self._make_pool: Callable[[], AsyncConnectionPool[Any]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def connect(cls, url: str, *, max_size: int = 10) -> Self:
        """A driver with a pool of its own, opened when first used and closed by `close`.

        Args:
            url: A libpq URL or connection string.
            max_size: How many connections it may hold.

        Raises:
            ConfigurationError: The URL cannot be read.
        """
        check_url(url)

        def make() -> AsyncConnectionPool[Any]:
            return AsyncConnectionPool(
                url, connection_class=_PooledConnection, min_size=0, max_size=max_size, open=False, name="river"
            )

        driver = cls(make())
        driver._make_pool = make
        return driver

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncExecutor]:
        """One transaction: committed when left, rolled back when left by an exception."""
        with errors():
            async with self._checkout() as connection, connection.transaction():
                yield AsyncOwnedExecutor(connection)

    @asynccontextmanager
    async def autocommit(self) -> AsyncGenerator[AsyncExecutor]:
        """A connection on which each statement commits by itself, in one round trip."""
        with errors():
            async with self._checkout() as connection:
                before = connection.autocommit
                try:
                    # A cancellation may come out of here with the setting made.
                    await connection.set_autocommit(True)
                    yield AsyncOwnedExecutor(connection)
                finally:
                    await _restore(connection, before)

    @asynccontextmanager
    async def listen(self, channels: Sequence[str]) -> AsyncGenerator[AsyncListener]:
        """A connection of its own that listens to *channels*, opened like those of the pool."""
        with connecting():
            conninfo, kwargs = connection_settings(self._pool)
            connection = await psycopg.AsyncConnection.connect(conninfo, **kwargs)
        with errors():
            async with connection:
                for channel in channels:
                    await connection.execute(listen_statement(channel))
                yield _AsyncPsycopgListener(connection)

    async def close(self, *, loop_ends: bool = False) -> None:  # noqa: ARG002 - a host's pool has its own loop
        """Close the pool, if it was made by `connect`; the next use opens another."""
        if self._make_pool is not None:
            self._leave_another_loop(self._make_pool)
            closing, self._pool = self._pool, self._make_pool()
            try:
                await closing.close()
            except asyncio.CancelledError:
                # Of the pool's own tasks, if somebody has cancelled all tasks of the loop; or of this call.
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise

    @asynccontextmanager
    async def _checkout(self) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
        async with AsyncExitStack() as stack:
            with connecting():
                if self._make_pool is not None:
                    self._leave_another_loop(self._make_pool)
                    if self._pool.closed:
                        # A pool says only that it has no connection; this one says why not.
                        conninfo, _ = connection_settings(self._pool)
                        probe = await psycopg.AsyncConnection.connect(conninfo)
                        await probe.close()
                        await self._pool.open()
                connection = await stack.enter_async_context(self._pool.connection())
            check_encoding(connection)
            yield connection

    def _leave_another_loop(self, make_pool: Callable[[], AsyncConnectionPool[Any]]) -> None:
        """Begin a pool in this event loop; one whose loop has ended can neither grow nor be closed."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, before = loop, self._loop
            if before is not None:
                self._pool = make_pool()


async def _restore(connection: psycopg.AsyncConnection[Any], autocommit: bool) -> None:
    """Give a connection back as it was, or closed, which the pool replaces."""
    if connection.closed:
        return
    try:
        await connection.set_autocommit(autocommit)
    except psycopg.Error:
        connection.pgconn.finish()
    except BaseException:
        connection.pgconn.finish()
        raise


class _AsyncPsycopgListener:
    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def wait(self, seconds: float) -> list[Notification]:
        with errors():
            return [
                Notification(notify.channel, notify.payload)
                async for notify in self._connection.notifies(timeout=seconds, stop_after=1)
            ]

    async def check(self) -> None:
        with errors():
            await self._connection.execute("SELECT 1", prepare=False)

    def abort(self) -> None:
        shut_down(self._connection)
