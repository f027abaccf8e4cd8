"""Notifications make things quicker, and nothing that is said on the channel can stop a client.

Where a wake-up is the claim, the client polls once in a minute, and the tests wait for less than that.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from river import AsyncClient, Client, InsertManyParams, InsertOpts, QueueConfig
from river.driver import driver_for
from river.engine import pacing
from river.engine.outage import BURST
from river.errors import DatabaseError, ErrorClass
from river.operation import run
from river.runtime import notifier, watch
from river.runtime.notifier import INSERT_TOPIC, PROBE_TOPIC, Notifier
from river.runtime.store import ThreadedStore, store_for
from river.sql.postgres import Postgres
from river_psycopg import PsycopgDriver
from river_psycopg.blocking import OwnedExecutor
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
    call,
    eventually,
    jobs_of,
    named,
    source,
    workers_of,
    working,
)
from tests.support.pooler import PROGRAM, pooler_to
from tests.support.proxy import proxy_to
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
        for queue in options.get("queues", {"default": 4}):
            await bench.jobs.until(await bench.insert(Note(), InsertOpts(queue=queue)), "completed")
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

    notifier: Notifier

    def __init__(self, publish: Callable[[str, str], Awaitable[None]]) -> None:
        self.payloads: list[Mapping[str, Any]] = []
        self.connected = 0
        self.fault: Exception | None = None
        self.probes: list[str] = []
        self.swallowed = 0
        self._publish = publish

    def handle(self, payload: Mapping[str, Any]) -> None:
        self.payloads.append(payload)
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault

    def connect(self) -> None:
        self.connected += 1

    def hear(self) -> None:
        """Nothing has to be looked for."""

    async def publish(self, topic: str, payload: str) -> None:
        """Send a probe, if it is not one of those that are to be swallowed."""
        self.probes.append(payload)
        if self.swallowed > 0:
            self.swallowed -= 1
        else:
            await self._publish(topic, payload)

    @property
    def hears(self) -> bool:
        return self.notifier.hears


@asynccontextmanager
async def notifier_on(name: str, url: str, prefix: str, *, through: str | None = None) -> AsyncIterator[Heard]:
    """A notifier whose probes go to the server of *url*, and that listens there or *through* another URL."""
    with jobs_of(url, prefix) as jobs:

        async def publish(topic: str, payload: str) -> None:
            jobs.execute("SELECT pg_notify(%s, %s)", f"{prefix}.{topic}", payload)

        heard = Heard(publish)
        async with source(name, named(through or url, prefix.lower())) as host:
            store = store_for(driver_for(host, "asyncio"))
            handlers = {"topic": heard.handle}
            made = Notifier(store, prefix, handlers, connected=heard.connect, heard=heard.hear, publish=heard.publish)
            heard.notifier = made
            task = asyncio.create_task(made.run())
            try:
                async with asyncio.timeout(30):
                    await made.listening.wait()
                yield heard
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await store.close()


async def nothing(*_: object) -> None:
    """Publish nothing."""


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
            made = Notifier(store, schema, {"topic": print}, connected=listening.set, heard=print, publish=nothing)
            task = asyncio.create_task(made.run())
            async with asyncio.timeout(30):
                await listening.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await store.close()
            await eventually(lambda: not jobs.sessions(schema, LISTENING), "the session is gone")
            assert task.cancelled()


# A sign of life


@pytest.mark.parametrize("name", LISTENERS)
async def test_what_is_notified_during_a_check_is_heard_afterwards(database_url: str, schema: str, name: str) -> None:
    async with source(name, named(database_url, schema)) as host:
        store = store_for(driver_for(host, "asyncio"))
        with jobs_of(database_url, schema) as jobs:
            async with store.listen([f"{schema}.topic"]) as listener:
                heard = list[str]()
                for n in range(3):
                    # It is in the socket, or on its way, when the check asks.
                    jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.topic", str(n))
                    await listener.check()
                while len(heard) < 3:
                    got = await listener.wait(20)
                    assert got, "it was lost"
                    heard += [each.payload for each in got]
        await store.close()
    assert heard == ["0", "1", "2"]


@pytest.mark.parametrize("name", LISTENERS)
async def test_a_check_of_a_terminated_connection_says_that_it_is_lost(
    database_url: str, schema: str, name: str
) -> None:
    async with source(name, named(database_url, schema)) as host:
        store = store_for(driver_for(host, "asyncio"))
        with jobs_of(database_url, schema) as jobs:

            async def check() -> None:
                async with store.listen([f"{schema}.topic"]) as listener:
                    jobs.terminate(jobs.sessions(schema, LISTENING))
                    await listener.check()
                    await listener.check()

            with pytest.raises(DatabaseError) as lost:
                await check()
        await store.close()
    assert lost.value.error_class is ErrorClass.CONNECTION_LOST


@pytest.mark.parametrize("name", LISTENERS)
async def test_a_network_that_has_gone_silent_is_noticed_and_left(
    database_url: str, schema: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifier, "ROUND_SECONDS", 0.1)
    monkeypatch.setattr(notifier, "CHECK_SECONDS", 0.3)
    monkeypatch.setattr(notifier, "CONNECT_SECONDS", 2.0)
    caplog.set_level("INFO", "river")
    with proxy_to(database_url) as network:
        async with notifier_on(name, database_url, schema, through=network.url) as heard:
            await eventually(lambda: heard.hears, "it hears")
            network.blackhole()
            await eventually(lambda: "not listening for notifications" in caplog.text, "it is noticed")
            assert not heard.hears
            network.heal()
            await eventually(lambda: heard.hears, "it hears again", seconds=60)
            with jobs_of(database_url, schema) as jobs:
                jobs.execute("SELECT pg_notify(%s, '{{\"n\": 1}}')", f"{schema}.topic")
            await eventually(lambda: heard.payloads, "it is heard")
    assert heard.payloads == [{"n": 1}]
    assert caplog.messages.count("listening for notifications again") == 1


async def test_a_quiet_channel_is_checked_and_the_connection_kept(
    database_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "ROUND_SECONDS", 0.02)
    checked = "query = 'SELECT 1'"
    async with notifier_on("AsyncConnectionPool", database_url, schema) as heard:
        with jobs_of(database_url, schema) as jobs:
            await eventually(lambda: jobs.sessions(schema, checked), "it is checked")
            jobs.execute("SELECT pg_notify(%s, '{{\"n\": 1}}')", f"{schema}.topic")
            await eventually(lambda: heard.payloads, "it is heard")
    assert heard.connected == 1


# Connections that do not last


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of failures in a row that pauses were made for; the pauses themselves are short."""
    made: list[int] = []

    def pause(failures: int, **_: float) -> float:
        made.append(failures)
        return 0.01

    monkeypatch.setattr(notifier, "backoff_seconds", pause)
    return made


