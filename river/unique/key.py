"""Unique jobs: which jobs count as the same, and for how long.

A job's unique key is the SHA-256 of a text that names what its options ask for, in this order:

    &kind=KIND   unless exclude_kind
    &args=ARGS   by_args      JSON as Go writes it: the marked or named fields alone, else all of them by name
    &period=AT   by_period    the start of the period, in UTC and whole seconds
    &queue=NAME  by_queue

It is the text of Go's River byte for byte, so that both refuse each other's duplicates. A unique index on the key,
over the rows in the states of the job's mask, does the rest.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..errors import InvalidJobError, near
from ..job import JobState
from ..shapes import is_collection
from .go_order import in_go_order
from .marks import Path, check_named, in_order, index_like, parse_path, unique_paths
from .text import args_text, hashing, period_text

_BITS = {
    JobState.AVAILABLE: 1,
    JobState.CANCELLED: 2,
    JobState.COMPLETED: 4,
    JobState.DISCARDED: 8,
    JobState.PENDING: 16,
    JobState.RETRYABLE: 32,
    JobState.RUNNING: 64,
    JobState.SCHEDULED: 128,
}
_DEFAULT_STATES = (
    JobState.AVAILABLE,
    JobState.COMPLETED,
    JobState.PENDING,
    JobState.RETRYABLE,
    JobState.RUNNING,
    JobState.SCHEDULED,
)
_REQUIRED_STATES = (JobState.AVAILABLE, JobState.PENDING, JobState.RUNNING, JobState.SCHEDULED)

_SECOND = 1_000_000_000
_LONGEST = 2**63 - 1
"""Nanoseconds; more is no duration in Go."""
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueOpts:
    """Which jobs count as the same, so that only one of them exists.

    Without by_args, by_period and by_queue, all jobs of a kind are the same. The options are checked where they are
    made; sequences are kept as tuples.

    Attributes:
        by_args: The args must be equal: those fields alone that are marked with `Unique`, if any is, else all. Or
            the names of the fields, as JSON has them, whatever is marked; dots lead into nested objects, and a dot
            that belongs to a name has a backslash before it. A field that is missing in a job's JSON is left out.
        by_period: Jobs count as the same only within one period: seconds (to the nanosecond) or a timedelta, at least
            a second and at most 292 years. Periods are counted from the year 1 in UTC, so that an hour begins with the
            hour, a day at midnight and seven days on a Monday. The time that counts is the job's ``scheduled_at``
            where it has one, else that of the insert.
        by_queue: The queue must be the same.
        by_state: The states in which a job keeps others out. By default all but cancelled and discarded. Available,
            pending, running and scheduled must be among them.
        exclude_kind: Jobs of other kinds count as the same, too. Asks for one of by_args, by_period and by_queue.

    Raises:
        InvalidJobError: An option has a value that it cannot have.
    """

    by_args: bool | Sequence[str] = False
    by_period: float | timedelta | None = None
    by_queue: bool = False
    by_state: Sequence[JobState | str] | None = None
    exclude_kind: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.by_args, bool):
            object.__setattr__(self, "by_args", _checked_names(self.by_args))
        if self.by_state is not None:
            object.__setattr__(self, "by_state", _checked_states(self.by_state))
        if self.by_period is not None:
            _nanoseconds(self.by_period)
        _check_switch("by_queue", self.by_queue)
        _check_switch("exclude_kind", self.exclude_kind)
        if self.exclude_kind and not (self.by_args or self.by_period or self.by_queue):
            raise InvalidJobError(
                "exclude_kind=True needs one of by_args, by_period and by_queue beside it, or else all jobs of all "
                "kinds would count as one: add what tells them apart, or leave exclude_kind out"
            )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return not (self.by_args or self.by_period or self.by_queue) and self.by_state is None


def key_of_job(opts: UniqueOpts, args_type: type, *, kind: str, encoded_args: str, queue: str, at: datetime) -> bytes:
    """The 32 bytes that make a job of an args class unique.

    Args:
        opts: What counts.
        args_type: The class of its args. Its marks count with ``by_args=True``; equal mappings in it are
            the same, in whichever order they were filled.
        kind: The job's.
        encoded_args: The JSON object of its args, as any encoder wrote it.
        queue: The job's.
        at: An aware datetime: when it is scheduled, else now.

    Raises:
        InvalidJobError: by_args names a field that the class does not have; or as in `unique_key`.
        ConfigurationError: A mark of the class means nothing; see `unique_paths`.
    """
    paths: tuple[str, ...] = ()
    if opts.by_args:
        with hashing(kind):
            encoded_args = in_go_order(args_type, encoded_args)
        paths = unique_paths(args_type) if isinstance(opts.by_args, bool) else _named(args_type, tuple(opts.by_args))
    return unique_key(opts, kind=kind, encoded_args=encoded_args, paths=paths, queue=queue, at=at)


def unique_key(
    opts: UniqueOpts, *, kind: str, encoded_args: str, paths: Sequence[str], queue: str, at: datetime
) -> bytes:
    """The 32 bytes that make a job unique.

    Args:
        opts: What counts.
        kind: The job's.
        encoded_args: The JSON object of its args, as any encoder wrote it.
        paths: The fields that count with ``by_args=True``, as `unique_paths` gives them; empty for all of them. The
            names of by_args go before them.
        queue: The job's.
        at: An aware datetime: when it is scheduled, else now.

    Raises:
        InvalidArgsError: The args cannot be hashed: they are no object, or hold a number that a float64 cannot.
        InvalidJobError: *at* is naive.
    """
    text: list[str] = []
    if not opts.exclude_kind:
        text.append(f"&kind={kind}")
    if opts.by_args:
        counted = paths if isinstance(opts.by_args, bool) else opts.by_args
        text.append(f"&args={args_text(kind, encoded_args, _parsed(tuple(counted)))}")
    if opts.by_period:
        text.append(f"&period={period_text(at, _nanoseconds(opts.by_period))}")
    if opts.by_queue:
        text.append(f"&queue={queue}")
    return hashlib.sha256("".join(text).encode()).digest()


def state_mask(opts: UniqueOpts) -> int:
    """The states in which a job blocks others with its key, as River's bits: 1 to 255."""
    return sum(_BITS[JobState(state)] for state in opts.by_state or _DEFAULT_STATES)


