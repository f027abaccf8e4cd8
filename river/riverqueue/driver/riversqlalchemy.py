"""Drivers over SQLAlchemy engines and connections."""

from __future__ import annotations

from ...driver import AsyncHandle, BlockingHandle
from .driver_protocol import AsyncEngine, BlockingEngine, check_source, is_async_handle, is_blocking_handle


class Driver:
    """A `Client`'s way to the database.

    Args:
        conn: A SQLAlchemy `Engine`, on which each insert commits by itself; or an open `Connection`, whose transaction
            all inserts are part of. The host keeps it, commits and closes it.

    Raises:
        ConfigurationError: It is neither, or it is an asyncio one.
    """

    def __init__(self, conn: BlockingEngine | BlockingHandle) -> None:
        check_source(conn, "blocking", "Driver")
        self.conn = conn
        self.engine: BlockingEngine | None = None
        self.handle: BlockingHandle | None = None
        if is_blocking_handle(conn):
            self.handle = conn
        else:
            self.engine = conn


class AsyncDriver:
    """An `AsyncClient`'s way to the database; otherwise as `Driver`.

    Args:
        conn: A SQLAlchemy `AsyncEngine` or an open `AsyncConnection`.

    Raises:
        ConfigurationError: It is neither, or it is a blocking one.
    """

    def __init__(self, conn: AsyncEngine | AsyncHandle) -> None:
        check_source(conn, "asyncio", "AsyncDriver")
        self.conn = conn
        self.engine: AsyncEngine | None = None
        self.handle: AsyncHandle | None = None
        if is_async_handle(conn):
            self.handle = conn
        else:
            self.engine = conn


__all__ = ["AsyncDriver", "Driver"]