async def test_each_try_to_listen_is_followed_by_a_longer_pause_until_a_connection_proves_good(
    database_url: str, schema: str, pauses: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "river")
    with proxy_to(database_url) as network:
        async with notifier_on("AsyncConnectionPool", database_url, schema, through=network.url) as heard:
            await eventually(lambda: heard.hears, "it hears")
            network.refuse()
            await eventually(lambda: len(pauses) >= 20, "it has been tried")
            network.heal()
            await eventually(lambda: heard.hears, "it hears again")
            assert pauses == list(range(1, len(pauses) + 1))
            network.cut()
            await eventually(lambda: pauses[-1] == 1, "that was a new failure")
            await eventually(lambda: heard.hears, "it hears again")
    assert heard.connected == 3
    assert sum("not listening for notifications" in message for message in caplog.messages) == 2
    assert caplog.messages.count("listening for notifications again") == 2


async def test_connections_that_are_lost_before_they_prove_good_count_as_one_failure(
    database_url: str, schema: str, pauses: list[int]
) -> None:
    async with notifier_on("AsyncConnectionPool", database_url, schema) as heard:
        await eventually(lambda: heard.hears, "it hears")
        heard.swallowed = 1_000
        with jobs_of(database_url, schema) as jobs:
            for n in range(1, 5):
                await eventually(lambda n=n: heard.connected == n, "it listens")  # type: ignore[misc]
                jobs.terminate(jobs.sessions(schema, LISTENING))
                await eventually(lambda n=n: len(pauses) == n, "it is lost")  # type: ignore[misc]
    assert pauses == [1, 2, 3, 4]


