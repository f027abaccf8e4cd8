"""The seam between River and database libraries: what a driver is, and how handles find theirs.

A driver runs statements; it knows no SQL and nothing of River. It is about eighty lines per colour:

- `Driver` and `AsyncDriver` check connections out of the pool or engine that the host gave, for River's own work.
- An *adopter* wraps a connection or session that the host holds, for work inside the host's transaction. It never
  begins, commits, rolls back or closes anything, and leaves the handle as it found it.

Both are found through entry points, by the name of the top-level module of the object's class, and imported only
then: ``river.handles`` for adopters, ``river.drivers`` for drivers (there also by the scheme of a URL).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard

from typing_extensions import TypeIs

from .errors import ConfigurationError, UnsupportedHandleError
from .operation import AsyncExecutor, Database, Executor

Colour: TypeAlias = Literal["blocking", "asyncio"]


class BlockingHandle(Protocol):
    """A blocking connection or session: ``close()`` closes it."""

    @property
    def execute(self) -> Callable[..., object]: ...

    def close(self) -> None: ...


class AsyncHandle(Protocol):
    """An asyncio connection or session: ``await close()`` closes it."""

    @property
    def execute(self) -> Callable[..., object]: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


@dataclass(frozen=True, slots=True)
class Notification:
    """What a listener heard."""

    channel: str
    payload: str


class Listener(Protocol):
    """A connection of its own that listens; blocking.

    Notifications may be lost while the connection is down, so whoever waits must poll too; none arrives twice.
    """

    def wait(self, seconds: float) -> list[Notification]:
        """What was heard, or an empty list after so many seconds.

        Raises:
            DatabaseError: The connection is lost.
        """
        ...

    def check(self) -> None:
        """Ask the server for a sign of life on this very connection, in one round trip and without a deadline.

        A network that has gone silent looks like a server that has nothing to say; this tells them apart. What is
        notified meanwhile is heard by the next `wait`.

        Raises:
            DatabaseError: The connection is lost.
        """
        ...

    def abort(self) -> None:
        """Make a wait or a check in progress end soon, from any thread; the connection is lost."""
        ...


class AsyncListener(Protocol):
    """A connection of its own that listens; asyncio. The same promises as a `Listener`."""

    async def wait(self, seconds: float) -> list[Notification]:
        """What was heard, or an empty list after so many seconds.

        Raises:
            DatabaseError: The connection is lost.
        """
        ...

    async def check(self) -> None:
        """Ask the server for a sign of life on this very connection, in one round trip and without a deadline.

        Raises:
            DatabaseError: The connection is lost.
        """
        ...

    def abort(self) -> None:
        """Make a wait or a check in progress end soon; the connection is lost."""
        ...


class Driver(Protocol):
    """Connections for River's own work; blocking, and safe to use from several threads.

    Every error of the database library comes out of its methods, and out of the executors that they give, as a
    `DatabaseError` with its class. Commit and rollback included.
    """

    @property
    def database(self) -> Database: ...

    @property
    def supports_listen(self) -> bool:
        """Whether `listen` works."""
        ...

    def transaction(self) -> AbstractContextManager[Executor]:
        """One transaction: committed when left, rolled back when left by an exception."""
        ...

    def autocommit(self) -> AbstractContextManager[Executor]:
        """A connection on which each statement commits by itself, in one round trip."""
        ...

    def listen(self, channels: Sequence[str]) -> AbstractContextManager[Listener]:
        """A connection of its own, outside of the pool's limit, that listens to *channels*."""
        ...

    def close(self) -> None:
        """Close what the driver opened itself, and nothing that the host gave it."""
        ...


class AsyncDriver(Protocol):
    """Connections for River's own work; asyncio, in one event loop. The same promises as a `Driver`."""

    @property
    def database(self) -> Database: ...

    @property
    def supports_listen(self) -> bool:
        """Whether `listen` works."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[AsyncExecutor]:
        """One transaction: committed when left, rolled back when left by an exception."""
        ...

    def autocommit(self) -> AbstractAsyncContextManager[AsyncExecutor]:
        """A connection on which each statement commits by itself, in one round trip."""
        ...

    def listen(self, channels: Sequence[str]) -> AbstractAsyncContextManager[AsyncListener]:
        """A connection of its own, outside of the pool's limit, that listens to *channels*."""
        ...

    async def close(self, *, loop_ends: bool = False) -> None:
        """Close what the driver opened itself, and nothing that the host gave it.

        Args:
            loop_ends: The event loop is River's own and ends now: close the connections, too, that were opened in it,
                because nobody can use them anywhere else.
        """
        ...


