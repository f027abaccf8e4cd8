"""The options of a client, checked where they are given."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TypedDict

from .driver import driver_for
from .errors import ConfigurationError, InvalidJobError, near
from .hook import Hook, Middleware
from .insert import check_queue_name
from .retry import DefaultRetryPolicy, RetryPolicy
from .shapes import is_collection, is_mapping
from .sql.names import check_schema
from .worker import Workers

_SMALLINT_MAX = 32_767


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """How a client works one queue.

    Attributes:
        max_workers: How many of its jobs may run here at once; 1 to 10,000.
        fetch_cooldown: As the client's option of this name; None takes the client's.
        fetch_poll_interval: As the client's option of this name; None takes the client's.
    """

    max_workers: int
    fetch_cooldown: float | timedelta | None = None
    fetch_poll_interval: float | timedelta | None = None


class ConfigOptions(TypedDict, total=False):
    """The options of a client, as keyword arguments; see `Config`."""

    queues: Mapping[str, int | QueueConfig]
    workers: Workers
    id: str
    schema: str | None
    max_attempts: int
    retry_policy: RetryPolicy
    fetch_cooldown: float | timedelta
    fetch_poll_interval: float | timedelta
    poll_only: bool
    listen_url: str | None
    notify: bool
    fetch_only_known_kinds: bool
    skip_unknown_job_check: bool
    hooks: Sequence[Hook]
    middleware: Sequence[Middleware]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A client's options.

    Attributes:
        queues: The queues to work, each with a number of slots or a `QueueConfig`. Without any, the client only
            inserts.
        workers: The workers by kind. With them, a job of any other kind is refused at insert.
        id: Names the client in ``attempted_by``; at most 100 bytes. Made of the host's name and the time if not given.
            No two running clients of a database may have the same: one would give back what the other works.
        schema: Where River's tables are; None leaves it to each session's search_path.
        max_attempts: How often a job is tried at most, if neither its insert nor its class says; 25.
        retry_policy: When a failed job is due again, if its worker does not say.
        fetch_cooldown: The shortest time between a fetch that found a queue empty and the next; 0.1 s.
        fetch_poll_interval: How often a queue is looked at without a notification; 1 s.
        poll_only: Do without LISTEN, for example behind a transaction pooler.
        listen_url: Where to listen for notifications, if not where the client's own connections lead: a URL that goes
            past a transaction pooler. Its scheme decides the library.
        notify: Tell listeners of inserted jobs. Without it, workers find them at their next poll; for databases in
            which very many transactions notify at once, which PostgreSQL commits one after another.
        fetch_only_known_kinds: Claim only jobs of kinds that have a worker here, and leave the others to other clients.
        skip_unknown_job_check: Insert jobs of kinds that have no worker here.
        hooks: Called at points of a job's life.
        middleware: Wrapped around inserts and attempts; the first is the outermost.
    """

    queues: Mapping[str, int | QueueConfig] = field(default_factory=dict[str, "int | QueueConfig"])
    workers: Workers | None = None
    id: str = field(default_factory=lambda: default_id(datetime.now(UTC)))
    schema: str | None = None
    max_attempts: int = 25
    retry_policy: RetryPolicy = field(default_factory=DefaultRetryPolicy)
    fetch_cooldown: float | timedelta = 0.1
    fetch_poll_interval: float | timedelta = 1.0
    poll_only: bool = False
    listen_url: str | None = None
    notify: bool = True
    fetch_only_known_kinds: bool = False
    skip_unknown_job_check: bool = False
    hooks: Sequence[Hook] = ()
    middleware: Sequence[Middleware] = ()

    def __post_init__(self) -> None:
        _check_id(self.id)
        check_schema(self.schema)
        _whole("max_attempts", self.max_attempts, 1, _SMALLINT_MAX)
        cooldown, poll = seconds("fetch_cooldown", self.fetch_cooldown), self._poll_seconds()
        if poll < cooldown:
            raise ConfigurationError(
                f"fetch_poll_interval ({poll:g} s) must not be shorter than fetch_cooldown ({cooldown:g} s)"
            )
        if not callable(getattr(self.retry_policy, "next_retry", None)):
            raise ConfigurationError(f"retry_policy must have next_retry(job, now), unlike {self.retry_policy!r}")
        for option in ("poll_only", "notify", "fetch_only_known_kinds", "skip_unknown_job_check"):
            if not isinstance(getattr(self, option), bool):
                raise ConfigurationError(f"{option} must be True or False, not {getattr(self, option)!r}")
        _check_listen_url(self.listen_url, poll_only=self.poll_only)
        if not is_mapping(self.queues):
            raise ConfigurationError(f"queues must be a mapping of names to numbers of workers, not {self.queues!r}")
        _instances("hooks", self.hooks, Hook)
        _instances("middleware", self.middleware, Middleware)
        if self.workers is not None:
            _instances("workers", [self.workers], Workers)
        for name, queue in self.queues.items():
            self._check_queue(name, queue)
        if self.queues and self.workers is None:
            raise ConfigurationError("queues are given, but no workers: pass workers=river.Workers(...) as well")

    @classmethod
    def of(cls, options: ConfigOptions) -> Config:
        """A configuration out of keyword arguments.

        Raises:
            ConfigurationError: One is unknown, or breaks a rule; the message names it and the rule.
        """
        names = [field.name for field in fields(cls)]
        for name in options:
            if name not in names:
                raise ConfigurationError(f"a client has no option {name!r}; {near(name, names)}")
        return cls(**options)

    def queue(self, name: str) -> QueueConfig:
        """The configuration of one queue, with nothing left open."""
        queue = self.queues[name]
        given = queue if isinstance(queue, QueueConfig) else QueueConfig(max_workers=queue)
        return QueueConfig(
            max_workers=given.max_workers,
            fetch_cooldown=self.fetch_cooldown if given.fetch_cooldown is None else given.fetch_cooldown,
            fetch_poll_interval=(
                self.fetch_poll_interval if given.fetch_poll_interval is None else given.fetch_poll_interval
            ),
        )

    def _poll_seconds(self) -> float:
        return seconds("fetch_poll_interval", self.fetch_poll_interval)

    def _check_queue(self, name: str, queue: object) -> None:
        try:
            check_queue_name(name)
        except InvalidJobError as error:
            raise ConfigurationError(str(error)) from error
        if not isinstance(queue, int | QueueConfig) or isinstance(queue, bool):
            raise ConfigurationError(f"queue {name!r} needs a number of workers or a QueueConfig, not {queue!r}")
        resolved = self.queue(name)
        _whole(f"max_workers of queue {name!r}", resolved.max_workers, 1, 10_000)
        cooldown = seconds(f"fetch_cooldown of queue {name!r}", resolved.fetch_cooldown)
        poll = seconds(f"fetch_poll_interval of queue {name!r}", resolved.fetch_poll_interval)
        if poll < cooldown:
            raise ConfigurationError(
                f"fetch_poll_interval of queue {name!r} ({poll:g} s) must not be shorter than its fetch_cooldown "
                f"({cooldown:g} s)"
            )


