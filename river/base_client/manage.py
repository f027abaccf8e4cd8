"""Looking at jobs and queues, and changing them, in a transaction of the host's."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, overload

import msgspec
from typing_extensions import Unpack

from ..driver import AsyncHandle, BlockingHandle, adopt
from ..errors import InvalidOptionError
from ..job import JobRow
from ..listing import AsyncJobListPage, JobDeleteOptions, JobDeletion, JobListing, JobListOptions, JobListPage, values
from ..operation import AsyncExecutor, Executor, run, run_async
from ..operations import jobs, queues
from ..queue import Queue
from .core import ClientCore, noted

RESERVED_PREFIX = "river:"
_RESERVED = ("cancel_attempted_at", "output", "periodic", "snoozes", "unique_key_conflict")


class Manages(ClientCore):
    """The part of a client that manages jobs and queues."""

    @overload
    def job_get_tx(self, handle: BlockingHandle, job_id: int) -> JobRow: ...
    @overload
    def job_get_tx(self, handle: AsyncHandle, job_id: int) -> Coroutine[Any, Any, JobRow]: ...
    def job_get_tx(self, handle: object, job_id: int) -> JobRow | Coroutine[Any, Any, JobRow]:
        """One job, as the host's transaction sees it.

        Raises:
            InvalidOptionError: *job_id* is no whole number of at most 64 bits. Raised by the call, even where its
                result is to be awaited.
            JobNotFoundError: There is none with this id.
            HandleError: The handle cannot be used.
        """
        checked = values.job_id(job_id)
        return self._tx(handle, lambda sql: jobs.get(sql, checked))

    @overload
    def job_list_tx(self, handle: BlockingHandle, **options: Unpack[JobListOptions]) -> JobListPage: ...
    @overload
    def job_list_tx(
        self, handle: AsyncHandle, **options: Unpack[JobListOptions]
    ) -> Coroutine[Any, Any, AsyncJobListPage]: ...
    def job_list_tx(
        self, handle: object, **options: Unpack[JobListOptions]
    ) -> JobListPage | Coroutine[Any, Any, AsyncJobListPage]:
        """A page of a list of jobs, as the host's transaction sees them; otherwise as `job_list`.

        The pages that follow are read through the same handle.
        """
        listing = JobListing.of(options)
        executor = adopt(handle)
        if isinstance(executor, Executor):
            return self._page_tx(handle, executor, listing)
        return self._page_tx_async(handle, executor, listing)

    @overload
    def job_cancel_tx(self, handle: BlockingHandle, job_id: int) -> JobRow: ...
    @overload
    def job_cancel_tx(self, handle: AsyncHandle, job_id: int) -> Coroutine[Any, Any, JobRow]: ...
    def job_cancel_tx(self, handle: object, job_id: int) -> JobRow | Coroutine[Any, Any, JobRow]:
        """Cancel a job if the host's transaction commits; otherwise as `job_cancel`.

        A worker hears of it at the commit, and until then the job's row is locked.
        """
        checked, now = values.job_id(job_id), datetime.now(UTC)
        return self._tx(handle, lambda sql: jobs.cancel(sql, checked, now))

    @overload
    def job_retry_tx(self, handle: BlockingHandle, job_id: int) -> JobRow: ...
    @overload
    def job_retry_tx(self, handle: AsyncHandle, job_id: int) -> Coroutine[Any, Any, JobRow]: ...
    def job_retry_tx(self, handle: object, job_id: int) -> JobRow | Coroutine[Any, Any, JobRow]:
        """Make a job available now if the host's transaction commits; otherwise as `job_retry`.

        If another job has its unique key by now, the library's own error of a unique violation passes, with a note that
        names the job. The transaction has then failed as a whole: roll it back.
        """
        checked = values.job_id(job_id)
        return self._tx(handle, lambda sql: jobs.retry(sql, checked))

    @overload
    def job_delete_tx(self, handle: BlockingHandle, job_id: int) -> JobRow: ...
    @overload
    def job_delete_tx(self, handle: AsyncHandle, job_id: int) -> Coroutine[Any, Any, JobRow]: ...
    def job_delete_tx(self, handle: object, job_id: int) -> JobRow | Coroutine[Any, Any, JobRow]:
        """Delete a job that does not run if the host's transaction commits; otherwise as `job_delete`."""
        checked = values.job_id(job_id)
        return self._tx(handle, lambda sql: jobs.delete(sql, checked))

    @overload
    def job_delete_many_tx(self, handle: BlockingHandle, **options: Unpack[JobDeleteOptions]) -> list[JobRow]: ...
    @overload
    def job_delete_many_tx(
        self, handle: AsyncHandle, **options: Unpack[JobDeleteOptions]
    ) -> Coroutine[Any, Any, list[JobRow]]: ...
    def job_delete_many_tx(
        self, handle: object, **options: Unpack[JobDeleteOptions]
    ) -> list[JobRow] | Coroutine[Any, Any, list[JobRow]]:
        """Delete jobs that do not run if the host's transaction commits; otherwise as `job_delete_many`."""
        deletion = JobDeletion.of(options)
        return self._tx(handle, lambda sql: jobs.delete_many(sql, deletion))

    @overload
    def job_update_tx(
        self,
        handle: BlockingHandle,
        job_id: int,
        *,
        output: object = msgspec.UNSET,
        metadata: Mapping[str, Any] | None = None,
    ) -> JobRow: ...
    @overload
    def job_update_tx(
        self,
        handle: AsyncHandle,
        job_id: int,
        *,
        output: object = msgspec.UNSET,
        metadata: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, JobRow]: ...
    def job_update_tx(
        self,
        handle: object,
        job_id: int,
        *,
        output: object = msgspec.UNSET,
        metadata: Mapping[str, Any] | None = None,
    ) -> JobRow | Coroutine[Any, Any, JobRow]:
        """Give a job an output or other metadata if the host's transaction commits; otherwise as `job_update`."""
        checked, patch = values.job_id(job_id), patch_of(output, metadata)
        return self._tx(handle, lambda sql: jobs.update(sql, checked, patch))

    @overload
    def queue_get_tx(self, handle: BlockingHandle, name: str) -> Queue: ...
    @overload
    def queue_get_tx(self, handle: AsyncHandle, name: str) -> Coroutine[Any, Any, Queue]: ...
    def queue_get_tx(self, handle: object, name: str) -> Queue | Coroutine[Any, Any, Queue]:
        """One queue, as the host's transaction sees it; otherwise as `queue_get`."""
        values.text("name", name)
        return self._tx(handle, lambda sql: queues.get(sql, name))

    @overload
    def queue_list_tx(self, handle: BlockingHandle, *, first: int = values.FIRST_DEFAULT) -> list[Queue]: ...
    @overload
    def queue_list_tx(
        self, handle: AsyncHandle, *, first: int = values.FIRST_DEFAULT
    ) -> Coroutine[Any, Any, list[Queue]]: ...
    def queue_list_tx(
        self, handle: object, *, first: int = values.FIRST_DEFAULT
    ) -> list[Queue] | Coroutine[Any, Any, list[Queue]]:
        """The first queues by name, as the host's transaction sees them; otherwise as `queue_list`."""
        values.first(first)
        return self._tx(handle, lambda sql: queues.list_first(sql, first))

    @overload
    def queue_pause_tx(self, handle: BlockingHandle, name: str) -> None: ...
    @overload
    def queue_pause_tx(self, handle: AsyncHandle, name: str) -> Coroutine[Any, Any, None]: ...
    def queue_pause_tx(self, handle: object, name: str) -> Coroutine[Any, Any, None] | None:
        """Pause a queue if the host's transaction commits; otherwise as `queue_pause`."""
        values.text("name", name)
        return self._tx(handle, lambda sql: queues.pause(sql, name))

    @overload
    def queue_resume_tx(self, handle: BlockingHandle, name: str) -> None: ...
    @overload
    def queue_resume_tx(self, handle: AsyncHandle, name: str) -> Coroutine[Any, Any, None]: ...
    def queue_resume_tx(self, handle: object, name: str) -> Coroutine[Any, Any, None] | None:
        """Resume a queue if the host's transaction commits; otherwise as `queue_resume`."""
        values.text("name", name)
        return self._tx(handle, lambda sql: queues.resume(sql, name))

    @overload
    def queue_update_tx(
        self, handle: BlockingHandle, name: str, *, metadata: Mapping[str, Any] | None = None
    ) -> Queue: ...
    @overload
    def queue_update_tx(
        self, handle: AsyncHandle, name: str, *, metadata: Mapping[str, Any] | None = None
    ) -> Coroutine[Any, Any, Queue]: ...
    def queue_update_tx(
        self, handle: object, name: str, *, metadata: Mapping[str, Any] | None = None
    ) -> Queue | Coroutine[Any, Any, Queue]:
        """Replace a queue's metadata if the host's transaction commits; otherwise as `queue_update`."""
        values.text("name", name)
        text = queue_metadata(metadata)
        return self._tx(handle, lambda sql: queues.update(sql, name, text))

    def _page_tx(self, handle: object, executor: Executor, listing: JobListing) -> JobListPage:
        def following(listing: JobListing) -> JobListPage:
            again = adopt(handle)  # refuses a handle that was closed, or whose transaction has failed, meanwhile
            assert isinstance(again, Executor)
            return self._page_tx(handle, again, listing)

        with noted(self.config.schema):
            found = run(executor, jobs.page(self.sql(executor.database), listing))
        return JobListPage(found, listing, following)

    async def _page_tx_async(self, handle: object, executor: AsyncExecutor, listing: JobListing) -> AsyncJobListPage:
        async def following(listing: JobListing) -> AsyncJobListPage:
            again = adopt(handle)
            assert isinstance(again, AsyncExecutor)
            return await self._page_tx_async(handle, again, listing)

        with noted(self.config.schema):
            found = await run_async(executor, jobs.page(self.sql(executor.database), listing))
        return AsyncJobListPage(found, listing, following)


def patch_of(output: object, metadata: Mapping[str, Any] | None) -> str | None:
    """The JSON object that `job_update` puts into a job's metadata; None if it changes nothing.

    Raises:
        InvalidOptionError: A value is no JSON, too large, or has a key that is River's own.
    """
    members = [] if output is msgspec.UNSET else [f'"output":{values.output_text(output)}']
    if metadata is not None:
        text = values.json_object("metadata", metadata)
        for key in metadata:
            if key.startswith(RESERVED_PREFIX) or key in _RESERVED:
                hint = "pass output=..." if key == "output" else "use a key of your own"
                raise InvalidOptionError(
                    f"metadata has the key {key!r}, which is River's own, as are those that begin with "
                    f"{RESERVED_PREFIX!r}: {hint}"
                )
        if metadata:
            members.append(text[1:-1])
    return "{" + ",".join(members) + "}" if members else None


def queue_metadata(metadata: Mapping[str, Any] | None) -> str | None:
    """The JSON object that replaces a queue's metadata; None if none does.

    Raises:
        InvalidOptionError: It is no JSON object.
    """
    return None if metadata is None else values.json_object("metadata", metadata)
