"""What a driver of this layer is: where a client's connections come from, or the one connection that it uses.

It runs nothing itself: SQL and transactions are River's business, through the drivers that River finds for an engine or
a connection.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any, Protocol

from typing_extensions import TypeIs

from ...driver import AsyncHandle, BlockingHandle, Colour
from ...errors import ConfigurationError, UnsupportedHandleError


class BlockingEngine(Protocol):
    """A blocking engine, as SQLAlchemy's `Engine`."""

    def dispose(self) -> None: ...


class AsyncEngine(Protocol):
    """An asyncio engine, as SQLAlchemy's `AsyncEngine`."""

    def dispose(self) -> Coroutine[Any, Any, None]: ...


class DriverProtocol(Protocol):
    """What a `Client` takes.

    Attributes:
        engine: Each insert has a transaction of its own, on a connection of this engine; None with a *handle*.
        handle: Each insert is part of the transaction of this connection, which the host commits.
    """

    @property
    def engine(self) -> BlockingEngine | None: ...

    @property
    def handle(self) -> BlockingHandle | None: ...


class AsyncDriverProtocol(Protocol):
    """What an `AsyncClient` takes; otherwise as a `DriverProtocol`."""

    @property
    def engine(self) -> AsyncEngine | None: ...

    @property
    def handle(self) -> AsyncHandle | None: ...


def is_blocking_handle(conn: BlockingEngine | BlockingHandle) -> TypeIs[BlockingHandle]:
    """Whether a host gave a connection, not an engine."""
    return hasattr(conn, "execute")


def is_async_handle(conn: AsyncEngine | AsyncHandle) -> TypeIs[AsyncHandle]:
    """Whether a host gave a connection, not an engine."""
    return hasattr(conn, "execute")


def check_source(conn: object, colour: Colour, driver: str) -> None:
    """Refuse what no *driver* of this colour can be made of.

    Raises:
        ConfigurationError: It is neither an engine nor a connection, or it is of the other colour.
    """
    ends = getattr(conn, "close" if hasattr(conn, "execute") else "dispose", None)
    if ends is None:
        # Only the class is shown: a URL may hold a password.
        raise ConfigurationError(
            f"{driver} takes a SQLAlchemy engine or connection, not {_name(conn)}; other sources are for river.Client"
        )
    if _colour(ends) != colour:
        other = "Driver and Client" if colour == "asyncio" else "AsyncDriver and AsyncClient"
        raise ConfigurationError(f"{driver} is {colour}, and {_name(conn)} is not: use {other} for it")


def check_driver(driver: object, colour: Colour, client: str) -> None:
    """Refuse what is no driver for a *client* of this colour.

    Raises:
        ConfigurationError: It is none, or one of the other colour.
    """
    expected = "AsyncDriver" if colour == "asyncio" else "Driver"
    if not hasattr(driver, "engine") or not hasattr(driver, "handle"):
        raise ConfigurationError(
            f"{client} takes a driver, not {_name(driver)}: wrap it, as in {client}(riversqlalchemy.{expected}(engine))"
        )
    source = getattr(driver, "handle", None) or getattr(driver, "engine", None)
    check_source(source, colour, expected)


def check_handle(handle: object, colour: Colour, client: str) -> None:
    """Refuse a connection or session of the other colour, before anything is written on it.

    Raises:
        UnsupportedHandleError: It is of the other colour.
    """
    closes = getattr(handle, "close", None)
    if closes is not None and _colour(closes) != colour:
        other = "Client" if colour == "asyncio" else "AsyncClient"
        raise UnsupportedHandleError(f"{client} is {colour}, and {_name(handle)} is not: use {other} for it")


def _colour(ends: object) -> Colour:
    return "asyncio" if inspect.iscoroutinefunction(ends) else "blocking"


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


__all__ = [
    "AsyncDriverProtocol",
    "AsyncEngine",
    "BlockingEngine",
    "DriverProtocol",
    "check_driver",
    "check_handle",
    "check_source",
    "is_async_handle",
    "is_blocking_handle",
]
