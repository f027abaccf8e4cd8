"""From rows of text to values, one row at a time, so that one bad row is one bad job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..job import JobRow, UndecodableJob
from ..operation import Row, Rows, Value

_job = msgspec.json.Decoder(JobRow)
_columns = msgspec.json.Decoder(dict[str, msgspec.Raw])
_types = {field.encode_name: field.type for field in msgspec.structs.fields(JobRow)}


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a server says to a client that is about to work.

    Attributes:
        channel_prefix: The schema that notifications are published under, as this session sees it.
        now: The server's time. With the client's id it is the client's incarnation: what runs since before
            belongs to an earlier one.
    """

    channel_prefix: str
    now: datetime


def greeting(rows: Rows) -> Greeting:
    """The server's answer to a greeting."""
    prefix, now = rows[0]
    return Greeting(text(prefix), msgspec.json.decode(text(now), type=datetime).astimezone(UTC))


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
        return UndecodableJob(_salvage(document), _column_first(str(error)))


def _salvage(document: str) -> JobRow:
    """What can be read of a row, column by column."""
    columns = _columns.decode(document)
    # The claim itself has just written attempted_at, so it is always there to stand in for other times.
    neutral = dict.fromkeys(("created_at", "scheduled_at"), columns["attempted_at"])
    neutral |= {"metadata": msgspec.Raw(b"{}"), "tags": msgspec.Raw(b"[]")}
    null = msgspec.Raw(b"null")
    readable = {
        name: columns[name] if _reads(columns[name], type_) else neutral.get(name, null)
        for name, type_ in _types.items()
    }
    return _job.decode(msgspec.json.encode(readable))


def _reads(column: msgspec.Raw, type_: Any) -> bool:
    try:
        msgspec.json.decode(column, type=type_)
    except msgspec.DecodeError:
        return False
    return True


def _order(claimed: JobRow | UndecodableJob) -> tuple[int, float, int]:
    job = claimed.row if isinstance(claimed, UndecodableJob) else claimed
    return (job.priority, job.scheduled_at.timestamp(), job.id)


def _column_first(message: str) -> str:
    """Turn "Expected `object`, got `array` - at `$.metadata`" into "metadata: Expected ..."."""
    reason, separator, path = message.rpartition(" - at `$.")
    return f"{path.rstrip('`')}: {reason}" if separator else message
