"""The database goes away, in every way that it can, and comes back: no job is lost and nothing hangs.

Sessions are terminated under a name that only this test's have. Networks fail in a proxy in front of the server. The
runtime's deadlines are shortened, because what is claimed here is that there are some, not how long they are.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from river import DatabaseError, ErrorClass, Job, WorkContext
from river.operation import AsyncExecutor, Executor, run
from river.operations import maintain
from river.runtime import completer, notifier, producer, scheduler, service, store
from river.sql.postgres import Postgres
from river_psycopg import AsyncPsycopgDriver, PsycopgDriver
from tests.support.clients import (
    ASYNCIO,
    BLOCKING,
    LISTENING,
    NATURAL_WAYS,
    Bench,
    Note,
    Style,
    Way,
    eventually,
    made,
    named,
    workers_of,
    working,
)
from tests.support.proxy import Proxy, proxy_to

# A library whose connection is cut in the middle of something leaves its socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture(autouse=True)
def its_own_garbage() -> Iterator[None]:
    """What such a test leaves behind is collected here, and not in somebody else's test."""
    yield
    gc.collect()


every_driver = pytest.mark.parametrize("way", NATURAL_WAYS, ids=str)
both = pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)

HANG_SECONDS = 40.0
"""What must end, ends long before; only a hang takes so long."""


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    with proxy_to(database_url) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
async def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(producer, "CLAIM_SECONDS", 0.5)
    monkeypatch.setattr(completer, "STATEMENT_SECONDS", 0.5)
    monkeypatch.setattr(scheduler, "STATEMENT_SECONDS", 0.5)
    monkeypatch.setattr(scheduler, "SCHEDULER_SECONDS", 0.5)
    monkeypatch.setattr(notifier, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(store, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(service, "START_SECONDS", 0.5)
    monkeypatch.setattr(service, "FINALIZE_SECONDS", 0.5)
    for module in (producer, completer, notifier):
        monkeypatch.setattr(module, "backoff_seconds", lambda failures: min(0.05 * failures, 0.5))
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    yield
    # asyncpg says this of itself, when a connection goes away that it is just making.
    assert [fault for fault in faults if "unexpected connection_lost() call" not in str(fault.get("exception"))] == []


@contextmanager
def outage(proxy: Proxy, failure: str) -> Generator[None]:
    """The network fails for as long as the block runs."""
    getattr(proxy, failure)()
    try:
        yield
    finally:
        proxy.heal()


class Counted:
    """A worker that counts its runs, and can be kept waiting."""

    def __init__(self, style: Style = "def") -> None:
        self.runs: Counter[int] = Counter()
        self.open = threading.Event()
        self.open.set()
        self._lock = threading.Lock()
        self.workers = workers_of(style, self._work)

    def more_than(self, count: int) -> bool:
        """Whether more jobs than so many were begun."""
        return len(self.runs) > count

    def _work(self, job: Job[Note], ctx: WorkContext) -> None:
        with self._lock:
            self.runs[job.id] += 1
        assert self.open.wait(60)


async def fetch_failures(caplog: pytest.LogCaptureFixture, count: int) -> None:
    """Wait until so many claims of the test have failed, from here on."""
    caplog.clear()
    await eventually(
        lambda: sum("could not be fetched" in record.message for record in caplog.records) >= count,
        f"{count} claims have failed",
    )


def rescue(url: str, schema: str, older_than: timedelta = timedelta(0)) -> int:
    """What the maintenance does, an hour early."""
    driver = PsycopgDriver.connect(url)
    try:
        with driver.autocommit() as executor:
            now = datetime.now(UTC)
            operation = maintain.rescue(Postgres(schema), older_than=older_than, now=now, retry_at=lambda job: now)
            return len(run(executor, operation))
    finally:
        driver.close()


async def worked(bench: Bench, worker: Counted, job_id: int, url: str) -> None:
    """Wait until a job is completed, and once at the most.

    A claim that was given up is made all the same when the network, or the lock, lets it pass. Nobody knows of it, so
    the job runs nowhere, and waits for its rescue.
    """

    def is_completed() -> bool:
        row = bench.jobs.row(job_id)
        if row["state"] == "running" and job_id not in worker.runs:
            rescue(url, bench.jobs.schema, timedelta(seconds=2))
        return bool(row["state"] == "completed")

    await eventually(is_completed, f"job {job_id} is completed")
    assert worker.runs[job_id] == 1


# Sessions that end


@every_driver
@pytest.mark.parametrize("style", ["def", "async def"])
async def test_no_job_is_lost_and_the_client_recovers_when_its_sessions_are_terminated_again_and_again(
    database_url: str, schema: str, way: Way, style: Style
) -> None:
    worker = Counted(style)
    url = named(database_url, schema)
    queues = {"default": 20}
    async with working(way, database_url, schema, through=url, workers=worker.workers, queues=queues) as bench:
        for _ in range(8):
            bench.jobs.add_many(100)
            worked = len(worker.runs)
            await eventually(partial(worker.more_than, worked), "jobs flow")
            bench.jobs.terminate(bench.jobs.sessions(schema))
        await eventually(lambda: not bench.jobs.states()["available"], "all are claimed")
        # It works as it did before.
        await bench.jobs.until(bench.jobs.add(), "completed")
        await bench.stop()
        # What is running now was claimed in a transaction whose reply was lost: nobody has begun to work it.
        lost = {row["id"] for row in bench.jobs.rows() if row["state"] == "running"}
        assert not lost & set(worker.runs)
        assert rescue(database_url, schema) == len(lost)
        await bench.start()
        await bench.jobs.until_all("completed")
        assert set(worker.runs) == {row["id"] for row in bench.jobs.rows()}
    # A result whose reply was lost is saved again, which changes nothing; no job ran twice.
    assert set(worker.runs.values()) == {1}


@both
async def test_a_job_whose_result_could_not_be_saved_yet_is_saved_when_the_sessions_are_back(
    database_url: str, schema: str, way: Way
) -> None:
    worker = Counted()
    worker.open.clear()
    url = named(database_url, schema)
    async with working(way, database_url, schema, through=url, workers=worker.workers) as bench:
        job_id = await bench.insert(Note())
        await eventually(lambda: worker.runs[job_id], "it has begun")
        bench.jobs.terminate(bench.jobs.sessions(schema))
        worker.open.set()
        row = await bench.jobs.until(job_id, "completed")
    assert (row["attempt"], worker.runs) == (1, {job_id: 1})


# Networks that fail


FAILURES = ["cut", "refuse", "blackhole"]


@every_driver
@pytest.mark.parametrize("failure", ["refuse", "blackhole"])
async def test_claims_fail_by_their_deadline_and_succeed_when_the_network_is_back(
    database_url: str, schema: str, way: Way, failure: str, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Counted("async def")
    async with working(way, database_url, schema, through=proxy.url, workers=worker.workers) as bench:
        await bench.jobs.until(bench.jobs.add(), "completed")
        for _ in range(2):
            with outage(proxy, failure):
                await fetch_failures(caplog, 3)
                waiting = bench.jobs.add()
            await worked(bench, worker, waiting, database_url)
            await worked(bench, worker, await bench.insert(Note()), database_url)
        assert bench.client._service is not None
        assert not bench.client._service.completed.done()
    assert "a service of the client failed" not in caplog.messages


@every_driver
@pytest.mark.parametrize("failure", FAILURES)
async def test_results_wait_for_the_network_and_are_saved_once(
    database_url: str, schema: str, way: Way, failure: str, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Counted()
    worker.open.clear()
    async with working(way, database_url, schema, through=proxy.url, workers=worker.workers) as bench:
        ids = await bench.insert_many([Note()] * 3)
        await eventually(lambda: set(ids) <= set(worker.runs), "all have begun")
        with outage(proxy, failure):
            worker.open.set()
            if failure != "cut":
                await eventually(lambda: "job results could not be saved yet" in caplog.text, "saving fails")
                assert bench.jobs.states() == {"running": 3}
        for job_id in ids:
            row = await bench.jobs.until(job_id, "completed")
            assert row["attempt"] == 1
    assert worker.runs == dict.fromkeys(ids, 1)


@pytest.mark.parametrize("way", [way for way in NATURAL_WAYS if way.listens], ids=str)
@pytest.mark.parametrize("failure", FAILURES)
async def test_notifications_wake_the_client_again_when_the_network_is_back(
    database_url: str, schema: str, way: Way, failure: str, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    url = named(proxy.url, schema)
    workers = workers_of("async def", lambda job, ctx: None)
    poll = 600.0
    async with working(way, database_url, schema, through=url, workers=workers, fetch_poll_interval=poll) as bench:
        await eventually(lambda: bench.jobs.sessions(schema, LISTENING), "it listens")
        old = set(bench.jobs.sessions(schema, LISTENING))
        with outage(proxy, failure):
            if failure == "blackhole":
                # A silent network is not noticed by who only listens: what is said meanwhile arrives afterwards.
                bench.jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.river_insert", '{"queue": "default"}')
            else:
                await eventually(lambda: "not listening for notifications, polling instead" in caplog.text, "told")
            inserted = bench.jobs.add()
        if failure != "blackhole":
            await eventually(lambda: set(bench.jobs.sessions(schema, LISTENING)) - old, "it listens again")
        await bench.jobs.until(inserted, "completed")
        # Twice, as the first might owe it to the reconnection.
        for _ in range(2):
            job_id = bench.jobs.add()
            bench.jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.river_insert", '{"queue": "default"}')
            await bench.jobs.until(job_id, "completed")


# Start and stop without a database


@every_driver
@pytest.mark.parametrize("failure", ["refuse", "blackhole"])
async def test_start_fails_without_a_database_and_can_be_called_again(
    database_url: str, schema: str, way: Way, failure: str, proxy: Proxy
) -> None:
    workers = workers_of("async def", lambda job, ctx: None)
    async with made(way, database_url, schema, through=proxy.url, workers=workers) as bench:
        with outage(proxy, failure):
            for _ in range(2):
                with pytest.raises(DatabaseError) as error:
                    async with asyncio.timeout(HANG_SECONDS):
                        await bench.start()
                assert error.value.error_class is ErrorClass.CONNECTION_LOST
        await started(bench)
        await bench.jobs.until(bench.jobs.add(), "completed")


async def started(bench: Bench) -> None:
    """Start, as often as the host's own pool needs to notice that the server is back."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            try:
                await bench.start()
            except DatabaseError:
                await asyncio.sleep(0.05)
            else:
                return


@every_driver
@pytest.mark.parametrize("failure", ["refuse", "blackhole"])
async def test_stop_ends_without_a_database_and_names_the_jobs_that_could_not_be_saved(
    database_url: str, schema: str, way: Way, failure: str, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Counted()
    worker.open.clear()
    async with working(way, database_url, schema, through=proxy.url, workers=worker.workers) as bench:
        ids = await bench.insert_many([Note()] * 3)
        await eventually(lambda: set(ids) <= set(worker.runs), "all have begun")
        with outage(proxy, failure):
            worker.open.set()
            async with asyncio.timeout(HANG_SECONDS):
                await bench.stop()
            lost = [record for record in caplog.records if "were not saved before the client stopped" in record.message]
            assert [(record.levelno, sorted(vars(record)["job_ids"])) for record in lost] == [(logging.ERROR, ids)]
            assert bench.jobs.states() == {"running": 3}


@both
async def test_stop_does_not_wait_for_a_long_pause_between_attempts_to_save(
    database_url: str, schema: str, way: Way, proxy: Proxy, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    monkeypatch.setattr(completer, "backoff_seconds", lambda failures: 3600.0)
    worker = Counted()
    worker.open.clear()
    async with working(way, database_url, schema, through=proxy.url, workers=worker.workers) as bench:
        job_id = await bench.insert(Note())
        await eventually(lambda: worker.runs[job_id], "it has begun")
        with outage(proxy, "refuse"):
            worker.open.set()
            await eventually(lambda: "job results could not be saved yet" in caplog.text, "saving fails")
            async with asyncio.timeout(HANG_SECONDS):
                await bench.stop()
            assert bench.jobs.states() == {"running": 1}


@both
async def test_a_stop_saves_results_at_once_when_the_database_is_back_during_a_pause(
    database_url: str, schema: str, way: Way, proxy: Proxy, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    monkeypatch.setattr(completer, "backoff_seconds", lambda failures: 3600.0)
    monkeypatch.setattr(service, "FINALIZE_SECONDS", 30.0)
    worker = Counted()
    worker.open.clear()
    async with working(way, database_url, schema, through=proxy.url, workers=worker.workers) as bench:
        job_id = await bench.insert(Note())
        await eventually(lambda: worker.runs[job_id], "it has begun")
        with outage(proxy, "refuse"):
            worker.open.set()
            await eventually(lambda: "job results could not be saved yet" in caplog.text, "saving fails")
        async with asyncio.timeout(HANG_SECONDS):
            await bench.stop()
        assert bench.jobs.states() == {"completed": 1}


# A statement that takes too long, on a network in order


@every_driver
async def test_a_claim_that_waits_for_a_lock_ends_by_its_deadline_and_its_connection_is_given_up(
    database_url: str, schema: str, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Counted("async def")
    async with working(way, database_url, schema, workers=worker.workers) as bench:
        await bench.jobs.until(bench.jobs.add(), "completed")
        with bench.jobs.connection.transaction():
            bench.jobs.execute("LOCK TABLE {job}")
            job_id = bench.jobs.add()
            await fetch_failures(caplog, 3)
            assert "did not answer within" in caplog.text
        await worked(bench, worker, job_id, database_url)


class LateDriver(PsycopgDriver):
    """One that is slow to say that it has given a connection back."""

    def __init__(self, pool: ConnectionPool) -> None:
        super().__init__(pool)
        self.given_back = threading.Event()
        self.may_say_so = threading.Event()

    @contextmanager
    def autocommit(self) -> Generator[Executor]:
        with super().autocommit() as executor:
            yield executor
        self.given_back.set()
        assert self.may_say_so.wait(30)


class LateAsyncDriver(AsyncPsycopgDriver):
    """The same, for asyncio."""

    def __init__(self, pool: AsyncConnectionPool) -> None:
        super().__init__(pool)
        self.given_back = asyncio.Event()
        self.may_say_so = asyncio.Event()

    @asynccontextmanager
    async def autocommit(self) -> AsyncGenerator[AsyncExecutor]:
        async with super().autocommit() as executor:
            yield executor
        self.given_back.set()
        await self.may_say_so.wait()


async def given_up(driver: LateDriver | LateAsyncDriver, schema: str, after: str) -> None:
    """Ask, and give the answer up when the connection has been given back."""
    runtime = store.store_for(driver)
    try:
        query = Postgres(schema).greeting()
        if after == "deadline":
            with pytest.raises(DatabaseError, match="did not answer within"):
                await runtime.query(query, seconds=0.3)
        else:
            asking = asyncio.create_task(runtime.query(query, seconds=60.0))
            await eventually(driver.given_back.is_set, "the connection is given back")
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert driver.given_back.is_set()
    finally:
        driver.may_say_so.set()
        await runtime.close()


@pytest.mark.parametrize("after", ["deadline", "cancellation"])
async def test_a_call_that_is_given_up_leaves_a_connection_alone_that_is_the_hosts_again(
    database_url: str, schema: str, after: str
) -> None:
    with ConnectionPool(database_url, min_size=1, max_size=1) as pool:
        await given_up(LateDriver(pool), schema, after)
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    async with AsyncConnectionPool(database_url, min_size=1, max_size=1, open=False) as async_pool:
        await given_up(LateAsyncDriver(async_pool), schema, after)
        async with async_pool.connection() as async_connection:
            assert await (await async_connection.execute("SELECT 1")).fetchone() == (1,)
