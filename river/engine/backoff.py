"""How long to leave a failing service alone."""

from __future__ import annotations

import random

_jitter = random.Random()


def backoff_seconds(failures: int, *, first: float = 0.5, longest: float = 32.0) -> float:
    """Twice as long after each failure in a row, give or take ten percent.

    Args:
        failures: How many in a row; 1 or more.
        first: Seconds after the first.
        longest: Seconds never exceeded, but for the ten percent.
    """
    return min(first * 2.0 ** min(failures - 1, 30), longest) * _jitter.uniform(0.9, 1.1)
