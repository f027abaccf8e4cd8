"""Jobs as values: a row of ``river_job``, and the same row with its args decoded.

A row is read from one JSON document by one decoder, in C, for every database and driver. What must not stop a
row from being read is kept as it is and read when somebody asks: args, and the recorded errors, which may
have been written by any implementation of River in any shape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, TypeAlias

import msgspec
from msgspec import Raw, field
from typing_extensions import TypeVar

A = TypeVar("A", default=Any)


class JobState(StrEnum):
    """Where a job is in its life."""

    AVAILABLE = "available"
    """Due, or due within seconds: waits for a free worker."""
    CANCELLED = "cancelled"
    COMPLETED = "completed"
    DISCARDED = "discarded"
    """Failed at its last attempt, or given up by its worker."""
    PENDING = "pending"
    """Parked until somebody makes it available."""
    RETRYABLE = "retryable"
    """Failed, and due again at ``scheduled_at``."""
    RUNNING = "running"
    SCHEDULED = "scheduled"
    """Due at ``scheduled_at``."""

    @property
    def finalized(self) -> bool:
        """Whether a job in this state is never worked again by itself."""
        return self in (JobState.CANCELLED, JobState.COMPLETED, JobState.DISCARDED)


@dataclass(frozen=True, slots=True)
class AttemptError:
    """One failed attempt, as recorded in the job's row.

    Attributes:
        at: When the attempt started (for a rescue: when the job was rescued). None where the record has no
            readable time.
        attempt: Which attempt it was; 1 is the first. 0 where the record does not say.
        error: The error's text.
        trace: A traceback, or an empty string.
    """

    at: datetime | None
    attempt: int
    error: str
    trace: str


class JobRow(msgspec.Struct, frozen=True):
    """A job as it is stored. Instants are aware and in UTC.

    Attributes:
        id: Stable for the job's whole life, retries included.
        attempt: How often the job was claimed; snoozes and interruptions give theirs back.
        attempted_at: When it was last claimed.
        attempted_by: The ids of the clients that claimed it, oldest first; at most the last 100.
        recorded_args: The args as they came from the database; see `encoded_args`.
        recorded_errors: The elements of ``errors`` as JSON texts; see `errors`.
        scheduled_at: When the job is, or was, due.
        unique_key_text: The unique key as the database prints it; see `unique_key`.
        unique_states_text: The states in which the job blocks others with its unique key, as eight bits, or on
            SQLite as the integer that they make.
    """

    id: int
    state: JobState
    attempt: int
    max_attempts: int
    attempted_at: datetime | None
    created_at: datetime
    finalized_at: datetime | None
    scheduled_at: datetime
    priority: int
    recorded_args: Raw = field(name="args")
    attempted_by: list[str] | None
    recorded_errors: list[Raw] | None = field(name="errors")
    kind: str
    metadata: dict[str, Any]
    queue: str
    tags: list[str]
    unique_key_text: str | None = field(name="unique_key")
    unique_states_text: str | int | None = field(name="unique_states")

    def __post_init__(self) -> None:
        # A session's TimeZone decides the offset that PostgreSQL prints.
        for name in ("attempted_at", "created_at", "finalized_at", "scheduled_at"):
            at: datetime | None = getattr(self, name)
            if at is not None and at.tzinfo is not UTC:
                msgspec.structs.force_setattr(self, name, at.astimezone(UTC))

    def __repr__(self) -> str:
        return self._shown(bytes(self.recorded_args)[:200].decode(errors="replace"))

    def _shown(self, args: str) -> str:
        attempt = f"{self.attempt}/{self.max_attempts}"
        return (
            f"<{type(self).__name__} {self.id} {self.kind} {self.state.value} queue={self.queue} "
            f"attempt={attempt} args={args}>"
        )

    @property
    def encoded_args(self) -> str:
        """The args as JSON text, as the database gives it."""
        return bytes(self.recorded_args).decode()

    @property
    def errors(self) -> list[AttemptError]:
        """The failed attempts, oldest first; odd records are read as well as they can be."""
        return [_attempt_error(raw) for raw in self.recorded_errors or ()]

    @property
    def unique_key(self) -> bytes | None:
        """The 32 bytes that make the job unique, or None."""
        return None if self.unique_key_text is None else _bytea(self.unique_key_text)


class Job(JobRow, Generic[A], frozen=True):
    """A stored job, and its args as the type that they were inserted as."""

    args: A = field(name="decoded_args")

    def __repr__(self) -> str:
        return self._shown(repr(self.args))

    @classmethod
    def of(cls, row: JobRow, args: A) -> Job[A]:
        """The job in *row*, whose args decode to *args*."""
        make: Any = cls  # a checker cannot count the slice below
        job: Job[A] = make(*msgspec.structs.astuple(row)[:_ROW_FIELDS], args)
        return job


_ROW_FIELDS = len(JobRow.__struct_fields__)


@dataclass(frozen=True, slots=True)
class InsertResult(Generic[A]):
    """What an insert did.

    Attributes:
        job: The inserted job; the one that was there already, if *duplicate*.
        duplicate: Whether a job with the same unique key was there already, so that none was inserted.
    """

    job: Job[A]
    duplicate: bool = False


InsertedRow: TypeAlias = tuple[JobRow, bool]
"""A row that an insert gave back, and whether it was there already, with the same unique key."""


@dataclass(frozen=True, slots=True)
class UndecodableJob:
    """A claimed row that cannot be read as a job.

    Attributes:
        row: What could be read; neutral values in the place of the rest.
        reason: Which column is at fault, and why.
    """

    row: JobRow
    reason: str


class _Recorded(msgspec.Struct):
    at: Raw = field(default_factory=Raw)
    attempt: Raw = field(default_factory=Raw)
    error: Raw = field(default_factory=Raw)
    trace: Raw = field(default_factory=Raw)


_record = msgspec.json.Decoder(_Recorded)
_at = msgspec.json.Decoder(datetime)
_attempt = msgspec.json.Decoder(int)
_text = msgspec.json.Decoder(str)


def _attempt_error(raw: Raw) -> AttemptError:
    try:
        recorded = _record.decode(raw)
    except msgspec.DecodeError:
        return AttemptError(None, 0, bytes(raw).decode(), "")
    at = _lenient(_at, recorded.at, None)
    return AttemptError(
        at=_in_utc(at),
        attempt=_lenient(_attempt, recorded.attempt, 0),
        error=_lenient_text(recorded.error),
        trace=_lenient_text(recorded.trace),
    )


def _in_utc(at: datetime | None) -> datetime | None:
    try:
        return at if at is None else at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC)
    except OverflowError:
        return None  # outside of the years 1 to 9999


def _lenient(decoder: msgspec.json.Decoder[Any], raw: Raw, default: Any) -> Any:
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        return default


def _lenient_text(raw: Raw) -> str:
    text = bytes(raw).decode()
    return "" if text in ("", "null") else str(_lenient(_text, raw, text))


def _bytea(text: str) -> bytes:
    """Read a bytea as PostgreSQL prints it, under either setting of ``bytea_output``."""
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    plain = re.sub(r"\\(\\|[0-7]{3})", lambda m: "\\" if m[1] == "\\" else chr(int(m[1], 8)), text)
    return plain.encode("latin-1")
