"""Keeping the queue healthy."""

from __future__ import annotations

from datetime import timedelta

from ...job import JobRow
from ...operation import Query, Value
from .. import decode
from .base import Statements

# Jobs with a unique key may clash with another row when they become available; they are not for this statement.
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

    def job_stuck(self, older_than: timedelta, *, after_id: int, limit: int) -> Query[list[JobRow]]:
        """Jobs that have been running for longer than *older_than*, by id; one bad row stops no other's rescue."""
        parameters: dict[str, Value] = {
            "older_than": str(older_than.total_seconds()),
            "after_id": after_id,
            "limit": limit,
        }
        return self._query(_STUCK, parameters, decode.salvaged)
