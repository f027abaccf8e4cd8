"""One attempt at a job: hooks, middleware and worker, and what comes of them.

    enter the context, middleware( work_begin, decode the args, the worker, work_end ), outcome

There is one function for a worker in a task and one for a worker in a thread, alike line for line. They are the
executor's boundary, the one place of River that catches `BaseException`: whatever a worker raises is its outcome.

An attempt is cancelled through its token, and a worker in a task also by asyncio's own cancellation, which reaches it
where it waits. Whether it was remotely cancelled is asked when it raises: whatever that is, the job is then cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

from ..cancel import CancelReason
from ..context import WorkContext, enter
from ..engine.control import CancelledRemotelyError
from ..errors import InvalidArgsError, SwallowedError
from ..hook import Extensions
from ..job import Job, JobRow
from ..outcome import Cancelled, Completed, Interrupted, Outcome, outcome_of
from ..worker import Registration


@dataclass(slots=True)
class Attempt:
    """A claimed job that has a worker, from its start to its end.

    Attributes:
        fence: The ``attempted_at`` of the claim, as statements take it.
        job: The job with its args; None until they are decoded.
        task: The task that it runs in; None before it begins, and always in a thread.
        outcome: What came of it, in a task; None until then.
    """

    row: JobRow
    fence: str
    registration: Registration
    context: WorkContext
    extensions: Extensions
    job: Job[Any] | None = None
    task: asyncio.Task[Any] | None = None
    outcome: Outcome | None = None

    def cancel(self, reason: CancelReason) -> bool:
        """Ask the worker to stop; called in the loop. Whether nobody had before, and the attempt is not over.

        The callbacks of the token run here. One that has not begun yet begins as cancelled.
        """
        if not self.context.token.cancel(reason):
            return False
        if self.task is not None:
            self.task.cancel()
        return True


def work_in_thread(attempt: Attempt) -> Outcome:
    """Make an attempt with a ``def`` worker, in this thread; never raises."""
    context = attempt.context
    enter(context)
    try:
        with _middleware(attempt):
            attempt.extensions.work_begin(context)
            job = _decode(attempt)
            try:
                _refuse_coroutine(attempt.registration.call(job, context))
            except Exception as error:  # noqa: BLE001 - hooks may replace it
                _after(attempt, error)
            else:
                _after(attempt, None)
    except BaseException as error:  # noqa: BLE001 - SystemExit and WorkCancelled end an attempt, not River
        return _raised(context, error)
    finally:
        context.token.cancel(CancelReason.ATTEMPT_FINISHED)
    return _COMPLETED


async def work_in_task(attempt: Attempt) -> Outcome:
    """Make an attempt with an ``async def`` worker, in this task, and leave its outcome in the attempt too.

    A cancellation that comes when there is nothing left to wait for makes asyncio forget what a task returned.

    Raises:
        KeyboardInterrupt: It is not the worker's to handle.
    """
    context = attempt.context
    attempt.task = asyncio.current_task()
    if attempt.task is not None and context.cancelled:
        attempt.task.cancel()  # raised where the worker waits first, as if it had been cancelled there
    enter(context)
    outcome: Outcome = _COMPLETED
    try:
        with _middleware(attempt):
            attempt.extensions.work_begin(context)
            job = _decode(attempt)
            try:
                await attempt.registration.call(job, context)
            except Exception as error:  # noqa: BLE001 - hooks may replace it
                _after(attempt, error)
            else:
                _after(attempt, None)
    except KeyboardInterrupt as error:
        if threading.current_thread() is threading.main_thread():
            raise
        outcome = _raised(context, error)  # nobody's Ctrl-C: the worker raised it
    except asyncio.CancelledError as error:
        # Only River's own cancellation gives the attempt back; whoever else cancels tasks makes them fail.
        stopped = context.cancel_reason is CancelReason.CLIENT_STOPPING
        outcome = Interrupted() if stopped else _raised(context, error)
    except BaseException as error:  # noqa: BLE001 - SystemExit and WorkCancelled end an attempt, not River
        outcome = _raised(context, error)
    finally:
        context.token.cancel(CancelReason.ATTEMPT_FINISHED)
    attempt.outcome = outcome
    return outcome


def _raised(context: WorkContext, error: BaseException) -> Outcome:
    """How an attempt ends whose worker raised *error*, a snooze and a failure alike if its job was to be cancelled."""
    if context.cancel_reason is CancelReason.CANCELLED_REMOTELY:
        return Cancelled(CancelledRemotelyError())
    return outcome_of(error)


def _middleware(attempt: Attempt) -> AbstractContextManager[object]:
    if not attempt.extensions.middleware:
        return _NO_MIDDLEWARE
    with ExitStack() as stack:
        for middleware in attempt.extensions.middleware:
            stack.enter_context(middleware.work(attempt.context))
        return stack.pop_all()
    raise SwallowedError("another middleware")


def _decode(attempt: Attempt) -> Job[Any]:
    row = attempt.row
    try:
        args = attempt.registration.codec.decode(row.encoded_args)
    except Exception as error:
        raise InvalidArgsError(f"args of {row.kind!r} could not be decoded: {error}") from error
    attempt.job = Job.of(row, args)
    return attempt.job


def _after(attempt: Attempt, error: Exception | None) -> None:
    left = attempt.extensions.work_end(attempt.context, error)
    if left is not None:
        raise left


def _refuse_coroutine(result: object) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("the worker is a `def` that returned an awaitable, so it did nothing: declare it `async def`")


_NO_MIDDLEWARE = nullcontext()
_COMPLETED = Completed()
