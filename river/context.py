"""What a worker is given besides its job, and how deeper code finds it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

from .cancel import CancellationToken, CancelReason
from .driver import AsyncHandle, BlockingHandle, adopt
from .errors import ClientStateError, NotInWorkerError
from .job import Job, JobRow
from .operation import AsyncExecutor, Executor, run, run_async
from .operations import work
from .sql import Dialect

if TYPE_CHECKING:
    from .base_client import BaseClient

_current: ContextVar[WorkContext] = ContextVar("river.current")


class WorkContext:
    """One attempt, as its worker sees it. Valid until the worker returns.

    Attributes:
        client: The client that works the job.
        logger: For the worker's own messages.
        started_at: When the attempt started; aware, by this machine's clock.
        token: The cancellation signal of this attempt.
        completion_asked: Whether `complete_tx` has succeeded, in a transaction that may or may not be committed. Good
            for messages only: the row decides.
    """

    __slots__ = ("_attempted_at", "_row", "client", "completion_asked", "started_at", "token")

    logger = logging.getLogger("river.work")

    def __init__(
        self,
        client: BaseClient,
        row: JobRow,
        attempted_at: str,
        token: CancellationToken,
        started_at: datetime,
    ) -> None:
        self.client = client
        self.token = token
        self.started_at = started_at
        self.completion_asked = False
        self._row = row
        self._attempted_at = attempted_at

    @property
    def job(self) -> JobRow:
        """The job as it was claimed."""
        return self._row

    @property
    def cancelled(self) -> bool:
        """Whether the attempt is to stop."""
        return self.token.cancelled

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Why the attempt is to stop; None as long as it is not."""
        return self.token.reason

    @property
    def finished(self) -> bool:
        """Whether the worker has returned."""
        return self.token.reason is CancelReason.ATTEMPT_FINISHED

    def raise_if_cancelled(self) -> None:
        """Raise `WorkCancelled` if the attempt is to stop."""
        self.token.raise_if_cancelled()

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have *callback* called when the attempt is to stop, by whichever thread says so; see the token.

        Returns:
            A function that withdraws the callback.
        """
        return self.token.on_cancel(callback)

    @overload
    def complete_tx(self, handle: BlockingHandle) -> Job[Any]: ...
    @overload
    def complete_tx(self, handle: AsyncHandle) -> Coroutine[Any, Any, Job[Any]]: ...
    def complete_tx(self, handle: object) -> Job[Any] | Coroutine[Any, Any, Job[Any]]:
        """Complete the job inside the host's transaction: committed with the work, or not at all.

        Call it after the work's own writes and before the commit, on the same connection or session, and let
        exceptions roll everything back. The row decides, not a flag in memory: after a rollback the job is running
        again, and may be completed again. What the worker does after the commit can no longer fail the job.

        Args:
            handle: The connection, cursor or session whose transaction holds the work. It is not committed here.

        Returns:
            The completed job; of an asyncio handle, an awaitable of it.

        Raises:
            NotInWorkerError: The attempt is over, or this is the context of another job.
            JobNotFoundError: The job was deleted meanwhile.
            JobNotRunningError: The job was completed, cancelled or rescued meanwhile; nothing was written.
            HandleError: The handle cannot be used; nothing was written.
        """
        self._check_is_mine()
        executor = adopt(handle)
        if isinstance(executor, Executor):
            return self._completed(run(executor, self._complete(self.client.sql(executor.database))))
        return self._complete_async(executor)

    async def _complete_async(self, executor: AsyncExecutor) -> Job[Any]:
        self._check_is_mine()
        return self._completed(await run_async(executor, self._complete(self.client.sql(executor.database))))

    def _complete(self, sql: Dialect) -> work.Operation[JobRow]:
        return work.complete(sql, self._row.id, self._attempted_at)

    def _completed(self, row: JobRow) -> Job[Any]:
        self.completion_asked = True
        return self.client.typed(row)

    def _check_is_mine(self) -> None:
        if self.finished:
            raise NotInWorkerError(
                f"the attempt at job {self._row.id} is over, so it cannot be completed from here: call complete_tx() "
                "before the worker returns"
            )
        # A thread that the worker started has no context of its own, and may complete the worker's job.
        running = _current.get(None)
        if running is not None and running is not self:
            raise NotInWorkerError(
                f"this is the context of job {self._row.id}, but the worker of job {running.job.id} is running: "
                "use the context that the worker was given"
            )


def current() -> WorkContext:
    """The context of the job that is being worked here.

    Raises:
        NotInWorkerError: No job is: this is not called by a worker, or in a thread or process that it started.
    """
    context = _current.get(None)
    if context is None or context.finished:
        raise NotInWorkerError("no job is being worked here: call this in a worker, or hand its ctx over")
    return context


def refuse_in_worker_of(client: BaseClient, call: str) -> None:
    """Refuse a call that would wait for the worker that makes it.

    Raises:
        ClientStateError: A worker of *client* is running here.
    """
    context = _current.get(None)
    if context is not None and context.client is client and not context.finished:
        raise ClientStateError(
            f"{call} was called by the worker of job {context.job.id}, for which it would wait: call it from outside "
            "of the client's workers"
        )


def enter(context: WorkContext) -> None:
    """Make *context* the current one, in the context variables of this attempt."""
    _current.set(context)
