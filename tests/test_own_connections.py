"""What River does to connections that it takes from a host's pool, and to its own: nothing that stays."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import create_async_engine

from river import AsyncClient, Client, DatabaseError, HandleError, Middleware
from tests.support.clients import Jobs, Note, jobs_of
from tests.support.urls import with_driver

ROUNDS = 25
"""So many steps of the event loop may a call have made when it is cancelled."""


@pytest.fixture
def jobs(database_url: str, schema: str) -> Iterator[Jobs]:
    with jobs_of(database_url, schema) as jobs:
        yield jobs


# A cancelled call.


async def cancelled(call: Any, steps: int) -> None:
    """A call that is cancelled after so many steps of a loop that is busy with other things."""
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        time.sleep(0.006)  # noqa: ASYNC251 - psycopg lets others run when the loop has been busy for longer than 5 ms
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


@asynccontextmanager
async def psycopg_pool(url: str) -> AsyncIterator[Any]:
    async with AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as pool:
        yield pool


@asynccontextmanager
async def engine_of(url: str, **options: Any) -> AsyncIterator[Any]:
    engine = create_async_engine(with_driver(url, "postgresql+psycopg"), pool_size=1, max_overflow=0, **options)
    try:
        yield engine
    finally:
        await engine.dispose()


@pytest.mark.slow
async def test_a_cancelled_call_gives_a_pooled_connection_back_as_it_was(database_url: str, schema: str) -> None:
    async with psycopg_pool(database_url) as pool:
        client = AsyncClient(pool, schema=schema)
        for steps in range(ROUNDS):
            await cancelled(client.job_get(1), steps)
            async with pool.connection() as connection:
                assert (steps, connection.autocommit) == (steps, False)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["READ COMMITTED", "AUTOCOMMIT"])
async def test_a_cancelled_call_gives_an_engines_connection_back_as_it_was(
    level: str, database_url: str, schema: str
) -> None:
    async with engine_of(database_url, isolation_level=level) as engine:
        # With a middleware an insert takes a transaction.
        client = AsyncClient(engine, schema=schema, middleware=[Middleware()])
        for steps in range(ROUNDS):
            await cancelled(client.job_get(1) if level == "READ COMMITTED" else client.insert(Note("a")), steps)
            async with engine.connect() as connection:
                raw = await connection.get_raw_connection()
                assert (steps, raw.driver_connection.autocommit) == (steps, level == "AUTOCOMMIT")


# What a host does when a connection is taken out of its pool.


@pytest.mark.parametrize("library", ["psycopg", "psycopg2", "pg8000"])
def test_an_event_of_the_engines_may_set_the_session_up(library: str, database_url: str, schema: str) -> None:
    engine = sa.create_engine(with_driver(database_url, f"postgresql+{library}"))

    @sa.event.listens_for(engine, "checkout")
    def set_up(dbapi_connection: Any, *_: object) -> None:
        dbapi_connection.cursor().execute("SET application_name = 'of the host'")

    client = Client(engine, schema=schema)
    assert client.insert(Note("a")).duplicate is False
    assert client.job_get(1).kind == "note"
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SHOW application_name")) == "of the host"
    engine.dispose()


# An encoding in which text is not text.


def ascii_of(url: str) -> str:
    return url + ("&" if "?" in url else "?") + "client_encoding=SQL_ASCII"


def test_a_session_that_gives_bytes_for_text_is_refused_before_anything_is_written(
    database_url: str, schema: str, jobs: Jobs
) -> None:
    with ConnectionPool(ascii_of(database_url), min_size=1) as pool:
        with pytest.raises(DatabaseError, match=r"client_encoding is SQL_ASCII.* set it to utf8"):
            Client(pool, schema=schema).insert(Note("a"))
    with psycopg.connect(ascii_of(database_url)) as connection:
        with pytest.raises(HandleError, match=r"client_encoding is SQL_ASCII.* set it to utf8"):
            Client(None, schema=schema).insert_tx(connection, Note("a"))
    assert jobs.rows() == []


# After a fork.

FORKING = """\
import os, sys
import river

url, schema = sys.argv[1:]
client = river.Client(url, schema=schema)
client.insert(river.JobArgs("before", {}))
child = os.fork()
kind = "child" if child == 0 else "parent"
for number in range(100):
    client.insert(river.JobArgs(kind, {"number": number}))
client.close()
if child == 0:
    os._exit(0)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("library", ["", "+psycopg", "+psycopg2", "+asyncpg"])
def test_a_client_made_of_a_url_works_on_both_sides_of_a_fork(
    library: str, database_url: str, schema: str, jobs: Jobs
) -> None:
    url = database_url
    if library:
        url = with_driver(database_url, f"postgresql{library}").render_as_string(hide_password=False)
    ended = subprocess.run(
        [sys.executable, "-c", FORKING, url, schema], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    kinds = jobs.execute("SELECT kind, count(*) AS n FROM {job} GROUP BY kind ORDER BY kind")
    assert {row["kind"]: row["n"] for row in kinds} == {"before": 1, "child": 100, "parent": 100}
