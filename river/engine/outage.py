"""How often to say that something fails, so that an outage is neither silent nor a flood.

It is said when it begins, once a minute while it lasts, and when it is over. What comes and goes all the time is said
`BURST` times in a minute at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BURST = 5
MINUTE_SECONDS = 60.0


@dataclass(slots=True)
class Outage:
    """The state between failures of one service; times are seconds of a monotonic clock."""

    _said: list[float] = field(default_factory=list[float])
    _lasts: bool = False
    _told: bool = False

    def failed(self, now: float) -> bool:
        """It failed; whether to say so."""
        begins, self._lasts = not self._lasts, True
        self._said = [at for at in self._said if now - at < MINUTE_SECONDS]
        if self._said and (not begins or len(self._said) >= BURST):
            return False
        self._said.append(now)
        self._told = True
        return True

    def recovered(self) -> bool:
        """It works; whether to say so, because somebody was told that it does not."""
        told, self._lasts, self._told = self._told, False, False
        return told