@functools.lru_cache(maxsize=1024)
def _parsed(paths: tuple[str, ...]) -> list[Path]:
    return in_order([_parsed_name(path) for path in paths])


@functools.lru_cache(maxsize=1024)
def _named(args_type: type, names: tuple[str, ...]) -> tuple[str, ...]:
    check_named(args_type, _parsed(names))
    return names


def _parsed_name(text: str) -> Path:
    path = parse_path(text)
    if path is None:
        raise InvalidJobError(
            f"by_args names {text!r}: names are joined by single dots and not empty; a dot or a backslash inside of a "
            "name has a backslash before it"
        )
    return path


def _checked_names(names: object) -> tuple[str, ...]:
    if not is_collection(names):
        raise InvalidJobError(f"by_args must be True, False or a list of the names of fields, not {names!r}")
    kept = tuple(names)
    if not kept:
        raise InvalidJobError("by_args is an empty list: name a field, or pass True for all of them or False for none")
    for name in kept:
        if not isinstance(name, str):
            raise InvalidJobError(f"by_args holds {name!r}, which is no name of a field: names are texts")
        number = index_like(_parsed_name(name))
        if number is not None:
            raise InvalidJobError(
                f"by_args names {name!r}, but River takes the whole number {number!r} for the index of an array: name "
                "the object that holds it, or pass True"
            )
    return kept


def _checked_states(states: object) -> tuple[JobState, ...]:
    if not is_collection(states):
        raise InvalidJobError(f"by_state must be a list of states, not {states!r}")
    kept = [_checked_state(state) for state in states]
    missing = [state.value for state in _REQUIRED_STATES if state not in kept]
    if kept and missing:
        raise InvalidJobError(
            f"by_state {[state.value for state in kept]} lacks {', '.join(missing)}: a unique job must keep others out "
            "while it is available, pending, running and scheduled"
        )
    return tuple(dict.fromkeys(kept))


def _checked_state(state: object) -> JobState:
    known = [each.value for each in JobState]
    if not isinstance(state, str) or state not in known:
        raise InvalidJobError(f"by_state holds {state!r}, which is no state of a job; {near(str(state), known)}")
    return JobState(state)


def _nanoseconds(period: object) -> int:
    if isinstance(period, timedelta):
        exact = period // _MICROSECOND * 1_000
    elif isinstance(period, int | float) and not isinstance(period, bool) and math.isfinite(period):
        exact = period * _SECOND if isinstance(period, int) else round(period * _SECOND)
    else:
        raise InvalidJobError(f"by_period must be a number of seconds, a timedelta or None, not {period!r}")
    if not _SECOND <= exact <= _LONGEST:
        raise InvalidJobError(
            f"by_period must be 1 second to {_LONGEST // _SECOND} seconds (292 years), not {period!r}; "
            "None for no period"
        )
    return exact


def _check_switch(option: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidJobError(f"{option} must be True or False, not {value!r}")


__all__ = [
    "UniqueOpts",
    "key_of_job",
    "state_mask",
    "unique_key",
]
