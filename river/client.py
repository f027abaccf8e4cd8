"""The client for blocking applications."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from queue import Empty, SimpleQueue
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
from .runtime.blocking import LoopThread
from .runtime.service import Service, wait_for
from .sql import Dialect

A = TypeVar("A", bound=Args)
T = TypeVar("T")


class Client(BaseClient):
    """Inserts jobs and works them, for applications that block.

    It is safe to use from several threads. Workers run in threads of River's own (``def``), or as tasks of an event
    loop in a thread of River's own (``async def``).

    Args:
        source: A SQLAlchemy `Engine` or `AsyncEngine`, a psycopg pool, a driver, or a URL. What the host made, the
            host closes. None makes a client that can only work in transactions of the host's. An asyncio engine is
            used in the client's own event loop, so it must not be used anywhere else.
        options: See `river.Config`.

    Raises:
        ConfigurationError: An option is unknown or breaks a rule; the message names it and the rule.
    """

    def __init__(self, source: object, **options: Unpack[ConfigOptions]) -> None:
        super().__init__(source, "blocking", options)
        self._loop = LoopThread()
        self._lock = threading.Lock()
        self._service: Service | None = None
        self._completed: Future[None] = Future()

    def insert(self, args: A, opts: InsertOpts | None = None, **options: Unpack[InsertOptions]) -> InsertResult[A]:
        """Insert a job in a transaction of its own; otherwise as `insert_tx`.

        Raises:
            InvalidJobError: The job breaks a rule; nothing was written.
            UnknownJobKindError: The client has workers, but none for this kind; nothing was written.
            DatabaseError: The database failed, and nothing was written; unless the connection was lost, when that is
                unknown.
        """
        batch = [self._prepare(args, merge_options(opts, options), datetime.now(UTC))]
        return result(args, self._insert(batch, insert.insert_many)[0])

    def insert_many(self, batch: Iterable[Args | InsertManyParams]) -> list[InsertResult[Any]]:
        """Insert many jobs in one statement and a transaction of its own; otherwise as `insert_many_tx`."""
        prepared = self._prepare_many(batch)
        return results(prepared, self._insert(prepared, insert.insert_many))

    def insert_many_fast(self, batch: Iterable[Args | InsertManyParams]) -> int:
        """Insert many jobs in a transaction of its own and return only how many; otherwise as `insert_many_fast_tx`."""
        return self._insert(self._prepare_many(batch), insert.insert_many_fast)

    def job_get(self, job_id: int) -> JobRow:
        """One job.

        Raises:
            JobNotFoundError: There is none with this id.
            DatabaseError: The database failed.
        """
        return self._query(lambda sql: jobs.get(sql, job_id))

    def start(self) -> None:
        """Start to work the queues, and return as soon as that is under way; nothing if it is already.

        Attempts see the context variables that this call sees.

        Raises:
            ClientStateError: There is nothing to work: the client has no queues or no workers.
            DatabaseError: The database does not answer, or has no tables of River's.
        """
        with self._lock:
            if self._service is not None and not self._completed.done():
                return
            self._completed = Future()
            self._service = self._loop.call(self._start(contextvars.copy_context(), self._completed))

    def stop(self, *, timeout: float | timedelta | None = None) -> None:
        """Stop fetching, wait until running jobs have ended and their results are saved, and close.

        Args:
            timeout: How long to wait, in seconds or as a timedelta; None waits as long as the jobs run.

        Raises:
            TimeoutError: Time is over. The stop goes on, and may be waited for by calling again.
            ClientStateError: One of the client's own workers called it, and would wait for itself.
        """
        refuse_in_worker_of(self, "stop()")
        # Not under the lock, which would make others wait beyond their own timeout.
        service = self._service
        if service is not None:
            self._loop.call(_stop(service, timeout))
        with self._lock:
            if self._service is service:
                self._service = None
                self._close()

    @property
    def completed(self) -> Future[None]:
        """Done when the client has stopped; with the exception that ended it, if it did not stop on request."""
        return self._completed

    def run(self) -> None:
        """Start, work until SIGINT or SIGTERM, and stop: the whole life of a worker process.

        A second signal while jobs are still running has its usual effect. Call it in the main thread.

        Raises:
            BaseException: What ended the client, if it was not a signal.
        """
        refuse_in_worker_of(self, "run()")
        if threading.current_thread() is not threading.main_thread():
            raise ClientStateError(
                "run() handles signals, so it works in the main thread only: use `with client:` here"
            )
        signals: SimpleQueue[int] = SimpleQueue()
        # Before the start, so that no signal finds claimed jobs and no handler. A handler may only do what is safe in
        # the middle of anything, and putting into a SimpleQueue is.
        before = {number: signal.signal(number, lambda n, _: signals.put(n)) for number in _STOP_SIGNALS}
        try:
            self.start()
            while not self._completed.done() and not _received(signals):
                pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.stop()
        self._completed.result()

    def close(self) -> None:
        """Stop, if it runs, and close what River opened itself; nothing that the host gave."""
        self.stop()

    def __enter__(self) -> Self:
        """Start, if there are queues to work."""
        if self.config.queues:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _insert(self, batch: Sequence[InsertParams], write: Write[T]) -> T:
        driver = self.driver
        if is_asyncio(driver):
            return self._loop.call(self._insert_async(driver, batch, write))
        return self._insert_blocking(driver, batch, write)

    def _query(self, operation: Callable[[Dialect], Operation[T]]) -> T:
        driver = self.driver
        if is_asyncio(driver):
            return self._loop.call(self._query_async(driver, operation))
        return self._query_blocking(driver, operation)

    async def _start(self, context: contextvars.Context, completed: Future[None]) -> Service:
        service = Service(self, context)
        await service.start()
        service.completed.add_done_callback(lambda done: _copy(done, completed))
        return service

    def _close(self) -> None:
        driver = self._driver
        if driver is not None:
            if is_asyncio(driver):
                self._loop.call(driver.close(loop_ends=True))
            else:
                driver.close()
        self._loop.close()


_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def _stop(service: Service, timeout: float | timedelta | None) -> None:
    if service.belongs_here:  # if not, another thread's stop() was quicker
        await wait_for(service.stop(), timeout)


def _received(signals: SimpleQueue[int]) -> bool:
    try:
        signals.get(timeout=0.5)
    except Empty:
        return False
    return True


def _copy(done: asyncio.Future[None], completed: Future[None]) -> None:
    error = done.exception()
    if error is None:
        completed.set_result(None)
    else:
        completed.set_exception(error)
