"""Workers: the host's code for one kind of job, and the registry of a client's workers."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic

from typing_extensions import TypeVar

from .args import Codec, JobArgs, any_json, codec_of, kind_of
from .errors import ConfigurationError
from .job import Job
from .shapes import is_collection

if typing.TYPE_CHECKING:
    from .context import WorkContext

A = TypeVar("A", default=Any)
F = TypeVar("F", bound=Callable[..., Any])

_KIND = re.compile(r"[\w][\w\-\[\]<>\/.·:+]+", re.ASCII)
_LONGEST_KIND = 127


class Worker(Generic[A]):
    """Works the jobs of one kind: subclass it as ``class MailWorker(river.Worker[Mail])``, with a `work`.

    `work` may be a ``def``, which runs in a thread, or an ``async def``, which runs as a task. One instance serves
    all jobs of its kind, so it must not keep what belongs to one job.
    """

    def work(self, job: Job[A], ctx: WorkContext) -> Awaitable[None] | None:
        """Do the work. Return, and the job is completed; raise, and it is tried again."""
        raise NotImplementedError

    def next_retry(self, job: Job[A]) -> datetime | None:  # noqa: ARG002 - for overriding
        """When *job*, which has just failed, is due again; None leaves it to the client's retry policy."""
        return None


@dataclass(frozen=True, slots=True)
class Registration:
    """How the jobs of one kind are worked.

    Attributes:
        kind: The kind; jobs of its aliases keep theirs.
        codec: Reads the args.
        call: The function, or the worker's `work`.
        is_async: Whether it is an ``async def``.
        next_retry: The worker's own answer, or None if it has none.
    """

    kind: str
    codec: Codec[Any]
    call: Callable[[Job[Any], WorkContext], Any]
    is_async: bool
    next_retry: Callable[[Job[Any]], datetime | None] | None


class Workers:
    """The workers of a client, by kind. Fill it before the client starts.

    A worker may also work the jobs of other kinds, its *aliases*: names that its kind had before, or has in another
    program. An alias counts as a kind in everything that is asked of the registry. The args class may name them too,
    as ``kind_aliases: ClassVar[Sequence[str]]``.
    """

    def __init__(self) -> None:
        self._registrations: dict[str, Registration] = {}

    @typing.overload
    def work(self, function: F, /) -> F: ...
    @typing.overload
    def work(
        self, function: None = None, /, *, kind: str | None = None, aliases: Sequence[str] = ()
    ) -> Callable[[F], F]: ...
    def work(
        self, function: F | None = None, /, *, kind: str | None = None, aliases: Sequence[str] = ()
    ) -> F | Callable[[F], F]:
        """Register a function of a job and its context; use it as a decorator, with or without parentheses.

        Args:
            kind: For args without a class: the function then receives a plain mapping as ``job.args``. Otherwise
                the args class is taken from the annotation of the first parameter, ``job: river.Job[Mail]``.
            aliases: Other kinds whose jobs it works too, besides those that the args class names; ``job.kind`` says
                which it is.

        Raises:
            ConfigurationError: The args class cannot be found or used, or the kind or an alias is none, or already has
                a worker. Nothing is registered then.
        """

        def register(function: F) -> F:
            self._register(_args_type(function, kind), function, kind, aliases, next_retry=None)
            return function

        return register if function is None else register(function)

    def add(self, worker: Worker[Any], *, aliases: Sequence[str] = ()) -> None:
        """Register an instance of a worker class.

        Args:
            worker: The instance.
            aliases: As of `work`.

        Raises:
            ConfigurationError: Its class does not say which args it works, ``Worker[Mail]``, they cannot be used,
                or their kind or an alias is none, or already has a worker. Nothing is registered then.
        """
        args_type = _worker_args_type(worker)
        own_retry = type(worker).next_retry is not Worker.next_retry
        self._register(args_type, worker.work, None, aliases, worker.next_retry if own_retry else None)

    def get(self, kind: str) -> Registration | None:
        """How jobs of *kind* are worked, or None."""
        return self._registrations.get(kind)

    def __contains__(self, kind: object) -> bool:
        return kind in self._registrations

    def __iter__(self) -> Iterator[str]:
        return iter(self._registrations)

    def __len__(self) -> int:
        return len(self._registrations)

    def _register(
        self,
        args_type: type,
        call: Callable[..., Any],
        kind: str | None,
        aliases: Sequence[str],
        next_retry: Callable[[Job[Any]], datetime | None] | None,
    ) -> None:
        codec = dataclasses.replace(codec_of(JobArgs), decode=any_json) if kind else codec_of(args_type)
        declared = () if kind else getattr(args_type, "kind_aliases", ())
        kind = kind or kind_of(args_type)
        _check_kind("kind", kind)
        _check_call(call)
        kinds = [kind, *_aliases(kind, "kind_aliases", declared), *_aliases(kind, "aliases", aliases)]
        for n, each in enumerate(kinds):
            if each in self._registrations:
                other = _name(self._registrations[each].call)
                raise ConfigurationError(
                    f"worker for kind {each!r} is already registered: {other}; give one of them another kind"
                )
            if each in kinds[:n]:
                raise ConfigurationError(f"alias {each!r} of kind {kind!r} is given twice, or is the kind itself")
        registration = Registration(kind, codec, call, inspect.iscoroutinefunction(inspect.unwrap(call)), next_retry)
        self._registrations.update(dict.fromkeys(kinds, registration))


