"""Our own drivers and adopters pass the suite that we ask of everybody's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
import pytest
from psycopg.rows import class_row, dict_row, namedtuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from river.driver import AsyncDriver, Colour, Driver, driver_for, is_asyncio
from river.testing import conformance
from river_psycopg import AsyncPsycopgDriver, PsycopgDriver
from river_sqlalchemy import AsyncSQLAlchemyDriver, SQLAlchemyDriver
from tests.support.handles import KINDS, Kind, drive, opened_psycopg, opened_sqlalchemy, settle
from tests.support.handles import Host as AnyHost
from tests.support.urls import with_driver

AT_ONCE = 8


class Here:
    """The tests of this project have a server already."""

    @pytest.fixture
    def conformance_url(self, database_url: str) -> str:
        return database_url


class BlockingPsycopg(Here):
    @contextmanager
    def driver(self, url: str) -> Generator[Driver]:
        with ConnectionPool(url, min_size=1, max_size=AT_ONCE) as pool:
            yield PsycopgDriver(pool)


class AsyncPsycopg(Here):
    @asynccontextmanager
    async def driver(self, url: str) -> AsyncGenerator[AsyncDriver]:
        async with AsyncConnectionPool(url, min_size=1, max_size=AT_ONCE, open=False) as pool:
            yield AsyncPsycopgDriver(pool)


class BlockingSQLAlchemy(Here):
    library: ClassVar[str]

    @contextmanager
    def driver(self, url: str) -> Generator[Driver]:
        engine = create_engine(with_driver(url, self.library), pool_size=AT_ONCE)
        try:
            yield SQLAlchemyDriver(engine)
        finally:
            engine.dispose()

    def own_driver(self, url: str) -> Driver:
        driver = driver_for(with_driver(url, self.library).render_as_string(hide_password=False), "blocking")
        assert not is_asyncio(driver)
        return driver


class AsyncSQLAlchemy(Here):
    library: ClassVar[str]

    @asynccontextmanager
    async def driver(self, url: str) -> AsyncGenerator[AsyncDriver]:
        engine = create_async_engine(with_driver(url, self.library), pool_size=AT_ONCE)
        try:
            yield AsyncSQLAlchemyDriver(engine)
        finally:
            await engine.dispose()

    def own_driver(self, url: str) -> AsyncDriver:
        driver = driver_for(with_driver(url, self.library).render_as_string(hide_password=False), "asyncio")
        assert is_asyncio(driver)
        return driver


class TestPsycopgDriver(BlockingPsycopg, conformance.DriverSuite):
    def own_driver(self, url: str) -> Driver:
        return PsycopgDriver.connect(url)


class TestAsyncPsycopgDriver(AsyncPsycopg, conformance.AsyncDriverSuite):
    def own_driver(self, url: str) -> AsyncDriver:
        return AsyncPsycopgDriver.connect(url)


class TestSQLAlchemyDriverOverPsycopg(BlockingSQLAlchemy, conformance.DriverSuite):
    library = "postgresql+psycopg"


class TestSQLAlchemyDriverOverPsycopg2(BlockingSQLAlchemy, conformance.DriverSuite):
    library = "postgresql+psycopg2"


class TestSQLAlchemyDriverOverPg8000(BlockingSQLAlchemy, conformance.DriverSuite):
    library = "postgresql+pg8000"


class TestAsyncSQLAlchemyDriverOverPsycopg(AsyncSQLAlchemy, conformance.AsyncDriverSuite):
    library = "postgresql+psycopg"


class TestAsyncSQLAlchemyDriverOverAsyncpg(AsyncSQLAlchemy, conformance.AsyncDriverSuite):
    library = "postgresql+asyncpg"


class AsyncioHost:
    """A handle of either colour, as the suite wants to use it."""

    def __init__(self, host: AnyHost) -> None:
        self.host = host

    @property
    def handle(self) -> Any:
        return self.host.handle

    async def begin(self) -> None:
        """The first statement begins."""

    async def execute(self, sql: str) -> Sequence[Any]:
        handle: Any = self.handle
        over_sqlalchemy = hasattr(self.host.source, "dispose")
        result = await settle(handle.execute(text(sql) if over_sqlalchemy else sql.encode()))
        if over_sqlalchemy:
            return list(result.fetchall()) if result.returns_rows else []
        return list(await settle(result.fetchall())) if result.description else []

    async def commit(self) -> None:
        await self.host.commit()

    async def rollback(self) -> None:
        await self.host.rollback()

    async def close(self) -> None:
        await self.host.close()


class BlockingHost:
    def __init__(self, host: AnyHost) -> None:
        self.host = AsyncioHost(host)

    @property
    def handle(self) -> Any:
        return self.host.handle

    def begin(self) -> None:
        """The first statement begins."""

    def execute(self, sql: str) -> Sequence[Any]:
        return drive(self.host.execute(sql))

    def commit(self) -> None:
        drive(self.host.commit())

    def rollback(self) -> None:
        drive(self.host.rollback())

    def close(self) -> None:
        drive(self.host.close())


@asynccontextmanager
async def host_of(kind: Kind, url: str, autocommit: bool, settings: dict[str, Any]) -> AsyncGenerator[AnyHost]:
    """A host with a handle of a kind. Over a blocking library, nothing in here is ever suspended."""
    if kind.over_sqlalchemy:
        level: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        async with opened_sqlalchemy(kind, url, **level, **settings) as sqlalchemy_host:
            yield sqlalchemy_host
    else:
        async with opened_psycopg(kind, url, autocommit=autocommit, **settings) as psycopg_host:
            yield psycopg_host


class Record:
    """A row of the host's own type, which takes any columns."""

    def __init__(self, **columns: Any) -> None:
        self.columns = columns

    def __repr__(self) -> str:
        return f"Record({self.columns})"


