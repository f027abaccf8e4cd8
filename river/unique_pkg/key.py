"""Unique jobs: which jobs count as the same, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from .job import JobState


class Unique:
    """Marks the fields of an args class that make its jobs unique: ``customer_id: Annotated[int, river.Unique]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueOpts:
    """Which jobs count as the same, so that only one of them exists."""

    by_args: bool | Sequence[str] = False
    by_period: float | timedelta | None = None
    by_queue: bool = False
    by_state: Sequence[JobState | str] | None = None
    exclude_kind: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        raise NotImplementedError


def check_unique(opts: object) -> None:
    """Refuse what is no valid `UniqueOpts`."""
    raise NotImplementedError


def unique_paths(args_type: type) -> tuple[str, ...]:
    """The marked fields of an args class, as dotted paths of their JSON names, sorted."""
    raise NotImplementedError


def unique_key(
    opts: UniqueOpts, *, kind: str, encoded_args: str, paths: Sequence[str], queue: str, at: datetime
) -> bytes:
    """The 32 bytes that make a job unique."""
    raise NotImplementedError


def state_mask(opts: UniqueOpts) -> int:
    """The states in which a job blocks others with its key, as River's bits."""
    raise NotImplementedError
