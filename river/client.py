"""The client for blocking applications."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from typing_extensions import Unpack

from .args import Args
from .base_client import BaseClient
from .base_client.inserts import Write, result, results
from .base_client.manage import patch_of, queue_metadata
from .config import ConfigOptions
from .context import refuse_in_worker_of
from .driver import is_asyncio
from .errors import ClientStateError
from .insert import InsertManyParams, InsertOptions, InsertOpts, InsertParams, merge_options
from .job import InsertResult, JobRow
from .listing import JobDeleteOptions, JobDeletion, JobListing, JobListOptions, JobListPage, values
from .operation import Operation
from .operations import insert, jobs, queues
from .queue import Queue
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
            InvalidOptionError: *job_id* is no whole number of at most 64 bits; nothing was sent to the database.
            JobNotFoundError: There is none with this id.
            DatabaseError: The database failed.
        """
        checked = values.job_id(job_id)
        return self._query(lambda sql: jobs.get(sql, checked))

    def job_list(self, **options: Unpack[JobListOptions]) -> JobListPage:
        """A page of a list of jobs, and the way to the pages that follow.

        Args:
            options: Which jobs, in which order, how many to a page, and where to go on; see `JobListOptions`.

        Raises:
            InvalidOptionError: An option is unknown or breaks a rule; nothing was sent to the database.
            InvalidCursorError: *after* is no cursor, or one of another order.
            DatabaseError: The database failed, or does not understand *where*.
        """
        return self._page(JobListing.of(options))

    def job_cancel(self, job_id: int) -> JobRow:
        """Cancel a job that waits, or ask for the end of one that runs; one that has ended stays as it is.

        A running job stays ``running`` until its worker has ended, which its client is told of at once. If the worker
        fails or snoozes then, the job is cancelled and not tried again; if it succeeds, the job is completed.

        Returns:
            The job as it is then. Of a running job, ``metadata`` has the time of the request.

        Raises:
            InvalidOptionError: *job_id* is no whole number of at most 64 bits; nothing was sent to the database.
            JobNotFoundError: There is none with this id.
            DatabaseError: The database failed.
        """
        checked, now = values.job_id(job_id), datetime.now(UTC)
        return self._query(lambda sql: jobs.cancel(sql, checked, now))

    def job_retry(self, job_id: int) -> JobRow:
        """Make a job available now; one that runs, or is available and due, stays as it is.

        One that has used up its attempts gets one more. Its errors and its attempts so far stay; a request to cancel it
        is forgotten. Nobody is notified: workers find it at their next poll.

        Returns:
            The job as it is then.

        Raises:
            InvalidOptionError: *job_id* is no whole number of at most 64 bits; nothing was sent to the database.
            JobNotFoundError: There is none with this id.
            UniqueConflictError: Another job has its unique key by now; nothing was written.
            DatabaseError: The database failed.
        """
        checked = values.job_id(job_id)
        return self._query(lambda sql: jobs.retry(sql, checked))

    def job_delete(self, job_id: int) -> JobRow:
        """Delete a job that does not run.

        Returns:
            The job as it was.

        Raises:
            InvalidOptionError: *job_id* is no whole number of at most 64 bits; nothing was sent to the database.
            JobNotFoundError: There is none with this id.
            JobRunningError: It runs; nothing was written.
            DatabaseError: The database failed.
        """
        checked = values.job_id(job_id)
        return self._query(lambda sql: jobs.delete(sql, checked))

    def job_delete_many(self, **options: Unpack[JobDeleteOptions]) -> list[JobRow]:
        """Delete jobs that do not run, those with the lowest ids first.

        Jobs that run, and jobs that another transaction has locked, are left out.

        Args:
            options: Which jobs, and how many; see `JobDeleteOptions`. At least one filter, or ``all_jobs=True``.

        Returns:
            The jobs as they were, by id.

        Raises:
            InvalidOptionError: An option is unknown or breaks a rule, or there is no filter; nothing was deleted.
            DatabaseError: The database failed.
        """
        deletion = JobDeletion.of(options)
        return self._query(lambda sql: jobs.delete_many(sql, deletion))

    def job_update(
        self, job_id: int, *, output: object = msgspec.UNSET, metadata: Mapping[str, Any] | None = None
    ) -> JobRow:
        """Give a job an output, or other metadata, whatever its state.

        Nothing else of it changes; without either, nothing does. Metadata that are no object, as another program may
        write, become one, which keeps them as "river:odd_metadata".

        Args:
            job_id: Which job.
            output: Any JSON value, dataclass, attrs class, Struct or pydantic model; None is JSON's null. At most
                32 MiB as JSON. It replaces the output that was there.
            metadata: Keys to set and their JSON values; other keys stay. Keys that begin with "river:", and the few
                others that are River's own, are refused.

        Returns:
            The job as it is then.

        Raises:
            InvalidOptionError: *job_id* is no whole number of at most 64 bits, a value is no JSON or too large, or a
                key is River's own; nothing was sent to the database.
            JobNotFoundError: There is none with this id.
            DatabaseError: The database failed.
        """
        checked, patch = values.job_id(job_id), patch_of(output, metadata)
        return self._query(lambda sql: jobs.update(sql, checked, patch))

    def queue_get(self, name: str) -> Queue:
        """One queue.

        Raises:
            QueueNotFoundError: There is none of this name.
            DatabaseError: The database failed.
        """
        values.text("name", name)
        return self._query(lambda sql: queues.get(sql, name))

    def queue_list(self, *, first: int = values.FIRST_DEFAULT) -> list[Queue]:
        """The first queues by name.

        Args:
            first: At most so many; 1 to 10,000.

        Raises:
            InvalidOptionError: *first* is none of these.
            DatabaseError: The database failed.
        """
        values.first(first)
        return self._query(lambda sql: queues.list_first(sql, first))

    def queue_pause(self, name: str) -> None:
        """Have no client claim jobs of a queue until it is resumed; jobs that run go on.

        Clients are told at once. Pausing a queue that is paused changes nothing.

        Args:
            name: Which queue; "*" for all.

        Raises:
            QueueNotFoundError: There is none of this name; never for "*".
            DatabaseError: The database failed.
        """
        values.text("name", name)
        self._query(lambda sql: queues.pause(sql, name))

    def queue_resume(self, name: str) -> None:
        """Have clients claim jobs of a paused queue again.

        Clients are told at once. Resuming a queue that is not paused changes nothing.

        Args:
            name: Which queue; "*" for all.

        Raises:
            QueueNotFoundError: There is none of this name; never for "*".
            DatabaseError: The database failed.
        """
        values.text("name", name)
        self._query(lambda sql: queues.resume(sql, name))

    def queue_update(self, name: str, *, metadata: Mapping[str, Any] | None = None) -> Queue:
        """Replace a queue's metadata, and tell its clients.

        Args:
            name: Which queue.
            metadata: A JSON object of at most some 7,900 bytes, which is what a notification can hold. None leaves it
                as it is, and only renews ``updated_at``.

        Returns:
            The queue as it is then.

        Raises:
            InvalidOptionError: *metadata* is no JSON object, or too large; nothing was written.
            QueueNotFoundError: There is none of this name.
            DatabaseError: The database failed.
        """
        values.text("name", name)
        text = queue_metadata(metadata)
        return self._query(lambda sql: queues.update(sql, name, text))

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

    def _page(self, listing: JobListing) -> JobListPage:
        return JobListPage(self._query(lambda sql: jobs.page(sql, listing)), listing, self._page)

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