async def test_a_listener_that_comes_and_goes_all_the_time_says_so_a_few_times_only(
    database_url: str, schema: str, pauses: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async with notifier_on("AsyncConnectionPool", database_url, schema) as heard:
        with jobs_of(database_url, schema) as jobs:
            for n in range(1, BURST + 4):
                await eventually(lambda: heard.hears, "it hears")
                jobs.terminate(jobs.sessions(schema, LISTENING))
                await eventually(lambda n=n: len(pauses) >= n, "it is lost")  # type: ignore[misc]
    assert sum("not listening for notifications" in message for message in caplog.messages) == BURST


# Whether notifications arrive


async def test_a_listener_that_hears_no_probe_says_so_once_and_tries_again_until_it_does(
    database_url: str,
    schema: str,
    pauses: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "river")
    monkeypatch.setattr(notifier, "PROBE_SECONDS", 0.05)
    swallowed = 3
    async with notifier_on("AsyncConnectionPool", database_url, schema) as heard:
        # What was sent until here arrived; from here on, on the next connection, nothing does.
        await eventually(lambda: heard.hears, "it hears")
        heard.probes.clear()
        heard.swallowed = swallowed
        with jobs_of(database_url, schema) as jobs:
            jobs.terminate(jobs.sessions(schema, LISTENING))
            await eventually(lambda: len(heard.probes) == 1 and not heard.hears, "a probe is swallowed")
        await eventually(lambda: heard.hears, "it hears again")
        assert len(set(heard.probes)) == len(heard.probes) == swallowed + 1
    assert pauses == [1, 1, 2, 3]
    assert heard.connected == 3  # whoever did without has to look once more
    said = [message for message in caplog.messages if message.startswith("notifications do not arrive")]
    assert len(said) == 1
    assert "listen_url" in said[0]
    assert "poll_only" in said[0]
    assert caplog.messages.count("notifications arrive again") == 1


async def test_the_probe_of_another_client_proves_nothing(
    database_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "PROBE_SECONDS", NEVER_SECONDS)
    async with notifier_on("AsyncConnectionPool", database_url, schema) as heard:
        await eventually(lambda: heard.hears, "it hears")
        heard.swallowed = 1
        with jobs_of(database_url, schema) as jobs:
            jobs.terminate(jobs.sessions(schema, LISTENING))
            await eventually(lambda: heard.connected == 2 and len(heard.probes) == 2, "it has sent another")
            for payload in ('{"nonce": "of another"}', '{"nonce": null}', heard.probes[0]):
                jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.{PROBE_TOPIC}", payload)
            jobs.execute("SELECT pg_notify(%s, '{{\"n\": 1}}')", f"{schema}.topic")
            await eventually(lambda: heard.payloads, "all is heard")
            assert not heard.hears
            jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.{PROBE_TOPIC}", heard.probes[1])
            await eventually(lambda: heard.hears, "its own is heard")


async def test_a_probe_that_cannot_be_sent_says_nothing_about_listening(
    database_url: str, schema: str, pauses: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async with notifier_on("AsyncConnectionPool", database_url, schema) as heard:
        await eventually(lambda: heard.hears, "it hears")
        send, failures = heard._publish, [3]

        async def fail(topic: str, payload: str) -> None:
            if failures[0] > 0:
                failures[0] -= 1
                raise DatabaseError("away", error_class=ErrorClass.CONNECTION_LOST)
            await send(topic, payload)

        heard._publish = fail
        with jobs_of(database_url, schema) as jobs:
            jobs.terminate(jobs.sessions(schema, LISTENING))
        await eventually(lambda: failures == [0] and heard.hears, "it hears again")
    assert pauses == [1, 1, 2, 3]
    assert "do not arrive" not in caplog.text


async def test_nobody_elses_listener_hears_a_clients_probes(database_url: str, schema: str) -> None:
    """Clients in other languages listen to River's topics; a payload that they cannot know would trouble them."""
    with psycopg.connect(database_url, autocommit=True) as other:
        for topic in ("river_insert", "river_control", "river_leadership"):
            other.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(f"{schema}.{topic}")))
        async with listening(ASYNCIO, database_url, schema) as bench:
            service: Any = bench.client._service
            await eventually(lambda: service._hears(), "a probe has arrived")
        heard = [json.loads(each.payload) for each in other.notifies(timeout=0)]
    assert heard == [{"queue": "default"}]


