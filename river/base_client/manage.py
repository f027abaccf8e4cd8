"""Looking at jobs and queues, and changing them, in a transaction of the host's."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, overload

from ..driver import AsyncHandle, BlockingHandle
from ..job import JobRow
from ..operations import jobs
from .core import ClientCore


class Manages(ClientCore):
    """The part of a client that manages jobs and queues."""

    @overload
    def job_get_tx(self, handle: BlockingHandle, job_id: int) -> JobRow: ...
    @overload
    def job_get_tx(self, handle: AsyncHandle, job_id: int) -> Coroutine[Any, Any, JobRow]: ...
    def job_get_tx(self, handle: object, job_id: int) -> JobRow | Coroutine[Any, Any, JobRow]:
        """One job, as the host's transaction sees it.

        Raises:
            JobNotFoundError: There is none with this id.
            HandleError: The handle cannot be used.
        """
        return self._tx(handle, lambda sql: jobs.get(sql, job_id))
