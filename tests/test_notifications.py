"""Notifications make things quicker, and nothing that is said on the channel can stop a client.

Where a wake-up is the claim, the client polls once in a minute, and the tests wait for less than that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from river import AsyncClient, Client, QueueConfig
from river.driver import driver_for
from river.runtime.notifier import INSERT_TOPIC, Notifier
from river.runtime.store import ThreadedStore, store_for
from river_psycopg import PsycopgDriver
from tests.support.clients import (
    ASYNC_SOURCES,
    ASYNCIO,
    BLOCKING,
    BLOCKING_SOURCES,
    LISTENING,
    NATURAL_WAYS,
    WAYS,
    Bench,
    Note,
    Way,
    eventually,
    jobs_of,
    named,
    source,
    workers_of,
    working,
)
from tests.support.urls import with_driver

LISTENERS = [name for name in (*BLOCKING_SOURCES, *ASYNC_SOURCES) if "pg8000" not in name]
NEVER_SECONDS = 600.0

both = pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)


def idle_workers() -> Any:
    return workers_of("async def", lambda job, ctx: None)


@asynccontextmanager
async def listening(way: Way, url: str, schema: str, **options: Any) -> AsyncIterator[Bench]:
    """A client that listens, and otherwise looks only once in ten minutes."""
    options.setdefault("workers", idle_workers())
    options.setdefault("fetch_poll_interval", NEVER_SECONDS)
    async with working(way, url, schema, through=named(url, schema), **options) as bench:
        await eventually(lambda: bench.jobs.sessions(schema, LISTENING), "the client listens")
        # What the start's own claims might still find is worked before the test begins.
        await bench.jobs.until(await bench.insert(Note()), "completed")
        yield bench


@pytest.mark.parametrize("way", [way for way in WAYS if way.listens], ids=str)
async def test_an_insert_wakes_a_client_that_hardly_ever_polls(database_url: str, schema: str, way: Way) -> None:
    async with listening(way, database_url, schema) as bench:
        for _ in range(3):
            await bench.jobs.until(await bench.insert(Note()), "completed")
        for job_id in await bench.insert_many([Note()] * 30):
            await bench.jobs.until(job_id, "completed")


@pytest.mark.parametrize("way", [way for way in NATURAL_WAYS if way.listens], ids=str)
async def test_a_commit_of_the_hosts_wakes_a_client_and_a_rollback_does_not(
    database_url: str, schema: str, way: Way
) -> None:
    async with listening(way, database_url, schema) as bench:
        inserter = Client(None, schema=schema)
        with psycopg.connect(database_url) as connection:
            inserter.insert_tx(connection, Note("never"))
            connection.rollback()
            job_id = inserter.insert_tx(connection, Note()).job.id
            connection.commit()
            await bench.jobs.until(job_id, "completed")
        assert set(bench.jobs.states()) == {"completed"}


@pytest.mark.parametrize("library", ["psycopg", "psycopg2", "pg8000"])
async def test_a_commit_of_a_blocking_session_wakes_a_client(database_url: str, schema: str, library: str) -> None:
    engine = create_engine(with_driver(database_url, f"postgresql+{library}"))
    try:
        async with listening(ASYNCIO, database_url, schema) as bench:
            with Session(engine) as session, session.begin():
                job_id = Client(None, schema=schema).insert_tx(session, Note()).job.id
            await bench.jobs.until(job_id, "completed")
    finally:
        engine.dispose()


@pytest.mark.parametrize("library", ["psycopg", "asyncpg"])
async def test_a_commit_of_an_asyncio_session_wakes_a_client(database_url: str, schema: str, library: str) -> None:
    engine = create_async_engine(with_driver(database_url, f"postgresql+{library}"))
    try:
        async with listening(BLOCKING, database_url, schema) as bench:
            async with AsyncSession(engine) as session, session.begin():
                job_id = (await AsyncClient(None, schema=schema).insert_tx(session, Note())).job.id
            await bench.jobs.until(job_id, "completed")
    finally:
        await engine.dispose()


@both
async def test_a_due_job_that_the_scheduler_finds_wakes_a_client(database_url: str, schema: str, way: Way) -> None:
    async with listening(way, database_url, schema) as bench:
        job_id = bench.jobs.add(state="scheduled")
        await bench.jobs.until(job_id, "completed")


@both
async def test_a_notification_wakes_only_the_queue_that_it_names(database_url: str, schema: str, way: Way) -> None:
    queues: dict[str, int | QueueConfig] = {"default": 2, "other": 2}
    async with listening(way, database_url, schema, queues=queues) as bench:
        # More than once, because a client that has just begun to listen looks into all of its queues.
        for _ in range(5):
            silent = bench.jobs.add(queue="other")
            for _ in range(3):
                await bench.jobs.until(await bench.insert(Note()), "completed")
            if bench.jobs.row(silent)["state"] == "available":
                return
        pytest.fail("the other queue was looked into each time")


@both
async def test_a_client_that_only_polls_does_not_listen_and_works(database_url: str, schema: str, way: Way) -> None:
    url = named(database_url, schema)
    async with working(way, database_url, schema, through=url, workers=idle_workers(), poll_only=True) as bench:
        for _ in range(3):
            await bench.jobs.until(await bench.insert(Note()), "completed")
            assert bench.jobs.sessions(schema, LISTENING) == []


UNREADABLE = ("", "garbage", "{", "[]", "7", "null", "é\x01")
MEANINGLESS = ('{"queue": 7}', '{"queue": null}', "{}", '{"queue": "unknown"}')


@pytest.mark.parametrize("way", [way for way in NATURAL_WAYS if way.listens], ids=str)
async def test_garbage_on_the_channel_does_not_stop_a_client_from_listening(
    database_url: str, schema: str, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(way, database_url, schema) as bench:
        before = bench.jobs.sessions(schema, LISTENING)
        for payload in (*UNREADABLE, *MEANINGLESS):
            bench.jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.{INSERT_TOPIC}", payload)
        await bench.jobs.until(await bench.insert(Note()), "completed")
        assert bench.jobs.sessions(schema, LISTENING) == before
    unread = [record for record in caplog.records if record.message == "a notification could not be handled"]
    assert len(unread) == len(UNREADABLE)
    assert {vars(record)["channel"] for record in unread} == {f"{schema}.{INSERT_TOPIC}"}


# The notifier by itself


class Heard:
    """A notifier that runs, and what it heard."""

    def __init__(self) -> None:
        self.payloads: list[Mapping[str, Any]] = []
        self.connected = 0
        self.fault: Exception | None = None

    def handle(self, payload: Mapping[str, Any]) -> None:
        self.payloads.append(payload)
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault

    def connect(self) -> None:
        self.connected += 1


@asynccontextmanager
async def notifier_on(name: str, url: str, prefix: str) -> AsyncIterator[Heard]:
    heard = Heard()
    async with source(name, named(url, prefix.lower())) as host:
        store = store_for(driver_for(host, "asyncio"))
        notifier = Notifier(store, prefix, {"topic": heard.handle}, heard.connect)
        task = asyncio.create_task(notifier.run())
        try:
            async with asyncio.timeout(30):
                await notifier.listening.wait()
            yield heard
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await store.close()


@pytest.mark.parametrize("name", LISTENERS)
async def test_every_notification_is_heard_once_and_in_order(database_url: str, schema: str, name: str) -> None:
    channel = f"{schema}.topic"
    async with notifier_on(name, database_url, schema) as heard:
        with jobs_of(database_url, schema) as jobs:
            publish = "SELECT pg_notify(%s, '{{\"n\": ' || n || '}}') FROM generate_series(%s::int, %s::int) AS n"
            jobs.execute(publish, channel, 0, 299)
            for n in range(300, 400):
                jobs.execute(publish, channel, n, n)
            jobs.execute("SELECT pg_notify(%s, '{{\"n\": -1}}')", f"{schema}.another")
            jobs.execute(publish, channel, 400, 400)
        await eventually(lambda: len(heard.payloads) >= 401, "all are heard")
    assert [payload["n"] for payload in heard.payloads] == list(range(401))
    assert heard.connected == 1


@pytest.mark.parametrize("name", LISTENERS)
async def test_a_channel_in_mixed_case_is_heard(database_url: str, schema: str, name: str) -> None:
    prefix = f"Mixed_{schema[-8:]}"
    async with notifier_on(name, database_url, prefix) as heard:
        with jobs_of(database_url, schema) as jobs:
            jobs.execute("SELECT pg_notify(%s, '{{\"n\": 1}}')", f"{prefix.lower()}.topic")
            jobs.execute("SELECT pg_notify(%s, '{{\"n\": 2}}')", f"{prefix}.topic")
        await eventually(lambda: heard.payloads, "it is heard")
    assert heard.payloads == [{"n": 2}]


@pytest.mark.parametrize("name", LISTENERS)
async def test_a_handler_that_fails_hears_the_next_notification(
    database_url: str, schema: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with notifier_on(name, database_url, schema) as heard:
        heard.fault = RuntimeError("handler")
        with jobs_of(database_url, schema) as jobs:
            for n in range(2):
                jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.topic", f'{{"n": {n}}}')
        await eventually(lambda: len(heard.payloads) == 2, "both are heard")
    assert heard.connected == 1
    assert caplog.messages.count("a notification could not be handled") == 1


@pytest.mark.parametrize("name", LISTENERS)
async def test_a_terminated_listener_comes_back_once_and_hears_again(
    database_url: str, schema: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with notifier_on(name, database_url, schema) as heard:
        with jobs_of(database_url, schema) as jobs:
            for n in range(2):
                jobs.terminate(jobs.sessions(schema, LISTENING))
                await eventually(lambda: heard.connected > 1 + len(heard.payloads), "it listens again")
                jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.topic", f'{{"n": {n}}}')
                await eventually(lambda: heard.connected == 1 + len(heard.payloads), "it hears again")
                assert len(jobs.sessions(schema, LISTENING)) == 1
    assert heard.connected == 3
    assert sum("not listening for notifications" in message for message in caplog.messages) == 2


@pytest.mark.parametrize("name", LISTENERS)
async def test_a_listener_that_is_cancelled_leaves_no_session(database_url: str, schema: str, name: str) -> None:
    with jobs_of(database_url, schema) as jobs:
        async with source(name, named(database_url, schema)) as host:
            store = store_for(driver_for(host, "asyncio"))
            listening = asyncio.Event()
            task = asyncio.create_task(Notifier(store, schema, {"topic": print}, listening.set).run())
            async with asyncio.timeout(30):
                await listening.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await store.close()
            await eventually(lambda: not jobs.sessions(schema, LISTENING), "the session is gone")
            assert task.cancelled()


@both
async def test_a_client_whose_listener_is_terminated_is_woken_again(
    database_url: str, schema: str, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(way, database_url, schema) as bench:
        seen: set[int] = set()
        for _ in range(2):
            old = bench.jobs.sessions(schema, LISTENING)
            seen.update(old)
            bench.jobs.terminate(old)
            # Nothing says so while the client does not listen; it looks by itself when it does again.
            missed = bench.jobs.add()
            await bench.jobs.until(missed, "completed")
            await eventually(lambda: set(bench.jobs.sessions(schema, LISTENING)) - seen, "it listens again")
            await bench.jobs.until(await bench.insert(Note()), "completed")
    assert sum("not listening for notifications" in message for message in caplog.messages) == 2


async def test_a_listener_that_is_connected_after_nobody_waits_for_it_is_closed() -> None:
    """The connection is being made in a thread when the client stops; the gates put the two in either order."""
    may_enter, entered, left = threading.Event(), threading.Event(), threading.Event()

    class Manager(AbstractContextManager[Any]):
        def __enter__(self) -> Any:
            assert may_enter.wait(30)
            entered.set()
            return None

        def __exit__(self, *_: object) -> None:
            left.set()

    class LateDriver(PsycopgDriver):
        def __init__(self) -> None:
            """Without a pool: it only listens."""

        def listen(self, channels: Sequence[str]) -> Any:
            return Manager()

    late = ThreadedStore(LateDriver())

    async def listen() -> None:
        async with late.listen(["x"]):
            pytest.fail("nobody waits for it")

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    may_enter.set()
    assert await asyncio.to_thread(entered.wait, 30)
    assert await asyncio.to_thread(left.wait, 30)
    await late.close()