async def test_a_schema_with_the_longest_of_names_is_listened_to(database_url: str, schema: str) -> None:
    longest = schema + "x" * (46 - len(schema))
    with jobs_of(database_url, schema) as jobs:
        jobs.execute(f"ALTER SCHEMA {{schema}} RENAME TO {longest}")
        try:
            async with listening(ASYNCIO, database_url, longest) as bench:
                service: Any = bench.client._service
                await eventually(lambda: service._hears(), "a probe has arrived")
                await bench.jobs.until(await bench.insert(Note()), "completed")
        finally:
            jobs.execute(f"ALTER SCHEMA {longest} RENAME TO {{schema}}")


@pytest.mark.slow
async def test_a_notification_stays_small_whatever_is_inserted(database_url: str, schema: str) -> None:
    """PostgreSQL refuses 8,000 bytes of payload and a channel of 64, and with them the whole insert."""
    longest = schema + "x" * (46 - len(schema))
    queue = "q" * 64
    with jobs_of(database_url, schema) as jobs:
        jobs.execute(f"ALTER SCHEMA {{schema}} RENAME TO {longest}")
        try:
            options: Any = {"queues": {queue: 100}}
            async with listening(ASYNCIO, database_url, longest, **options) as bench:
                for batch in ([Note("x" * 1_048_576)], [Note()] * 10_000):
                    many = [InsertManyParams(args, InsertOpts(queue=queue)) for args in batch]
                    await call(bench.client.insert_many, many)
                    await bench.jobs.until_all("completed")
        finally:
            jobs.execute(f"ALTER SCHEMA {longest} RENAME TO {{schema}}")


@pytest.mark.parametrize("way", NATURAL_WAYS, ids=str)
@pytest.mark.slow
async def test_thousands_of_jobs_take_no_more_connections_than_a_few_did(
    database_url: str, schema: str, way: Way
) -> None:
    url = named(database_url, schema)
    queues: Any = {"default": 100}
    async with working(way, database_url, schema, through=url, workers=idle_workers(), queues=queues) as bench:
        bench.jobs.add_many(500)
        await bench.jobs.until_all("completed")
        before = len(bench.jobs.sessions(schema))
        for _ in range(5):
            bench.jobs.add_many(1_000)
            await bench.jobs.until_all("completed")
            assert len(bench.jobs.sessions(schema)) <= max(before, 8)
        assert bench.jobs.states() == {"completed": 5_500}


# A way of its own for listening


@pytest.mark.parametrize("way", [way for way in WAYS if not way.listens], ids=str)
async def test_a_client_whose_library_cannot_listen_is_woken_through_another(
    database_url: str, schema: str, way: Way
) -> None:
    options: Any = {"workers": idle_workers(), "fetch_poll_interval": NEVER_SECONDS}
    url = named(database_url, schema)
    async with working(way, database_url, schema, listen_url=url, **options) as bench:
        for _ in range(2):
            await eventually(lambda: bench.jobs.sessions(schema, LISTENING), "it listens")
            await bench.jobs.until(await bench.insert(Note()), "completed")
            await bench.jobs.until(await bench.insert(Note()), "completed")
            await bench.stop()
            await eventually(lambda: bench.jobs.sessions(schema) == [], "nobody listens any more")
            await bench.start()


@both
@pytest.mark.parametrize("library", ["psycopg", "psycopg2", "asyncpg"])
async def test_any_library_that_can_listen_may_be_named_for_it(
    database_url: str, schema: str, way: Way, library: str
) -> None:
    options: Any = {"workers": idle_workers(), "fetch_poll_interval": NEVER_SECONDS}
    url = with_driver(named(database_url, schema), f"postgresql+{library}").render_as_string(hide_password=False)
    async with working(way, database_url, schema, listen_url=url, **options) as bench:
        await eventually(lambda: bench.jobs.sessions(schema, LISTENING), "it listens")
        for _ in range(3):
            await bench.jobs.until(await bench.insert(Note()), "completed")
        await bench.stop()
        await eventually(lambda: bench.jobs.sessions(schema) == [], "nobody listens any more")


# Behind a pooler


pooled = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")


@asynccontextmanager
async def behind_pooler(url: str, schema: str, **options: Any) -> AsyncIterator[Bench]:
    """A client whose connections PgBouncer lends it for one transaction each."""
    with pooler_to(url) as pooler, jobs_of(url, schema) as jobs:
        kwargs = {"prepare_threshold": None}
        async with AsyncConnectionPool(pooler, min_size=1, max_size=8, kwargs=kwargs, open=False) as pool:
            client = AsyncClient(pool, schema=schema, workers=idle_workers(), queues={"default": 4}, **options)
            async with client:
                yield Bench(client, jobs, pool)


