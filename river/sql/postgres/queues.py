"""The queues that are worked, and whether they are paused."""

from __future__ import annotations

from ...operation import Query, Rows, Value
from ...queue import Queue
from .. import decode
from .base import Statements

_UPSERT = """\
INSERT INTO {schema}river_queue AS queue (name, metadata, created_at, updated_at)
VALUES (CAST(:name AS text), '{{}}', now(), now())
ON CONFLICT (name) DO UPDATE SET updated_at = now()
RETURNING CAST(row_to_json(queue) AS text)
"""

_GET = """\
SELECT CAST(row_to_json(queue) AS text)
FROM {schema}river_queue AS queue
WHERE name = CAST(:name AS text)
"""

_LIST = """\
SELECT CAST(row_to_json(queue) AS text)
FROM (
    SELECT *
    FROM {schema}river_queue
    ORDER BY name
    LIMIT CAST(:first AS bigint)
) AS queue
ORDER BY name
"""

# Not now(), here and below: the host's transaction may have begun long ago.
_PAUSE = """\
    UPDATE {schema}river_queue
    SET paused_at = coalesce(paused_at, clock_timestamp()),
        updated_at = CASE WHEN paused_at IS NULL THEN clock_timestamp() ELSE updated_at END"""

_RESUME = """\
    UPDATE {schema}river_queue
    SET paused_at = NULL,
        updated_at = CASE WHEN paused_at IS NULL THEN updated_at ELSE clock_timestamp() END"""

_NOTIFIED = "SELECT count(pg_notify({channel_prefix} || '.river_control', CAST(:payload AS text)))"

_ONE = f"""\
    WHERE name = CAST(:name AS text)
    RETURNING name
),
notified AS (
    {_NOTIFIED} FROM switched
)
"""

# Told even if there is no queue yet.
_ALL = f"""\
    RETURNING name
),
notified AS (
    {_NOTIFIED}
)
"""

# Joining the notification, which is one row, sends it.
_SWITCH = """\
WITH switched AS (
{update}
{rest}SELECT (SELECT count(*) FROM switched)
FROM notified
"""

_PAUSE_ONE, _PAUSE_ALL, _RESUME_ONE, _RESUME_ALL = (
    _SWITCH.replace("{update}", update).replace("{rest}", rest) for update in (_PAUSE, _RESUME) for rest in (_ONE, _ALL)
)

_UPDATE = """\
WITH updated AS (
    UPDATE {schema}river_queue
    SET metadata = coalesce(CAST(CAST(:metadata AS text) AS jsonb), metadata),
        updated_at = clock_timestamp()
    WHERE name = CAST(:name AS text)
    RETURNING *
),
-- The aggregate makes this one row, so that joining it sends the notification and changes nothing else.
notified AS (
    SELECT count(pg_notify({channel_prefix} || '.river_control', CAST(:payload AS text)))
    FROM updated
    WHERE CAST(:payload AS text) IS NOT NULL
)
SELECT CAST(row_to_json(updated) AS text)
FROM updated, notified
"""


class QueueStatements(Statements):
    """The queues that are worked, and whether they are paused."""

    def queue_upsert(self, queue: str) -> Query[Queue]:
        """Record that a queue is worked; the queue as it is now."""
        return self._query(_UPSERT, {"name": queue}, lambda rows: decode.queues(rows)[0])

    def queue_get(self, queue: str) -> Query[Queue | None]:
        """One queue, or None."""
        return self._query(_GET, {"name": queue}, decode.first_queue)

    def queue_list(self, first: int) -> Query[list[Queue]]:
        """The first queues by name."""
        return self._query(_LIST, {"first": first}, decode.queues)

    def queue_pause(self, queue: str | None, payload: str) -> Query[int]:
        """Pause a queue, or all if None, and tell clients; how many there are of that name."""
        return self._switch(_PAUSE_ALL if queue is None else _PAUSE_ONE, queue, payload)

    def queue_resume(self, queue: str | None, payload: str) -> Query[int]:
        """Resume a queue, or all if None, and tell clients; how many there are of that name."""
        return self._switch(_RESUME_ALL if queue is None else _RESUME_ONE, queue, payload)

    def queue_update(self, queue: str, metadata: str | None, payload: str | None) -> Query[Queue | None]:
        """Replace a queue's metadata, if there are new ones, and tell clients; the queue as it is then, or None."""
        parameters: dict[str, Value] = {"name": queue, "metadata": metadata, "payload": payload}
        return self._query(_UPDATE, parameters, decode.first_queue)

    def _switch(self, template: str, queue: str | None, payload: str) -> Query[int]:
        parameters: dict[str, Value] = {"payload": payload} if queue is None else {"name": queue, "payload": payload}
        return self._query(template, parameters, _count)


def _count(rows: Rows) -> int:
    return decode.integer(rows[0][0])