def seconds(option: str, value: object) -> float:
    """A duration as seconds.

    Raises:
        ConfigurationError: It is no duration, or shorter than River's minimum of a millisecond.
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0.001 <= number < float("inf"):
        raise ConfigurationError(f"{option} must be 0.001 seconds or more, or such a timedelta, not {value!r}")
    return float(number)


def default_id(now: datetime) -> str:
    """A client's name if it is given none: the host's name, cut to 60 bytes, and the time."""
    host = platform.node().replace(".", "_").encode()[:60].decode(errors="ignore") or "unknown_host"
    return f"{host}_{now.strftime('%Y_%m_%dT%H_%M_%S_%f')}"


def _check_id(value: object) -> None:
    if not isinstance(value, str) or not value or len(value.encode(errors="replace")) > 100 or "\x00" in value:
        raise ConfigurationError(f"id must be a text of 1 to 100 bytes, not {value!r}")


def _check_listen_url(url: object, *, poll_only: bool) -> None:
    if url is None:
        return
    # Of a URL nothing is shown, because it may hold a password; driver_for does likewise.
    if not isinstance(url, str):
        raise ConfigurationError(f"listen_url must be a URL or None, not {type(url)!r}")
    if poll_only:
        raise ConfigurationError("listen_url is given, but poll_only=True does without listening: drop one of them")
    try:
        driver = driver_for(url, "asyncio")
    except ConfigurationError as error:
        raise ConfigurationError(f"listen_url cannot be used: {error}") from error
    if not driver.supports_listen:
        raise ConfigurationError(
            "listen_url names a library that cannot wait for notifications: use postgresql:// for psycopg, or "
            "postgresql+asyncpg:// or postgresql+psycopg2://"
        )


def _whole(option: str, value: object, lowest: int, highest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise ConfigurationError(f"{option} must be a whole number from {lowest} to {highest:,}, not {value!r}")


def _instances(option: str, values: object, wanted: type) -> None:
    if not is_collection(values):
        raise ConfigurationError(f"{option} must be a list of river.{wanted.__name__}, not {values!r}")
    for value in values:
        if not isinstance(value, wanted):
            raise ConfigurationError(f"{option} must be of the class river.{wanted.__name__}, unlike {value!r}")
