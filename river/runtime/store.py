"""The runtime's one way to the database: operations with a deadline, over a driver of either colour.

A call ends by its deadline whatever the network does: the connection's socket is shut down, which makes the
library give up, and a library that does not is left behind. What a call that timed out has done is unknown; it may
have committed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any, Protocol, TypeVar

from ..driver import AnyDriver, AsyncDriver, AsyncListener, Driver, Listener, Notification, is_asyncio
from ..errors import DatabaseError, ErrorClass
from ..operation import AsyncExecutor, Database, Executor, Operation, Query, run, run_async
from .threads import Threads

T = TypeVar("T")

GRACE_SECONDS = 1.0
"""How long a library may take to notice that its socket is shut."""

DATABASE_THREADS = 4
"""Claims, completions and maintenance at the same time, and one to spare."""


class Store(Protocol):
    """Runs operations on connections of River's own."""

    @property
    def database(self) -> Database: ...

    @property
    def supports_listen(self) -> bool: ...

    async def query(self, operation: Operation[T] | Query[T], *, seconds: float) -> T:
        """Run an operation whose statements may commit one by one.

        Raises:
            DatabaseError: It failed, or took longer than so many seconds.
        """
        ...

    def listen(self, channels: Sequence[str]) -> AbstractAsyncContextManager[AsyncListener]:
        """A listening connection."""
        ...

    async def close(self) -> None:
        """Let go of what the store itself holds; the driver stays as it is."""
        ...


def store_for(driver: AnyDriver) -> Store:
    """A store over a driver of either colour; call it in the event loop that will use it."""
    return AsyncStore(driver) if is_asyncio(driver) else ThreadedStore(driver)


class AsyncStore:
    """Operations over an asyncio driver, each in a task of its own so that it can be left behind."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def database(self) -> Database:
        """The driver's database."""
        return self._driver.database

    @property
    def supports_listen(self) -> bool:
        """Whether `listen` works."""
        return self._driver.supports_listen

    async def query(self, operation: Operation[T] | Query[T], *, seconds: float) -> T:
        """Run an operation whose statements may commit one by one."""
        call = _Call()
        return await bounded(self._spawn(self._run(operation, call)), seconds, call.abandon)

    @asynccontextmanager
    async def listen(self, channels: Sequence[str]) -> AsyncGenerator[AsyncListener]:
        """A listening connection."""
        async with self._driver.listen(channels) as listener:
            yield listener

    async def close(self) -> None:
        """Give up the calls that were left behind; the host may close its pool next."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE_SECONDS)

    async def _run(self, operation: Operation[T] | Query[T], call: _Call) -> T:
        async with self._driver.autocommit() as executor:
            with call.on(executor):
                return await run_async(executor, operation)

    def _spawn(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(call, name="river-database-call")
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also where nobody waits for it any more


class ThreadedStore:
    """Operations over a blocking driver, each as a whole in one thread."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._threads = Threads("river-database", DATABASE_THREADS)
        self._calls: set[asyncio.Future[Any]] = set()

    @property
    def database(self) -> Database:
        """The driver's database."""
        return self._driver.database

    @property
    def supports_listen(self) -> bool:
        """Whether `listen` works."""
        return self._driver.supports_listen

    async def query(self, operation: Operation[T] | Query[T], *, seconds: float) -> T:
        """Run an operation whose statements may commit one by one."""
        call = _Call()
        future = self._threads.future(lambda: self._run(operation, call))
        self._calls.add(future)
        future.add_done_callback(self._forget)
        try:
            # Shielded, so that it is done when its thread is, whoever waits for it.
            return await bounded(asyncio.shield(future), seconds, call.abandon)
        finally:
            if not future.done():
                self._threads.spare()

    @asynccontextmanager
    async def listen(self, channels: Sequence[str]) -> AsyncGenerator[AsyncListener]:
        """A listening connection, with a thread of its own."""
        threads = Threads("river-listener", 1)
        manager = self._driver.listen(channels)
        try:
            entry = _Entry(manager)
            try:
                listener = await threads.future(entry.enter)
            except asyncio.CancelledError:
                if entry.abandon():
                    await asyncio.wait([threads.future(lambda: _leave(manager))], timeout=GRACE_SECONDS)
                raise
            try:
                yield _ThreadedListener(listener, threads)
            finally:
                listener.abort()
                await asyncio.wait([threads.future(lambda: _leave(manager))], timeout=GRACE_SECONDS)
        finally:
            threads.close()

    async def close(self) -> None:
        """Let the threads end, and wait a moment for calls in them; the host may close its pool next."""
        self._threads.close()
        if self._calls:
            await asyncio.wait(self._calls, timeout=GRACE_SECONDS)

    def _forget(self, future: asyncio.Future[Any]) -> None:
        self._calls.discard(future)
        future.exception()  # seen, also where nobody waits for it any more

    def _run(self, operation: Operation[T] | Query[T], call: _Call) -> T:
        with self._driver.autocommit() as executor:
            with call.on(executor):
                return run(executor, operation)


