"""One attempt at a job: hooks, middleware and worker, and what comes of them.

    enter the context, middleware( work_begin, decode the args, the worker, work_end ), outcome

There is one function for a worker in a task and one for a worker in a thread, alike line for line. They are the
executor's boundary, the one place of River that catches `BaseException`: whatever a worker raises is its outcome.
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
from ..errors import InvalidArgsError, SwallowedError
from ..hook import Extensions
from ..job import Job, JobRow
from ..outcome import Completed, Interrupted, Outcome, outcome_of
from ..worker import Registration


@dataclass(slots=True)
class Attempt:
    """A claimed job that has a worker, from its start to its end.

    Attributes:
        job: The job with its args; None until they are decoded.
    """

    row: JobRow
    registration: Registration
    context: WorkContext
    extensions: Extensions
    job: Job[Any] | None = None


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
        return outcome_of(error)
    finally:
        context.token.cancel(CancelReason.ATTEMPT_FINISHED)
    return Completed()


async def work_in_task(attempt: Attempt) -> Outcome:
    """Make an attempt with an ``async def`` worker, in this task.

    Raises:
        KeyboardInterrupt: It is not the worker's to handle.
    """
    context = attempt.context
    enter(context)
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
        return outcome_of(error)  # nobody's Ctrl-C: the worker raised it
    except asyncio.CancelledError as error:
        # Only River's own cancellation gives the attempt back; whoever else cancels tasks makes them fail.
        return Interrupted() if context.cancel_reason is CancelReason.CLIENT_STOPPING else outcome_of(error)
    except BaseException as error:  # noqa: BLE001 - SystemExit and WorkCancelled end an attempt, not River
        return outcome_of(error)
    finally:
        context.token.cancel(CancelReason.ATTEMPT_FINISHED)
    return Completed()


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
        args = attempt.registration.codec.decode(bytes(row.encoded_args).decode())
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
