"""Writing new jobs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...insert import InsertParams
from ...job import JobRow
from ...operation import Query
from .. import decode, document
from .base import Statements

_INSERT = """\
WITH inserted AS (
    INSERT INTO {schema}river_job
        (args, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags)
    SELECT
        args, kind, max_attempts, metadata, priority, queue, coalesce(scheduled_at, now()),
        CAST(state AS {schema}river_job_state), tags
    FROM ROWS FROM (
        json_to_recordset(CAST(CAST(:jobs AS text) AS json)) AS (
            args jsonb, kind text, max_attempts smallint, metadata jsonb, priority smallint, queue text,
            scheduled_at timestamptz, state text, tags varchar[]
        )
    ) WITH ORDINALITY
    -- Ids are drawn in this order, so that ordering by id below gives the order of the input.
    ORDER BY ordinality
    RETURNING *
),
-- The aggregate makes this one row, so that joining it sends the notifications and changes nothing else.
notified AS (
    SELECT count(pg_notify({channel_prefix} || '.river_insert', '{{"queue": ' || to_json(queue) || '}}'))
    FROM (SELECT DISTINCT queue FROM inserted WHERE state = 'available') AS woken
)
SELECT CAST(row_to_json(inserted) AS text)
FROM inserted, notified
ORDER BY inserted.id
"""


class InsertStatements(Statements):
    """Writing new jobs."""

    def job_insert_many(self, jobs: Sequence[InsertParams]) -> Query[list[JobRow]]:
        """Insert jobs, and tell listeners; the rows in the order of *jobs*."""
        rows = msgspec.json.encode([document.inserted(job) for job in jobs]).decode()
        return self._query(_INSERT, {"jobs": rows}, decode.jobs)
