"""Keeping the queue healthy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ...job import JobRow
from ...operation import Query, Value
from .. import decode
from .base import Statements

# Jobs with a unique key may clash with another row when they become available; they have a statement of their own.
_SCHEDULE = """\
WITH scheduled AS (
    UPDATE {schema}river_job
    SET state = 'available'
    WHERE id = ANY(ARRAY(
        SELECT id
        FROM {schema}river_job
        WHERE state IN ('retryable', 'scheduled')
            AND scheduled_at <= now() + make_interval(secs => CAST(CAST(:horizon AS text) AS float8))
            AND (unique_key IS NULL OR unique_states IS NULL)
        ORDER BY priority, scheduled_at, id
        LIMIT CAST(:limit AS bigint)
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING queue, scheduled_at
),
notified AS (
    SELECT count(pg_notify({channel_prefix} || '.river_insert', '{{"queue": ' || to_json(queue) || '}}'))
    FROM (SELECT DISTINCT queue FROM scheduled WHERE scheduled_at <= now()) AS woken
)
SELECT (SELECT count(*) FROM scheduled)
FROM notified
"""

_DUE_UNIQUE = """\
SELECT id
FROM {schema}river_job
WHERE state IN ('retryable', 'scheduled')
    AND scheduled_at <= now() + make_interval(secs => CAST(CAST(:horizon AS text) AS float8))
    AND unique_key IS NOT NULL
    AND unique_states IS NOT NULL
ORDER BY priority, scheduled_at, id
LIMIT CAST(:limit AS bigint)
"""

# Of the jobs with one key, one at most becomes available: the one that holds the key by its present state, else the
# first, if nobody else holds it. The others are discarded, and lay no claim to the key as that.
_SCHEDULE_UNIQUE = """\
-- A transaction that has inserted the key and stays open must not stop the others; see how the statement is used.
WITH patience AS (
    SELECT set_config('lock_timeout', '1s', true)
),
due AS MATERIALIZED (
    SELECT
        job.id, job.unique_key, job.priority, job.scheduled_at,
        {schema}river_job_state_in_bitmask(job.unique_states, job.state) AS holds
    FROM {schema}river_job AS job, patience
    WHERE job.id = ANY(CAST(CAST(:ids AS text) AS bigint[]))
        -- IS TRUE hides this from the index on state, in which a million jobs may wait for their time.
        AND (job.state IN ('retryable', 'scheduled')) IS TRUE
        AND job.unique_key IS NOT NULL
        AND job.unique_states IS NOT NULL
    FOR UPDATE OF job SKIP LOCKED
),
decided AS (
    SELECT
        id,
        row_number() OVER (PARTITION BY unique_key ORDER BY holds DESC, priority, scheduled_at, id) > 1
        OR EXISTS (
            SELECT
            FROM {schema}river_job AS other
            -- ANY(ARRAY[...]) instead of =: the planner could otherwise hash all the keys of the table.
            WHERE other.unique_key = ANY(ARRAY[due.unique_key])
                AND other.unique_key IS NOT NULL
                AND other.unique_states IS NOT NULL
                AND {schema}river_job_state_in_bitmask(other.unique_states, other.state)
                AND other.id <> due.id
        ) AS conflicts
    FROM due
),
scheduled AS (
    UPDATE {schema}river_job AS job
    SET state = CAST(CASE WHEN conflicts THEN 'discarded' ELSE 'available' END AS {schema}river_job_state),
        finalized_at = CASE WHEN conflicts THEN now() END,
        metadata = CASE
            WHEN conflicts THEN metadata || CAST('{{"unique_key_conflict": "scheduler_discarded"}}' AS jsonb)
            ELSE metadata
        END,
        unique_states = CASE WHEN conflicts THEN unique_states & B'11110111' ELSE unique_states END
    FROM decided
    WHERE job.id = ANY(ARRAY[decided.id])
    RETURNING job.id, job.state, job.queue, job.scheduled_at
),
notified AS (
    SELECT count(pg_notify({channel_prefix} || '.river_insert', '{{"queue": ' || to_json(queue) || '}}'))
    FROM (SELECT DISTINCT queue FROM scheduled WHERE state = 'available' AND scheduled_at <= now()) AS woken
)
SELECT scheduled.id
FROM scheduled, notified
WHERE scheduled.state = 'discarded'
"""

_STUCK = """\
SELECT CAST(row_to_json(job) AS text)
FROM {schema}river_job AS job
WHERE state = 'running'
    AND attempted_at < now() - make_interval(secs => CAST(CAST(:older_than AS text) AS float8))
    AND id > CAST(:after_id AS bigint)
ORDER BY id
LIMIT CAST(:limit AS bigint)
"""


class MaintenanceStatements(Statements):
    """Keeping the queue healthy."""

    def job_schedule(self, horizon: timedelta, limit: int) -> Query[int]:
        """Make jobs available that are due within *horizon*; how many."""
        parameters: dict[str, Value] = {"horizon": str(horizon.total_seconds()), "limit": limit}
        return self._query(_SCHEDULE, parameters, lambda rows: decode.integer(rows[0][0]))

    def job_due_unique(self, horizon: timedelta, limit: int) -> Query[list[int]]:
        """The ids of jobs with a unique key that are due within *horizon*, in the order in which they get the key."""
        parameters: dict[str, Value] = {"horizon": str(horizon.total_seconds()), "limit": limit}
        return self._query(_DUE_UNIQUE, parameters, decode.ids)

    def job_schedule_unique(self, job_ids: Sequence[int]) -> Query[list[int]]:
        """Make jobs with a unique key available; the ids of those that were discarded, because others have the key."""
        return self._query(_SCHEDULE_UNIQUE, {"ids": f"{{{','.join(map(str, job_ids))}}}"}, decode.ids)

    def job_stuck(self, older_than: timedelta, *, after_id: int, limit: int) -> Query[list[JobRow]]:
        """Jobs that have been running for longer than *older_than*, by id; one bad row stops no other's rescue."""
        parameters: dict[str, Value] = {
            "older_than": str(older_than.total_seconds()),
            "after_id": after_id,
            "limit": limit,
        }
        return self._query(_STUCK, parameters, decode.salvaged)