@pooled
@pytest.mark.slow
async def test_behind_a_pooler_that_swallows_notifications_one_warning_says_so_and_polling_goes_on(
    database_url: str, schema: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifier, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(notifier, "PROBE_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(notifier, "PROBE_AGAIN_AT_MOST_SECONDS", 0.1)
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.1)
    sent = list[str]()
    send = Notifier._send_probe

    async def counted(self: Notifier) -> bool:
        sent.append("")
        return await send(self)

    monkeypatch.setattr(Notifier, "_send_probe", counted)
    async with behind_pooler(database_url, schema, fetch_poll_interval=0.1) as bench:
        for _ in range(3):
            await bench.jobs.until(await bench.insert(Note()), "completed")
        await eventually(lambda: len(sent) >= 4, "it has been tried again")
        service: Any = bench.client._service
        assert not service._hears()
        bench.jobs.execute("UPDATE {schema}.river_queue SET paused_at = now()")
        await eventually(lambda: service._producers["default"].paused, "the row is looked at")
    said = [record.levelname for record in caplog.records if "notifications do not arrive" in record.message]
    assert said == ["WARNING"]


@pooled
@pytest.mark.slow
async def test_behind_a_pooler_a_client_is_woken_through_a_url_that_leads_past_it(
    database_url: str, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    options: Any = {"listen_url": named(database_url, schema), "fetch_poll_interval": NEVER_SECONDS}
    async with behind_pooler(database_url, schema, **options) as bench:
        await eventually(lambda: bench.jobs.sessions(schema, LISTENING), "it listens")
        for _ in range(3):
            await bench.jobs.until(await bench.insert(Note()), "completed")
        service: Any = bench.client._service
        await eventually(lambda: service._hears(), "a probe has arrived")
    assert "notifications" not in caplog.text


# Jobs that come without a word


async def test_a_job_whose_notification_was_suppressed_waits_a_moment_and_not_for_a_poll(
    database_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "SUPPRESSED_SECONDS", 1.0)
    async with listening(ASYNCIO, database_url, schema) as bench:
        for _ in range(3):
            announced = bench.jobs.add()
            # Said by the test, because the client itself might leave it out.
            bench.jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.{INSERT_TOPIC}", '{"queue": "default"}')
            await bench.jobs.until(announced, "completed")
            await bench.jobs.until(bench.jobs.add(), "completed")


@both
async def test_a_job_that_waits_for_its_time_starts_then_and_not_at_the_next_poll(
    database_url: str, schema: str, way: Way
) -> None:
    async with listening(way, database_url, schema) as bench:
        due = "SELECT now() + interval '700 ms' AS due"
        job_ids = [bench.jobs.add(scheduled_at=bench.jobs.execute(due)[0]["due"], priority=n) for n in (4, 1)]
        # Any claim finds that it is there.
        bench.jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.{INSERT_TOPIC}", '{"queue": "default"}')
        for job_id in job_ids:
            row = await bench.jobs.until(job_id, "completed")
            assert row["attempted_at"] >= row["scheduled_at"]


def test_a_job_that_has_become_due_since_the_claim_looked_is_not_missed(database_url: str, schema: str) -> None:
    with jobs_of(database_url, schema) as jobs:

        def due_in() -> int | None:
            return run(OwnedExecutor(jobs.connection), Postgres(schema).job_due_in("default"))

        now = jobs.execute("SELECT now() AS now")[0]["now"]
        jobs.add(scheduled_at=now - timedelta(minutes=1))  # which every claim sees, and somebody else holds
        assert due_in() is None
        jobs.add(scheduled_at=now + timedelta(hours=1))
        waiting = due_in()
        assert waiting is not None
        assert waiting > 0
        just_due = jobs.add()
        jobs.execute("UPDATE {job} SET scheduled_at = now() - interval '1 ms' WHERE id = %s", just_due)
        found = due_in()
        assert found is not None
        assert found <= 0


async def test_a_job_that_the_scheduler_makes_available_ahead_of_its_time_starts_then(
    database_url: str, schema: str
) -> None:
    async with listening(ASYNCIO, database_url, schema) as bench:
        due = bench.jobs.execute("SELECT now() + interval '6 s' AS due")[0]["due"]
        row = await bench.jobs.until(bench.jobs.add(state="scheduled", scheduled_at=due), "completed")
        assert row["attempted_at"] >= row["scheduled_at"]


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
