"""How often a client tells listeners of its inserts: once per queue and window, the first at once.

PostgreSQL lets transactions that notify commit one after another, so that a client which inserts a thousand jobs a
second should not send a thousand notifications. A worker that has heard one looks again when the window is over, so
nothing is found late because of this.
"""

from __future__ import annotations

from collections.abc import Iterable


class NotifyLimiter:
    """Remembers when each queue was last told of. Safe to use from several threads: at worst it lets one more through.

    Args:
        window_seconds: How long a notification mutes its queue.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._told_at: dict[str, float] = {}

    def muted(self, queues: Iterable[str], now: float) -> frozenset[str]:
        """Those of *queues* that need no notification at *now*, in seconds of any clock that only goes forward."""
        return frozenset(queue for queue in queues if now - self._told_at.get(queue, -1e18) < self._window_seconds)

    def told(self, queues: Iterable[str], now: float) -> None:
        """Listeners were told of *queues*: their notifications are committed."""
        for queue in queues:
            self._told_at[queue] = now
