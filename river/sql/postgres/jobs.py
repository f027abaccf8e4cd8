"""Looking at jobs, and changing those that nobody works.

A job that is changed is locked and read in its newest version by the same statement, so that what is decided on it and
what is returned are one, whoever else changes it meanwhile.
"""

from __future__ import annotations

from ...job import JobRow
from ...operation import Query
from .. import decode
from .base import Statements

_GET = """\
SELECT CAST(row_to_json(job) AS text)
FROM {schema}river_job AS job
WHERE id = CAST(:id AS bigint)
"""

_LOCKED = """\
locked AS (
    SELECT *
    FROM {schema}river_job
    WHERE id = CAST(:id AS bigint)
    FOR UPDATE
)"""

# What other programs put there may be anything, and only an object can be merged with: so the rest goes into one first,
# but for null, which says nothing. (No library takes E'river\\x3A' for a parameter.)
_MERGED = """CASE jsonb_typeof(job.metadata)
        WHEN 'object' THEN job.metadata
        WHEN 'null' THEN '{{}}'
        ELSE jsonb_build_object(E'river\\x3Aodd_metadata', job.metadata)
    END || {patch}"""

_CANCEL = f"""\
WITH {_LOCKED},
cancelled AS (
    UPDATE {{schema}}river_job AS job
    SET state = CASE WHEN locked.state = 'running' THEN job.state ELSE 'cancelled' END,
        -- Not now(): the host's transaction may have begun long ago.
        finalized_at = CASE WHEN locked.state = 'running' THEN job.finalized_at ELSE clock_timestamp() END,
        metadata = {
    _MERGED.replace("{patch}", "jsonb_build_object('cancel_attempted_at', CAST(:attempted_at AS text))")
}
    FROM locked
    WHERE job.id = locked.id
        AND locked.state NOT IN ('cancelled', 'completed', 'discarded')
        AND locked.finalized_at IS NULL
    RETURNING job.*
),
-- The aggregate makes this one row, so that joining it sends the notification and changes nothing else.
notified AS (
    SELECT count(pg_notify(
        {{channel_prefix}} || '.river_control',
        CAST(json_build_object('action', 'cancel', 'job_id', id, 'queue', queue) AS text)
    ))
    FROM cancelled
)
SELECT CAST(row_to_json(cancelled) AS text)
FROM cancelled, notified
UNION ALL
SELECT CAST(row_to_json(locked) AS text)
FROM locked
WHERE NOT EXISTS (SELECT FROM cancelled)
"""

_RETRY = f"""\
WITH {_LOCKED},
retried AS (
    UPDATE {{schema}}river_job AS job
    SET state = 'available',
        finalized_at = NULL,
        scheduled_at = clock_timestamp(),
        -- A bound, so that a row which somebody else made odd can be retried as well.
        max_attempts = CASE
            WHEN job.attempt = job.max_attempts THEN least(CAST(job.max_attempts AS integer) + 1, 32767)
            ELSE job.max_attempts
        END,
        -- What asked for the end of the attempts before must not end the new ones.
        metadata = CASE
            WHEN jsonb_typeof(job.metadata) = 'object' THEN job.metadata - 'cancel_attempted_at'
            ELSE job.metadata
        END
    FROM locked
    WHERE job.id = locked.id
        AND locked.state <> 'running'
        -- One that waits for a worker already keeps its place.
        AND NOT (locked.state = 'available' AND locked.scheduled_at < clock_timestamp())
    RETURNING job.*
)
SELECT CAST(row_to_json(retried) AS text)
FROM retried
UNION ALL
SELECT CAST(row_to_json(locked) AS text)
FROM locked
WHERE NOT EXISTS (SELECT FROM retried)
"""

_DELETE = f"""\
WITH {_LOCKED},
deleted AS (
    DELETE FROM {{schema}}river_job AS job
    USING locked
    WHERE job.id = locked.id
        AND locked.state <> 'running'
    RETURNING job.id
)
SELECT CAST(row_to_json(locked) AS text), EXISTS (SELECT FROM deleted)
FROM locked
"""

_UPDATE = f"""\
UPDATE {{schema}}river_job AS job
SET metadata = {_MERGED.replace("{patch}", "CAST(CAST(:patch AS text) AS jsonb)")}
WHERE id = CAST(:id AS bigint)
RETURNING CAST(row_to_json(job) AS text)
"""


class JobStatements(Statements):
    """Looking at jobs, and changing those that nobody works."""

    def job_get(self, job_id: int) -> Query[JobRow | None]:
        """One job, or None."""
        return self._query(_GET, {"id": job_id}, decode.first_job)

    def job_cancel(self, job_id: int, attempted_at: str) -> Query[JobRow | None]:
        """Cancel a job that has not ended, or ask for it if it runs, and tell its client; the job as it is then.

        Metadata that are no object become one, which keeps them.
        """
        return self._query(_CANCEL, {"id": job_id, "attempted_at": attempted_at}, decode.first_salvaged)

    def job_retry(self, job_id: int) -> Query[JobRow | None]:
        """Make a job available now, unless it runs or is available already; the job as it is then, or None."""
        return self._query(_RETRY, {"id": job_id}, decode.first_salvaged)

    def job_delete(self, job_id: int) -> Query[tuple[JobRow, bool] | None]:
        """Delete a job unless it runs; the job as it was and whether it was deleted, or None."""
        return self._query(_DELETE, {"id": job_id}, decode.deleted)

    def job_update(self, job_id: int, patch: str) -> Query[JobRow | None]:
        """Put the members of a JSON object into a job's metadata; the job as it is then, or None.

        Metadata that are no object become one, which keeps them.
        """
        return self._query(_UPDATE, {"id": job_id, "patch": patch}, decode.first_salvaged)
