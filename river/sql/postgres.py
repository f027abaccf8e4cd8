"""River's statements for PostgreSQL 14 and newer.

How they are written, and why:

- Every parameter is an int, bool, text or NULL and is cast where it stands; many rows are one JSON document.
- A job comes back as one JSON text, so no session setting (DateStyle, TimeZone, bytea_output) and no library
  changes what is read.
- Instants go in as ISO text with an offset, delays as seconds that the server adds to its own clock.
- ``state IS NOT DISTINCT FROM 'running'`` instead of ``=``: statistics, gathered while nothing ran, say that no
  row is running, and the planner would then walk every running row for each job. IS NOT DISTINCT FROM cannot
  use the index on state, which leaves the primary key.
- ``id = ANY(ARRAY(...))`` instead of a join or IN: the list is made first, and looked up by primary key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from ..engine.transition import Persisted, Transition
from ..insert import InsertParams, instant_text
from ..job import JobRow, UndecodableJob
from ..operation import Query, Rows, Statement, Value
from . import decode, document
from .decode import Greeting
from .names import qualifier

T = TypeVar("T")

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

_GREETING = """\
SELECT CAST({channel_prefix} AS text), CAST(to_json(clock_timestamp()) AS text)
"""

_GET = """\
SELECT CAST(row_to_json(job) AS text)
FROM {schema}river_job AS job
WHERE id = CAST(:id AS bigint)
"""

_CLAIM = """\
UPDATE {schema}river_job AS job
SET state = 'running',
    -- Bounds, here and below, so that a row which somebody else made odd cannot keep the others from being claimed.
    attempt = least(CAST(attempt AS integer) + 1, 32767),
    attempted_at = now(),
    -- The last 100 clients at most: a job that is snoozed for years must not grow for years.
    attempted_by = array_append(
        CASE
            WHEN array_ndims(attempted_by) = 1
                THEN attempted_by[greatest(cardinality(attempted_by) - 98, array_lower(attempted_by, 1)):]
        END,
        CAST(:client_id AS text)
    )
WHERE id = ANY(ARRAY(
    SELECT id
    FROM {schema}river_job
    WHERE state = 'available'
        AND queue = CAST(:queue AS text)
        AND scheduled_at <= now()
    ORDER BY priority, scheduled_at, id
    -- A literal out of a small set, so that each is a prepared statement of its own with a plan that fits.
    LIMIT {limit}
    -- SKIP LOCKED: two producers never wait for each other's rows.
    FOR UPDATE SKIP LOCKED
))
RETURNING CAST(row_to_json(job) AS text)
"""

# What this client claimed and does not know of, because the answer was lost.
_GIVE_BACK = """\
UPDATE {schema}river_job
SET state = 'available',
    attempt = greatest(attempt - 1, 0)
WHERE state = 'running'
    AND queue = CAST(:queue AS text)
    AND attempted_by[cardinality(attempted_by)] = CAST(:client_id AS text)
    AND attempted_at >= CAST(CAST(:since AS text) AS timestamptz)
    AND attempted_at < CAST(CAST(:until AS text) AS timestamptz)
    AND id <> ALL(CAST(CAST(:in_hand AS text) AS bigint[]))
RETURNING id
"""

_COMPLETE = """\
UPDATE {schema}river_job AS job
SET state = 'completed',
    -- Not now(): the host's transaction may have begun long ago.
    finalized_at = clock_timestamp()
WHERE id = CAST(:id AS bigint)
    AND attempted_at = CAST(CAST(:attempted_at AS text) AS timestamptz)
    AND state IS NOT DISTINCT FROM 'running'
