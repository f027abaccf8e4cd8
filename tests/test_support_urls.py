"""Each library reaches the test database from the one URL, and finds an empty search path there."""

import psycopg
import pytest
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.urls import with_driver, with_empty_search_path

SOCKET = "postgresql://postgres:@/postgres?host=/run/pg&port=5433"
TCP = "postgresql://me:secret@127.0.0.1:5433/postgres"


def show_search_path(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.execute(text("SHOW search_path")).scalar_one())


def test_psycopg_itself_finds_an_empty_search_path(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SHOW search_path").fetchone() == ("",)


@pytest.mark.parametrize("drivername", ["postgresql+psycopg", "postgresql+psycopg2", "postgresql+pg8000"])
def test_a_blocking_library_finds_an_empty_search_path(database_url: str, drivername: str) -> None:
    engine = create_engine(with_driver(database_url, drivername))
    try:
        assert show_search_path(engine) == ""
    finally:
        engine.dispose()


@pytest.mark.parametrize("drivername", ["postgresql+psycopg", "postgresql+asyncpg"])
async def test_an_asyncio_library_finds_an_empty_search_path(database_url: str, drivername: str) -> None:
    engine = create_async_engine(with_driver(database_url, drivername))
    try:
        async with engine.connect() as connection:
            assert (await connection.execute(text("SHOW search_path"))).scalar_one() == ""
    finally:
        await engine.dispose()


def test_options_that_are_there_already_are_kept() -> None:
    url = with_empty_search_path("postgresql:///postgres?options=-cwork_mem%3D5MB")
    assert url == "postgresql:///postgres?options=-cwork_mem%3D5MB%20-csearch_path%3D"


def test_pg8000_names_the_socket_file() -> None:
    assert with_driver(SOCKET, "postgresql+pg8000").query == {"unix_sock": "/run/pg/.s.PGSQL.5433"}


@pytest.mark.parametrize("drivername", ["postgresql+psycopg", "postgresql+asyncpg", "postgresql+pg8000"])
def test_a_tcp_address_stays_as_it_is(drivername: str) -> None:
    url: URL = with_driver(TCP, drivername)
    assert (url.username, url.password, url.host, url.port, url.database) == (
        "me",
        "secret",
        "127.0.0.1",
        5433,
        "postgres",
    )


def test_an_unknown_library_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="postgresql\\+mystery"):
        with_driver(TCP, "postgresql+mystery")
