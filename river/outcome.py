"""What a worker may raise to say how its attempt ends, and that end as a value.

A worker that returns has completed its job; one that raises anything but the three below has failed, and is
tried again until its last attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from .errors import RiverError


class JobSnooze(RiverError):  # noqa: N818 - an outcome
    """Raise in a worker to have the job worked again later; it costs no attempt and records no error.

    Args:
        delay: How much later, in seconds or as a timedelta; not negative. From five seconds on, the precision
            is that of the scheduler.
    """

    def __init__(self, delay: float | timedelta) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"a job can be snoozed for 0 seconds or more, not for {delay!r}")
        super().__init__(f"snoozed for {seconds:g} s")
        self.seconds = seconds


class JobCancel(RiverError):  # noqa: N818 - an outcome
    """Raise in a worker to cancel the job: the reason is recorded as an error, and it is never tried again.

    Args:
        reason: Why; a text, or the exception that says so.
    """

    def __init__(self, reason: object = "") -> None:
        # The prefix is what all implementations of River store for a cancellation by the worker.
        super().__init__(f"JobCancelError: {reason}")


class JobDiscard(RiverError):  # noqa: N818 - an outcome
    """Raise in a worker to give the job up: the reason is recorded as an error, and it is never tried again.

    Args:
        reason: Why; a text, or the exception that says so.
    """

    def __init__(self, reason: object = "") -> None:
        super().__init__(str(reason))


class WorkCancelled(BaseException):
    """Raised in a worker whose attempt was cancelled.

    Not an `Exception`, so that ``except Exception`` does not keep a cancelled attempt alive. Let it pass.
    """


@dataclass(frozen=True, slots=True)
class Completed:
    """The worker returned."""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The worker asked for later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The worker cancelled the job."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Discarded:
    """The worker gave the job up."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker raised."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The attempt was stopped from outside, through no fault of the job."""


Outcome: TypeAlias = Completed | Snoozed | Cancelled | Discarded | Failed | Interrupted


def outcome_of(error: BaseException) -> Outcome:
    """How an attempt ends whose worker raised *error*."""
    match error:
        case JobSnooze(seconds=float(seconds)) if 0 <= seconds < float("inf"):
            return Snoozed(seconds)
        case JobCancel():
            return Cancelled(error)
        case JobDiscard():
            return Discarded(error)
        case _:
            return Failed(error)
