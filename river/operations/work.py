"""The life of a claimed job: claim, complete, finish."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from ..engine.transition import Persisted, Transition
from ..errors import JobNotFoundError, JobNotRunningError
from ..job import JobRow, JobState, UndecodableJob
from ..operation import Operation
from ..sql import ClaimStatements, Dialect


def open_queues(sql: Dialect, queues: Collection[str]) -> Operation[dict[str, bool]]:
    """Record that queues are worked; whether they are paused."""
    for queue in queues:
        # The answer is not read: whatever somebody has put into a queue's metadata, its jobs can be worked.
        yield sql.queue_upsert(queue).statement
    return (yield from sql.queues_paused(queues))


def claim(
    sql: ClaimStatements, queue: str, *, client_id: str, limit: int, kinds: Collection[str] | None = None
) -> Operation[list[JobRow | UndecodableJob]]:
    """Claim up to *limit* due jobs, in the order in which they are to start; those of other *kinds* stay as they are.

    A call that was cancelled or whose reply was lost may have claimed them all the same.
    """
    return (yield from sql.job_claim(queue, client_id=client_id, limit=limit, kinds=kinds))


def give_back(
    sql: Dialect, queue: str, *, client_id: str, since: datetime, in_hand: Collection[int]
) -> Operation[list[int]]:
    """Make jobs available again that a client has claimed without knowing, because the answer was lost; their ids.

    One whose cancellation somebody has asked for is cancelled instead.

    Args:
        queue: Of which queue.
        client_id: Whose claims. No other running client may have this id, or its jobs would be worked twice.
        since: When the client started: what was claimed before belongs to an earlier one of the same id.
        in_hand: The ids of the jobs that it does know of: they run, or wait for their end to be saved.
    """
    # Asked beforehand: if the statement itself is late, it must not find what the client has claimed meanwhile.
    until = (yield from sql.greeting()).now
    return (yield from sql.job_give_back(queue, client_id=client_id, since=since, until=until, in_hand=in_hand))


def complete(sql: Dialect, job_id: int, attempted_at: str) -> Operation[JobRow]:
    """Complete one job, if the claim of *attempted_at* is still running.

    Raises:
        JobNotFoundError: There is no such job.
        JobNotRunningError: The claim is over. Nothing was written.
    """
    completed = yield from sql.job_complete(job_id, attempted_at)
    if completed is not None:
        return completed
    found = yield from sql.job_get(job_id)
    if found is None:
        raise JobNotFoundError(job_id)
    if found.state is JobState.RUNNING:
        raise JobNotRunningError(
            job_id,
            f"attempt {found.attempt} of it is running elsewhere; this one was rescued and claimed again",
        )
    raise JobNotRunningError(job_id, f"it is {found.state.value} by now")


def finish(sql: Dialect, transitions: Sequence[Transition]) -> Operation[dict[int, Persisted]]:
    """End many attempts; what did not simply become what was asked for.

    Plain successes, as nearly all are, take a leaner statement than the rest. Repeating the call is harmless.
    """
    plain = [transition for transition in transitions if transition.plain]
    other = [transition for transition in transitions if not transition.plain]
    persisted: dict[int, Persisted] = {}
    if plain:
        claims = [(transition.job_id, transition.attempted_at) for transition in plain]
        persisted |= yield from sql.job_complete_many(claims)
    if other:
        persisted |= yield from sql.job_finish_many(other)
    return persisted


__all__ = ["Operation", "claim", "complete", "finish", "give_back", "open_queues"]