@dataclass(frozen=True)
class Variant:
    """A kind of handle, and how the host has set it up."""

    kind: Kind
    settings: dict[str, Any]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


def variants(colour: Colour) -> list[Variant]:
    usual = [Variant(kind, {}) for kind in KINDS if kind.colour == colour]
    shape = "Connection" if colour == "blocking" else "AsyncConnection"
    cursor = psycopg.RawCursor if colour == "blocking" else psycopg.AsyncRawCursor
    with_rows = [
        Variant(Kind("psycopg", shape, colour), {"row_factory": factory}, name)
        for name, factory in {"dict": dict_row, "tuple": namedtuple_row, "class": class_row(Record)}.items()
    ]
    return [*usual, *with_rows, Variant(Kind("psycopg", shape, colour), {"cursor_factory": cursor}, "raw cursor")]


class Handles:
    """Handles of each kind, one after the other."""

    variant: Variant

    def of(self: Any, variant: Variant) -> None:
        self.variant = variant
        self.knows_failure = variant.kind.knows_failure
        self.knows_closed = not variant.kind.is_session


class TestBlockingHandles(Handles, BlockingPsycopg, conformance.HandleSuite):
    @pytest.fixture(autouse=True, params=variants("blocking"), ids=str)
    def of_each_kind(self, request: pytest.FixtureRequest) -> None:
        self.of(request.param)

    @contextmanager
    def host(self, url: str, *, autocommit: bool) -> Generator[BlockingHost]:
        manager = host_of(self.variant.kind, url, autocommit, self.variant.settings)
        entered = drive(manager.__aenter__())
        try:
            yield BlockingHost(entered)
        finally:
            drive(manager.__aexit__(None, None, None))


class TestAsyncHandles(Handles, AsyncPsycopg, conformance.AsyncHandleSuite):
    @pytest.fixture(autouse=True, params=variants("asyncio"), ids=str)
    def of_each_kind(self, request: pytest.FixtureRequest) -> None:
        self.of(request.param)

    @asynccontextmanager
    async def host(self, url: str, *, autocommit: bool) -> AsyncGenerator[AsyncioHost]:
        async with host_of(self.variant.kind, url, autocommit, self.variant.settings) as host:
            yield AsyncioHost(host)
