"""The options of an insert, with the names that the official client gives them, and what they mean to River.

What is falsy counts as not given: then the options of the args decide, then River's defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ..errors import InvalidJobError
from ..insert import InsertOpts as RiverInsertOpts
from ..job import JobState
from ..unique import UniqueOpts as RiverUniqueOpts


@dataclass
class UniqueOpts:
    """Which jobs count as the same as one that is inserted, so that it is not inserted beside them.

    Attributes:
        by_args: The args must be equal, too.
        by_period: Only jobs that are due in the same period count: so many seconds, 1 or more, counted
            from the beginning of the year 1 in UTC, as all implementations of River do.
        by_queue: The queue must be the same, too.
        by_state: The states in which a job counts; `UNIQUE_STATES_DEFAULT` if nobody says otherwise. Available,
            pending, running and scheduled must be among them.
    """

    by_args: bool | None = None
    by_period: int | None = None
    by_queue: bool | None = None
    by_state: Sequence[JobState | str] | None = None

    def to_river(self) -> RiverUniqueOpts | None:
        """The same for River's own client; None if nothing is asked for."""
        if not (self.by_args or self.by_period or self.by_queue or self.by_state):
            return None
        return RiverUniqueOpts(
            by_args=bool(self.by_args),
            by_period=self.by_period or None,
            by_queue=bool(self.by_queue),
            by_state=self.by_state or None,
        )


@dataclass
class InsertOpts:
    """How a job is inserted.

    Attributes:
        max_attempts: How often the job is tried at most; 1 to 32,767, or 25 if nobody says otherwise.
        priority: 1 (first) to 4; 1 if nobody says otherwise.
        queue: Lower-case letters and digits, joined by single ``-`` or ``_``; "default" if nobody says otherwise.
        scheduled_at: Not before this. A naive datetime is in the local time of the process.
        tags: Each 3 to 255 ASCII letters, digits, ``_`` and (inside) ``-``.
        unique_opts: Insert the job only if no such job is there.
    """

    max_attempts: int | None = None
    priority: int | None = None
    queue: str | None = None
    scheduled_at: datetime | None = None
    tags: Sequence[str] | None = None
    unique_opts: UniqueOpts | None = None

    def to_river(self) -> RiverInsertOpts:
        """The same for River's own client.

        Raises:
            InvalidJobError: *unique_opts* are of another class.
        """
        return RiverInsertOpts(
            max_attempts=self.max_attempts or None,
            priority=self.priority or None,
            queue=self.queue or None,
            scheduled_at=_aware(self.scheduled_at),
            tags=self.tags or None,
            unique=_unique(self.unique_opts),
        )


def _aware(at: datetime | None) -> datetime | None:
    # Whatever else it may be, River refuses it in its own words.
    if isinstance(at, datetime) and at.utcoffset() is None:
        return at.astimezone(UTC)
    return at or None


def _unique(opts: object) -> RiverUniqueOpts | None:
    if opts is None:
        return None
    if not isinstance(opts, UniqueOpts):
        raise InvalidJobError(
            f"unique_opts must be river.riverqueue.UniqueOpts(...), not {opts!r} of the module {type(opts).__module__}"
        )
    return opts.to_river()


__all__ = ["InsertOpts", "UniqueOpts"]
