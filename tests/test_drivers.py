"""What drivers promise for River's own work: one transaction, statements on their own, and errors with a class."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

import river
from river.driver import AsyncDriver, Driver, driver_for, is_asyncio
from river.operation import Query, Statement, run, run_async
from tests.support.urls import with_driver

BLOCKING = ("psycopg pool", "postgresql+psycopg", "postgresql+psycopg2", "postgresql+pg8000")
ASYNCIO = ("asyncio psycopg pool", "asyncio postgresql+psycopg", "postgresql+asyncpg")


@asynccontextmanager
async def driver_of(name: str, url: str) -> AsyncIterator[Driver | AsyncDriver]:
    """A driver over a pool or engine of the test's own."""
    match name:
        case "psycopg pool":
            with ConnectionPool(url, min_size=1) as pool:
                yield driver_for(pool, "blocking")
        case "asyncio psycopg pool":
            async with AsyncConnectionPool(url, min_size=1) as async_pool:
                yield driver_for(async_pool, "blocking")
        case "asyncio postgresql+psycopg" | "postgresql+asyncpg":
            async_engine = create_async_engine(with_driver(url, name.removeprefix("asyncio ")))
            yield driver_for(async_engine, "blocking")
            await async_engine.dispose()
        case _:
            engine = create_engine(with_driver(url, name))
            yield driver_for(engine, "asyncio")
            engine.dispose()


@pytest.fixture(params=BLOCKING + ASYNCIO)
async def driver(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Driver | AsyncDriver]:
    async with driver_of(request.param, database_url) as driver:
        yield driver


async def ask(driver: Driver | AsyncDriver, sql: str, how: str = "autocommit", **parameters: Any) -> Any:
    """Run one statement of its own, and return its rows."""
    query = Query(Statement(sql, parameters), lambda rows: [tuple(row) for row in rows])
    if is_asyncio(driver):
        async with getattr(driver, how)() as async_executor:
            return await run_async(async_executor, query)
    with getattr(driver, how)() as executor:
        return run(executor, query)


async def failure(driver: Driver | AsyncDriver, sql: str, how: str = "autocommit") -> river.DatabaseError:
    with pytest.raises(river.DatabaseError) as failed:
        await ask(driver, sql, how)
    return failed.value


async def test_integers_texts_truths_and_nulls_cross_the_seam_unchanged(driver: Driver | AsyncDriver) -> None:
    sql = "SELECT CAST(:i AS bigint), CAST(:t AS text), CAST(:b AS boolean), CAST(:n AS text), '100% a:x'"
    parameters: dict[str, Any] = {"i": 2**62, "t": "ünï % ':x' \\ 😀", "b": True, "n": None}
    assert await ask(driver, sql, **parameters) == [(2**62, "ünï % ':x' \\ 😀", True, None, "100% a:x")]


async def test_a_transaction_is_undone_by_an_exception_and_committed_otherwise(
    driver: Driver | AsyncDriver, schema: str
) -> None:
    insert = Query(Statement(f"INSERT INTO {schema}.river_queue (name) VALUES ('q')", {}), lambda _: None)

    async def insert_and_fail() -> None:
        if is_asyncio(driver):
            async with driver.transaction() as async_executor:
                await run_async(async_executor, insert)
                raise ZeroDivisionError
        with driver.transaction() as executor:
            run(executor, insert)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await insert_and_fail()
    assert await ask(driver, f"SELECT name FROM {schema}.river_queue") == []
    await ask(driver, f"INSERT INTO {schema}.river_queue (name) VALUES ('q')", "transaction")
    assert await ask(driver, f"SELECT name FROM {schema}.river_queue") == [("q",)]


async def test_statements_on_their_own_commit_and_need_no_transaction(
    driver: Driver | AsyncDriver, schema: str
) -> None:
    # It refuses to run inside a transaction.
    await ask(driver, f"VACUUM {schema}.river_queue")
    # The connection is as it was: the next transaction is one.
    assert await ask(driver, "SELECT CAST(pg_current_xact_id_if_assigned() IS NULL AS boolean)", "transaction") == [
        (True,)
    ]


