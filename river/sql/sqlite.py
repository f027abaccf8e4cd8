"""River's statements for SQLite 3.45 and newer: for now, those that insert and claim.

They prove that the seam holds for a second database: the same operations, the same decoder, other text. Jobs come
back as one JSON text here too. Timestamps are text in UTC with three fraction digits, compared as text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from ..insert import InsertParams
from ..job import InsertedRow, JobRow, UndecodableJob
from ..operation import Query, Statement
from . import decode, document

_NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"


def _instant(column: str) -> str:
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {column})"


_JOB = f"""json_object(
        'id', id,
        'state', state,
        'attempt', attempt,
        'max_attempts', max_attempts,
        'attempted_at', {_instant("attempted_at")},
        'created_at', {_instant("created_at")},
        'finalized_at', {_instant("finalized_at")},
        'scheduled_at', {_instant("scheduled_at")},
        'priority', priority,
        'args', json(args),
        'attempted_by', json(attempted_by),
        'errors', json(errors),
        'kind', kind,
        'metadata', json(metadata),
        'queue', queue,
        'tags', json(tags),
        'unique_key', '\\x' || lower(hex(unique_key)),
        'unique_states', unique_states
    )"""

_INSERT = f"""\
INSERT INTO {{schema}}river_job
    (args, created_at, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags)
SELECT
    jsonb(value -> '$.args'),
    {_NOW},
    value ->> '$.kind',
    value ->> '$.max_attempts',
    jsonb(value -> '$.metadata'),
    value ->> '$.priority',
    value ->> '$.queue',
    coalesce(
        strftime('%Y-%m-%d %H:%M:%f', value ->> '$.scheduled_at'),
        strftime('%Y-%m-%d %H:%M:%f', 'now', (value ->> '$.delay_seconds') || ' seconds'),
        {_NOW}
    ),
    value ->> '$.state',
    jsonb(value -> '$.tags')
FROM json_each(:jobs)
-- Row ids are given in this order, so that sorting by id gives the order of the input.
ORDER BY key
RETURNING {_JOB}
"""

_CLAIM = f"""\
UPDATE {{schema}}river_job
SET state = 'running',
    attempt = attempt + 1,
    attempted_at = {_NOW},
    attempted_by = jsonb_insert(coalesce(attempted_by, jsonb('[]')), '$[#]', :client_id)
WHERE id IN (
    SELECT id
    FROM {{schema}}river_job
    WHERE state = 'available'
        AND queue = :queue
        AND scheduled_at <= {_NOW}
        AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
    ORDER BY priority, scheduled_at, id
    LIMIT {{limit}}
)
RETURNING {_JOB}
"""


class SQLite:
    """River's statements for a SQLite database.

    Args:
        schema: The name of an attached database; None for the main one.
    """

    def __init__(self, schema: str | None) -> None:
        self._schema = "" if schema is None else f'"{schema}".'

    def job_insert_many(
        self,
        jobs: Sequence[InsertParams],
        *,
        muted: Collection[str] = (),  # noqa: ARG002 - nobody can listen yet
    ) -> Query[list[InsertedRow]]:
        """Insert jobs; the rows in the order of *jobs*."""
        return Query(self._inserting(jobs), lambda rows: [(job, False) for job in sorted(decode.jobs(rows), key=_id)])

    def job_insert_many_fast(
        self,
        jobs: Sequence[InsertParams],
        *,
        muted: Collection[str] = (),  # noqa: ARG002 - nobody can listen yet
    ) -> Query[int]:
        """Insert jobs; how many."""
        return Query(self._inserting(jobs), len)

    def job_claim(
        self, queue: str, *, client_id: str, limit: int, kinds: Collection[str] | None = None
    ) -> Query[list[JobRow | UndecodableJob]]:
        """Claim up to *limit* due jobs of *queue*, in the order in which they are to start; if asked, of some kinds."""
        text = _CLAIM.format(schema=self._schema, limit=limit)
        known = None if kinds is None else msgspec.json.encode(list(kinds)).decode()
        return Query(Statement(text, {"queue": queue, "client_id": client_id, "kinds": known}), decode.claimed)

    def _inserting(self, jobs: Sequence[InsertParams]) -> Statement:
        rows = msgspec.json.encode([document.inserted(job) for job in jobs]).decode()
        return Statement(_INSERT.format(schema=self._schema), {"jobs": rows})


def _id(job: JobRow) -> int:
    return job.id
