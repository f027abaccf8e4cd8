"""Drivers that are wrong in one thing each, for the test of the conformance suite; around psycopg's of ours.

Around, AroundAsync    a driver around a good one
AroundListener         a listener around a good one
executing, listening_with    make a driver of a wrong part
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from river.driver import AsyncListener, Driver, Listener, Notification
from river.errors import DatabaseError, ErrorClass
from river.operation import AsyncExecutor, Database, Executor, Rows, Statement
from river_psycopg import AsyncPsycopgDriver, PsycopgDriver
from river_psycopg.asynchronous import AsyncConnectionExecutor
from river_psycopg.blocking import ConnectionExecutor
from tests.support.wrong_executors import Translating, Wrong


class Around:
    """A driver around a good one."""

    database: Database = "postgresql"
    supports_listen = True

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self.pool = pool
        self.good = PsycopgDriver(pool)

    @contextmanager
    def transaction(self) -> Generator[Executor]:
        with self.good.transaction() as executor:
            yield executor

    @contextmanager
    def autocommit(self) -> Generator[Executor]:
        with self.good.autocommit() as executor:
            yield executor

    @contextmanager
    def listen(self, channels: Sequence[str]) -> Generator[Listener]:
        with self.good.listen(channels) as listener:
            yield listener

    def close(self) -> None:
        self.good.close()


def executing(executor: Callable[[Executor], Executor]) -> Callable[[ConnectionPool[Any]], Driver]:
    """A driver whose executors are wrong."""

    class Executing(Around):
        @contextmanager
        def transaction(self) -> Generator[Executor]:
            with super().transaction() as good:
                yield executor(good)

        @contextmanager
        def autocommit(self) -> Generator[Executor]:
            with super().autocommit() as good:
                yield executor(good)

    return Executing


class CommitsLate(Around):
    """Commits a transaction when the next one begins."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        super().__init__(pool)
        self.owed = ExitStack()

    @contextmanager
    def transaction(self) -> Generator[Executor]:
        self.owed.close()
        yield self.owed.enter_context(super().transaction())


class CommitsAlways(Around):
    @contextmanager
    def transaction(self) -> Generator[Executor]:
        failed: BaseException | None = None
        with super().transaction() as executor:
            try:
                yield executor
            except BaseException as error:
                failed = error
        if failed is not None:
            raise failed


class SwallowsExceptions(Around):
    @contextmanager
    def transaction(self) -> Generator[Executor]:
        with suppress(Exception), super().transaction() as executor:
            yield executor


class SwallowsCommitErrors(Around):
    @contextmanager
    def transaction(self) -> Generator[Executor]:
        left = False
        try:
            with super().transaction() as executor:
                yield executor
                left = True
        except DatabaseError:
            if not left:
                raise


class RawCommitErrors(Around):
    @contextmanager
    def transaction(self) -> Generator[Executor]:
        try:
            with super().transaction() as executor:
                yield executor
        except DatabaseError as error:
            raise error.__cause__ or error from None


class OnlyAutocommit(Around):
    @contextmanager
    def transaction(self) -> Generator[Executor]:
        with super().autocommit() as executor:
            yield executor


class OnlyTransactions(Around):
    @contextmanager
    def autocommit(self) -> Generator[Executor]:
        with super().transaction() as executor:
            yield executor


class Keeping(Around):
    """Leaves connections to the end of the test."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        super().__init__(pool)
        self.kept: list[psycopg.Connection[Any]] = []

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        self.kept.append(psycopg.connect(str(self.pool.conninfo), autocommit=autocommit))
        return self.kept[-1]


class LeavesOpen(Keeping):
    """Gives no connection back, and leaves a transaction open on each."""

    @contextmanager
    def transaction(self) -> Generator[Executor]:
        connection = self.connect()
        yield ConnectionExecutor(connection)
        connection.commit()
        connection.execute("SELECT 1")


class LeavesAutocommitOn(Around):
    """Puts the connection into autocommit and does not take it out."""

    @contextmanager
    def transaction(self) -> Generator[Executor]:
        with self.pool.connection() as connection:
            yield ConnectionExecutor(connection)

    @contextmanager
    def autocommit(self) -> Generator[Executor]:
        with self.pool.connection() as connection:
            if not connection.autocommit:
                connection.autocommit = True
            yield ConnectionExecutor(connection)


class LeavesASetting(Around):
    @contextmanager
    def autocommit(self) -> Generator[Executor]:
        with super().autocommit() as executor:
            yield executor
            executor.execute(Statement("SET statement_timeout = '123s'", {}))


class OneConnection(Around):
    """Has one connection for all, and takes savepoints for transactions."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        super().__init__(pool)
        self.depth = 0

    @contextmanager
    def transaction(self) -> Generator[Executor]:
        if self.depth == 0:
            with super().transaction() as self.outer:
                self.depth += 1
                try:
                    yield self.outer
                finally:
                    self.depth -= 1
        else:
            yield self.outer


class ClosesThePool(Around):
    def close(self) -> None:
        self.pool.close()


class KeepsTheDead(Keeping):
    """Makes one connection for all transactions, and takes it for good for ever."""

    @contextmanager
    def transaction(self) -> Generator[Executor]:
        connection = self.kept[0] if self.kept else self.connect()
        try:
            yield Translating(ConnectionExecutor(connection))
        except BaseException:
            with suppress(psycopg.Error):
                connection.rollback()
            raise
        try:
            connection.commit()
        except psycopg.Error as error:
            raise DatabaseError(str(error), error_class=ErrorClass.CONNECTION_LOST) from error


