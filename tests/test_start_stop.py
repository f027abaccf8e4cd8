"""A client's life: start, drain, stop; and what is left of it afterwards, which is nothing.

Connections are counted by the server, under a name that only this test's sessions have.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import text

import river
from river import AsyncClient, Client, ClientStateError, DatabaseError, ErrorClass, Job, WorkContext, Workers
from tests.support.clients import (
    ASYNCIO,
    BLOCKING,
    NATURAL_WAYS,
    STYLES,
    WAYS,
    Bench,
    Jobs,
    Note,
    Style,
    Way,
    call,
    eventually,
    jobs_of,
    made,
    named,
    workers_of,
    working,
)

both = pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)
every_way = pytest.mark.parametrize("way", WAYS, ids=str)
natural = pytest.mark.parametrize("way", NATURAL_WAYS, ids=str)


def idle_workers() -> Workers:
    return workers_of("async def", lambda job, ctx: None)


class Gate:
    """Workers that wait, whatever their style, until they are let go."""

    def __init__(self, style: Style = "def") -> None:
        self.open = threading.Event()
        self.workers = Workers()
        if style == "async def":

            @self.workers.work()
            async def wait_async(job: Job[Note], ctx: WorkContext) -> None:
                await eventually(self.open.is_set, "the gate is opened")

        else:

            @self.workers.work()
            def wait(job: Job[Note], ctx: WorkContext) -> None:
                assert self.open.wait(60)


@pytest.fixture
def jobs(database_url: str, schema: str) -> Iterator[Jobs]:
    with jobs_of(database_url, schema) as jobs:
        yield jobs


def river_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("river-")}


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """No test of this module leaves a thread of River's or a task behind."""
    tasks = asyncio.all_tasks()
    yield
    await eventually(lambda: not river_threads(), "River's threads have ended", seconds=15)
    assert [task.get_name() for task in asyncio.all_tasks() - tasks - {asyncio.current_task()}] == []


# Stop


@natural
@pytest.mark.parametrize("style", ["def", "async def"])
async def test_stop_waits_for_running_jobs_saves_their_results_and_claims_no_more(
    database_url: str, schema: str, way: Way, style: Style
) -> None:
    gate = Gate(style)
    async with working(way, database_url, schema, workers=gate.workers, queues={"default": 2}) as bench:
        first = await bench.insert_many([Note(), Note()])
        for job_id in first:
            await bench.jobs.until(job_id, "running")
        stopping = asyncio.create_task(bench.stop())
        await until_stopping(bench)
        waiting = bench.jobs.add()
        gate.open.set()
        await stopping
        assert [bench.jobs.row(job_id)["state"] for job_id in first] == ["completed", "completed"]
        assert bench.jobs.row(waiting)["state"] == "available"


async def until_stopping(bench: Bench) -> None:
    def is_stopping() -> bool:
        running = bench.client._service
        return running is not None and running._stopping is not None

    await eventually(is_stopping, "the client is stopping")


@every_way
async def test_stop_leaves_no_session_and_the_hosts_source_usable(
    database_url: str, schema: str, way: Way, jobs: Jobs
) -> None:
    url = named(database_url, schema)
    async with made(way, database_url, schema, through=url, workers=idle_workers()) as bench:
        for _ in range(2):
            await bench.start()
            await jobs.until(await bench.insert(Note()), "completed")
            await bench.stop()
            if way.source.startswith("url") or way.source.endswith("NullPool"):
                await eventually(lambda: not jobs.sessions(schema), "no session is left")
            else:
                await eventually(lambda: not busy(bench.host), "no connection is checked out")
                assert await answer(bench.host) == 1
                assert len(jobs.sessions(schema)) <= 8
                # The server ends a session when it has noticed that its socket is closed.
                await eventually(lambda: not jobs.sessions(schema, "query LIKE 'LISTEN%%'"), "nobody listens")
                assert not jobs.sessions(schema, "state <> 'idle'")
    await eventually(lambda: not jobs.sessions(schema), "no session is left")


def busy(host: Any) -> int:
    """How many connections are checked out of a host's pool or engine."""
    if isinstance(host, ConnectionPool | AsyncConnectionPool):
        stats = host.get_stats()
        return stats["pool_size"] - stats["pool_available"]
    pool: Any = getattr(host, "sync_engine", host).pool
    return int(pool.checkedout())