RETURNING CAST(row_to_json(job) AS text)
"""

# The rows of the wanted claims that are still running, locked.
#
# - SKIP LOCKED: a host's open transaction that holds one of them must not stop all the others.
# - The list of ids is a scalar subquery: a sequential scan, the plan while the table is small, would otherwise
#   parse its text again for each row.
# - IS TRUE keeps the fence a hashed lookup; without it the planner makes it a join, a nested loop over the batch.
_HELD = """\
        SELECT id
        FROM {schema}river_job
        WHERE id = ANY(CAST((SELECT array_agg(id) FROM wanted) AS bigint[]))
            AND ((id, attempted_at) IN (SELECT id, attempted_at FROM wanted)) IS TRUE
            AND state IS NOT DISTINCT FROM 'running'
        FOR UPDATE SKIP LOCKED"""

# What was asked for and not done: skipped because somebody holds it, or not ours any more.
#
# ANY(ARRAY[...]) instead of =: the planner would otherwise hash the whole table for a batch of a thousand.
_NOT_DONE = """\
SELECT
    wanted.id,
    CASE
        WHEN EXISTS (
            SELECT
            FROM {schema}river_job AS job
            WHERE job.id = ANY(ARRAY[wanted.id])
                AND job.attempted_at = wanted.attempted_at
                AND job.state IS NOT DISTINCT FROM 'running'
        ) THEN 'busy'
        ELSE 'lost'
    END
