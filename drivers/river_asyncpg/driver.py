"""River on asyncpg connections: over a pool of the host's, or over one that the driver makes.

Transactions are begun and ended in SQL and not by asyncpg's `Transaction`, which leaves a connection whose BEGIN,
COMMIT or ROLLBACK was cancelled to the pool, and the pool complains to the loop's exception handler about it.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Self

import asyncpg

from river.driver import AsyncListener, Notification
from river.errors import DatabaseError
from river.operation import AsyncExecutor, Database, Rows, Statement

from ._library import (
    Connection,
    Pool,
    another_connection,
    end,
    errors_of_connecting,
    errors_on,
    is_lost,
    lost,
    run,
)
from ._pools import HostPool, OwnPools

logger = logging.getLogger(__name__)


class AsyncpgDriver:
    """River on an asyncpg pool.

    Args:
        pool: An open pool. It stays the host's: `close` does not close it. Its connections are made, set up and reset
            with the host's callbacks; its codecs and its record class do not apply to River's statements. A client
            has some four connections in use at once, and one more, outside of the pool, that listens.
    """

    database: Database = "postgresql"
    supports_listen = True

    def __init__(self, pool: asyncpg.Pool | OwnPools) -> None:
        self._source = pool if isinstance(pool, OwnPools) else HostPool(pool)
        self._settling: set[asyncio.Task[None]] = set()

    @classmethod
    def connect(cls, url: str, *, max_size: int = 10) -> Self:
        """A driver that makes its own pool at the first use, one for each event loop that uses it.

        Nothing is connected before. Connections of a loop that has ended are left alone; `close` closes those of the
        loop that runs.

        Args:
            url: `postgresql://user:password@host:5432/database`, as asyncpg reads it.
            max_size: How many connections there may be at once, 1 or more.

        Raises:
            ConfigurationError: *url* is no such URL, or *max_size* is less than 1.
        """
        return cls(OwnPools(url, max_size))

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncExecutor]:
        """One transaction: committed when left, rolled back when left by an exception.

        Raises:
            DatabaseError: There is no connection to be had, a statement failed, or the commit did. So it is, too, if
                a statement had failed and its error was swallowed: PostgreSQL then rolls back instead.
        """
        async with self._checkout() as executor:
            await executor.begin()
            yield executor
            await executor.commit()

    @asynccontextmanager
    async def autocommit(self) -> AsyncGenerator[AsyncExecutor]:
        """A connection on which each statement commits by itself.

        Raises:
            DatabaseError: There is no connection to be had, or a statement failed.
        """
        async with self._checkout() as executor:
            yield executor

    @asynccontextmanager
    async def listen(self, channels: Sequence[str]) -> AsyncGenerator[AsyncListener]:
        """A connection of its own, outside of the pool, that listens to *channels*.

        Raises:
            DatabaseError: There is no connection to be had, or it was lost.
        """
        pool = await self._source.pool()
        with errors_of_connecting():
            connection = await another_connection(pool)
        listener = AsyncpgListener(connection)
        try:
            await listener.begin(channels)
            yield listener
        finally:
            end(connection)

    async def close(self, *, loop_ends: bool = False) -> None:  # noqa: ARG002 - a pool has no loop but its own
        """Close the running loop's connections that the driver has made itself, when those in use have come back."""
        await self._source.close()

    @asynccontextmanager
    async def _checkout(self) -> AsyncGenerator[_OwnExecutor]:
        pool = await self._source.pool()
        with errors_of_connecting():
            connection = await pool.acquire()
        executor = _OwnExecutor(connection)
        try:
            yield executor
        finally:
            # A task of its own, which goes on if this one is cancelled: a connection that is closed in the middle of
            # a statement leaves the statement, and its locks, to the server. Only an abort ends it.
            executor.settling = asyncio.create_task(_settle(pool, executor))
            self._settling.add(executor.settling)
            executor.settling.add_done_callback(self._settling.discard)
            await asyncio.wait([executor.settling])