# Wrong listeners.


class AroundListener:
    def __init__(self, good: Listener) -> None:
        self.good = good

    def wait(self, seconds: float) -> list[Notification]:
        return self.good.wait(seconds)

    def check(self) -> None:
        self.good.check()

    def abort(self) -> None:
        self.good.abort()


def listening_with(listener: Callable[[Listener], Listener]) -> Callable[[ConnectionPool[Any]], Driver]:
    """A driver whose listeners are wrong."""

    class ListeningWith(Around):
        @contextmanager
        def listen(self, channels: Sequence[str]) -> Generator[Listener]:
            with super().listen(channels) as good:
                yield listener(good)

    return ListeningWith


def on_heard(change: Callable[[list[Notification]], list[Notification]]) -> type[AroundListener]:
    class OnHeard(AroundListener):
        def wait(self, seconds: float) -> list[Notification]:
            return change(super().wait(seconds))

    return OnHeard


class ForgetsWhatCameBefore(AroundListener):
    def check(self) -> None:
        while self.good.wait(0.05):
            pass


class Raises(AroundListener):
    def wait(self, seconds: float) -> list[Notification]:
        heard = super().wait(seconds)
        if not heard:
            raise TimeoutError
        return heard


class Deaf(AroundListener):
    """Notices neither an abort nor a loss."""

    def wait(self, seconds: float) -> list[Notification]:
        with suppress(DatabaseError):
            return super().wait(seconds)
        return []

    def check(self) -> None:
        pass


class Unquoted(Around):
    """Listens to names as SQL reads them without quotation marks."""

    @contextmanager
    def listen(self, channels: Sequence[str]) -> Generator[Listener]:
        with super().listen([channel.lower() for channel in channels]) as listener:
            yield listener


class FirstChannelOnly(Around):
    @contextmanager
    def listen(self, channels: Sequence[str]) -> Generator[Listener]:
        with super().listen(channels[:1]) as listener:
            yield listener


class NeverEndsListening(Keeping):
    """Leaves the connection open."""

    @contextmanager
    def listen(self, channels: Sequence[str]) -> Generator[Listener]:
        connection = self.connect(autocommit=True)
        for channel in channels:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        with super().listen(channels) as listener:
            yield listener


class WrapsWhatPasses(Around):
    @contextmanager
    def listen(self, channels: Sequence[str]) -> Generator[Listener]:
        try:
            with super().listen(channels) as listener:
                yield listener
        except Exception as error:
            raise DatabaseError(str(error)) from error


class SendsAtOnce(Around):
    """Sends notifications before their transaction commits, and also if it never does."""

    @contextmanager
    def transaction(self) -> Generator[Executor]:
        outer = self

        class Sending(Wrong):
            def execute(self, statement: Statement) -> Rows:
                if "pg_notify" in statement.sql:
                    with outer.good.autocommit() as other:
                        return other.execute(statement)
                return super().execute(statement)

        with super().transaction() as executor:
            yield Sending(executor)


# Wrong drivers with connections of their own.


class NeverCloses(PsycopgDriver):
    def close(self) -> None:
        pass


class ClosesForGood(PsycopgDriver):
    def close(self) -> None:
        self._pool.close()
        self._make_pool = None


class RawConnectErrors(PsycopgDriver):
    @contextmanager
    def transaction(self) -> Generator[Executor]:
        try:
            with super().transaction() as executor:
                yield executor
        except DatabaseError as error:
            raise error.__cause__ or error from None


# Wrong in asyncio.


class AroundAsync:
    database: Database = "postgresql"
    supports_listen = True

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self.pool = pool
        self.good = AsyncPsycopgDriver(pool)
        self.free = asyncio.Semaphore(4)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncExecutor]:
        async with self.good.transaction() as executor:
            yield executor

    @asynccontextmanager
    async def autocommit(self) -> AsyncGenerator[AsyncExecutor]:
        async with self.good.autocommit() as executor:
            yield executor

    @asynccontextmanager
    async def listen(self, channels: Sequence[str]) -> AsyncGenerator[AsyncListener]:
        async with self.good.listen(channels) as listener:
            yield listener

    async def close(self, *, loop_ends: bool = False) -> None:
        await self.good.close(loop_ends=loop_ends)


class CommitsWhenCancelled(AroundAsync):
    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncExecutor]:
        cancelled: asyncio.CancelledError | None = None
        async with super().transaction() as executor:
            try:
                yield executor
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled


class LeavesWhenCancelled(AroundAsync):
    """Leaves a cancelled statement to the server, and its connection as it is."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        super().__init__(pool)
        self.kept: list[psycopg.AsyncConnection[Any]] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncExecutor]:
        self.kept.append(await psycopg.AsyncConnection.connect(str(self.pool.conninfo)))
        yield Shielded(self.kept[-1])
        await self.kept[-1].commit()


class Shielded(AsyncConnectionExecutor):
    async def execute(self, statement: Statement) -> Rows:
        return await asyncio.shield(asyncio.ensure_future(super().execute(statement)))


class LosesSlotsWhenCancelled(AroundAsync):
    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncExecutor]:
        await self.free.acquire()
        async with super().transaction() as executor:
            yield executor
        self.free.release()
