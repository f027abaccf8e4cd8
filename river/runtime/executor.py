"""From claimed rows to persisted outcomes: starts each attempt where it belongs and hands its end on.

An *isolation* is where attempts run: tasks of the loop for ``async def``, threads for ``def``. It takes an attempt,
makes it in a fresh copy of the context that ``start()`` saw, and reports its outcome in the loop, once.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from ..base_client import BaseClient
from ..cancel import CancellationToken, CancelReason
from ..context import WorkContext
from ..engine.attempt import error_text, host_traceback, transition_of
from ..engine.control import CancelledRemotelyError
from ..errors import RiverError, UndecodableJobError, UnknownJobKindError
from ..insert import instant_text
from ..job import JobRow, UndecodableJob
from ..outcome import Cancelled, Completed, Discarded, Failed, Interrupted, Outcome, Snoozed
from ..retry import DefaultRetryPolicy
from ..worker import Registration
from .attempt import Attempt, work_in_task, work_in_thread
from .completer import Completer
from .threads import Threads

logger = logging.getLogger("river.executor")

Report: TypeAlias = Callable[[Outcome], None]
Finished: TypeAlias = Callable[[Attempt | None], None]


class Isolation(Protocol):
    """Where attempts run."""

    def start(self, attempt: Attempt, report: Report) -> None:
        """Make *attempt*, and *report* its outcome in the loop, once and not before this returns."""
        ...

    def close(self) -> None:
        """No more attempts will come."""
        ...


class TaskIsolation:
    """Attempts as tasks of the event loop."""

    def __init__(self, context: contextvars.Context) -> None:
        self._context = context
        # The loop keeps only weak references to its tasks.
        self._tasks: set[asyncio.Task[Outcome]] = set()

    def start(self, attempt: Attempt, report: Report) -> None:
        """Make an attempt in a task of its own."""
        task = asyncio.create_task(work_in_task(attempt), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._report(done, attempt, report))

    def close(self) -> None:
        """Nothing to do: the tasks end by themselves."""

    def _report(self, task: asyncio.Task[Outcome], attempt: Attempt, report: Report) -> None:
        self._tasks.discard(task)
        if attempt.outcome is not None:
            report(attempt.outcome)
        elif task.cancelled():  # before its first step, by somebody who cancels what is not theirs
            report(Failed(asyncio.CancelledError("cancelled before the worker began")))
        else:
            error = task.exception()
            report(task.result() if error is None else Failed(error))


class ThreadIsolation:
    """Attempts in threads of River's own."""

    def __init__(self, context: contextvars.Context, limit: int) -> None:
        self._context = context
        self._threads = Threads("river-worker", limit)

    def start(self, attempt: Attempt, report: Report) -> None:
        """Make an attempt in a thread."""
        context = self._context.copy()

        def done(outcome: Outcome | None, error: BaseException | None) -> None:
            report(outcome or Failed(error or RiverError("the attempt had no outcome")))

        self._threads.submit(lambda: context.run(work_in_thread, attempt), done)

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()


