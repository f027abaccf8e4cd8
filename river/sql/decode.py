"""From rows of text to values, one row at a time, so that one bad row is one bad job."""

from __future__ import annotations

import msgspec

from ..job import JobRow, UndecodableJob
from ..operation import Row, Rows, Value

_job = msgspec.json.Decoder(JobRow)
_undecodable = msgspec.json.Decoder(UndecodableJob)


def text(value: Value) -> str:
    """A column that the statement makes text; a driver that gives anything else is at fault."""
    if not isinstance(value, str):
        raise TypeError(f"a driver must give text as str, but gave {type(value).__name__}")
    return value


def integer(value: Value) -> int:
    """A column that the statement makes an integer."""
    if not isinstance(value, int):
        raise TypeError(f"a driver must give an integer as int, but gave {type(value).__name__}")
    return value


def jobs(rows: Rows) -> list[JobRow]:
    """Jobs in the statement's order.

    Raises:
        msgspec.ValidationError: A row cannot be read as a job; the message names the column.
    """
    return [_job.decode(text(row[0])) for row in rows]


def first_job(rows: Rows) -> JobRow | None:
    """The only job, or None."""
    return _job.decode(text(rows[0][0])) if rows else None


def claimed(rows: Rows) -> list[JobRow | UndecodableJob]:
    """Claimed jobs in the order in which they are to start; a row that cannot be read says so.

    ``UPDATE ... RETURNING`` promises no order, so it is made here.
    """
    decoded = [_claimed(row) for row in rows]
    decoded.sort(key=_order)
    return decoded


def _claimed(row: Row) -> JobRow | UndecodableJob:
    document = text(row[0])
    try:
        return _job.decode(document)
    except msgspec.DecodeError as error:
        return msgspec.structs.replace(_undecodable.decode(document), reason=_column_first(str(error)))


def _order(job: JobRow | UndecodableJob) -> tuple[int, float, int]:
    if isinstance(job, UndecodableJob):
        return (0, 0.0, job.id)
    return (job.priority, job.scheduled_at.timestamp(), job.id)


def _column_first(message: str) -> str:
    """Turn "Expected `object`, got `array` - at `$.metadata`" into "metadata: Expected ..."."""
    reason, separator, path = message.rpartition(" - at `$.")
    return f"{path.rstrip('`')}: {reason}" if separator else message
