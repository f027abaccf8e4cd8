"""Queues as rows: look at them, pause and resume them, and give them metadata.

What clients are told travels in the same statement as the change, so that they hear of it when it is committed.
"""

from __future__ import annotations

from ..errors import InvalidOptionError, QueueNotFoundError
from ..gojson import dumps, quoted, recode
from ..operation import Operation
from ..queue import Queue
from ..sql import Dialect

ALL_QUEUES = "*"
"""In the place of a queue's name: all queues that are there; no error if there are none."""

_PAYLOAD_MOST_BYTES = 7_999
"""What PostgreSQL takes as the payload of a notification."""


def get(sql: Dialect, name: str) -> Operation[Queue]:
    """One queue.

    Raises:
        QueueNotFoundError: There is no such queue.
    """
    return _found(name, (yield from sql.queue_get(name)))


def list_first(sql: Dialect, first: int) -> Operation[list[Queue]]:
    """The first queues by name."""
    return (yield from sql.queue_list(first))


def pause(sql: Dialect, name: str) -> Operation[None]:
    """Have no client claim jobs of a queue, or of any queue, and tell them; nothing changes if it is paused already.

    Raises:
        QueueNotFoundError: There is no such queue.
    """
    count = yield from sql.queue_pause(_one(name), _switched("pause", name))
    _refuse_none(name, count)


def resume(sql: Dialect, name: str) -> Operation[None]:
    """Have clients claim jobs of a queue again, or of all queues, and tell them; nothing changes if it is not paused.

    Raises:
        QueueNotFoundError: There is no such queue.
    """
    count = yield from sql.queue_resume(_one(name), _switched("resume", name))
    _refuse_none(name, count)


def update(sql: Dialect, name: str, metadata: str | None) -> Operation[Queue]:
    """Replace a queue's metadata and tell clients.

    Args:
        metadata: A JSON object; None leaves it as it is, and only says that somebody was here.

    Raises:
        QueueNotFoundError: There is no such queue.
        InvalidOptionError: *metadata* is more than a notification can hold; nothing was written.
    """
    payload = None if metadata is None else _metadata_changed(name, metadata)
    return _found(name, (yield from sql.queue_update(name, metadata, payload)))


def _metadata_changed(name: str, metadata: str) -> str:
    payload = f'{{"action":"metadata_changed","metadata":{recode(metadata)},"queue":{quoted(name)}}}'
    size = len(payload.encode())
    if size > _PAYLOAD_MOST_BYTES:
        raise InvalidOptionError(
            f"metadata of a queue travels to its clients in a notification, which would have {size:,} bytes, and "
            f"PostgreSQL takes at most {_PAYLOAD_MOST_BYTES:,}: make it smaller"
        )
    return payload


def _one(name: str) -> str | None:
    return None if name == ALL_QUEUES else name


def _switched(action: str, name: str) -> str:
    return dumps({"action": action, "queue": name})


def _refuse_none(name: str, count: int) -> None:
    if not count and name != ALL_QUEUES:
        raise QueueNotFoundError(name)


def _found(name: str, queue: Queue | None) -> Queue:
    if queue is None:
        raise QueueNotFoundError(name)
    return queue


__all__ = ["ALL_QUEUES", "get", "list_first", "pause", "resume", "update"]
