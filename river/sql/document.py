"""Many rows as one JSON document, the one parameter of a statement that writes them."""

from __future__ import annotations

from typing import Any

import msgspec

from ..engine.transition import Transition
from ..insert import InsertParams, encode_metadata, instant_text


def inserted(job: InsertParams) -> dict[str, Any]:
    """A job to be inserted."""
    return {
        "args": msgspec.Raw(job.encoded_args.encode()),
        "kind": job.kind,
        "max_attempts": job.max_attempts,
        "metadata": msgspec.Raw(encode_metadata(job.metadata).encode()),
        "priority": job.priority,
        "queue": job.queue,
        "scheduled_at": None if job.scheduled_at is None else instant_text(job.scheduled_at),
        "delay_seconds": job.delay_seconds,
        "state": job.state.value,
        "tags": job.tags,
    }


def inserted_unique(job: InsertParams) -> dict[str, Any]:
    """A job to be inserted, of a batch in which some are unique."""
    key = job.unique_key
    return {
        **inserted(job),
        "unique_key": None if key is None else key.hex(),
        "unique_states": None if key is None else job.unique_states,
    }


def ended(transition: Transition) -> dict[str, Any]:
    """The end of an attempt."""
    return {
        "id": transition.job_id,
        "attempted_at": transition.attempted_at,
        "state": transition.state.value,
        "attempt": transition.attempt,
        "delay_seconds": transition.delay_seconds,
        "error": transition.error,
        "metadata": transition.metadata,
    }
