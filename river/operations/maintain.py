"""Keeping the queue healthy: what is due becomes available, what was left behind is tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from ..engine.transition import Persisted, Transition
from ..insert import instant_text
from ..job import JobRow, JobState
from ..operation import Operation
from ..sql import Dialect

RESCUE_ERROR = "Stuck job rescued by JobRescuer"
"""The text that every implementation of River records for a rescued job."""


def schedule(sql: Dialect, *, horizon: timedelta, limit: int) -> Operation[int]:
    """Make jobs without a unique key available that are due within *horizon*; how many."""
    return (yield from sql.job_schedule(horizon, limit))


def due_unique(sql: Dialect, *, horizon: timedelta, limit: int) -> Operation[list[int]]:
    """The jobs with a unique key that are due within *horizon*, for `schedule_unique`."""
    return (yield from sql.job_due_unique(horizon, limit))


def schedule_unique(sql: Dialect, job_ids: Sequence[int]) -> Operation[list[int]]:
    """Make jobs available whose unique key nobody else has, and discard the others; the discarded.

    A database error is raised, and nothing written, where somebody takes one of the keys at this moment, or has taken
    it in a transaction that stays open: then try them one by one, so that this one is left for later.
    """
    return (yield from sql.job_schedule_unique(job_ids))


def rescue(
    sql: Dialect,
    *,
    older_than: timedelta,
    now: datetime,
    retry_at: Callable[[JobRow], datetime],
    after_id: int = 0,
    limit: int = 10_000,
) -> Operation[list[JobRow]]:
    """Try jobs again that have been running for too long, because their worker died.

    Only what is still running in the claim that was read here is written, so a job that finishes meanwhile stays
    finished. One at its last attempt is discarded; one whose cancellation was asked for is cancelled.

    Args:
        older_than: How long ago they were claimed, at least. A worker that still runs must never be that old.
        now: The current time, for the record.
        retry_at: When a job is due again.
        after_id: Only jobs with greater ids, to page through more than *limit*.

    Returns:
        The stuck jobs, as they were.
    """
    stuck = yield from sql.job_stuck(older_than, after_id=after_id, limit=limit)
    if stuck:
        persisted = yield from sql.job_finish_many([_rescued(job, now, retry_at) for job in stuck])
        return [job for job in stuck if persisted.get(job.id) not in (Persisted.BUSY, Persisted.LOST)]
    return stuck


def _rescued(job: JobRow, now: datetime, retry_at: Callable[[JobRow], datetime]) -> Transition:
    state = _state_after_rescue(job)
    rescues = job.metadata.get("river:rescue_count")
    return Transition(
        job_id=job.id,
        attempted_at=instant_text(job.attempted_at or now),
        state=state,
        delay_seconds=None if state.finalized else max((retry_at(job) - now).total_seconds(), 0.0),
        error={
            "at": now.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "attempt": job.attempt,
            "error": RESCUE_ERROR,
            "trace": "",
        },
        metadata={"river:rescue_count": (rescues if isinstance(rescues, int) else 0) + 1},
    )


def _state_after_rescue(job: JobRow) -> JobState:
    if job.metadata.get("cancel_attempted_at"):
        return JobState.CANCELLED
    return JobState.DISCARDED if job.attempt >= job.max_attempts else JobState.RETRYABLE
