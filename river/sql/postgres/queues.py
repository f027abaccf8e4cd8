"""The queues that are worked, and whether they are paused."""

from __future__ import annotations

from ...operation import Query
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


class QueueStatements(Statements):
    """The queues that are worked, and whether they are paused."""

    def queue_upsert(self, queue: str) -> Query[Queue]:
        """Record that a queue is worked; the queue as it is now."""
        return self._query(_UPSERT, {"name": queue}, lambda rows: decode.queues(rows)[0])

    def queue_get(self, queue: str) -> Query[Queue | None]:
        """One queue, or None."""
        return self._query(_GET, {"name": queue}, lambda rows: next(iter(decode.queues(rows)), None))