async def answer(host: Any) -> int:
    """What the host's own query gets from its pool or engine."""
    match host:
        case ConnectionPool():
            with host.connection() as connection:
                row = connection.execute("SELECT 1").fetchone()
        case AsyncConnectionPool():
            async with host.connection() as async_connection:
                row = await (await async_connection.execute("SELECT 1")).fetchone()
        case _ if hasattr(host, "sync_engine"):
            async with host.connect() as sa_connection:
                row = (await sa_connection.execute(text("SELECT 1"))).fetchone()
        case _:
            with host.connect() as blocking_connection:
                row = blocking_connection.execute(text("SELECT 1")).fetchone()
    return int(row[0])


@both
async def test_stop_returns_the_connections_of_calls_that_are_under_way(
    database_url: str, schema: str, way: Way, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("river.runtime.producer.CLAIM_SECONDS", 1.0)
    name = named(database_url, schema)
    async with working(way, database_url, schema, through=name, workers=idle_workers(), queues={"default": 1}) as bench:
        with psycopg.connect(database_url) as host:
            # The scheduler's statement and a claim wait for this lock, when the stop comes.
            host.execute(f'LOCK TABLE "{schema}".river_job'.encode())
            waiting = "state = 'active' AND wait_event_type = 'Lock'"
            await eventually(lambda: len(jobs.sessions(schema, waiting)) >= 2, "both wait")
            await bench.stop()
            # A pool that replaces a connection counts it meanwhile.
            await eventually(lambda: busy(bench.host) == 0, "no connection is checked out", seconds=10)


@every_way
async def test_a_client_starts_again_after_a_stop(database_url: str, schema: str, way: Way) -> None:
    async with made(way, database_url, schema, workers=idle_workers()) as bench:
        for _ in range(3):
            await bench.start()
            await bench.jobs.until(await bench.insert(Note()), "completed")
            await bench.stop()
            # Inserting needs no running client.
            assert bench.jobs.row(await bench.insert(Note()))["state"] == "available"
        assert bench.jobs.states()["completed"] >= 3


@both
async def test_starting_and_stopping_twice_changes_nothing(database_url: str, schema: str, way: Way) -> None:
    async with made(way, database_url, schema, workers=idle_workers()) as bench:
        await bench.stop()
        await bench.start()
        running = bench.client._service
        await bench.start()
        assert bench.client._service is running
        await bench.jobs.until(await bench.insert(Note()), "completed")
        await bench.stop()
        await bench.stop()


@both
async def test_a_client_without_work_refuses_to_start_and_can_insert(database_url: str, schema: str, way: Way) -> None:
    async with made(way, database_url, schema, queues={}) as bench:
        with pytest.raises(ClientStateError, match="nothing to work"):
            await bench.start()
        assert bench.jobs.row(await bench.insert(Note()))["state"] == "available"


@both
async def test_stop_with_a_timeout_gives_up_waiting_and_goes_on(database_url: str, schema: str, way: Way) -> None:
    gate = Gate()
    async with working(way, database_url, schema, workers=gate.workers) as bench:
        job_id = await bench.insert(Note())
        await bench.jobs.until(job_id, "running")
        for timeout in (0.01, timedelta(seconds=0.01)):
            with pytest.raises(TimeoutError, match=r"did not stop within 0\.01 s; it goes on stopping"):
                await call(bench.client.stop, timeout=timeout)
        waiting = bench.jobs.add()
        gate.open.set()
        await bench.stop(timeout=30)
        assert [bench.jobs.row(each)["state"] for each in (job_id, waiting)] == ["completed", "available"]


@both
async def test_a_cancelled_or_repeated_stop_is_one_stop(database_url: str, schema: str, way: Way) -> None:
    gate = Gate()
    async with working(way, database_url, schema, workers=gate.workers) as bench:
        await bench.jobs.until(await bench.insert(Note()), "running")
        stops = [asyncio.create_task(bench.stop()) for _ in range(3)]
        await until_stopping(bench)
        if way is ASYNCIO:
            stops[0].cancel()
        gate.open.set()
        results = await asyncio.gather(*stops, return_exceptions=True)
        assert results[1:] == [None, None]
        assert bench.jobs.states() == {"completed": 1}


async def test_a_blocking_client_is_stopped_from_another_thread(database_url: str, schema: str) -> None:
    async with working(BLOCKING, database_url, schema, workers=idle_workers()) as bench:
        assert isinstance(bench.client, Client)
        completed = bench.client.completed
        thread = threading.Thread(target=bench.client.stop)
        thread.start()
        await asyncio.to_thread(completed.result, 30)
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()


async def test_completed_of_a_blocking_client_is_done_when_it_has_stopped(database_url: str, schema: str) -> None:
    async with working(BLOCKING, database_url, schema, workers=idle_workers()) as bench:
        assert isinstance(bench.client, Client)
        assert not bench.client.completed.done()
        await bench.stop()
        assert bench.client.completed.result(0) is None


async def test_completed_of_an_asyncio_client_is_done_when_it_has_stopped(database_url: str, schema: str) -> None:
    async with made(ASYNCIO, database_url, schema, workers=idle_workers()) as bench:
        assert isinstance(bench.client, AsyncClient)
        with pytest.raises(ClientStateError, match="not running"):
            _ = bench.client.completed
        await bench.start()
        completed = bench.client.completed
        assert not completed.done()
        await bench.stop()
        await completed


async def test_a_worker_may_not_wait_for_its_own_client_to_stop(database_url: str, schema: str) -> None:
    workers = Workers()
    holder: list[Client] = []

    @workers.work()
    async def stop(job: Job[Note], ctx: WorkContext) -> None:
        holder[0].stop()

    async with made(BLOCKING, database_url, schema, workers=workers) as bench:
        assert isinstance(bench.client, Client)
        holder.append(bench.client)
        await bench.start()
        row = await bench.jobs.until(await bench.insert(Note(), river.InsertOpts(max_attempts=1)), "discarded")
    assert "for which it would wait" in row["errors"][0]["error"]


# with client


def test_with_starts_and_stops_also_when_the_block_raises(database_url: str, schema: str, jobs: Jobs) -> None:
    gate = Gate()
    with ConnectionPool(named(database_url, schema), min_size=1) as pool:
        client = Client(pool, schema=schema, workers=gate.workers, queues={"default": 1})

        def use() -> None:
            with client:
                job_id = client.insert(Note()).job.id
                asyncio.run(jobs.until(job_id, "running"))
                threading.Timer(0.05, gate.open.set).start()
                raise LookupError("the host's own")

        with pytest.raises(LookupError, match="the host's own"):
            use()
        assert jobs.states() == {"completed": 1}
        assert client.completed.done()
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


async def test_async_with_starts_and_stops_also_when_the_block_raises(
    database_url: str, schema: str, jobs: Jobs
) -> None:
    gate = Gate("async def")
    async with AsyncConnectionPool(database_url, min_size=1, open=False) as pool:
        client = AsyncClient(pool, schema=schema, workers=gate.workers, queues={"default": 1})

        async def use() -> None:
            async with client:
                job_id = (await client.insert(Note())).job.id
                await jobs.until(job_id, "running")
                asyncio.get_running_loop().call_later(0.05, gate.open.set)
                raise LookupError("the host's own")

        with pytest.raises(LookupError, match="the host's own"):
            await use()
        assert jobs.states() == {"completed": 1}
        assert await answer(pool) == 1


@both
async def test_with_does_not_start_a_client_that_only_inserts(database_url: str, schema: str, way: Way) -> None:
    async with made(way, database_url, schema, queues={}) as bench:
        if isinstance(bench.client, AsyncClient):
            async with bench.client as client:
                await client.insert(Note())
        else:
            with bench.client as blocking:
                blocking.insert(Note())
        assert bench.client._service is None
        assert bench.jobs.states() == {"available": 1}


# Several


@pytest.mark.parametrize("style", STYLES)
async def test_two_clients_of_different_colours_live_in_one_process(
    database_url: str, schema: str, style: Style
) -> None:
    async with working(BLOCKING, database_url, schema, workers=workers_of(style, lambda *_: None), id="a") as first:
        async with working(ASYNCIO, database_url, schema, workers=idle_workers(), id="b") as second:
            first.jobs.add_many(100)
            await first.jobs.until_all("completed")
            await first.stop()
            job_id = await first.insert(Note())
            row = await second.jobs.until(job_id, "completed")
            assert row["attempted_by"] == ["b"]


@asynccontextmanager
async def one_pool(url: str) -> AsyncIterator[tuple[AsyncConnectionPool, ConnectionPool]]:
    async with AsyncConnectionPool(url, min_size=1, max_size=3, open=False) as asynchronous:
        with ConnectionPool(url, min_size=1, max_size=3) as blocking:
            yield asynchronous, blocking


async def test_two_clients_share_one_pool(database_url: str, schema: str, jobs: Jobs) -> None:
    async with one_pool(database_url) as (asynchronous, blocking):
        asyncio_clients = [
            AsyncClient(asynchronous, schema=schema, workers=idle_workers(), queues={queue: 2}) for queue in ("a", "b")
        ]
        clients = [Client(blocking, schema=schema, workers=idle_workers(), queues={queue: 2}) for queue in ("c", "d")]
        for asyncio_client in asyncio_clients:
            await asyncio_client.start()
        for client in clients:
            await call(client.start)
        for queue in "abcd":
            await jobs.until(jobs.add(queue=queue), "completed")
        await asyncio_clients[0].stop()
        await call(clients[0].stop)
        for queue in "bd":
            await jobs.until(jobs.add(queue=queue), "completed")
        await asyncio_clients[1].stop()
        await call(clients[1].stop)


# Start against a database that is not as it should be


@natural
async def test_start_says_where_rivers_tables_are_missing_and_can_be_called_again(
    database_url: str, schema: str, way: Way
) -> None:
    async with made(way, database_url, schema, workers=idle_workers()) as bench:
        bench.jobs.execute("ALTER TABLE {schema}.river_queue RENAME TO away")
        with pytest.raises(
            DatabaseError, match=f"River's tables are not in the schema '{schema}' of this database"
        ) as error:
            await bench.start()
        assert (error.value.error_class, error.value.sqlstate) == (ErrorClass.UNDEFINED_TABLE, "42P01")
        bench.jobs.execute("ALTER TABLE {schema}.away RENAME TO river_queue")
        await bench.start()
        await bench.jobs.until(await bench.insert(Note()), "completed")


@both
async def test_start_names_the_search_path_where_no_schema_is_given(database_url: str, schema: str, way: Way) -> None:
    async with made(way, database_url, schema, workers=idle_workers()) as bench:
        cls = type(bench.client)
        client = cls(bench.host, workers=idle_workers(), queues={"default": 1})
        with pytest.raises(DatabaseError, match="River's tables are not in the search_path"):
            await call(client.start)
        await call(client.stop)


async def test_a_service_that_fails_ends_the_client_and_says_why(
    database_url: str, schema: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a fault of River's")

    monkeypatch.setattr("river.runtime.scheduler.run", fail)
    for way in (BLOCKING, ASYNCIO):
        async with working(way, database_url, schema, workers=idle_workers()) as bench:
            completed: Any = bench.client.completed
            if way is BLOCKING:
                completed = asyncio.wrap_future(completed)
            with pytest.raises(RuntimeError, match="a fault of River's"):
                await completed
            await bench.stop()
            monkeypatch.undo()
            await bench.start()
            await bench.jobs.until(await bench.insert(Note()), "completed")
            monkeypatch.setattr("river.runtime.scheduler.run", fail)
    assert [record.levelno for record in caplog.records if "a service of" in record.message] == [logging.CRITICAL] * 2


# Under a signal


PROGRAM = """
import asyncio, sys, time, logging
from dataclasses import dataclass
from typing import ClassVar
import river

logging.basicConfig(level="INFO", stream=sys.stderr)

@dataclass
class Note:
    kind: ClassVar[str] = "note"
    text: str = ""

workers = river.Workers()

@workers.work()
{worker}

client = river.{client}({url!r}, schema={schema!r}, workers=workers, queues={{"default": 2}})
{run}
print("ended")
"""

RUNS = {
    "Client": ("def work(job: river.Job[Note], ctx: river.WorkContext) -> None:\n    time.sleep(0.5)", "client.run()"),
    "AsyncClient": (
        "async def work(job: river.Job[Note], ctx: river.WorkContext) -> None:\n    await asyncio.sleep(0.5)",
        "asyncio.run(client.run())",
    ),
}


def launch(program: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("client", RUNS)
async def test_run_drains_on_a_signal_and_the_process_ends_well(
    database_url: str, schema: str, jobs: Jobs, client: str, number: signal.Signals, tmp_path: Path
) -> None:
    worker, run = RUNS[client]
    program = tmp_path / "program.py"
    url = named(database_url, schema)
    program.write_text(PROGRAM.format(worker=worker, client=client, url=url, schema=schema, run=run))
    process = launch(program)
    try:
        first, second, third = (jobs.add() for _ in range(3))
        await jobs.until(second, "running")
        process.send_signal(number)
        out, err = await asyncio.to_thread(process.communicate, timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "ended\n"), err
    assert "Traceback" not in err
    assert [jobs.row(job_id)["state"] for job_id in (first, second)] == ["completed", "completed"]
    assert jobs.row(third)["state"] in ("available", "completed")
    await eventually(lambda: not jobs.sessions(schema), "no session is left")


def test_run_gives_the_process_its_signal_handlers_back(database_url: str, schema: str) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    client = Client(database_url, schema=schema, workers=idle_workers(), queues={"default": 1})
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    client.run()
    assert {number: signal.getsignal(number) for number in before} == before
    assert client.completed.done()
