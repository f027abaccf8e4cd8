"""Where a page of a list ends: the place after one job, in the list's order.

    eyJpZCI6...  =  base64 of  {"id": ..., "kind": ..., "queue": ..., "sort_field": ..., "time": ...}

The text is the same, byte for byte, in every implementation of River, so that one can go on with a list that another
has begun: padded, URL-safe base64 of JSON as Go writes it. A time that is null, and the time of a list by id, is
written as the beginning of the year 1.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias, get_args

import msgspec

from ..args import bad_text
from ..errors import InvalidCursorError
from ..gojson import Json, dumps

SortField: TypeAlias = Literal["id", "scheduled_at", "finalized_at", "time"]
SORT_FIELDS: tuple[SortField, ...] = get_args(SortField)

YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)
"""What stands in a cursor for no time."""

_BIGINT = 1 << 63
_STANDARD_TO_URL_SAFE = str.maketrans("+/", "-_")


class _Document(msgspec.Struct):
    id: int
    kind: str
    queue: str
    sort_field: str
    time: datetime


_document = msgspec.json.Decoder(_Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListCursor:
    """The place after one job in a list. ``str(cursor)`` is a text to hand to others, which `parse` reads again.

    It is good for a list with the same order, direction and filters as the one that it comes from; for the order
    "time" that includes which state is named first.

    Attributes:
        id: The job's id.
        kind: Its kind.
        queue: Its queue.
        sort_field: The order of the list.
        time: The job's time in that order, aware and in UTC. None if it has none, and in the order "id".

    Raises:
        InvalidCursorError: A value is of another type, the id has more than 64 bits, or the time has no zone.
    """

    id: int
    kind: str
    queue: str
    sort_field: SortField
    time: datetime | None

    def __post_init__(self) -> None:
        _check(self.id, self.kind, self.queue, self.sort_field, self.time)

    def __str__(self) -> str:
        document: dict[str, Json] = {
            "id": self.id,
            "kind": self.kind,
            "queue": self.queue,
            "sort_field": self.sort_field,
            "time": rfc3339(self.time or YEAR_ONE),
        }
        return base64.urlsafe_b64encode(dumps(document).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> JobListCursor:
        """The cursor that *text* stands for, which any implementation of River may have written.

        Raises:
            InvalidCursorError: It stands for none.
        """
        document = _read(text)
        for sort_field in SORT_FIELDS:
            if sort_field == document.sort_field:
                time = document.time.astimezone(UTC)
                return cls(
                    id=document.id,
                    kind=document.kind,
                    queue=document.queue,
                    sort_field=sort_field,
                    time=None if time == YEAR_ONE or sort_field == "id" else time,
                )
        raise InvalidCursorError(
            f"after {_shown(text)} is a cursor of the order {document.sort_field!r}, and there is none; there are "
            f"{', '.join(SORT_FIELDS)}"
        )


def rfc3339(at: datetime) -> str:
    """An aware instant as Go writes it: in UTC, with as many digits of a second as are needed."""
    utc = at.astimezone(UTC).replace(tzinfo=None)
    fraction = f".{utc.microsecond:06}".rstrip("0") if utc.microsecond else ""
    return f"{utc.isoformat(timespec='seconds').partition('.')[0]}{fraction}Z"


def _check(job_id: object, kind: object, queue: object, sort_field: object, time: object) -> None:
    """Refuse a cursor that the host has made itself, and made wrongly."""
    if not isinstance(job_id, int) or isinstance(job_id, bool) or not -_BIGINT <= job_id < _BIGINT:
        raise _refused("id", job_id, "the id of a job, a whole number of at most 64 bits")
    for name, value in (("kind", kind), ("queue", queue)):
        if not isinstance(value, str) or bad_text(value):
            raise _refused(name, value, "a text that PostgreSQL can hold")
    if sort_field not in SORT_FIELDS:
        raise _refused("sort_field", sort_field, f"one of {', '.join(map(repr, SORT_FIELDS))}")
    if time is not None and not _is_instant(time):
        raise _refused("time", time, "None or an aware datetime, in the years 1 to 9999 of UTC")


def _is_instant(value: object) -> bool:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        return False
    try:
        value.astimezone(UTC)
    except OverflowError:
        return False
    return True


def _refused(name: str, value: object, rule: str) -> InvalidCursorError:
    return InvalidCursorError(f"{name} of a JobListCursor must be {rule}, not {value!r}: take page.cursor as it is")


def _read(text: object) -> _Document:
    if not isinstance(text, str):
        raise InvalidCursorError(
            f"after must be a cursor, its text, or a job of the list, not {type(text).__name__}: {text!r}"
        )
    # Other implementations read either alphabet, and some leave the padding out.
    plain = text.strip().translate(_STANDARD_TO_URL_SAFE).rstrip("=")
    try:
        document = base64.b64decode(plain + "=" * (-len(plain) % 4), altchars="-_", validate=True)
        read = _document.decode(document)
        if read.time.tzinfo is None:
            raise InvalidCursorError(f"after {_shown(text)} is no cursor: its time has no zone; {_REMEDY}")
        read.time.astimezone(UTC)
    except (binascii.Error, ValueError, msgspec.DecodeError, OverflowError) as error:
        if isinstance(error, InvalidCursorError):
            raise
        raise InvalidCursorError(f"after {_shown(text)} is no cursor ({error}); {_REMEDY}") from error
    if abs(read.id) >= _BIGINT:
        raise InvalidCursorError(f"after {_shown(text)} is no cursor: its id has more than 64 bits; {_REMEDY}")
    return read


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


_REMEDY = "pass str(page.cursor) of an earlier page as it is"

__all__ = ["SORT_FIELDS", "YEAR_ONE", "JobListCursor", "SortField", "rfc3339"]