FROM wanted
WHERE wanted.id NOT IN (SELECT id FROM done)"""

_COMPLETE_MANY = f"""\
WITH wanted AS (
    SELECT *
    FROM unnest(
        CAST(CAST(:ids AS text) AS bigint[]),
        CAST(CAST(:attempted_ats AS text) AS timestamptz[])
    ) AS wanted (id, attempted_at)
),
done AS (
    UPDATE {{schema}}river_job
    SET state = 'completed',
        finalized_at = now()
    WHERE id = ANY(ARRAY(
{_HELD}
    ))
    RETURNING id
)
{_NOT_DONE}
"""

# Somebody asked for the job's cancellation while it ran: then it is not tried again.
_CANCEL = "(wanted.state IN ('available', 'retryable', 'scheduled') AND job.metadata ? 'cancel_attempted_at')"

_FINISH_MANY = f"""\
WITH wanted AS (
    SELECT *
    FROM json_to_recordset(CAST(CAST(:transitions AS text) AS json)) AS wanted (
        id bigint, attempted_at timestamptz, state text, attempt smallint, delay_seconds float8, error jsonb,
        metadata jsonb
    )
),
done AS (
    UPDATE {{schema}}river_job AS job
    SET state = CASE
            WHEN {_CANCEL} THEN 'cancelled'
            ELSE CAST(wanted.state AS {{schema}}river_job_state)
        END,
        attempt = CASE WHEN {_CANCEL} THEN job.attempt ELSE coalesce(wanted.attempt, job.attempt) END,
        errors = CASE
            WHEN wanted.error IS NULL THEN job.errors
            WHEN array_ndims(job.errors) > 1 THEN array_append(ARRAY(SELECT unnest(job.errors)), wanted.error)
            ELSE array_append(job.errors, wanted.error)
        END,
        finalized_at = CASE
            WHEN {_CANCEL} OR wanted.state IN ('cancelled', 'completed', 'discarded') THEN now()
        END,
        scheduled_at = CASE
            WHEN {_CANCEL} OR wanted.delay_seconds IS NULL THEN job.scheduled_at
            ELSE now() + make_interval(secs => wanted.delay_seconds)
        END,
        metadata = CASE WHEN wanted.metadata IS NULL THEN job.metadata ELSE job.metadata || wanted.metadata END
    FROM wanted
    WHERE job.id = wanted.id
        AND job.id = ANY(ARRAY(
{_HELD}
        ))
    RETURNING job.id, job.state
)
{_NOT_DONE}
UNION ALL
SELECT done.id, 'cancelled'
FROM done
JOIN wanted USING (id)
WHERE done.state = 'cancelled' AND wanted.state <> 'cancelled'
"""

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

_QUEUE_UPSERT = """\
INSERT INTO {schema}river_queue (name, metadata, created_at, updated_at)
VALUES (CAST(:name AS text), '{{}}', now(), now())
ON CONFLICT (name) DO UPDATE SET updated_at = now()
"""


class Postgres:
    """River's statements for one schema of a PostgreSQL database.

    Args:
        schema: Where River's tables are; None leaves it to each session's search_path.
    """

    def __init__(self, schema: str | None) -> None:
        self._names = {
            "schema": qualifier(schema),
            "channel_prefix": "coalesce(current_schema(), '')" if schema is None else f"'{schema}'",
        }
        self._texts: dict[tuple[str, int], str] = {}

    def greeting(self) -> Query[Greeting]:
        """Ask the server for what a client must know before it works."""
        return self._query(_GREETING, {}, decode.greeting)

    def job_insert_many(self, jobs: Sequence[InsertParams]) -> Query[list[JobRow]]:
        """Insert jobs, and tell listeners; the rows in the order of *jobs*."""
        rows = msgspec.json.encode([document.inserted(job) for job in jobs]).decode()
        return self._query(_INSERT, {"jobs": rows}, decode.jobs)

    def job_get(self, job_id: int) -> Query[JobRow | None]:
        """One job, or None."""
        return self._query(_GET, {"id": job_id}, decode.first_job)

    def job_claim(self, queue: str, *, client_id: str, limit: int) -> Query[list[JobRow | UndecodableJob]]:
        """Claim up to *limit* due jobs of *queue*, in the order in which they are to start."""
        return self._query(_CLAIM, {"queue": queue, "client_id": client_id}, decode.claimed, limit)

    def job_give_back(
        self, queue: str, *, client_id: str, since: datetime, until: datetime, in_hand: Collection[int]
    ) -> Query[list[int]]:
        """Make available what *client_id* claimed of *queue* meanwhile and does not have *in_hand*; their ids."""
        parameters: dict[str, Value] = {
            "queue": queue,
            "client_id": client_id,
            "since": instant_text(since),
            "until": instant_text(until),
            "in_hand": f"{{{','.join(map(str, in_hand))}}}",
        }
        return self._query(_GIVE_BACK, parameters, decode.ids)

    def job_complete(self, job_id: int, attempted_at: str) -> Query[JobRow | None]:
        """Complete a job if the claim of *attempted_at* is still running; else None, and nothing is written."""
        return self._query(_COMPLETE, {"id": job_id, "attempted_at": attempted_at}, decode.first_job)

    def job_complete_many(self, claims: Sequence[tuple[int, str]]) -> Query[dict[int, Persisted]]:
        """Complete many jobs, each given by its id and the ``attempted_at`` of its claim."""
        ids = ",".join([str(job_id) for job_id, _ in claims])
        attempted_ats = ",".join([attempted_at for _, attempted_at in claims])
        parameters = {"ids": f"{{{ids}}}", "attempted_ats": f"{{{attempted_ats}}}"}
        return self._query(_COMPLETE_MANY, parameters, _persisted)

    def job_finish_many(self, transitions: Sequence[Transition]) -> Query[dict[int, Persisted]]:
        """End many attempts, each in its own way."""
        rows = json.dumps([document.ended(transition) for transition in transitions], ensure_ascii=False)
        return self._query(_FINISH_MANY, {"transitions": rows}, _persisted)

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

    def queue_upsert(self, queue: str) -> Query[None]:
        """Record that a queue is worked."""
        return self._query(_QUEUE_UPSERT, {"name": queue}, lambda _: None)

    def _query(
        self, template: str, parameters: Mapping[str, Value], read: Callable[[Rows], T], limit: int = 0
    ) -> Query[T]:
        text = self._texts.get((template, limit))
        if text is None:
            text = self._texts[template, limit] = template.format(limit=limit, **self._names)
        return Query(Statement(text, parameters), read)


def _persisted(rows: Rows) -> dict[int, Persisted]:
    return {decode.integer(row[0]): Persisted(row[1]) for row in rows}
