"""What other clients ask of this one, as they say it on the topic ``river_control`` or leave it in a job's row.

    {"action": "cancel", "job_id": 7, "queue": "mail"}      exactly this queue
    {"action": "pause", "queue": "mail"}                     or "*" for all; "resume" likewise

What is not known here is ignored: newer clients may say more, and ``metadata_changed`` concerns nobody yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..outcome import JobCancel

ALL_QUEUES = "*"

CANCEL_KEY = "cancel_attempted_at"
"""The key of a job's metadata that every request for its cancellation sets, to the time of the request."""


class CancelledRemotelyError(JobCancel):
    """What is recorded of an attempt that raised after somebody had asked for the job's cancellation."""

    def __init__(self) -> None:
        super().__init__("job cancelled remotely")  # the text that all implementations of River store


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody wants a job to stop."""

    queue: str
    job_id: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Somebody wants no more jobs of a queue, or of all, to be claimed; or wants them again."""

    queue: str
    paused: bool

    def concerns(self, queue: str) -> bool:
        """Whether *queue* is meant."""
        return self.queue in (queue, ALL_QUEUES)


Request: TypeAlias = Cancel | Pause


def request_of(payload: Mapping[str, Any]) -> Request | None:
    """What a payload asks for; None if that is nothing known."""
    match payload:
        case {"action": "cancel", "job_id": int(job_id), "queue": str(queue)} if job_id is not True:
            return Cancel(queue, job_id)
        case {"action": "pause" | "resume" as action, "queue": str(queue)}:
            return Pause(queue, paused=action == "pause")
        case _:
            return None


def cancel_is_new(at_claim: Mapping[str, Any], found: object) -> bool:
    """Whether the cancellation that a running job's row asks for was asked for after the claim.

    The key is never removed, so a job that was cancelled and then retried still has it when it is claimed again. Every
    request writes another value; that it is another one says all, and no clock has to be compared with another.

    Args:
        at_claim: The job's metadata as it was claimed.
        found: The value of `CANCEL_KEY` in the row now.
    """
    return CANCEL_KEY not in at_claim or at_claim[CANCEL_KEY] != found


__all__ = [
    "ALL_QUEUES",
    "CANCEL_KEY",
    "Cancel",
    "CancelledRemotelyError",
    "Pause",
    "Request",
    "cancel_is_new",
    "request_of",
]
