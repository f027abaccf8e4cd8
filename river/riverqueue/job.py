"""A stored job as the official client shows it: a plain dataclass whose args are decoded JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..args import any_json
from ..job import AttemptError as RiverAttemptError
from ..job import JobRow, JobState

_NO_TIME = datetime.min.replace(tzinfo=UTC)


@dataclass
class AttemptError:
    """One failed attempt.

    Attributes:
        at: When the attempt started; the year 1 where the record has no readable time.
        attempt: Which attempt it was; 1 is the first.
        error: The error's text.
        trace: A traceback, or an empty string.
    """

    at: datetime
    attempt: int
    error: str
    trace: str

    @classmethod
    def of(cls, recorded: RiverAttemptError) -> AttemptError:
        """The same error, of River's own class."""
        return cls(
            at=_NO_TIME if recorded.at is None else recorded.at,
            attempt=recorded.attempt,
            error=recorded.error,
            trace=recorded.trace,
        )

    def to_json(self) -> str:
        """The error as a job's row holds it."""
        at = self.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return json.dumps({"at": at, "attempt": self.attempt, "error": self.error, "trace": self.trace})


@dataclass
class Job:
    """A row of ``river_job``. Instants are aware and in UTC.

    Attributes:
        args: The decoded JSON of the job's args.
        attempted_by: The ids of the clients that claimed the job, oldest first; None before the first.
        errors: The failed attempts, oldest first; None before the first.
        scheduled_at: When the job is, or was, due.
        unique_key: What makes the job unique; None if nothing does.
    """

    id: int
    args: dict[str, Any]
    attempt: int
    attempted_at: datetime | None
    attempted_by: list[str] | None
    created_at: datetime
    errors: list[AttemptError] | None
    finalized_at: datetime | None
    kind: str
    max_attempts: int
    metadata: dict[str, Any]
    priority: int
    queue: str
    scheduled_at: datetime
    state: JobState
    tags: list[str]
    unique_key: bytes | None

    @classmethod
    def of(cls, row: JobRow) -> Job:
        """The job in a row."""
        return cls(
            id=row.id,
            args=any_json(row.encoded_args),
            attempt=row.attempt,
            attempted_at=row.attempted_at,
            attempted_by=row.attempted_by,
            created_at=row.created_at,
            errors=None if row.recorded_errors is None else [AttemptError.of(each) for each in row.errors],
            finalized_at=row.finalized_at,
            kind=row.kind,
            max_attempts=row.max_attempts,
            metadata=row.metadata,
            priority=row.priority,
            queue=row.queue,
            scheduled_at=row.scheduled_at,
            state=row.state,
            tags=row.tags,
            unique_key=row.unique_key,
        )


__all__ = ["AttemptError", "Job", "JobState"]
