"""Writing new jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec

from ...insert import InsertParams
from ...job import InsertedRow
from ...operation import Query
from .. import decode, document
from .base import Statements

T = TypeVar("T")

# Ids are drawn in the order of the input, also where the default draws them, because the rows are sorted by it.
_PROPOSED = """\
    FROM ROWS FROM (
        json_to_recordset(CAST(CAST(:jobs AS text) AS json)) AS (
            args jsonb, kind text, max_attempts smallint, metadata jsonb, priority smallint, queue text,
            scheduled_at timestamptz, delay_seconds float8, state text, tags varchar[], unique_key text,
            unique_states integer
        )
    ) WITH ORDINALITY
    ORDER BY ordinality"""

# A delay counts from this moment, not from the beginning of the host's transaction.
_DUE = "coalesce(scheduled_at, clock_timestamp() + make_interval(secs => delay_seconds), now())"

_INTO = f"""\
    INSERT INTO {{schema}}river_job
        (args, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags)
    SELECT
        args, kind, max_attempts, metadata, priority, queue, {_DUE},
        CAST(state AS {{schema}}river_job_state), tags
{_PROPOSED}"""

# The aggregate makes this one row, so that joining it sends the notifications and changes nothing else.
_NOTIFIED = """\
notified AS (
    SELECT count(pg_notify({channel_prefix} || '.river_insert', '{{"queue": ' || to_json(queue) || '}}'))
    FROM (SELECT DISTINCT queue FROM inserted WHERE state = 'available') AS woken
    WHERE queue <> ALL(string_to_array(CAST(:muted AS text), ','))
)"""

_INSERT = f"""\
WITH inserted AS (
{_INTO}
    RETURNING *
),
{_NOTIFIED}
SELECT CAST(row_to_json(inserted) AS text)
FROM inserted, notified
ORDER BY inserted.id
"""

_INSERT_FAST = f"""\
WITH inserted AS (
{_INTO}
    RETURNING queue, state
),
{_NOTIFIED}
SELECT (SELECT count(*) FROM inserted)
FROM notified
"""

_INTO_UNIQUE = """\
    INSERT INTO {schema}river_job AS job
        (id, args, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags, unique_key, unique_states)
    SELECT
        id, args, kind, max_attempts, metadata, priority, queue, scheduled_at,
        CAST(state AS {schema}river_job_state), tags, unique_key, unique_states
    FROM proposed
    -- The predicate of river_job_unique_idx, by which the index is found.
    ON CONFLICT (unique_key)
        WHERE unique_key IS NOT NULL
            AND unique_states IS NOT NULL
            AND {schema}river_job_state_in_bitmask(unique_states, state)"""

# Ids are drawn beforehand: a row that comes back with another id was there already. That needs no system column,
# which not every server that speaks PostgreSQL's protocol has.
_PROPOSED_UNIQUE = f"""\
proposed AS MATERIALIZED (
    SELECT
        nextval(CAST((SELECT pg_get_serial_sequence('{{schema}}river_job', 'id')) AS regclass)) AS id,
        rows.*
    FROM (
        SELECT
            ordinality, args, kind, max_attempts, metadata, priority, queue,
            {_DUE} AS scheduled_at,
            state, tags, decode(unique_key, 'hex') AS unique_key, CAST(unique_states AS bit(8)) AS unique_states
{_PROPOSED}
    ) AS rows
)"""

_INSERT_UNIQUE = f"""\
WITH {_PROPOSED_UNIQUE},
inserted AS (
{_INTO_UNIQUE}
    -- Changes nothing, but waits for whoever holds the row, and gives it back.
    DO UPDATE SET kind = job.kind
    RETURNING *
),
{_NOTIFIED}
SELECT CAST(coalesce(row_to_json(new), row_to_json(old)) AS text), new.id IS NULL
FROM notified, proposed
LEFT JOIN inserted AS new ON new.id = proposed.id
LEFT JOIN inserted AS old ON old.unique_key = proposed.unique_key
ORDER BY proposed.ordinality
"""

_INSERT_UNIQUE_FAST = f"""\
WITH {_PROPOSED_UNIQUE},
inserted AS (
{_INTO_UNIQUE}
    DO NOTHING
    RETURNING queue, state
),
{_NOTIFIED}
SELECT (SELECT count(*) FROM inserted)
FROM notified
"""


class InsertStatements(Statements):
    """Writing new jobs."""

    def job_insert_many(self, jobs: Sequence[InsertParams], *, muted: Collection[str] = ()) -> Query[list[InsertedRow]]:
        """Insert jobs, and tell listeners but of the *muted* queues; the rows in the order of *jobs*."""
        if any(job.unique_key for job in jobs):
            rows = [document.inserted_unique(job) for job in jobs]
            return self._query(_INSERT_UNIQUE, _parameters(rows, muted), decode.inserted)
        rows = [document.inserted(job) for job in jobs]
        return self._query(_INSERT, _parameters(rows, muted), decode.inserted)

    def job_insert_many_fast(self, jobs: Sequence[InsertParams], *, muted: Collection[str] = ()) -> Query[int]:
        """Insert jobs, but for those that are there already; how many."""
        unique = any(job.unique_key for job in jobs)
        rows = [document.inserted_unique(job) if unique else document.inserted(job) for job in jobs]
        text = _INSERT_UNIQUE_FAST if unique else _INSERT_FAST
        return self._query(text, _parameters(rows, muted), lambda rows: decode.integer(rows[0][0]))


def _parameters(rows: Sequence[dict[str, object]], muted: Collection[str]) -> dict[str, str]:
    # No queue's name holds a comma.
    return {"jobs": msgspec.json.encode(rows).decode(), "muted": ",".join(muted)}
