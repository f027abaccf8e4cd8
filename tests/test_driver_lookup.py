"""A client's source becomes a driver, a host's handle an executor; anything else is told what to give instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from river import AsyncClient, Client, ClientStateError, ConfigurationError, UnsupportedHandleError, register_handles
from river import driver as driver_module
from river.driver import Colour, adopt, driver_for, is_asyncio
from river_psycopg import AsyncPsycopgDriver, PsycopgDriver
from river_sqlalchemy import AsyncSQLAlchemyDriver, SQLAlchemyDriver
from tests.test_operation import AsyncScript, Script, adoptable

SECRET = "s3cr3t"

COLOURS: tuple[Colour, ...] = ("blocking", "asyncio")


def pool() -> ConnectionPool:
    return ConnectionPool(f"postgresql://me:{SECRET}@nowhere.invalid/db", open=False, min_size=0, max_size=1)


async def async_pool() -> AsyncConnectionPool:
    return AsyncConnectionPool(f"postgresql://me:{SECRET}@nowhere.invalid/db", open=False, min_size=0, max_size=1)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("library", ["psycopg", "psycopg2", "pg8000"])
def test_an_engine_makes_a_blocking_driver_whatever_the_clients_colour(library: str, colour: Colour) -> None:
    driver = driver_for(create_engine(f"postgresql+{library}://me@nowhere.invalid/db"), colour)
    assert type(driver) is SQLAlchemyDriver
    assert not is_asyncio(driver)
    assert driver.database == "postgresql"
    assert driver.supports_listen is (library != "pg8000")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("library", ["psycopg", "asyncpg"])
def test_an_async_engine_makes_an_asyncio_driver_whatever_the_clients_colour(library: str, colour: Colour) -> None:
    driver = driver_for(create_async_engine(f"postgresql+{library}://me@nowhere.invalid/db"), colour)
    assert type(driver) is AsyncSQLAlchemyDriver
    assert is_asyncio(driver)
    assert driver.supports_listen


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_pool_makes_a_driver_of_its_own_colour(colour: Colour) -> None:
    assert type(driver_for(pool(), colour)) is PsycopgDriver
    assert type(driver_for(await async_pool(), colour)) is AsyncPsycopgDriver


def test_a_subclass_of_a_pool_is_a_pool() -> None:
    class OwnPool(ConnectionPool):
        """A host's own."""

    driver = driver_for(OwnPool("", open=False, min_size=0, max_size=1), "blocking")
    assert type(driver) is PsycopgDriver


@pytest.mark.parametrize("colour", COLOURS)
def test_a_driver_is_taken_as_it_is(colour: Colour) -> None:
    for driver in (SQLAlchemyDriver(create_engine("postgresql+psycopg://")), PsycopgDriver(pool())):
        assert driver_for(driver, colour) is driver


URLS: list[tuple[str, Colour, type]] = [
    ("postgresql://me@h/db", "blocking", PsycopgDriver),
    ("postgresql://me@h/db", "asyncio", AsyncPsycopgDriver),
    ("postgres://me@h/db", "blocking", PsycopgDriver),
    ("postgresql+psycopg://me@h/db", "blocking", SQLAlchemyDriver),
    ("postgresql+psycopg://me@h/db", "asyncio", AsyncSQLAlchemyDriver),
    ("postgresql+psycopg2://me@h/db", "blocking", SQLAlchemyDriver),
    ("postgresql+psycopg2://me@h/db", "asyncio", SQLAlchemyDriver),
    ("postgresql+pg8000://me@h/db", "asyncio", SQLAlchemyDriver),
    ("postgresql+asyncpg://me@h/db", "asyncio", AsyncSQLAlchemyDriver),
    ("postgresql+asyncpg://me@h/db", "blocking", AsyncSQLAlchemyDriver),
]


@pytest.mark.parametrize(("url", "colour", "made"), URLS)
async def test_a_url_makes_the_driver_of_its_library_and_asks_no_server(url: str, colour: Colour, made: type) -> None:
    assert type(driver_for(url, colour)) is made


UNUSABLE: list[tuple[Any, str]] = [
    (5, "int"),
    (object(), "object"),
    ("", "str"),
    (b"postgresql://", "bytes"),
    ({"url": "postgresql://"}, "dict"),
    (psycopg.Connection, "type"),
    (sqlalchemy.MetaData(), "MetaData"),
    (Session(), "Session"),
    (sessionmaker(), "sessionmaker"),
    (f"mysql://me:{SECRET}@h/db", "mysql://"),
    (f"http://me:{SECRET}@h/db", "http://"),
    (f"me:{SECRET}@h/db", "str"),
    (f"host=h user=me password={SECRET}", "str"),
    (f"password={SECRET}", "str"),
    (SECRET, "str"),
    (f"postgresql:me:{SECRET}@h", "str"),
    (f" postgresql://me:{SECRET}@h", "postgresql://"),
]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(("source", "shown"), UNUSABLE, ids=lambda value: value if value == "str" else None)
def test_anything_else_is_refused_and_told_what_to_give_without_a_password(
    source: Any, shown: str, colour: Colour
) -> None:
    with pytest.raises(ConfigurationError, match="no driver can be made of ") as raised:
        driver_for(source, colour)
    text = str(raised.value)
    assert shown in text
    assert "give a SQLAlchemy engine, a psycopg or asyncpg pool, a driver of River's, or a URL" in text
    assert SECRET not in text


