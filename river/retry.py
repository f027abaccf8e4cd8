"""When a failed job is tried again."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Protocol

from .job import JobRow

LONGEST_DELAY = timedelta(seconds=9_223_372_036)
"""About 292 years: the longest duration that River's Go clients know."""


class RetryPolicy(Protocol):
    """Decides when a job that has failed is due again."""

    def next_retry(self, job: JobRow, now: datetime) -> datetime:
        """When *job* is due again.

        Args:
            job: The job as it was claimed; its errors do not have the current one yet.
            now: The current time; aware.

        Returns:
            An aware datetime. One before *now* is not used: River's own policy then decides.
        """
        ...


class DefaultRetryPolicy:
    """River's schedule: n to the fourth power seconds after the nth failure, give or take ten percent.

    1 s, 16 s, 81 s, 256 s, 625 s ... 3 d 20 h after the 24th. It counts recorded errors, so that snoozes cost
    nothing.

    Args:
        jitter: Where the ten percent come from.
    """

    def __init__(self, jitter: random.Random | None = None) -> None:
        self._jitter = jitter or random.Random()

    def next_retry(self, job: JobRow, now: datetime) -> datetime:
        """When *job* is due again."""
        return now + self.delay(len(job.recorded_errors or ()) + 1)

    def delay(self, failures: int) -> timedelta:
        """How long to wait after so many failures, the current one included; 1 or more."""
        longest = LONGEST_DELAY.total_seconds()
        base = float(failures) ** 4
        if base >= longest:
            return LONGEST_DELAY
        return timedelta(seconds=min(base * self._jitter.uniform(0.9, 1.1), longest))