async def _settle(pool: Pool, executor: _OwnExecutor) -> None:
    """Roll back what is open, and give the connection back; one that cannot be rolled back is closed."""
    try:
        if executor.is_open:
            # asyncpg waits here, and in the release, for the end of a statement that was cancelled.
            await executor.connection.execute("ROLLBACK")
    except Exception:  # noqa: BLE001 - what the rollback is for is the error
        end(executor.connection)
    finally:
        await _release(pool, executor.connection)


async def _release(pool: Pool, connection: Connection) -> None:
    if is_lost(connection):
        end(connection)
        return
    try:
        await pool.release(connection)
    except Exception as error:
        # Whoever worked on it has nothing to do with that: what was committed must not seem to have failed.
        if not isinstance(error, OSError | asyncpg.PostgresError):
            logger.warning("a connection that could not be reset was closed: %s", error, exc_info=error)


class _OnOwnConnection:
    """A connection of River's own, which can be aborted from any thread."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._loop = asyncio.get_running_loop()

    def abort(self) -> None:
        """End the call in progress with an error; the connection is lost. From any thread; does not block."""
        if self._loop is _running_loop():
            self._end()
            return
        with suppress(RuntimeError):  # the loop has ended, and nobody waits there any more
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        end(self.connection)


def _running_loop() -> AbstractEventLoop | None:
    """The event loop of this thread; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _OwnExecutor(_OnOwnConnection, AsyncExecutor):
    """Runs statements on a connection of the driver's own; errors are River's.

    Attributes:
        is_open: Whether a transaction was begun, and nobody knows that it has ended.
        settling: What gives the connection back in the end.
    """

    database: Database = "postgresql"
    is_open = False
    settling: asyncio.Task[None] | None = None

    async def execute(self, statement: Statement) -> Rows:
        with errors_on(self.connection):
            return await run(self.connection, statement)

    def _end(self) -> None:
        super()._end()
        if self.settling is not None:
            # Up to asyncpg 0.31 it would wait for the end of a cancelled statement even on a connection that is closed.
            self.settling.cancel()

    async def begin(self) -> None:
        self.is_open = True
        with errors_on(self.connection):
            await self.connection.execute("BEGIN")

    async def commit(self) -> None:
        with errors_on(self.connection):
            try:
                status: str = await self.connection.execute("COMMIT")
            except asyncpg.PostgresError:
                self.is_open = is_lost(self.connection) or self.connection.is_in_transaction()
                raise
        self.is_open = False
        if status != "COMMIT":
            raise DatabaseError(
                "the transaction was rolled back, because one of its statements had failed: let the error pass",
                sqlstate="25P02",
            )


class AsyncpgListener(_OnOwnConnection):
    """Hears notifications on a connection of its own."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._heard: deque[Notification] = deque()
        self._something = asyncio.Event()  # was heard, or the connection has ended
        connection.add_termination_listener(self._on_end)

    async def begin(self, channels: Sequence[str]) -> None:
        """Say LISTEN for each of *channels*."""
        with errors_on(self.connection):
            for channel in channels:
                await self.connection.add_listener(channel, self._on_notification)

    async def wait(self, seconds: float) -> list[Notification]:
        """What was heard and not returned yet; if nothing was, wait up to *seconds* for it. Empty after that.

        Raises:
            DatabaseError: The connection is lost.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._something.wait()
        except TimeoutError:
            return []
        heard = list(self._heard)
        self._heard.clear()
        if is_lost(self.connection):
            if not heard:
                raise lost()
        else:
            self._something.clear()
        return heard

    async def check(self) -> None:
        """Ask the server for a sign of life, in one round trip.

        Raises:
            DatabaseError: The connection is lost.
        """
        with errors_on(self.connection):
            await self.connection.execute("SELECT 1")

    def _on_notification(self, _connection: Connection, _pid: int, channel: str, payload: str) -> None:
        self._heard.append(Notification(channel, payload))
        self._something.set()

    def _on_end(self, _connection: Connection) -> None:
        self._something.set()