BROKEN_URLS = [
    f"postgresql+mystery://me:{SECRET}@h/db",
    f"postgresql+psycopg://me:{SECRET}@h:port/db",
    f"postgresql+psycopg://h:{SECRET}/db",
    f"postgresql+psycopg://me:{SECRET}@[::1/db",
    f"mysql+pymysql://me:{SECRET}@h/db",
    f"oracle+oracledb://me:{SECRET}@h/db",
]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("url", BROKEN_URLS)
def test_a_url_that_sqlalchemy_cannot_use_is_refused_without_its_password(url: str, colour: Colour) -> None:
    with pytest.raises(ConfigurationError) as raised:
        driver_for(url, colour)
    error: BaseException | None = raised.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_database_that_river_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="not on mssql"):
        driver_for(_engine_of_dialect("mssql"), "blocking")


def _engine_of_dialect(name: str) -> sqlalchemy.Engine:
    """An engine of a database whose library need not be installed."""
    engine = create_engine("sqlite://")
    engine.dialect.name = name
    return engine


def test_the_text_of_a_client_and_of_its_parts_shows_no_password() -> None:
    client = Client(f"postgresql://me:{SECRET}@nowhere.invalid/db")
    for thing in (client, client.driver, client.config):
        assert SECRET not in repr(thing)
    client.close()


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_client_without_a_source_says_what_it_can_do(make: Callable[..., Client | AsyncClient]) -> None:
    with pytest.raises(ClientStateError, match=r"made without a database .* use the method ending in _tx"):
        _ = make(None).driver


@pytest.fixture
def scripts() -> Iterator[None]:
    with adoptable():
        yield


def test_a_registered_handle_is_adopted_and_so_are_its_subclasses_and_proxies(scripts: None) -> None:
    class Sub(Script):
        """A host's own."""

    class Proxy:
        """As monitoring tools make them."""

        def __init__(self, wrapped: object) -> None:
            self._wrapped = wrapped

        def __getattribute__(self, name: str) -> Any:
            wrapped = object.__getattribute__(self, "_wrapped")
            return wrapped.__class__ if name == "__class__" else getattr(wrapped, name)

    for handle in (Script(), AsyncScript(), Sub()):
        assert adopt(handle) is handle
    proxy: Any = Proxy(Script())
    assert adopt(proxy) is proxy


def test_a_handle_of_nobodys_is_refused_with_its_type_and_the_libraries(scripts: None) -> None:
    for handle, name in ((object(), "builtins.object"), (pool(), "psycopg_pool.pool.ConnectionPool"), (5, "int")):
        with pytest.raises(UnsupportedHandleError, match=name) as raised:
            adopt(handle)
        assert "psycopg, sqlalchemy, tests" in str(raised.value)
        assert "river.register_handles" in str(raised.value)
        assert SECRET not in str(raised.value)
        assert isinstance(raised.value, TypeError)


def test_an_engine_is_no_handle() -> None:
    for source in (create_engine("postgresql+psycopg://"), create_async_engine("postgresql+asyncpg://")):
        assert isinstance(source, sqlalchemy.Engine | AsyncEngine)
        with pytest.raises(UnsupportedHandleError, match="not a pool or an engine"):
            adopt(source)


def test_a_later_registration_is_heeded_for_a_type_that_was_refused_before() -> None:
    handle = Script()
    with pytest.raises(UnsupportedHandleError):
        adopt(handle)
    with adoptable():
        assert adopt(handle) is handle
    with pytest.raises(UnsupportedHandleError):
        adopt(handle)


def test_a_registration_comes_before_an_installed_driver() -> None:
    with psycopg_replaced(lambda handle: Script()):
        assert isinstance(adopt(_unopened_connection()), Script)
    with psycopg_replaced(lambda handle: None), pytest.raises(UnsupportedHandleError):
        adopt(object.__new__(type("Odd", (), {"__module__": "psycopg"})))


@contextmanager
def psycopg_replaced(adopter: Callable[[Any], Any]) -> Iterator[None]:
    register_handles("psycopg", adopter)
    try:
        yield
    finally:
        driver_module._registered.pop("psycopg")
        driver_module._adopters.clear()


def _unopened_connection() -> object:
    return object.__new__(type("Connection", (), {"__module__": "psycopg.connection"}))