AnyDriver: TypeAlias = Driver | AsyncDriver
Adopter: TypeAlias = Callable[[Any], Executor | AsyncExecutor | None]
"""Wraps a host's handle; None if it is not of a type that this adopter knows.

Raises `TransactionRequiredError`, `HandleClosedError` or another `HandleError` if the handle cannot be used.
"""

_registered: dict[str, Adopter] = {}
_adopters: dict[type, list[Adopter]] = {}


def is_asyncio(driver: AnyDriver) -> TypeIs[AsyncDriver]:
    """Whether a driver is an asyncio one."""
    return inspect.iscoroutinefunction(driver.close)


def register_handles(module: str, adopter: Adopter) -> None:
    """Adopt handles whose class, or a base of it, comes from the top-level *module*, without packaging.

    A package declares an entry point of the group ``river.handles`` instead.
    """
    _registered[module] = adopter
    _adopters.clear()


def adopt(handle: object) -> Executor | AsyncExecutor:
    """An executor over a connection or session that the host holds, and will commit and close itself.

    The class's bases count too, so that subclasses and wrappers (sqlmodel's Session, Flask-SQLAlchemy's scoped
    session) are known. ``__class__`` and not ``type()``, so that the proxies of monitoring tools are, too.

    Raises:
        UnsupportedHandleError: Nobody knows its type.
        HandleError: It cannot be used as it is.
    """
    adopters = _adopters.get(handle.__class__)
    if adopters is None:
        adopters = _adopters[handle.__class__] = _adopters_of(handle.__class__)
    for adopter in adopters:
        executor = adopter(handle)
        if executor is not None:
            return executor
    known = sorted({*_registered, *(point.name for point in _points("river.handles"))})
    name = f"{handle.__class__.__module__}.{handle.__class__.__qualname__}"
    raise UnsupportedHandleError(
        f"{name} is no connection or session that River can use; handles of these libraries are: "
        f"{', '.join(known) or 'none'}. Hand over an open connection, cursor or session of one of them, not a "
        "pool or an engine; for another library see river.register_handles"
    )


def driver_for(source: object, colour: Colour) -> AnyDriver:
    """A driver out of what the host has: a driver, an engine, a pool, or a URL.

    Args:
        source: What the host gave to its client.
        colour: Which one to make of a URL, which has none of its own.

    Raises:
        ConfigurationError: Nothing can be made of it.
    """
    if _is_driver(source):
        return source
    for point in _points("river.drivers"):
        if point.name in _names_of(source):
            driver: AnyDriver | None = point.load()(source, colour)
            if driver is not None:
                return driver
    # Of a text at most its scheme is shown: the rest may hold a password, also where it is no URL.
    scheme, is_url, _ = source.partition("://") if isinstance(source, str) else ("", "", "")
    shown = f"{scheme}://..." if is_url else "a str that is no URL" if isinstance(source, str) else repr(type(source))
    raise ConfigurationError(
        f"no driver can be made of {shown}: give a SQLAlchemy engine, a psycopg or asyncpg pool, a driver of River's, "
        "or a URL such as postgresql://user@host/database or postgresql+asyncpg://user@host/database"
    )


def _is_driver(source: object) -> TypeGuard[AnyDriver]:
    return all(hasattr(source, name) for name in ("autocommit", "transaction", "listen", "supports_listen"))


def _names_of(source: object) -> Iterator[str]:
    if isinstance(source, str):
        scheme = source.partition("://")[0]
        yield "postgresql" if scheme == "postgres" else scheme
        if "+" in scheme or scheme == "sqlite":
            yield "sqlalchemy"
    else:
        yield from _modules_of(source.__class__)


def _modules_of(cls: type) -> list[str]:
    return [base.__module__.partition(".")[0] for base in cls.__mro__]


def _adopters_of(cls: type) -> list[Adopter]:
    modules = _modules_of(cls)
    registered = [_registered[name] for name in dict.fromkeys(modules) if name in _registered]
    return registered + [point.load() for point in _points("river.handles") if point.name in modules]


@functools.cache
def _points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


__all__ = [
    "Adopter",
    "AnyDriver",
    "AsyncDriver",
    "AsyncHandle",
    "AsyncListener",
    "BlockingHandle",
    "Colour",
    "Driver",
    "Listener",
    "Notification",
    "adopt",
    "driver_for",
    "is_asyncio",
    "register_handles",
]
