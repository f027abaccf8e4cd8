"""From rows of text to values, one row at a time, so that one bad row is one bad job."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..errors import UndecodableJobError
from ..job import InsertedRow, JobRow, UndecodableJob
from ..listing import FoundJobs
from ..nesting import pruned
from ..operation import Row, Rows, Value
from ..queue import Queue

_job = msgspec.json.Decoder(JobRow)
_queue = msgspec.json.Decoder(Queue)
_columns = msgspec.json.Decoder(dict[str, msgspec.Raw])
_types = {field.encode_name: field.type for field in msgspec.structs.fields(JobRow)}

_INSTANTS = ("attempted_at", "created_at", "finalized_at", "scheduled_at")
_ALWAYS_SET = ("created_at", "scheduled_at")
_QUEUE_INSTANTS = ("created_at", "paused_at", "updated_at")
_NULL = msgspec.Raw(b"null")
_EPOCH = msgspec.Raw(b'"1970-01-01T00:00:00Z"')
_NEUTRAL = {"metadata": msgspec.Raw(b"{}"), "tags": msgspec.Raw(b"[]")}
_FIRST_OF_ALL, _LAST_OF_ALL = msgspec.Raw(b'"0001-01-01T00:00:00Z"'), msgspec.Raw(b'"9999-12-31T23:59:59.999999Z"')

_TOO_DEEP = f'"{uuid.uuid4().hex}"'
"""Stands where a row was too deep to be read; a text that no row holds."""


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


def ids(rows: Rows) -> list[int]:
    """Ids of jobs."""
    return [integer(row[0]) for row in rows]


def jobs(rows: Rows) -> list[JobRow]:
    """Jobs in the statement's order.

    Raises:
        UndecodableJobError: A row cannot be read as a job; the message names the column.
    """
    return [_whole(row) for row in rows]


def first_job(rows: Rows) -> JobRow | None:
    """The only job, or None.

    Raises:
        UndecodableJobError: The row cannot be read as a job; the message names the column.
    """
    return _whole(rows[0]) if rows else None


def inserted(rows: Rows) -> list[InsertedRow]:
    """Jobs in the statement's order, and whether each was there already, which not every statement has to say.

    With neutral values where a row cannot be read: one that was there already must not make the insert of others fail,
    which may be committed by now.
    """
    return [(_read(row)[0], len(row) > 1 and bool(row[1])) for row in rows]


def queues(rows: Rows) -> list[Queue]:
    """Queues in the statement's order, whatever other programs have written.

    Metadata that are no object are read as empty, and a time that Python cannot hold as the nearest one that it can: so
    ``infinity`` stays later than any other, and a queue that is paused since then is paused.
    """
    return [_queue_of(text(row[0])) for row in rows]


def first_queue(rows: Rows) -> Queue | None:
    """The only queue, or None."""
    return next(iter(queues(rows)), None)


def _queue_of(document: str) -> Queue:
    try:
        try:
            return _queue.decode(document)
        except (msgspec.DecodeError, OverflowError):
            return _salvaged_queue(document)
    except RecursionError:
        return _salvaged_queue(pruned(document, 1, _TOO_DEEP))


def _salvaged_queue(document: str) -> Queue:
    columns = _columns.decode(document)
    if _reason(columns["metadata"], dict[str, Any]) is not None:
        columns["metadata"] = _NEUTRAL["metadata"]
    for name in _QUEUE_INSTANTS:
        columns[name], reason = _instant(columns[name], datetime | None)
        if reason is not None:
            columns[name] = _nearest(columns[name])
    return _queue.decode(msgspec.json.encode(columns))


def _nearest(column: msgspec.Raw) -> msgspec.Raw:
    """The instant that is nearest to one which Python cannot hold."""
    written = msgspec.json.decode(column, type=str)
    early = written.startswith(("-", "0001-")) or written.endswith("BC")
    return _FIRST_OF_ALL if early else _LAST_OF_ALL


def listed(rows: Rows, order: str) -> FoundJobs:
    """Jobs in the statement's order, and which of them cannot be read as a whole.

    Args:
        rows: What the statement has found.
        order: The column by which they are ordered.
    """
    found = list(map(_read, rows))
    undecodable = {job.id: reason for job, reason in found if reason is not None}
    odd_end = _odd_time(text(rows[-1][0]), order) if found and found[-1][1] is not None else None
    return FoundJobs([job for job, _ in found], undecodable, odd_end)


def _odd_time(document: str, column: str) -> str | None:
    """A time of a row as the database writes it, if it is one that cannot be read."""
    if column not in _INSTANTS:
        return None
    written = _columns.decode(pruned(document, 1, _TOO_DEEP))[column]
    _, reason = _instant(written, datetime | None)
    return None if reason is None else msgspec.json.decode(written, type=str)


def first_salvaged(rows: Rows) -> JobRow | None:
    """The only job, or None; with neutral values where it cannot be read.

    For a statement that has changed the job, which an error would hide.
    """
    return _read(rows[0])[0] if rows else None


def deleted(rows: Rows) -> tuple[JobRow, bool] | None:
    """The only job as it was, and whether it was deleted; None without any."""
    return (_read(rows[0])[0], bool(rows[0][1])) if rows else None


def salvaged(rows: Rows) -> list[JobRow]:
    """Jobs in the statement's order, with neutral values where a row cannot be read."""
    return [_read(row)[0] for row in rows]


