"""Every handle that River adopts, opened as a host opens it, behind one face for tests.

    Kind        a type of handle over one library: what is parametrised
    opened      a pool or engine of one connection, and a handle over it: a Host
    Host        what a host does with its handle: write, commit, roll back, make a savepoint
    Observer    a second connection, which sees what is committed and what the server knows of the host

The methods of a Host are coroutines, for one text of a test for both colours. Those of a blocking handle never
suspend, so that `drive` can run them where there is no event loop: in a ``def`` worker's thread.
"""

from __future__ import annotations

import inspect
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from river.driver import Colour
from tests.support.urls import with_driver

T = TypeVar("T")

DEADLINE_SECONDS = 30.0
"""When a wait for what must happen gives up, and the test fails."""


@dataclass
class Mail:
    """The args of the tests' jobs."""

    kind: ClassVar[str] = "mail"
    to: str


class AppSession(Session):
    """A session class of the host's own, as SQLModel's is."""


class Undone(Exception):  # noqa: N818 - no error
    """Raised to leave a savepoint so that it is rolled back."""


async def settle(value: Any) -> Any:
    """What a call of either colour gives."""
    return await value if inspect.isawaitable(value) else value


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise AssertionError("a blocking handle's coroutine was suspended")


@dataclass(frozen=True)
class Kind:
    """A type of handle.

    Attributes:
        library: "psycopg" for its own connections, else the name of SQLAlchemy's driver.
        shape: What kind of object is handed over.
        colour: Its colour.
    """

    library: str
    shape: str
    colour: Colour

    @property
    def over_sqlalchemy(self) -> bool:
        """Whether it is one of SQLAlchemy's."""
        return "+" in self.library

    @property
    def is_session(self) -> bool:
        """Whether it is a session of SQLAlchemy's, plain or scoped."""
        return "ession" in self.shape

    @property
    def knows_failure(self) -> bool:
        """Whether its library says without a query that a transaction has failed."""
        return not self.library.endswith(("asyncpg", "pg8000"))

    def __str__(self) -> str:
        return f"{self.library.rpartition('+')[2]}-{self.shape}" if self.over_sqlalchemy else f"native-{self.shape}"


def _kinds(libraries: tuple[str, ...], colour: Colour, *shapes: str) -> list[Kind]:
    return [Kind(library, shape, colour) for library in libraries for shape in shapes]


_BLOCKING_LIBRARIES = ("postgresql+psycopg", "postgresql+psycopg2", "postgresql+pg8000")
_ASYNCIO_LIBRARIES = ("postgresql+psycopg", "postgresql+asyncpg")

PSYCOPG_KINDS = [
    *_kinds(("psycopg",), "blocking", "Connection", "Cursor"),
    *_kinds(("psycopg",), "asyncio", "AsyncConnection", "AsyncCursor"),
]
SQLALCHEMY_KINDS = [
    *_kinds(_BLOCKING_LIBRARIES, "blocking", "Connection", "Session", "scoped_session", "AppSession"),
    *_kinds(_ASYNCIO_LIBRARIES, "asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session"),
]
KINDS = [*PSYCOPG_KINDS, *SQLALCHEMY_KINDS]
SESSION_KINDS = [kind for kind in SQLALCHEMY_KINDS if kind.is_session]

FEW_KINDS = [
    Kind("psycopg", "Connection", "blocking"),
    Kind("postgresql+psycopg2", "Session", "blocking"),
    Kind("postgresql+asyncpg", "AsyncSession", "asyncio"),
]
"""Where the type of the handle is not what is tested."""