class Executor:
    """Starts attempts and turns their outcomes into transitions.

    Args:
        client: Whose workers, hooks and retry policy they are.
        completer: Takes the transitions.
        context: The context variables that ``start()`` saw.
        thread_limit: How many ``def`` workers may run at once.
    """

    def __init__(
        self, client: BaseClient, completer: Completer, context: contextvars.Context, thread_limit: int
    ) -> None:
        self._client = client
        self._completer = completer
        self._tasks: Isolation = TaskIsolation(context)
        self._threads: Isolation = ThreadIsolation(context, thread_limit)

    def start(self, claimed: JobRow | UndecodableJob, finished: Finished, *, cancelled: bool = False) -> Attempt | None:
        """Work a claimed row; *finished* is called in the loop when its slot is free again.

        Args:
            claimed: What was claimed.
            finished: Is given the attempt that this returns.
            cancelled: Somebody has asked for the job's cancellation since, so it starts as cancelled.

        Returns:
            The attempt; None if it has ended already, because the row cannot be read or its kind has no worker.
        """
        row = claimed.row if isinstance(claimed, UndecodableJob) else claimed
        started_at, fence = datetime.now(UTC), _fence(row)
        self._completer.expect(row.id, fence)
        end = functools.partial(self._end, row, fence, started_at, finished)
        if isinstance(claimed, UndecodableJob):
            end(None, Failed(UndecodableJobError(row.id, claimed.reason)))
            return None
        registration = self._registration(row.kind)
        if registration is None:
            end(None, Failed(UnknownJobKindError(row.kind)))
            return None
        context = WorkContext(self._client, row, fence, CancellationToken(), started_at)
        attempt = Attempt(row, fence, registration, context, self._client.extensions)
        if cancelled:
            attempt.cancel(CancelReason.CANCELLED_REMOTELY)
        isolation = self._tasks if registration.is_async else self._threads
        isolation.start(attempt, functools.partial(end, attempt))
        return attempt

    def close(self) -> None:
        """No more attempts will come."""
        self._tasks.close()
        self._threads.close()

    def _registration(self, kind: str) -> Registration | None:
        workers = self._client.config.workers
        return workers.get(kind) if workers else None

    def _end(
        self,
        row: JobRow,
        fence: str,
        started_at: datetime,
        finished: Finished,
        attempt: Attempt | None,
        outcome: Outcome,
    ) -> None:
        """Hand the end of an attempt on; whatever its exception, policy or log handlers do, it has one."""
        retry = self._retry_seconds(row, attempt) if isinstance(outcome, Failed) else 0.0
        try:
            transition = transition_of(row, fence, outcome, started_at, retry)
        except Exception as error:
            logger.exception("the outcome of job %s cannot be recorded as it is", row.id, extra=_fields(row))
            transition = transition_of(row, fence, Failed(RiverError(type(error).__name__)), started_at, retry)
        self._completer.submit(transition)
        finished(attempt)
        with suppress(BaseException):  # of a handler or filter of the host's; there is no other place to say so
            _log(row, outcome, retry, attempt is not None and attempt.context.completion_asked)

    def _retry_seconds(self, row: JobRow, attempt: Attempt | None) -> float:
        now = datetime.now(UTC)
        default = (DefaultRetryPolicy().next_retry(row, now) - now).total_seconds()
        try:
            at = self._own_retry(attempt) or self._client.config.retry_policy.next_retry(row, now)
            seconds = (at - now).total_seconds()
        except BaseException:
            with suppress(Exception):
                logger.exception("a retry policy failed; River's own decides", extra=_fields(row))
            return default
        return seconds if seconds >= 0 else default

    def _own_retry(self, attempt: Attempt | None) -> datetime | None:
        if attempt is None or attempt.job is None or attempt.registration.next_retry is None:
            return None
        return attempt.registration.next_retry(attempt.job)


def _fence(row: JobRow) -> str:
    if row.attempted_at is None:
        raise RiverError(f"job {row.id} was claimed, but has no attempted_at")
    return instant_text(row.attempted_at)


def _fields(row: JobRow) -> dict[str, object]:
    return {"job_id": row.id, "kind": row.kind, "queue": row.queue, "attempt": row.attempt}


def _log(row: JobRow, outcome: Outcome, retry_seconds: float, completion_asked: bool) -> None:
    match outcome:
        case Completed() | Snoozed():
            return
        case Interrupted():
            logger.info("job %s (%s) interrupted; it is available again", row.id, row.kind, extra=_fields(row))
        case Cancelled(CancelledRemotelyError()):
            logger.info("job %s (%s) stopped, because it was cancelled", row.id, row.kind, extra=_fields(row))
        case Cancelled(error):
            text = "job %s (%s) cancelled by its worker: %s"
            logger.info(text, row.id, row.kind, error_text(error), extra=_fields(row))
        case Discarded(error):
            text = "job %s (%s) discarded by its worker: %s"
            logger.info(text, row.id, row.kind, error_text(error), extra=_fields(row))
        case Failed(error):
            trace = (type(error), error, host_traceback(error))
            if completion_asked:
                text = "job %s (%s) raised after complete_tx(), and is completed if that transaction was committed"
                logger.warning(text, row.id, row.kind, extra=_fields(row), exc_info=trace)
            elif row.attempt >= row.max_attempts:
                text = "job %s (%s) failed at its last attempt, %s; it is discarded"
                logger.warning(text, row.id, row.kind, row.attempt, extra=_fields(row), exc_info=trace)
            else:
                text = "job %s (%s) failed at attempt %s of %s; next in %.0f s"
                values = (row.id, row.kind, row.attempt, row.max_attempts, retry_seconds)
                logger.warning(text, *values, extra=_fields(row), exc_info=trace)
