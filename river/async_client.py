"""The client for asyncio applications."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
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
from .listing import AsyncJobListPage, JobDeleteOptions, JobDeletion, JobListing, JobListOptions, values
from .operation import Operation
from .operations import insert, jobs, queues
from .queue import Queue
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
            InvalidOptionError: *job_id* is no whole number of at most 64 bits; nothing was sent to the database.
            JobNotFoundError: There is none with this id.
            DatabaseError: The database failed.
        """
        checked = values.job_id(job_id)
        return await self._query(lambda sql: jobs.get(sql, checked))

    async def job_list(self, **options: Unpack[JobListOptions]) -> AsyncJobListPage:
        """A page of a list of jobs, and the way to the pages that follow.

        Args:
            options: Which jobs, in which order, how many to a page, and where to go on; see `JobListOptions`.

        Raises:
            InvalidOptionError: An option is unknown or breaks a rule; nothing was sent to the database.
            InvalidCursorError: *after* is no cursor, or one of another order.
            DatabaseError: The database failed, or does not understand *where*.
        """
        return await self._page(JobListing.of(options))

    async def job_cancel(self, job_id: int) -> JobRow:
        """Cancel a job that waits, or ask for the end of one that runs; one that has ended stays as it is.

        A running job stays ``running`` until its worker has ended, which its client is told of at once. If the worker
        fails or snoozes then, the job is cancelled and not tried again; if it succeeds, the job is completed.

        A cancelled call may have done it all the same.

        Returns:
            The job as it is then. Of a running job, ``metadata`` has the time of the request.

        Raises:
            InvalidOptionError: *job_id* is no whole number of at most 64 bits; nothing was sent to the database.
            JobNotFoundError: There is none with this id.
            DatabaseError: The database failed.
        """
        checked, now = values.job_id(job_id), datetime.now(UTC)
        return await self._query(lambda sql: jobs.cancel(sql, checked, now))

    async def job_retry(self, job_id: int) -> JobRow:
        """Make a job available now; one that runs, or is available and due, stays as it is.

        One that has used up its attempts gets one more. Its errors and its attempts so far stay; a request to cancel it
        is forgotten. Nobody is notified: workers find it at their next poll.

        A cancelled call may have done it all the same.

        Returns:
            The job as it is then.

        Raises:
            InvalidOptionError: *job_id* is no whole number of at most 64 bits; nothing was sent to the database.
            JobNotFoundError: There is none with this id.
            UniqueConflictError: Another job has its unique key by now; nothing was written.
            DatabaseError: The database failed.
        """
        checked = values.job_id(job_id)
        return await self._query(lambda sql: jobs.retry(sql, checked))

    async def job_delete(self, job_id: int) -> JobRow:
        """Delete a job that does not run.

        A cancelled call may have done it all the same.

        Returns:
            The job as it was.

        Raises:
            InvalidOptionError: *job_id* is no whole number of at most 64 bits; nothing was sent to the database.
            JobNotFoundError: There is none with this id.
            JobRunningError: It runs; nothing was written.
            DatabaseError: The database failed.
        """
        checked = values.job_id(job_id)
        return await self._query(lambda sql: jobs.delete(sql, checked))

    async def job_delete_many(self, **options: Unpack[JobDeleteOptions]) -> list[JobRow]:
        """Delete jobs that do not run, those with the lowest ids first.

        Jobs that run, and jobs that another transaction has locked, are left out.

        A cancelled call may have done it all the same.

        Args:
            options: Which jobs, and how many; see `JobDeleteOptions`. At least one filter, or ``all_jobs=True``.

        Returns:
            The jobs as they were, by id.

        Raises:
            InvalidOptionError: An option is unknown or breaks a rule, or there is no filter; nothing was deleted.
            DatabaseError: The database failed.
        """
        deletion = JobDeletion.of(options)
        return await self._query(lambda sql: jobs.delete_many(sql, deletion))

    async def job_update(
        self, job_id: int, *, output: object = msgspec.UNSET, metadata: Mapping[str, Any] | None = None
    ) -> JobRow:
        """Give a job an output, or other metadata, whatever its state.

        Nothing else of it changes; without either, nothing does. Metadata that are no object, as another program may
        write, become one, which keeps them as "river:odd_metadata".

        A cancelled call may have done it all the same.

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
        return await self._query(lambda sql: jobs.update(sql, checked, patch))

    async def queue_get(self, name: str) -> Queue:
        """One queue.

        Raises:
            QueueNotFoundError: There is none of this name.
            DatabaseError: The database failed.
        """
        values.text("name", name)
        return await self._query(lambda sql: queues.get(sql, name))

    async def queue_list(self, *, first: int = values.FIRST_DEFAULT) -> list[Queue]:
        """The first queues by name.

        Args:
            first: At most so many; 1 to 10,000.

        Raises:
            InvalidOptionError: *first* is none of these.
            DatabaseError: The database failed.
        """
        values.first(first)
        return await self._query(lambda sql: queues.list_first(sql, first))

    async def queue_pause(self, name: str) -> None:
        """Have no client claim jobs of a queue until it is resumed; jobs that run go on.

        Clients are told at once. Pausing a queue that is paused changes nothing.

        A cancelled call may have done it all the same.

        Args:
            name: Which queue; "*" for all.

        Raises:
            QueueNotFoundError: There is none of this name; never for "*".
            DatabaseError: The database failed.
        """
        values.text("name", name)
        await self._query(lambda sql: queues.pause(sql, name))

    async def queue_resume(self, name: str) -> None:
        """Have clients claim jobs of a paused queue again.

        Clients are told at once. Resuming a queue that is not paused changes nothing.

        A cancelled call may have done it all the same.

        Args:
            name: Which queue; "*" for all.

        Raises:
            QueueNotFoundError: There is none of this name; never for "*".
            DatabaseError: The database failed.
        """
        values.text("name", name)
        await self._query(lambda sql: queues.resume(sql, name))

    async def queue_update(self, name: str, *, metadata: Mapping[str, Any] | None = None) -> Queue:
        """Replace a queue's metadata, and tell its clients.

        A cancelled call may have done it all the same.

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
        return await self._query(lambda sql: queues.update(sql, name, text))

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

    async def _page(self, listing: JobListing) -> AsyncJobListPage:
        return AsyncJobListPage(await self._query(lambda sql: jobs.page(sql, listing)), listing, self._page)

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