class Host(ABC):
    """One handle, and what its host does with it.

    Attributes:
        handle: What is handed to River.
        source: The pool or engine behind it, which has this one connection and refuses a second one.
        statements: What SQLAlchemy's events saw; empty without SQLAlchemy.
    """

    handle: Any
    source: Any

    def __init__(self) -> None:
        self.statements: list[str] = []

    @property
    @abstractmethod
    def checkouts(self) -> int:
        """How often a connection was asked for."""

    @abstractmethod
    async def execute(self, statement: str) -> None:
        """Run a statement in the handle's transaction."""

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def rollback(self) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Close the handle, as a host that has done with it."""

    @abstractmethod
    def _begin_nested(self) -> Any: ...

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """The library's own savepoint: rolled back when left by an exception."""
        savepoint = self._begin_nested()
        if hasattr(savepoint, "__aenter__"):
            async with savepoint:
                yield
        else:
            with savepoint:
                yield


class PsycopgHost(Host):
    """A connection out of a psycopg pool."""

    def __init__(self, pool: ConnectionPool[Any] | AsyncConnectionPool[Any], connection: Any, shape: str) -> None:
        super().__init__()
        self.source = pool
        self.connection = connection
        self.handle = connection.cursor() if shape.endswith("Cursor") else connection

    @property
    def checkouts(self) -> int:
        return int(self.source.get_stats()["requests_num"])

    async def execute(self, statement: str) -> None:
        await settle(self.handle.execute(statement.encode()))

    async def commit(self) -> None:
        await settle(self.connection.commit())

    async def rollback(self) -> None:
        await settle(self.connection.rollback())

    async def close(self) -> None:
        await settle(self.handle.close())

    def _begin_nested(self) -> Any:
        return self.connection.transaction()


