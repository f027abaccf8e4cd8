"""When a queue's producer claims, and how many.

A claim costs the server about as much for one row as for ten (225 against 525 microseconds), so

- it is made at once after one that came back full, or after a notification, or when the poll interval is over;
- while the queue has more than the client can take, it waits until half of the slots are free, but never longer
  than `LINGER_SECONDS` after the first one is;
- after one that found nothing, notifications are heeded only when the cooldown has passed: somebody else is quicker.
- after a notification it is made once more, a little later: an inserting client tells of a queue once
  in a tenth of a second, and the jobs that it inserts in between come without a word.
- it is made when a job becomes due that was seen to be waiting for its time.

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LIMITS = (500, 200, 100, 50, 20, 10, 5, 2, 1)
"""The sizes of a claim; each is a statement of its own. More than 500 rows make no claim cheaper."""

LINGER_SECONDS = 0.005
"""What a free slot may wait for others while there is work: 200 claims a second are at most 5 % of a core."""

SUPPRESSED_SECONDS = 0.1
"""For so long after a notification an inserting client sends no other for the queue: River's default cooldown."""

COMMIT_SECONDS = 0.025
"""What the last of the suppressed inserts may take until it is committed."""

ASK_SECONDS = 0.2
"""How often to ask when the next job is due, which costs about as much as an empty claim."""


@dataclass(slots=True)
class Pacing:
    """The state between claims of one queue.

    Attributes:
        slots: How many jobs may run at once.
        cooldown_seconds: The shortest time between a claim that found the queue empty and the next.
        poll_seconds: The longest time between claims while slots are free.
    """

    slots: int
    cooldown_seconds: float
    poll_seconds: float
    _cap: int = LIMITS[0]
    _poll_at: float = 0.0
    _rested_at: float = 0.0
    _again_at: float = math.inf
    _due_at: float = math.inf
    _ask_at: float = 0.0
    _more: bool = True
    _woken: bool = False
    _free_since: float | None = None

    def limit(self, free: int) -> int:
        """How many to claim with so many slots free; 0 with none, fewer after failures."""
        return next((limit for limit in LIMITS if limit <= min(free, self._cap)), 0)

    def woken(self) -> None:
        """Somebody says that there is work."""
        self._woken = True

    def notified(self, now: float) -> None:
        """A client has inserted a job, and says nothing of those that it inserts right after it."""
        self._woken = True
        self._again_at = now + max(self.cooldown_seconds, SUPPRESSED_SECONDS) + COMMIT_SECONDS

    def due(self, at: float) -> None:
        """A job will be due at a time."""
        self._due_at = min(self._due_at, at)

    def asks_when_due(self, now: float) -> bool:
        """Whether to ask when the next job is due, after a claim that has left no job behind which is due already.

        Not if the queue is looked at again soon, which asks then.
        """
        if self._more or self._again_at < math.inf:
            return False
        if now < self._ask_at:
            self.due(self._ask_at)
            return False
        self._ask_at = now + ASK_SECONDS
        return True

    def claimed(self, now: float, found: int, limit: int, jitter: float) -> None:
        """A claim came back.

        Args:
            now: The current time.
            found: How many rows it had.
            limit: How many it asked for.
            jitter: A random number from 0 to 1, which spreads the polls of many clients.
        """
        self._cap = min(self._cap * 2, LIMITS[0])
        self._more = found == limit
        self._free_since = None
        self._poll_at = now + self.poll_seconds + max(self.poll_seconds * 0.1, 0.01) * jitter
        if found == 0:
            self._rested_at = now + self.cooldown_seconds

    def failed(self, now: float, backoff_seconds: float) -> None:
        """A claim failed: leave the database alone for a while, and ask it for less; it may have been too much."""
        self._cap = max(self._cap // 2, 1)
        self._more = False
        self._free_since = None
        self._poll_at = self._rested_at = now + backoff_seconds

    def claiming(self, now: float) -> None:
        """A claim starts: wake-ups until now are served by it, later ones ask for another."""
        self._woken = False
        if now >= self._again_at:
            self._again_at = math.inf
        if now >= self._due_at:
            self._due_at, self._ask_at = math.inf, now

    def wait(self, now: float, free: int) -> float | None:
        """Seconds to wait before the next claim: 0 to claim now, None until something happens."""
        if free <= 0:
            self._free_since = None
            return None
        if self._more:
            if self._free_since is None:
                self._free_since = now
            if free * 2 >= self.slots:
                return 0.0
            return max(self._free_since + LINGER_SECONDS - now, 0.0)
        if self._woken:
            return max(self._rested_at - now, 0.0)
        expected_at = max(min(self._again_at, self._due_at), self._rested_at)
        return max(min(self._poll_at, expected_at) - now, 0.0)