def _aliases(kind: str, option: str, aliases: object) -> list[str]:
    if not is_collection(aliases):
        raise ConfigurationError(f"{option} of kind {kind!r} must be a list of kinds, not {aliases!r}")
    return [_check_kind(f"alias of kind {kind!r}:", alias) for alias in aliases]


def _check_kind(what: str, kind: object) -> str:
    if not isinstance(kind, str) or not _KIND.fullmatch(kind) or len(kind) > _LONGEST_KIND:
        raise ConfigurationError(
            f"{what} {kind!r} is no kind: 2 or more letters, digits, '_' and, after the first, '-[]<>/.·:+'; "
            f"{_LONGEST_KIND} at most"
        )
    return kind


def _check_call(call: Callable[..., Any]) -> None:
    try:
        inspect.signature(call).bind("job", "ctx")
    except TypeError as error:
        raise ConfigurationError(
            f"{_name(call)} is called with two arguments, but cannot be: {error}; declare it as "
            "(job: river.Job[YourArgs], ctx: river.WorkContext)"
        ) from error
    except ValueError:
        pass  # a builtin that does not say what it takes


def _args_type(function: Callable[..., Any], kind: str | None) -> type:
    if kind is not None:
        return JobArgs
    if isinstance(function, type):
        raise ConfigurationError(
            f"{_name(function)} is a class: add an instance of it with workers.add({_name(function)}())"
        )
    try:
        hints = typing.get_type_hints(function)
        first = next(iter(inspect.signature(function).parameters), None)
    except (NameError, TypeError) as error:
        raise ConfigurationError(f"the annotations of {_name(function)} cannot be read: {error}") from error
    if first is None:
        raise ConfigurationError(f"{_name(function)} must take (job: river.Job[YourArgs], ctx: river.WorkContext)")
    return _parameter_of(hints.get(first), Job, f"{_name(function)}: annotate its first parameter")


def _worker_args_type(worker: Worker[Any]) -> type:
    for base in type(worker).__mro__:
        for generic in getattr(base, "__orig_bases__", ()):
            origin, parameters = typing.get_origin(generic), typing.get_args(generic)
            derives = isinstance(origin, type) and issubclass(origin, Worker)
            # A variable is for a subclass to say, which comes first in this order.
            if derives and len(parameters) == 1 and isinstance(parameters[0], type):
                return parameters[0]
    raise ConfigurationError(
        f"{_name(type(worker))} must derive from river.Worker[YourArgs], with your args class; add an instance of it"
    )


def _parameter_of(annotation: Any, generic: type, where: str) -> type:
    parameters = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is not generic or not isinstance(parameters[0], type):
        raise ConfigurationError(
            f"{where} as river.{generic.__name__}[YourArgs], with your args class; or give kind=..."
        )
    return parameters[0]


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}" if hasattr(thing, "__qualname__") else repr(thing)
