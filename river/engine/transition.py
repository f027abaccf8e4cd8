"""The end of an attempt as data: what becomes of the job's row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..job import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """How one attempt ends, in the row.

    The pair of *job_id* and *attempted_at* is the fence: one claim gives all its jobs one ``attempted_at``, and
    a row that shows another one belongs to somebody else by now. (``attempt`` would be none: a snooze gives it
    back.)

    Attributes:
        job_id: Which job.
        attempted_at: When it was claimed, as ISO text.
        state: What the worker's outcome asks for.
        attempt: The new attempt number, or None to leave it.
        delay_seconds: Due again so long after now, by the database's clock; or None to leave ``scheduled_at``.
        error: What to append to ``errors``: an object with at, attempt, error and trace; or None.
        metadata: Keys to set, or None.
    """

    job_id: int
    attempted_at: str
    state: JobState
    attempt: int | None = None
    delay_seconds: float | None = None
    error: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None

    @property
    def plain(self) -> bool:
        """Whether this is a success with nothing to say, as nearly all are."""
        return self.state is JobState.COMPLETED and self.metadata is None


class Persisted(Enum):
    """What became of a transition in the database."""

    DONE = "done"
    """The row has the state that was asked for."""
    CANCELLED = "cancelled"
    """Somebody had asked for the job's cancellation, so it was cancelled instead of being tried again."""
    BUSY = "busy"
    """Another transaction holds the row; ask again."""
    LOST = "lost"
    """The claim is over: the job was completed in the worker's own transaction, rescued, or deleted."""