class SQLAlchemyHost(Host):
    """A connection or session over an engine."""

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self.source = engine
        self._checkouts = 0
        sync_engine = getattr(engine, "sync_engine", engine)
        event.listen(sync_engine, "checkout", self._checked_out)
        event.listen(sync_engine, "before_cursor_execute", self._executed)

    @property
    def checkouts(self) -> int:
        return self._checkouts

    async def execute(self, statement: str) -> None:
        await settle(self.handle.execute(text(statement)))

    async def commit(self) -> None:
        await settle(self.handle.commit())

    async def rollback(self) -> None:
        await settle(self.handle.rollback())

    async def close(self) -> None:
        if isinstance(self.handle, scoped_session | async_scoped_session):
            await settle(self.handle.remove())
        else:
            await settle(self.handle.close())

    async def on_connection(self, call: Callable[[Any], Any], **options: Any) -> Any:
        """Call a function with the blocking SQLAlchemy connection under the handle.

        Args:
            call: The function.
            options: How a session is to make its connection.
        """
        session = hasattr(self.handle, "get_bind")
        connection = await settle(self.handle.connection(**options)) if session else self.handle
        return await connection.run_sync(call) if isinstance(connection, AsyncConnection) else call(connection)

    def _begin_nested(self) -> Any:
        return self.handle.begin_nested()

    def _checked_out(self, *_: Any) -> None:
        self._checkouts += 1

    def _executed(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self.statements.append(statement)


@asynccontextmanager
async def opened_psycopg(kind: Kind, url: str, **settings: Any) -> AsyncIterator[PsycopgHost]:
    """A handle of psycopg's own.

    Args:
        kind: Which.
        url: A libpq URL.
        settings: Keywords for psycopg's `connect`, ``row_factory`` for one.
    """
    pool_type: Any = ConnectionPool if kind.colour == "blocking" else AsyncConnectionPool
    pool = pool_type(url, min_size=0, max_size=1, timeout=5, open=False, kwargs=settings)
    await settle(pool.open())
    try:
        connection = await settle(pool.getconn())
        try:
            yield PsycopgHost(pool, connection, kind.shape)
        finally:
            with suppress(psycopg.Error):
                await settle(connection.rollback())
            await settle(pool.putconn(connection))
    finally:
        await settle(pool.close())


@asynccontextmanager
async def opened_sqlalchemy(
    kind: Kind, url: str, *, session_options: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[SQLAlchemyHost]:
    """A handle of SQLAlchemy's.

    Args:
        kind: Which.
        url: A libpq URL.
        session_options: Keywords for the session's class.
        settings: Keywords for `create_engine`, ``isolation_level`` for one.
    """
    create: Any = create_engine if kind.colour == "blocking" else create_async_engine
    engine = create(with_driver(url, kind.library), pool_size=1, max_overflow=0, pool_timeout=5, **settings)
    try:
        host = SQLAlchemyHost(engine)
        host.handle = await settle(_made(kind.shape, engine, session_options or {}))
        try:
            yield host
        finally:
            await host.close()
    finally:
        await settle(engine.dispose())


def _made(shape: str, engine: Any, options: dict[str, Any]) -> Any:
    match shape:
        case "Connection" | "AsyncConnection":
            return engine.connect()
        case "Session":
            return Session(engine, **options)
        case "AppSession":
            return AppSession(engine, **options)
        case "AsyncSession":
            return AsyncSession(engine, **options)
        case "scoped_session":
            return scoped_session(sessionmaker(engine, **options))
        case _:
            # One scope for the whole test, whose fixtures are tasks of their own.
            return async_scoped_session(async_sessionmaker(engine, **options), scopefunc=lambda: 0)


def opened(kind: Kind, url: str) -> AbstractAsyncContextManager[Host]:
    """A handle with its library's usual settings: each statement is part of a transaction."""
    return opened_sqlalchemy(kind, url) if kind.over_sqlalchemy else opened_psycopg(kind, url)


class Observer:
    """A second connection: what is committed, and what the server says of others.

    It also makes the host's own table, ``note``.

    Args:
        connection: In autocommit.
        schema: River's, where the host's table is too.
        host_name: The host's ``application_name``.
    """

    def __init__(self, connection: psycopg.Connection[Any], schema: str, host_name: str) -> None:
        self.connection = connection
        self.schema = schema
        self.host_name = host_name
        self._listening = False
        self.execute("CREATE TABLE {}.note (note text)")

    @property
    def channel(self) -> str:
        """Where River announces jobs."""
        return f"{self.schema}.river_insert"

    def execute(self, statement: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run a statement, in which ``{}`` is the schema, and return its rows."""
        query = sql.SQL(statement).format(sql.Identifier(self.schema))
        with self.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []

    def jobs(self) -> list[dict[str, Any]]:
        """The committed jobs."""
        return self.execute("SELECT * FROM {}.river_job ORDER BY id")

    def job(self, job_id: int) -> dict[str, Any]:
        """One committed job."""
        return next(job for job in self.jobs() if job["id"] == job_id)

    def recipients(self) -> list[str]:
        """Whom the committed jobs write to."""
        return [job["args"]["to"] for job in self.jobs()]

    def notes(self) -> list[str]:
        """What the host has written and committed."""
        return [row["note"] for row in self.execute("SELECT note FROM {}.note ORDER BY note")]

    def host_backends(self) -> list[dict[str, Any]]:
        """The host's connections: each one's process, transaction, and what it was asked last."""
        return self.execute(
            "SELECT pid, state, xact_start, CAST(backend_xid AS text) AS xid, query FROM pg_stat_activity"
            " WHERE application_name = %(name)s ORDER BY pid",
            {"name": self.host_name},
        )

    def listen(self) -> None:
        """Hear what River announces from here on."""
        self.connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))

    def heard(self) -> list[str]:
        """What was announced since the last call.

        Notifications come in the order of their commits: after one of its own there is nothing left to wait for.
        """
        last = uuid.uuid4().hex
        self.connection.execute("SELECT pg_notify(%s, %s)", [self.channel, last])
        payloads: list[str] = []
        for notification in self.connection.notifies(timeout=DEADLINE_SECONDS):
            if notification.payload == last:
                return payloads
            payloads.append(notification.payload)
        raise AssertionError("the observer did not hear itself")


def named(url: str, application_name: str) -> str:
    """A libpq URL whose connections the server knows by a name."""
    return f"{url}{'&' if '?' in url else '?'}application_name={application_name}"


Ending = Literal["commit", "rollback"]


async def end(host: Host, ending: Ending) -> None:
    """Commit or roll back."""
    await (host.commit() if ending == "commit" else host.rollback())