class _Entry:
    """Enters a listener's context in a thread, and leaves it there if nobody waits for it any more.

    A connection that is made after the client has stopped would otherwise stay open.
    """

    def __init__(self, manager: AbstractContextManager[Listener]) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._entered = False
        self._abandoned = False

    def enter(self) -> Listener:
        """Enter, in the thread."""
        listener = self._manager.__enter__()
        with self._lock:
            self._entered, abandoned = True, self._abandoned
        if abandoned:
            _leave(self._manager)
        return listener

    def abandon(self) -> bool:
        """Wait for it no more, in the loop; whether it has been entered, so that it is the caller's to leave."""
        with self._lock:
            self._abandoned = True
            return self._entered


class _ThreadedListener:
    def __init__(self, listener: Listener, threads: Threads) -> None:
        self._listener = listener
        self._threads = threads

    async def wait(self, seconds: float) -> list[Notification]:
        return await self._threads.future(lambda: self._listener.wait(seconds))

    async def check(self) -> None:
        await self._threads.future(self._listener.check)

    def abort(self) -> None:
        self._listener.abort()


def _leave(manager: AbstractContextManager[Listener]) -> None:
    with suppress(DatabaseError):  # its socket was shut down on purpose
        manager.__exit__(None, None, None)


class _Call:
    """Whether somebody still waits for a call, and the connection that it runs on.

    A call that waits for a thread or for a connection until it is given up must not run afterwards: jobs that it
    claimed would have nobody to work them. And one that has given its connection back must not be aborted: the
    connection is the host's again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._abandoned = False
        self._executor: Executor | AsyncExecutor | None = None

    @contextmanager
    def on(self, executor: Executor | AsyncExecutor) -> Generator[None]:
        """The call runs on this connection for as long as the block does.

        Raises:
            DatabaseError: Nobody waits for it any more.
        """
        with self._lock:
            if self._abandoned:
                raise DatabaseError("nobody waits for this call any more", error_class=ErrorClass.CANCELLED)
            self._executor = executor
        try:
            yield
        finally:
            with self._lock:
                self._executor = None

    def abandon(self) -> None:
        """Make the call end soon, or not begin."""
        with self._lock:
            self._abandoned = True
            if self._executor is not None:
                self._executor.abort()


async def bounded(future: asyncio.Future[T], seconds: float, abandon: Callable[[], None]) -> T:
    """The result of a call on a connection, within a time that is kept whatever the network does.

    Args:
        future: The call.
        seconds: Its time. When the caller is cancelled, the call has `GRACE_SECONDS` more to end by itself, because a
            connection on which it is cut short is lost to its pool.
        abandon: Makes the call end soon; the connection is lost.

    Raises:
        DatabaseError: Time is over, or what the call raised.
    """
    try:
        loop = asyncio.get_running_loop()
        due_at = loop.time() + seconds
        await asyncio.wait([future], timeout=seconds)
        if not future.done() and loop.time() > due_at + GRACE_SECONDS:
            # This process was stopped, or its loop blocked: the answer may be here, unread.
            await asyncio.wait([future], timeout=GRACE_SECONDS)
        if not future.done():
            abandon()
            await asyncio.wait([future], timeout=GRACE_SECONDS)
            # An answer that came in at the last moment counts; an error now is only the end of the connection.
            if not future.done() or future.cancelled() or future.exception() is not None:
                future.cancel()
                raise DatabaseError(
                    f"the database did not answer within {seconds:g} s; whether it did what was asked is unknown",
                    error_class=ErrorClass.CONNECTION_LOST,
                )
    except asyncio.CancelledError:
        try:
            if not future.done():
                await asyncio.wait([future], timeout=GRACE_SECONDS)
        finally:
            if not future.done():
                abandon()
                future.cancel()
        raise
    return future.result()


async def close_driver(driver: AnyDriver) -> None:
    """Close a driver of either colour that River made itself, without blocking the event loop."""
    if is_asyncio(driver):
        await driver.close()
        return
    threads = Threads("river-closing", 1)
    try:
        await threads.future(driver.close)
    finally:
        threads.close()
