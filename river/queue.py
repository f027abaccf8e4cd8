"""Queues as values: a row of ``river_queue``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec


class Queue(msgspec.Struct, frozen=True):
    """A queue that some client works, or has worked of late.

    Instants are aware and in UTC. In the place of one that Python cannot hold, such as ``infinity``, stands the first
    or the last that it can.

    Attributes:
        name: Its name.
        created_at: When it was first worked.
        metadata: A JSON object; River's own, but for what `queue_update` puts there.
        paused_at: Since when no client claims its jobs; None while they do.
        updated_at: When a client last said that it works it, or when somebody changed it.
    """

    name: str
    created_at: datetime
    metadata: dict[str, Any]
    paused_at: datetime | None
    updated_at: datetime

    def __post_init__(self) -> None:
        # A session's TimeZone decides the offset that PostgreSQL prints.
        for name in ("created_at", "paused_at", "updated_at"):
            at: datetime | None = getattr(self, name)
            if at is not None and at.tzinfo is not UTC:
                msgspec.structs.force_setattr(self, name, at.astimezone(UTC))

    @property
    def paused(self) -> bool:
        """Whether no client claims its jobs."""
        return self.paused_at is not None


__all__ = ["Queue"]