async def test_a_violated_constraint_is_named(driver: Driver | AsyncDriver, schema: str) -> None:
    sql = f"INSERT INTO {schema}.river_queue (name) VALUES ('q'), ('q')"
    error = await failure(driver, sql)
    assert (error.error_class, error.sqlstate, error.constraint) == (
        river.ErrorClass.UNIQUE_VIOLATION,
        "23505",
        "river_queue_pkey",
    )


@pytest.mark.parametrize(
    ("sql", "error_class"),
    [
        ("SELECT 1 FROM nowhere.river_job", river.ErrorClass.UNDEFINED_TABLE),
        ("SELECT 1 / 0", river.ErrorClass.OTHER),
        ("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$", river.ErrorClass.TRANSIENT),
        ("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '53300'; END $$", river.ErrorClass.TRANSIENT),
        ("SELECT pg_cancel_backend(pg_backend_pid()) FROM pg_sleep(0)", river.ErrorClass.CANCELLED),
        ("SELECT pg_terminate_backend(pg_backend_pid())", river.ErrorClass.CONNECTION_LOST),
    ],
    ids=lambda value: value.value if isinstance(value, river.ErrorClass) else "",
)
async def test_every_failure_has_its_class_and_the_driver_lives_on(
    driver: Driver | AsyncDriver, sql: str, error_class: river.ErrorClass
) -> None:
    # psycopg2 and SQLAlchemy take a connection whose backend was terminated for lost.
    assert (await failure(driver, sql)).error_class is error_class
    assert (await failure(driver, sql, "transaction")).error_class is error_class
    assert await ask(driver, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("library", ["postgresql", "postgresql+psycopg", "postgresql+psycopg2", "postgresql+asyncpg"])
async def test_a_server_that_cannot_be_reached_is_a_lost_connection(library: str) -> None:
    driver = driver_for(f"{library}://nobody@127.0.0.1:1/nothing", "asyncio")
    if is_asyncio(driver):
        with pytest.raises(river.DatabaseError) as refused:
            async with driver.listen(["x"]):
                pytest.fail("connected")
        assert refused.value.error_class is river.ErrorClass.CONNECTION_LOST
        await driver.close()
    else:
        with pytest.raises(river.DatabaseError) as refused, driver.listen(["x"]):
            pytest.fail("connected")
        assert refused.value.error_class is river.ErrorClass.CONNECTION_LOST
        driver.close()


async def test_aborting_an_executor_ends_the_call_that_it_is_in(
    driver: Driver | AsyncDriver, database_url: str
) -> None:
    tag = f"river-abort-{id(driver)}"
    sql = f"SELECT pg_sleep(60) /* {tag} */"
    executors: list[Any] = []

    async def sleep() -> None:
        query = Query(Statement(sql, {}), lambda _: None)
        if is_asyncio(driver):
            async with driver.autocommit() as async_executor:
                executors.append(async_executor)
                await run_async(async_executor, query)
        else:
            blocking: Driver = driver

            def sleep_here() -> None:
                with blocking.autocommit() as executor:
                    executors.append(executor)
                    run(executor, query)

            await asyncio.to_thread(sleep_here)

    sleeping = asyncio.create_task(sleep())
    active = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE %s"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        async with asyncio.timeout(20):
            while (  # noqa: ASYNC110 - nobody but the server knows
                await (await other.execute(active, [f"SELECT pg_sleep(60) /* {tag}%"])).fetchone()
            ) != (1,):
                await asyncio.sleep(0.01)
    executors[0].abort()
    async with asyncio.timeout(20):
        with pytest.raises(river.DatabaseError) as ended:
            await sleeping
    assert ended.value.error_class is river.ErrorClass.CONNECTION_LOST
    assert await ask(driver, "SELECT 1") == [(1,)]
