"""What is asked for when a job is inserted, and the rules that it must keep.

`prepare` turns a host's request into an `InsertParams` that an operation can write. All validation is here, so
all of it comes before the first statement.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypedDict

from typing_extensions import TypeVar

from .args import Args, bad_text, check_text, culprit_in, encode
from .errors import InvalidJobError, near
from .job import JobState
from .nesting import DEEPEST, too_deep
from .shapes import is_collection, is_mapping, plain_text
from .unique import UniqueOpts, key_of_job, state_mask

A = TypeVar("A", bound=Args, default=Any)
V = TypeVar("V")

QUEUE_DEFAULT = "default"
PRIORITY_DEFAULT = 1
_SMALLINT_MAX = 32_767
_KEY_BYTES = 32
_DAY = timedelta(days=1)
_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC) + _DAY, datetime.max.replace(tzinfo=UTC) - _DAY

# River's own pattern allows the same names, but takes exponential time to refuse a long one.
_QUEUE = re.compile(r"[a-z0-9]+(?:[_|\-][a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[\w][\w\-]+[\w]", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertOpts:
    """How a job is inserted. What is left at None comes from the args class, then from the client.

    Attributes:
        queue: Lower-case letters and digits, joined by single ``-`` or ``_``; at most 64 bytes. "default" if
            nobody says otherwise.
        priority: 1 (first) to 4; 1 if nobody says otherwise.
        max_attempts: How often the job is tried at most; 1 to 32,767. The client's is 25 unless configured.
        scheduled_at: Not before this aware datetime. A job with one waits for the scheduler, also if it lies
            in the past.
        delay: The same, as a time from now by the database's clock: seconds, or a timedelta; not negative.
        tags: Each 3 to 255 ASCII letters, digits, ``_`` and (inside) ``-``. Never merged with others.
        metadata: A JSON object of the host's own. Never merged with others.
        pending: Park the job until somebody makes it available, with `job_retry` for one.
        unique: Insert it only if no such job is there; see `UniqueOpts`.
    """

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    scheduled_at: datetime | None = None
    delay: float | timedelta | None = None
    tags: Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None
    pending: bool | None = None
    unique: UniqueOpts | None = None


class InsertOptions(TypedDict, total=False):
    """The fields of `InsertOpts`, as keyword arguments."""

    queue: str | None
    priority: int | None
    max_attempts: int | None
    scheduled_at: datetime | None
    delay: float | timedelta | None
    tags: Sequence[str] | None
    metadata: Mapping[str, Any] | None
    pending: bool | None
    unique: UniqueOpts | None


@dataclass(frozen=True, slots=True)
class InsertManyParams(Generic[A]):
    """One of the jobs of `insert_many`: its args, and options of its own."""

    args: A
    opts: InsertOpts | None = None


@dataclass(slots=True, kw_only=True)
class InsertParams:
    """A job as it will be inserted. Hooks and middleware may change it before it is written.

    Attributes:
        args: What the host handed over.
        encoded_args: Its JSON text.
        scheduled_at: When it is due; with a *delay_seconds*, that is left to the database's clock.
        metadata: A JSON object.
        unique_key: The 32 bytes that make it unique, of what the host handed over: later changes do not count.
        unique_states: The states in which it blocks others with its key, as River's bits; 0 without a key.
    """

    args: Args
    kind: str
    encoded_args: str
    queue: str
    priority: int
    max_attempts: int
    scheduled_at: datetime | None = None
    delay_seconds: float | None = None
    tags: list[str] = field(default_factory=list[str])
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    pending: bool = False
    unique_key: bytes | None = None
    unique_states: int = 0

    @property
    def state(self) -> JobState:
        """The state in which the job begins."""
        if self.pending:
            return JobState.PENDING
        due_now = self.scheduled_at is None and self.delay_seconds is None
        return JobState.AVAILABLE if due_now else JobState.SCHEDULED


def options_of(opts: object) -> InsertOpts:
    """Options given as an object, or none.

    Raises:
        InvalidJobError: It is something else.
    """
    if opts is None:
        return _NO_OPTIONS
    if not isinstance(opts, InsertOpts):
        raise InvalidJobError(f"opts must be river.InsertOpts(...), not {opts!r}; an option can also be a keyword")
    return opts


def merge_options(opts: object, options: InsertOptions) -> InsertOpts:
    """Options given as an object and as keywords, as one.

    Raises:
        InvalidJobError: One is given both ways, or is none.
    """
    if not options:
        return options_of(opts)
    for name in options:
        if name not in _OPTION_NAMES:
            raise InvalidJobError(f"an insert has no option {name!r}; {near(name, _OPTION_NAMES)}")
    given = options_of(opts)
    for name in options:
        if getattr(given, name) is not None:
            raise InvalidJobError(f"option {name!r} is given twice, in opts and as a keyword; give it once")
    return dataclasses.replace(given, **options)


def prepare(args: Args, opts: InsertOpts, *, max_attempts: int, now: datetime) -> InsertParams:
    """Resolve the options of one job, encode its args, and check all of it.

    Args:
        args: The host's args.
        opts: The options of the call; they win over those of the args class.
        max_attempts: The client's default.
        now: The current time, for a key that is unique by period.

    Raises:
        InvalidJobError: The job breaks a rule; the message names the value, the rule and the remedy.
        ConfigurationError: The class of *args* cannot be a job's args.
    """
    kind = _kind(args)
    declared = _declared_options(args, kind)
    scheduled_at, delay_seconds = _schedule(opts, declared, now)
    params = InsertParams(
        args=args,
        kind=kind,
        encoded_args=encode(args, kind),
        queue=_first(opts.queue, declared.queue, QUEUE_DEFAULT),
        priority=_first(opts.priority, declared.priority, PRIORITY_DEFAULT),
        max_attempts=_first(opts.max_attempts, declared.max_attempts, max_attempts),
        scheduled_at=scheduled_at,
        delay_seconds=delay_seconds,
        tags=_tags(opts.tags if opts.tags is not None else declared.tags),
        metadata=_metadata(opts.metadata if opts.metadata is not None else declared.metadata),
        pending=_first(opts.pending, declared.pending, False),
    )
    check(params)
    _make_unique(params, opts.unique, declared.unique, now)
    return params


def check(params: InsertParams) -> None:
    """Check everything about a job that its types do not, and make its texts and numbers plain ones.

    Plain, because a member of an enumeration is a text too, but not every library and format writes it alike.

    Raises:
        InvalidJobError: It breaks a rule.
    """
    params.kind = _check_kind(params.kind)
    params.queue = check_queue_name(params.queue)
    params.tags = [_check_tag(tag) for tag in _tags(params.tags)]
    params.priority = _check_range("priority", params.priority, 1, 4)
    params.max_attempts = _check_range("max_attempts", params.max_attempts, 1, _SMALLINT_MAX)
    if params.scheduled_at is not None:
        _check_instant(params.scheduled_at)
    _check_flag("pending", params.pending)
    encode_metadata(params.metadata)


def check_changed(params: InsertParams, encoded_args: str, now: datetime) -> None:
    """Check a job that the host's code may have changed since its args were encoded as *encoded_args*.

    Raises:
        InvalidJobError: It breaks a rule.
    """
    check(params)
    if params.encoded_args is not encoded_args:
        check_text(params.encoded_args, params.kind)
    if params.delay_seconds is not None:
        params.delay_seconds = _delay_seconds(params.delay_seconds, now)
    _check_key(params.unique_key, params.unique_states)


def check_queue_name(queue: object) -> str:
    """Check the name of a queue against River's rule.

    Raises:
        InvalidJobError: It breaks the rule.
    """
    if not isinstance(queue, str) or len(queue.encode(errors="replace")) > 64 or not _QUEUE.fullmatch(queue):
        raise InvalidJobError(
            f"queue {queue!r} is no queue name: 1 to 64 lower-case letters and digits, joined by single '-' or '_'"
        )
    return plain_text(queue)


def encode_metadata(metadata: Mapping[str, Any]) -> str:
    """The JSON object of *metadata*.

    Raises:
        InvalidJobError: It is no JSON object, or holds what PostgreSQL cannot store.
    """
    if metadata == {}:  # nearly always
        return "{}"
    try:
        text = json.dumps(metadata, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        exact = json.loads(text) == metadata
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJobError(f"metadata is no JSON object: {culprit_in(metadata) or error}") from error
    if not text.startswith("{"):
        raise InvalidJobError(f"metadata must be a JSON object, not {type(metadata).__name__}")
    if too_deep(text):
        raise InvalidJobError(f"metadata is nested more than {DEEPEST} levels deep")
    # Not exact: keys that are no strings, which json.dumps makes strings.
    culprit = culprit_in(metadata) if not exact or "\\u0000" in text or not text.isascii() else None
    if culprit:
        raise InvalidJobError(f"metadata cannot be stored: {culprit}")
    return text


def instant_text(at: datetime) -> str:
    """An aware datetime as text that every database reads the same way, whatever its settings."""
    return at.astimezone(UTC).isoformat()


def _kind(args: object) -> str:
    kind = getattr(args, "kind", None)
    if isinstance(args, type):
        raise InvalidJobError(f"{args.__name__} is a class: insert an instance of it")
    if kind is None:
        raise InvalidJobError(
            f'{type(args).__qualname__} has no kind: declare `kind: ClassVar[str] = "..."` in the class, or insert '
            "river.JobArgs(kind, mapping)"
        )
    return _check_kind(kind)


def _check_kind(kind: object) -> str:
    if not isinstance(kind, str) or not 0 < len(kind) < 128:
        raise InvalidJobError(f"kind {kind!r} must be a text of 1 to 127 characters")
    complaint = bad_text(kind)
    if complaint:
        raise InvalidJobError(f"kind {kind!r} {complaint}")
    return plain_text(kind)


def _check_key(key: object, states: object) -> None:
    if key is None:
        return
    if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
        raise InvalidJobError(f"unique_key must be {_KEY_BYTES} bytes or None, not {key!r}")
    if not isinstance(states, int) or not 0 < states < 256:
        raise InvalidJobError(f"unique_states must be eight bits, 1 to 255, beside a unique_key, not {states!r}")


def _declared_options(args: object, kind: str) -> InsertOpts:
    declared = getattr(args, "insert_opts", None)
    if callable(declared):
        declared = declared()
    if declared is None:
        return _NO_OPTIONS
    if not isinstance(declared, InsertOpts):
        raise InvalidJobError(f"insert_opts of {kind!r} must be river.InsertOpts, not {declared!r}")
    return declared


def _schedule(opts: InsertOpts, declared: InsertOpts, now: datetime) -> tuple[datetime | None, float | None]:
    """When the job is due, as an instant or as a delay; by the call if it says anything, else by the class."""
    for given in (opts, declared):
        if given.scheduled_at is not None and given.delay is not None:
            raise InvalidJobError(
                f"scheduled_at {given.scheduled_at} and delay {given.delay} are both given: give one of them"
            )
        if given.scheduled_at is not None:
            return given.scheduled_at, None
        if given.delay is not None:
            return None, _delay_seconds(given.delay, now)
    return None, None


def _delay_seconds(delay: object, now: datetime) -> float | None:
    number = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
        raise InvalidJobError(f"delay must be 0 seconds or more, or such a timedelta, not {delay!r}")
    due_at = _check_year("delay", delay, lambda: now + timedelta(seconds=number))
    return float(number) if due_at > now else None  # a delay of nothing is none: the job is due at once


def _make_unique(params: InsertParams, called: object, declared: object, now: datetime) -> None:
    """Give the job its unique key, if one is asked for; by the call if it asks for anything, else by the class."""
    for opts in (called, declared):
        if opts is None:
            continue
        if not isinstance(opts, UniqueOpts):
            raise InvalidJobError(f"unique must be river.UniqueOpts(...), not {opts!r}")
        if opts.is_empty:
            continue
        delay = timedelta(seconds=params.delay_seconds or 0)
        params.unique_states = state_mask(opts)
        params.unique_key = key_of_job(
            opts,
            type(params.args),
            kind=params.kind,
            encoded_args=params.encoded_args,
            queue=params.queue,
            at=now + delay if params.scheduled_at is None else params.scheduled_at,
        )
        return


def _tags(tags: object) -> list[Any]:
    if tags is None:
        return []
    if not is_collection(tags):
        raise InvalidJobError(f"tags must be a list of texts, not {tags!r}")
    return list(tags)


def _metadata(metadata: object) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not is_mapping(metadata):
        raise InvalidJobError(f"metadata must be a JSON object, not {type(metadata).__name__}")
    return dict(metadata)


def _first(*values: V | None) -> V:
    return next(value for value in values if value is not None)


def _check_range(option: str, value: object, lowest: int, highest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise InvalidJobError(f"{option} must be a whole number from {lowest} to {highest:,}, not {value!r}")
    return int(value)


def _check_flag(option: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidJobError(f"{option} must be True or False, not {value!r}")


def _check_tag(tag: object) -> str:
    if not isinstance(tag, str) or len(tag) > 255 or not _TAG.fullmatch(tag):
        raise InvalidJobError(f"tag {tag!r} is no tag: 3 to 255 ASCII letters, digits, '_' and, but for the ends, '-'")
    return plain_text(tag)


def _check_instant(at: object) -> None:
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidJobError(
            f"scheduled_at must be an aware datetime, not {at!r}; for example datetime.now(UTC) + timedelta(hours=1)"
        )
    _check_year("scheduled_at", at, lambda: at)


def _check_year(option: str, value: object, instant: Callable[[], datetime]) -> datetime:
    """The instant, if it has a year from 1 to 9999 in every time zone: sessions print it in theirs."""
    try:
        at = instant().astimezone(UTC)
        if _EARLIEST <= at <= _LATEST:
            return at
        reason = None
    except (OverflowError, ValueError) as error:
        reason = error
    raise InvalidJobError(f"{option} {value!r} leads outside of the years 1 to 9999") from reason


_NO_OPTIONS = InsertOpts()
_OPTION_NAMES = [each.name for each in dataclasses.fields(InsertOpts)]

__all__ = [
    "InsertManyParams",
    "InsertOptions",
    "InsertOpts",
    "InsertParams",
    "check",
    "check_changed",
    "check_queue_name",
    "encode_metadata",
    "instant_text",
    "merge_options",
    "options_of",
    "prepare",
]
