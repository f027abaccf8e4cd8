"""The client for asyncio applications."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from typing_extensions import Unpack

from .args import Args
from .base_client import BaseClient
from .base_client.inserts import Write, result, results
from .config import ConfigOptions
from .context import refuse_in_worker_of
from .driver import is_asyncio
from .errors import ClientStateError
from .insert import InsertManyParams, InsertOptions, InsertOpts, InsertParams, merge_options
from .job import InsertResult, JobRow
from .operation import Operation
from .operations import insert, jobs
from .runtime.service import Service, wait_for
from .runtime.threads import Threads
from .sql import Dialect

CALL_THREADS = 8
"""So many calls of the host's may use a blocking driver at once; more wait their turn."""

A = TypeVar("A", bound=Args)
T = TypeVar("T")


class AsyncClient(BaseClient):
    """Inserts jobs and works them, for applications on asyncio.

    It belongs to the event loop in which it is used. Workers run as tasks of that loop (``async def``), or in
    threads of River's own (``def``).

    Args:
        source: A SQLAlchemy `AsyncEngine` or `Engine`, a psycopg pool, a driver, or a URL. What the host made, the
            host closes. None makes a client that can only work in transactions of the host's.
        options: See `river.Config`.

    Raises:
        ConfigurationError: An option is unknown or breaks a rule; the message names it and the rule.
    """

    def __init__(self, source: object, **options: Unpack[ConfigOptions]) -> None:
        super().__init__(source, "asyncio", options)
        self._service: Service | None = None
        self._threads: Threads | None = None

    async def insert(
        self, args: A, opts: InsertOpts | None = None, **options: Unpack[InsertOptions]
    ) -> InsertResult[A]:
        """Insert a job in a transaction of its own; otherwise as `insert_tx`.

        A cancelled call may have inserted the job all the same.

        Raises:
            InvalidJobError: The job breaks a rule; nothing was written.
            UnknownJobKindError: The client has workers, but none for this kind; nothing was written.
            DatabaseError: The database failed, and nothing was written; unless the connection was lost, when that is
                unknown.
        """
        batch = [self._prepare(args, merge_options(opts, options), datetime.now(UTC))]
        return result(args, (await self._insert(batch, insert.insert_many))[0])

    async def insert_many(self, batch: Iterable[Args | InsertManyParams]) -> list[InsertResult[Any]]:
        """Insert many jobs in one statement and a transaction of its own; otherwise as `insert_many_tx`."""
        prepared = self._prepare_many(batch)
        return results(prepared, await self._insert(prepared, insert.insert_many))

    async def insert_many_fast(self, batch: Iterable[Args | InsertManyParams]) -> int:
        """Insert many jobs in a transaction of its own and return only how many; otherwise as `insert_many_fast_tx`."""
        return await self._insert(self._prepare_many(batch), insert.insert_many_fast)

    async def job_get(self, job_id: int) -> JobRow:
        """One job.

        Raises:
            JobNotFoundError: There is none with this id.
            DatabaseError: The database failed.
        """
        return await self._query(lambda sql: jobs.get(sql, job_id))

    async def start(self) -> None:
        """Start to work the queues, and return as soon as that is under way; nothing if it is already.

        Attempts see the context variables that this call sees.

        Raises:
            ClientStateError: There is nothing to work: the client has no queues or no workers.
            DatabaseError: The database does not answer, or has no tables of River's.
        """
        service = self._service
        if service is not None and service.belongs_here and not service.completed.done():
            return
        service = Service(self, contextvars.copy_context())
        self._service = service
        try:
            await service.start()
        except BaseException:
            self._service = None
            raise

    async def stop(self, *, timeout: float | timedelta | None = None) -> None:
        """Stop fetching, wait until running jobs have ended and their results are saved, and close.

        A cancelled call has begun the stop, which goes on.

        Args:
            timeout: How long to wait, in seconds or as a timedelta; None waits as long as the jobs run.

        Raises:
            TimeoutError: Time is over. The stop goes on, and may be waited for by calling again.
            ClientStateError: One of the client's own workers called it, and would wait for itself.
        """
        refuse_in_worker_of(self, "stop()")
        service = self._service
        if service is not None and service.belongs_here:
            await wait_for(service.stop(), timeout)
            self._service = None
        await self._close()

    @property
    def completed(self) -> asyncio.Future[None]:
        """Done when the client has stopped; with the exception that ended it, if it did not stop on request.

        Raises:
            ClientStateError: It has not been started.
        """
        if self._service is None:
            raise ClientStateError("the client is not running: start it first")
        return asyncio.shield(self._service.completed)

    async def run(self) -> None:
        """Start, work until SIGINT or SIGTERM, and stop: the whole life of a worker process.

        A second signal while jobs are still running has its usual effect. Call it in the main thread.

        Raises:
            BaseException: What ended the client, if it was not a signal.
        """
        refuse_in_worker_of(self, "run()")
        if threading.current_thread() is not threading.main_thread():
            raise ClientStateError(
                "run() handles signals, so it works in the main thread only: use `async with client:` here"
            )
        loop = asyncio.get_running_loop()
        signalled = asyncio.Event()
        # Before the start, so that no signal finds claimed jobs and no handler.
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, signalled.set)
        try:
            await self.start()
            completed = self.completed
            completed.add_done_callback(lambda _: signalled.set())
            await signalled.wait()
        finally:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)
            await self.stop()
        await completed

    async def close(self) -> None:
        """Stop, if it runs, and close what River opened itself; nothing that the host gave."""
        await self.stop()

    async def __aenter__(self) -> Self:
        """Start, if there are queues to work."""
        if self.config.queues:
            await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _insert(self, batch: Sequence[InsertParams], write: Write[T]) -> T:
        driver = self.driver
        if is_asyncio(driver):
            return await self._insert_async(driver, batch, write)
        return await self._in_thread(lambda: self._insert_blocking(driver, batch, write))

    async def _query(self, operation: Callable[[Dialect], Operation[T]]) -> T:
        driver = self.driver
        if is_asyncio(driver):
            return await self._query_async(driver, operation)
        return await self._in_thread(lambda: self._query_blocking(driver, operation))

    async def _close(self) -> None:
        driver = self._driver
        if driver is not None:
            if is_asyncio(driver):
                await driver.close()
            else:
                await self._in_thread(driver.close)
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Make a blocking driver's call in a thread of River's own.

        Not in one of the loop's default executor: the host may have all of those wait for this very call.
        """
        if self._threads is None or self._threads.loop is not asyncio.get_running_loop():
            if self._threads is not None:
                self._threads.close()
            self._threads = Threads("river-client", CALL_THREADS)
        context = contextvars.copy_context()
        return await self._threads.future(lambda: context.run(call))


_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
