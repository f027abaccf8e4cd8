"""How an attempt ends: from what its worker did to what becomes of the row.

Completed            completed
Snoozed              available if due within the scheduler's interval, else scheduled; the attempt is given back
Cancelled            cancelled
Discarded            discarded
Interrupted          available at once; the attempt is given back
Failed, last attempt discarded
Failed               available if due within the scheduler's interval, else retryable
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, assert_never

from ..job import JobRow, JobState
from ..outcome import Cancelled, Completed, Discarded, Failed, Interrupted, Outcome, Snoozed
from ..retry import LONGEST_DELAY
from .transition import Transition

_RIVER = str(Path(__file__).parent.parent) + os.sep

ERROR_CHARACTERS = 16_384
TRACE_CHARACTERS = 65_536
"""What is kept of an error: each later claim reads all errors of its jobs, and a batch waits for its largest."""

SCHEDULER_SECONDS = 5.0
"""The scheduler's interval: what is due sooner would only be late if it had to wait for it."""


def transition_of(
    job: JobRow, attempted_at: str, outcome: Outcome, started_at: datetime, retry_seconds: float
) -> Transition:
    """What becomes of the row of *job*.

    Args:
        job: The job as claimed.
        attempted_at: The claim, as the fence needs it.
        outcome: What its worker did.
        started_at: When the attempt started.
        retry_seconds: How long to wait before the next attempt, should there be one.
    """
    match outcome:
        case Completed():
            return Transition(job_id=job.id, attempted_at=attempted_at, state=JobState.COMPLETED)
        case Snoozed(seconds):
            return Transition(
                job_id=job.id,
                attempted_at=attempted_at,
                state=JobState.AVAILABLE if seconds <= SCHEDULER_SECONDS else JobState.SCHEDULED,
                attempt=max(job.attempt - 1, 0),
                # Beyond it, the database would refuse to say when that is, and the job would stay running.
                delay_seconds=min(seconds, LONGEST_DELAY.total_seconds()),
                metadata={"snoozes": _snoozes(job) + 1},
            )
        case Interrupted():
            return Transition(
                job_id=job.id,
                attempted_at=attempted_at,
                state=JobState.AVAILABLE,
                attempt=max(job.attempt - 1, 0),
                delay_seconds=0.0,
            )
        case Cancelled(error):
            state = JobState.CANCELLED
        case Discarded(error):
            state = JobState.DISCARDED
        case Failed(error):
            state = _after_failure(job, retry_seconds)
        case _:
            assert_never(outcome)
    return Transition(
        job_id=job.id,
        attempted_at=attempted_at,
        state=state,
        delay_seconds=None if state.finalized else retry_seconds,
        error=error_record(error, job.attempt, started_at),
    )


def error_record(error: BaseException, attempt: int, at: datetime) -> Mapping[str, Any]:
    """An element of ``errors``, as every implementation of River reads it."""
    return {
        "at": at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "attempt": attempt,
        "error": storable(shortened(error_text(error), ERROR_CHARACTERS)),
        "trace": storable(shortened(_trace(error), TRACE_CHARACTERS)),
    }


def error_text(error: BaseException) -> str:
    """What an error says; its type, where it says nothing or only a key."""
    name = type.__getattribute__(type(error), "__name__")
    try:
        # A str and nothing derived from it, whose methods might be anything.
        text = "".join(str(error))
    except BaseException:  # noqa: BLE001 - a broken __str__ must not cost the job its outcome
        return f"{name}: (its text cannot be read)"
    if not text:
        return f"{name}"
    # Alone, the text of a KeyError is a key, and that of SystemExit a number.
    named = isinstance(error, KeyError) or not isinstance(error, Exception)
    return f"{name}: {text}" if named else text


def shortened(text: str, limit: int) -> str:
    """*text* without its middle, if it is longer than *limit* characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def storable(text: str) -> str:
    """*text* without what PostgreSQL refuses: a worker's message must not cost the job its outcome."""
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()


def _trace(error: BaseException) -> str:
    if error.__traceback__ is None:
        return ""
    try:
        return "".join(traceback.format_exception(type(error), error, host_traceback(error)))
    except BaseException:  # noqa: BLE001 - as above
        return "".join(traceback.format_tb(error.__traceback__))


def host_traceback(error: BaseException) -> TracebackType | None:
    """An error's traceback without River's own frames at its top, unless there are no others."""
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_RIVER):
        inner = inner.tb_next
    return inner or error.__traceback__


def _after_failure(job: JobRow, retry_seconds: float) -> JobState:
    if job.attempt >= job.max_attempts:
        return JobState.DISCARDED
    return JobState.AVAILABLE if retry_seconds <= SCHEDULER_SECONDS else JobState.RETRYABLE


def _snoozes(job: JobRow) -> int:
    snoozes = job.metadata.get("snoozes")
    return snoozes if isinstance(snoozes, int) and not isinstance(snoozes, bool) else 0
