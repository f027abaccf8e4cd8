"""LISTEN, under SQLAlchemy: on a connection that was detached from the host's pool, in its DB-API's own way.

pg8000 has no way to wait for a notification without a query, so under it a client polls.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sqlalchemy import Dialect

from river.driver import AsyncListener, Listener, Notification
from river.errors import DatabaseError, ErrorClass

from ._common import shut_down


def can_listen(dialect: Dialect) -> bool:
    """Whether notifications can be waited for over this DB-API."""
    return dialect.name == "postgresql" and dialect.driver in (
        "psycopg",
        "psycopg_async",
        "psycopg2",
        "asyncpg",
    )


@contextmanager
def blocking_listener(driver_connection: Any, channels: Sequence[str]) -> Generator[Listener]:
    """Listen to *channels* on a psycopg or psycopg2 connection, and close it afterwards."""
    try:
        with _lost():
            driver_connection.autocommit = True
            with driver_connection.cursor() as cursor:
                for channel in channels:
                    cursor.execute(f"LISTEN {_quoted(channel)}")
        # A method of psycopg 3's, a list of psycopg2's.
        generation_3 = callable(driver_connection.notifies)
        yield (_PsycopgListener if generation_3 else _Psycopg2Listener)(driver_connection)
    finally:
        driver_connection.close()


@asynccontextmanager
async def async_listener(driver_connection: Any, channels: Sequence[str]) -> AsyncGenerator[AsyncListener]:
    """Listen to *channels* on a psycopg or asyncpg connection, and close it afterwards."""
    if hasattr(driver_connection, "add_listener"):
        try:
            with _lost():
                listener = await _AsyncpgListener.on(driver_connection, channels)
            yield listener
        finally:
            driver_connection.terminate()
    else:
        try:
            with _lost():
                await driver_connection.set_autocommit(True)
                for channel in channels:
                    await driver_connection.execute(f"LISTEN {_quoted(channel)}")
            yield _AsyncPsycopgListener(driver_connection)
        finally:
            await driver_connection.close()


class _PsycopgListener:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def wait(self, seconds: float) -> list[Notification]:
        with _lost():
            return [
                Notification(notify.channel, notify.payload)
                for notify in self._connection.notifies(timeout=seconds, stop_after=1)
            ]

    def check(self) -> None:
        with _lost():
            self._connection.execute("SELECT 1", prepare=False)

    def abort(self) -> None:
        shut_down(self._connection)


class _Psycopg2Listener:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def wait(self, seconds: float) -> list[Notification]:
        with _lost():
            give_up_at = time.monotonic() + seconds
            left = seconds
            # Not once: what has arrived may be the server's last word, and only the next look finds the end.
            while not self._connection.notifies:
                select.select([self._connection], [], [], left)
                self._connection.poll()
                left = give_up_at - time.monotonic()
                if left <= 0:
                    break
            heard, self._connection.notifies[:] = list(self._connection.notifies), []
            return [Notification(notify.channel, notify.payload) for notify in heard]

    def check(self) -> None:
        with _lost(), self._connection.cursor() as cursor:
            cursor.execute("SELECT 1")

    def abort(self) -> None:
        shut_down(self._connection)


class _AsyncPsycopgListener:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def wait(self, seconds: float) -> list[Notification]:
        with _lost():
            return [
                Notification(notify.channel, notify.payload)
                async for notify in self._connection.notifies(timeout=seconds, stop_after=1)
            ]

    async def check(self) -> None:
        with _lost():
            await self._connection.execute("SELECT 1", prepare=False)

    def abort(self) -> None:
        shut_down(self._connection)


class _AsyncpgListener:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._heard: asyncio.Queue[Notification | None] = asyncio.Queue()

    @classmethod
    async def on(cls, connection: Any, channels: Sequence[str]) -> _AsyncpgListener:
        listener = cls(connection)
        connection.add_termination_listener(listener._ended)
        for channel in channels:
            await connection.add_listener(channel, listener._hear)
        return listener

    async def wait(self, seconds: float) -> list[Notification]:
        if self._connection.is_closed() and self._heard.empty():
            self._heard.put_nowait(None)  # an earlier wait has been told already
        try:
            async with asyncio.timeout(seconds):
                first = await self._heard.get()
        except TimeoutError:
            return []
        if first is None or self._connection.is_closed():
            raise DatabaseError("the listening connection was lost", error_class=ErrorClass.CONNECTION_LOST)
        return [first]

    async def check(self) -> None:
        with _lost():
            await self._connection.execute("SELECT 1")

    def abort(self) -> None:
        self._connection.terminate()

    def _ended(self, _connection: Any) -> None:
        self._heard.put_nowait(None)

    def _hear(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        self._heard.put_nowait(Notification(channel, str(payload)))


@contextmanager
def _lost() -> Generator[None]:
    """Whatever a DB-API raises while it listens means that the connection is lost."""
    try:
        yield
    except Exception as error:
        raise DatabaseError(str(error), error_class=ErrorClass.CONNECTION_LOST) from error


def _quoted(channel: str) -> str:
    return '"' + channel.replace('"', '""') + '"'