def claimed(rows: Rows) -> list[JobRow | UndecodableJob]:
    """Claimed jobs in the order in which they are to start; a row that cannot be read says so.

    ``UPDATE ... RETURNING`` promises no order, so it is made here.
    """
    decoded = [job if reason is None else UndecodableJob(job, reason) for job, reason in map(_read, rows)]
    decoded.sort(key=_order)
    return decoded


def _whole(row: Row) -> JobRow:
    job, reason = _read(row)
    if reason is not None:
        raise UndecodableJobError(job.id, reason)
    return job


def _read(row: Row) -> tuple[JobRow, str | None]:
    """A job, and why it could not be read as a whole, if so."""
    document = text(row[0])
    try:
        try:
            return _job.decode(document), None
        except (msgspec.DecodeError, OverflowError):
            return _salvage(document)
    except RecursionError:
        return _salvage(pruned(document, 2, _TOO_DEEP))


def _salvage(document: str) -> tuple[JobRow, str | None]:
    """What can be read of a row, column by column, and why not all of it."""
    columns = _columns.decode(document)
    readable, reasons = dict[str, msgspec.Raw](), list[str]()
    for name, type_ in _types.items():
        column = columns.get(name, _NULL)
        column, reason = _instant(column, type_) if name in _INSTANTS else (column, _reason(column, type_))
        if reason is not None:
            reasons.append(f"{name}: {reason}")
            column = _stand_in(columns) if name in _ALWAYS_SET else _NEUTRAL.get(name, _NULL)
        readable[name] = column
    return _job.decode(msgspec.json.encode(readable)), "; ".join(reasons) or None


def _stand_in(columns: dict[str, msgspec.Raw]) -> msgspec.Raw:
    """A time for one that cannot be read: that of the claim, which a claim itself has just written, if there is any."""
    attempted_at, reason = _instant(columns["attempted_at"], datetime)
    return attempted_at if reason is None else _EPOCH


def _reason(column: msgspec.Raw, type_: Any) -> str | None:
    if _TOO_DEEP.encode() in bytes(column):
        return "it is nested too deeply to be read"
    try:
        value = msgspec.json.decode(column, type=type_)
        if isinstance(value, datetime):
            value.astimezone(UTC)
    except msgspec.DecodeError as error:
        return str(error).removesuffix(" - at `$`")
    except OverflowError:
        return "it is not in the years 1 to 9999 of UTC"
    return None


def _instant(column: msgspec.Raw, type_: Any) -> tuple[msgspec.Raw, str | None]:
    """An instant, and why it cannot be read, if so.

    One from before standard time has seconds in its offset, if the session's zone is a local one.
    """
    reason = _reason(column, type_)
    if reason is None:
        return column, None
    try:
        instant = datetime.fromisoformat(bytes(column).decode().strip('"')).astimezone(UTC)
    except (ValueError, OverflowError):
        return column, reason
    return msgspec.Raw(msgspec.json.encode(instant)), None


def _order(claimed: JobRow | UndecodableJob) -> tuple[int, float, int]:
    job = claimed.row if isinstance(claimed, UndecodableJob) else claimed
    return (job.priority, job.scheduled_at.timestamp(), job.id)
