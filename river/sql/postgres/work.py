"""Taking jobs to work them, and ending their attempts."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from ...engine.transition import Persisted, Transition
from ...insert import instant_text
from ...job import JobRow, UndecodableJob
from ...operation import Query, Rows, Value
from .. import decode, document
from ..decode import Greeting
from .base import Statements

_GREETING = """\
SELECT CAST({channel_prefix} AS text), CAST(to_json(clock_timestamp()) AS text)
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
-- KNOWN KINDS --
    ORDER BY priority, scheduled_at, id
    -- A literal out of a small set, so that each is a prepared statement of its own with a plan that fits.
    LIMIT {limit}
    -- SKIP LOCKED: two producers never wait for each other's rows.
    FOR UPDATE SKIP LOCKED
))
RETURNING CAST(row_to_json(job) AS text)
"""

_KNOWN_KINDS = """\
        -- IS TRUE hides the condition from the index on kind, in which a rare kind would lead past the queue's order.
        AND (kind = ANY(ARRAY(SELECT json_array_elements_text(CAST(CAST(:kinds AS text) AS json))))) IS TRUE
"""

_CLAIM_ANY = _CLAIM.replace("-- KNOWN KINDS --\n", "")
_CLAIM_KNOWN = _CLAIM.replace("-- KNOWN KINDS --\n", _KNOWN_KINDS)

# When the first job that waits for its time is due, or has just become due: one step into the index of the claim for
# each priority.
_DUE_IN = """\
SELECT CAST(ceil(extract(epoch FROM min(first.scheduled_at) - now()) * 1000) AS bigint)
FROM (VALUES (CAST(1 AS smallint)), (CAST(2 AS smallint)), (CAST(3 AS smallint)), (CAST(4 AS smallint)))
    AS priorities (priority)
CROSS JOIN LATERAL (
    SELECT scheduled_at
    FROM {schema}river_job
    WHERE state = 'available'
        AND queue = CAST(:queue AS text)
        AND priority = priorities.priority
        -- One that has become due since the claim looked must not be missed; the claim is soon repeated for it.
        AND scheduled_at > now() - interval '2 seconds'
    ORDER BY scheduled_at
    LIMIT 1
) AS first
"""

# Claims, each as an id and the time of its claim.
_WANTED = """\
WITH wanted AS (
    SELECT *
    FROM unnest(
        CAST(CAST(:ids AS text) AS bigint[]),
        CAST(CAST(:attempted_ats AS text) AS timestamptz[])
    ) AS wanted (id, attempted_at)
)"""

# The claims that still run and whose cancellation somebody has asked for, and the value that says so.
_CANCELLATIONS = f"""\
{_WANTED}
SELECT id, CAST(metadata -> 'cancel_attempted_at' AS text)
FROM {{schema}}river_job
WHERE id = ANY(CAST((SELECT array_agg(id) FROM wanted) AS bigint[]))
    AND ((id, attempted_at) IN (SELECT id, attempted_at FROM wanted)) IS TRUE
    AND state IS NOT DISTINCT FROM 'running'
    AND (metadata ? 'cancel_attempted_at') IS TRUE
"""

_PAUSED = """\
SELECT name, paused_at IS NOT NULL
FROM {schema}river_queue
WHERE name = ANY(ARRAY(SELECT json_array_elements_text(CAST(CAST(:queues AS text) AS json))))
"""

# On the channel of whoever asks, so that no other implementation hears it.
_PROBE = """\
SELECT count(pg_notify({channel_prefix} || '.' || CAST(:topic AS text), CAST(:payload AS text)))
"""

# What this client claimed and does not know of, because the answer was lost.
_GIVE_BACK = """\
UPDATE {schema}river_job
SET state = CASE
        -- Somebody has asked for its cancellation, and found it running.
        WHEN metadata ? 'cancel_attempted_at' THEN CAST('cancelled' AS {schema}river_job_state)
        ELSE 'available'
    END,
    finalized_at = CASE WHEN metadata ? 'cancel_attempted_at' THEN now() END,
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
{_WANTED},
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


class WorkStatements(Statements):
    """Taking jobs to work them, and ending their attempts."""

    def greeting(self) -> Query[Greeting]:
        """Ask the server for what a client must know before it works."""
        return self._query(_GREETING, {}, decode.greeting)

    def job_claim(
        self, queue: str, *, client_id: str, limit: int, kinds: Collection[str] | None = None
    ) -> Query[list[JobRow | UndecodableJob]]:
        """Claim up to *limit* due jobs of *queue*, in the order in which they are to start; if asked, of some kinds."""
        parameters: dict[str, Value] = {"queue": queue, "client_id": client_id}
        if kinds is None:
            return self._query(_CLAIM_ANY, parameters, decode.claimed, limit)
        parameters["kinds"] = json.dumps(list(kinds))
        return self._query(_CLAIM_KNOWN, parameters, decode.claimed, limit)

    def job_due_in(self, queue: str) -> Query[int | None]:
        """In how many milliseconds the first job of *queue* is due that is available and waits for its time."""
        return self._query(_DUE_IN, {"queue": queue}, _milliseconds)

    def job_cancellations(self, claims: Sequence[tuple[int, str]]) -> Query[dict[int, Any]]:
        """Of running claims those whose cancellation was asked for, and the value in the metadata that says so."""
        return self._query(_CANCELLATIONS, _claims(claims), _values)

    def queues_paused(self, queues: Collection[str]) -> Query[dict[str, bool]]:
        """Of those *queues* that there are, whether they are paused."""
        return self._query(_PAUSED, {"queues": json.dumps(list(queues))}, _flags)

    def probe(self, topic: str, payload: str) -> Query[None]:
        """Tell all who listen to *topic*, once the transaction is committed."""
        return self._query(_PROBE, {"topic": topic, "payload": payload}, lambda _: None)

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
        return self._query(_COMPLETE_MANY, _claims(claims), _persisted)

    def job_finish_many(self, transitions: Sequence[Transition]) -> Query[dict[int, Persisted]]:
        """End many attempts, each in its own way."""
        rows = json.dumps([document.ended(transition) for transition in transitions], ensure_ascii=False)
        return self._query(_FINISH_MANY, {"transitions": rows}, _persisted)


def _claims(claims: Sequence[tuple[int, str]]) -> dict[str, Value]:
    ids = ",".join([str(job_id) for job_id, _ in claims])
    attempted_ats = ",".join([attempted_at for _, attempted_at in claims])
    return {"ids": f"{{{ids}}}", "attempted_ats": f"{{{attempted_ats}}}"}


def _milliseconds(rows: Rows) -> int | None:
    return None if rows[0][0] is None else decode.integer(rows[0][0])


def _values(rows: Rows) -> dict[int, Any]:
    return {decode.integer(row[0]): _value(decode.text(row[1])) for row in rows}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return text  # nested too deeply, or a number too long; no value that a claim can have read


def _flags(rows: Rows) -> dict[str, bool]:
    return {decode.text(row[0]): bool(row[1]) for row in rows}


def _persisted(rows: Rows) -> dict[int, Persisted]:
    return {decode.integer(row[0]): Persisted(row[1]) for row in rows}
