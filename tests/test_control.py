"""What others ask of a running client reaches it: a job's cancellation, a queue's pause, with and without LISTEN.

Where it is a notification that must do it, the rows are looked at once in ten minutes, and queues are polled as
seldom. Where it is a look at the rows, nobody notifies.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from river import AsyncClient, Job, JobDiscard, JobSnooze, WorkContext, Workers
from river.cancel import CancelReason
from river.operation import AsyncExecutor, Rows, Statement, run
from river.operations import work
from river.runtime import watch
from river.runtime.notifier import CONTROL_TOPIC
from river.runtime.producer import Producer
from river.sql.postgres import Postgres
from river_psycopg import AsyncPsycopgDriver, PsycopgDriver
from tests.support.clients import (
    ASYNCIO,
    BLOCKING,
    LISTENING,
    NATURAL_WAYS,
    Bench,
    Jobs,
    Note,
    Way,
    eventually,
    jobs_of,
    named,
    workers_of,
    working,
)

NEVER_SECONDS = 600.0
OFTEN_SECONDS = 0.05
CANCELLED = "JobCancelError: job cancelled remotely"

both = pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)
every_driver = pytest.mark.parametrize("way", NATURAL_WAYS, ids=str)


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Decides how often rows are looked at without notifications; hardly ever, if nothing else is said."""
    monkeypatch.setattr(watch, "LOOK_SECONDS", NEVER_SECONDS)
    return lambda seconds: monkeypatch.setattr(watch, "LOOK_SECONDS", seconds)


def notify(jobs: Jobs, **payload: object) -> None:
    """Say something on the control topic."""
    jobs.execute("SELECT pg_notify(%s, %s)", f"{jobs.schema}.{CONTROL_TOPIC}", json.dumps(payload))


def mark(jobs: Jobs, job_id: int, at: str = "2026-01-02T03:04:05Z") -> None:
    """Ask for a job's cancellation in its row, as every client of River does, and tell nobody."""
    jobs.execute(
        "UPDATE {job} SET metadata = metadata || jsonb_build_object('cancel_attempted_at', %s::text) WHERE id = %s",
        at,
        job_id,
    )


def ask(jobs: Jobs, job_id: int, queue: str = "default") -> None:
    """Ask for a running job's cancellation, in its row and on the topic."""
    mark(jobs, job_id)
    notify(jobs, action="cancel", job_id=job_id, queue=queue)


class Held:
    """A worker of either colour that waits until it is cancelled or let go, and then ends as it is told to."""

    def __init__(self, style: Any = "async def", ends: BaseException | None = None) -> None:
        self.begun: list[int] = []
        self.reasons: list[CancelReason | None] = []
        self.told = threading.Event()
        self.free = threading.Event()
        self.ends = ends
        self.contexts: list[WorkContext] = []
        self.workers = workers_of("def", self._work)
        if style == "async def":
            self.workers = Workers()

            @self.workers.work()
            async def work(job: Job[Note], ctx: WorkContext) -> None:
                self._begin(job.id, ctx)
                try:
                    while not self.free.is_set():  # noqa: ASYNC110 - set from another loop
                        await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    self.reasons.append(ctx.cancel_reason)
                    if self.ends is not None:
                        raise self.ends from None
                    raise

    def _begin(self, job_id: int, ctx: WorkContext) -> None:
        self.contexts.append(ctx)
        self.begun.append(job_id)

    def _work(self, job: Any, ctx: WorkContext) -> None:
        self._begin(job.id, ctx)
        ctx.on_cancel(self.told.set)
        while not (ctx.cancelled or self.free.is_set()):
            self.told.wait(0.01)
        if ctx.cancelled:
            self.reasons.append(ctx.cancel_reason)
            if self.ends is not None:
                raise self.ends


@asynccontextmanager
async def listening(way: Way, url: str, schema: str, **options: Any) -> AsyncIterator[Bench]:
    """A client that hears notifications, and hardly ever looks by itself."""
    options.setdefault("fetch_poll_interval", NEVER_SECONDS)
    async with working(way, url, schema, through=named(url, schema), **options) as bench:
        service: Any = bench.client._service
        await eventually(lambda: service._hears() and not service._watch._owed, "the client hears")
        yield bench


def producer_of(bench: Bench, queue: str = "default") -> Producer:
    service: Any = bench.client._service
    found: Producer = service._producers[queue]
    return found


async def begun(bench: Bench, worker: Held, queue: str = "default") -> int:
    """A job whose worker has begun."""
    job_id = bench.jobs.add(queue=queue)
    bench.jobs.execute("SELECT pg_notify(%s, %s)", f"{bench.jobs.schema}.river_insert", json.dumps({"queue": queue}))
    await eventually(lambda: job_id in worker.begun, "the worker has begun")
    return job_id


# Cancellation by a notification


@pytest.mark.parametrize("way", [way for way in NATURAL_WAYS if way.listens], ids=str)
async def test_a_cancel_stops_an_async_worker_where_it_waits(database_url: str, schema: str, way: Way) -> None:
    worker = Held("async def")
    async with listening(way, database_url, schema, workers=worker.workers) as bench:
        job_id = await begun(bench, worker)
        ask(bench.jobs, job_id)
        row = await bench.jobs.until(job_id, "cancelled")
    assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]
    assert [(error["error"], error["attempt"], error["trace"]) for error in row["errors"]] == [(CANCELLED, 1, "")]
    assert row["finalized_at"] is not None
    assert row["attempt"] == 1


@pytest.mark.parametrize("way", [way for way in NATURAL_WAYS if way.listens], ids=str)
async def test_a_cancel_reaches_the_token_of_a_def_worker_and_its_callbacks(
    database_url: str, schema: str, way: Way
) -> None:
    worker = Held("def", ends=RuntimeError("stopped in the middle"))
    async with listening(way, database_url, schema, workers=worker.workers) as bench:
        job_id = await begun(bench, worker)
        ask(bench.jobs, job_id)
        row = await bench.jobs.until(job_id, "cancelled")
    assert worker.told.is_set()
    assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]
    assert [error["error"] for error in row["errors"]] == [CANCELLED]


@pytest.mark.parametrize("style", ["def", "async def"])
@pytest.mark.parametrize(
    "ends", [RuntimeError("own"), JobSnooze(1), JobSnooze(3600), JobDiscard("own"), SystemExit(3)], ids=repr
)
async def test_whatever_a_cancelled_worker_raises_the_job_is_cancelled(
    database_url: str, schema: str, style: str, ends: BaseException
) -> None:
    worker = Held(style, ends)
    async with listening(ASYNCIO, database_url, schema, workers=worker.workers) as bench:
        job_id = await begun(bench, worker)
        ask(bench.jobs, job_id)
        row = await bench.jobs.until(job_id, "cancelled", "available", "scheduled", "retryable", "discarded")
    assert (row["state"], [error["error"] for error in row["errors"]]) == ("cancelled", [CANCELLED])
    assert "snoozes" not in row["metadata"]


async def test_a_cancelled_worker_that_returns_has_completed_its_job(database_url: str, schema: str) -> None:
    worker = Held("def")
    async with listening(ASYNCIO, database_url, schema, workers=worker.workers) as bench:
        job_id = await begun(bench, worker)
        ask(bench.jobs, job_id)
        row = await bench.jobs.until(job_id, "completed", "cancelled")
    assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]
    assert (row["state"], row["errors"]) == ("completed", None)


async def test_a_worker_that_was_not_cancelled_fails_as_always(database_url: str, schema: str) -> None:
    worker = Held("def", RuntimeError("own"))
    async with listening(ASYNCIO, database_url, schema, workers=worker.workers) as bench:
        job_id, other = await begun(bench, worker), await begun(bench, worker)
        ask(bench.jobs, other)
        await bench.jobs.until(other, "cancelled")
        assert bench.jobs.row(job_id)["state"] == "running"
        worker.free.set()
        await bench.jobs.until(job_id, "completed")


@both
async def test_a_cancel_concerns_one_job_of_exactly_its_queue(database_url: str, schema: str, way: Way) -> None:
    worker = Held("def")
    options: Any = {"queues": {"default": 2, "other": 2}, "workers": worker.workers}
    async with listening(way, database_url, schema, **options) as bench:
        kept, stopped = await begun(bench, worker), await begun(bench, worker, "other")
        for queue in ("*", "other", "Default", "unknown"):
            notify(bench.jobs, action="cancel", job_id=kept, queue=queue)
        notify(bench.jobs, action="cancel", job_id=str(kept), queue="default")
        notify(bench.jobs, action="cancel", job_id=True, queue="default")
        notify(bench.jobs, action="cancel", queue="default")
        notify(bench.jobs, action="unheard of", job_id=kept, queue="default")
        notify(bench.jobs, action="metadata_changed", metadata={"a": 1}, queue="default")
        ask(bench.jobs, stopped, "other")
        await bench.jobs.until(stopped, "completed")
        assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]
        worker.free.set()
        await bench.jobs.until(kept, "completed")
    assert len(worker.reasons) == 1


@both
async def test_a_cancel_reaches_a_job_while_a_stop_drains(database_url: str, schema: str, way: Way) -> None:
    worker = Held("async def")
    async with listening(way, database_url, schema, workers=worker.workers) as bench:
        job_id = await begun(bench, worker)
        stopping = asyncio.create_task(bench.stop())
        await eventually(lambda: producer_of(bench)._stopping, "it stops")
        ask(bench.jobs, job_id)
        await stopping
        assert bench.jobs.row(job_id)["state"] == "cancelled"
    assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]


class LateExecutor(AsyncExecutor):
    """Gives the answers of claims only when it may."""

    database = "postgresql"

    def __init__(self, executor: AsyncExecutor, may_answer: asyncio.Event) -> None:
        self.executor = executor
        self.may_answer = may_answer

    async def execute(self, statement: Statement) -> Rows:
        rows = await self.executor.execute(statement)
        if "array_append" in statement.sql and rows:
            await self.may_answer.wait()
        return rows

    def abort(self) -> None:
        self.executor.abort()


class LateDriver(AsyncPsycopgDriver):
    """A driver under which the answers of claims are on their way for as long as the test wants."""

    may_answer: asyncio.Event

    @asynccontextmanager
    async def autocommit(self) -> Any:
        async with super().autocommit() as executor:
            yield LateExecutor(executor, self.may_answer)


@pytest.mark.parametrize("style", ["def", "async def"])
async def test_a_cancel_during_the_claims_round_trip_reaches_the_job_which_starts_as_cancelled(
    database_url: str, schema: str, style: str
) -> None:
    worker, seen = Held(style), list[bool]()
    begin = worker._begin

    def look(job_id: int, ctx: WorkContext) -> None:
        seen.append(ctx.cancelled)
        begin(job_id, ctx)

    worker._begin = look  # type: ignore[method-assign]
    driver = LateDriver.connect(named(database_url, schema))
    driver.may_answer = asyncio.Event()
    client = AsyncClient(driver, schema=schema, workers=worker.workers, queues={"default": 4})
    with jobs_of(database_url, schema) as jobs:
        bench = Bench(client, jobs, driver)
        job_id = jobs.add()
        async with client:
            await eventually(lambda: jobs.sessions(schema, LISTENING), "it listens")
            await jobs.until(job_id, "running")
            ask(jobs, job_id)
            await eventually(lambda: job_id in (producer_of(bench)._early or ()), "the cancellation has been heard")
            assert worker.begun == []
            driver.may_answer.set()
            row = await jobs.until(job_id, "cancelled", "completed")
    await driver.close()
    assert seen == [True]
    assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]
    assert row["state"] == ("completed" if style == "def" else "cancelled")


async def test_an_async_worker_that_starts_as_cancelled_and_waits_for_nothing_has_done_its_work(
    database_url: str, schema: str
) -> None:
    """Such a cancellation is still pending when the task ends, and asyncio then forgets what it returned."""
    done = list[bool]()
    workers = Workers()

    @workers.work()
    async def work(job: Job[Note], ctx: WorkContext) -> None:
        done.append(ctx.cancelled)

    driver = LateDriver.connect(named(database_url, schema))
    driver.may_answer = asyncio.Event()
    client = AsyncClient(driver, schema=schema, workers=workers, queues={"default": 4})
    with jobs_of(database_url, schema) as jobs:
        job_id = jobs.add()
        async with client:
            await eventually(lambda: jobs.sessions(schema, LISTENING), "it listens")
            await jobs.until(job_id, "running")
            ask(jobs, job_id)
            service: Any = client._service
            await eventually(lambda: service._producers["default"]._early, "the cancellation has been heard")
            driver.may_answer.set()
            row = await jobs.until(job_id, "cancelled", "completed", "available")
    await driver.close()
    assert done == [True]
    assert (row["state"], row["errors"]) == ("completed", None)


@both
async def test_a_notification_of_an_earlier_cancellation_does_not_cancel_a_job_that_was_retried(
    database_url: str, schema: str, way: Way
) -> None:
    """It was cancelled, tried again by a client that leaves the mark in place, and claimed; then the word arrives."""
    worker = Held("def")
    async with listening(way, database_url, schema, workers=worker.workers) as bench:
        job_id = bench.jobs.add(metadata='{"cancel_attempted_at": "2026-01-01T00:00:00.123456789Z"}')
        bench.jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.river_insert", '{"queue": "default"}')
        await eventually(lambda: worker.begun, "it has begun")
        looked = await looks_of(bench)
        notify(bench.jobs, action="cancel", job_id=job_id, queue="default")
        await looked(1)
        assert not worker.contexts[0].cancelled
        mark(bench.jobs, job_id, "2026-01-01T00:00:00.123456788Z")  # another one, by a clock that is behind
        notify(bench.jobs, action="cancel", job_id=job_id, queue="default")
        await bench.jobs.until(job_id, "completed")
    assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]


async def looks_of(bench: Bench) -> Callable[[int], Any]:
    """Counts from here on how often the client has looked at the rows of its jobs; a function that waits for it."""
    service: Any = bench.client._service
    watched: watch.Watch = service._watch
    looked, look = [0], watched._look_at_jobs

    async def counted() -> None:
        await look()
        looked[0] += 1

    watched._look_at_jobs = counted  # type: ignore[method-assign]

    async def until(count: int) -> None:
        await eventually(lambda: looked[0] >= count, f"it has looked {count} times")

    return until


# Cancellation without notifications


@every_driver
@pytest.mark.parametrize("style", ["def", "async def"])
async def test_a_cancel_reaches_the_running_job_of_a_client_that_only_polls(
    database_url: str, schema: str, way: Way, style: str, looks: Callable[[float], None]
) -> None:
    looks(OFTEN_SECONDS)
    worker = Held(style)
    async with working(way, database_url, schema, workers=worker.workers, poll_only=True) as bench:
        job_id, other = bench.jobs.add(), bench.jobs.add()
        await eventually(lambda: {job_id, other} <= set(worker.begun), "both have begun")
        mark(bench.jobs, job_id)
        row = await bench.jobs.until(job_id, "completed", "cancelled")
        assert bench.jobs.row(other)["state"] == "running"
        worker.free.set()
        await bench.jobs.until(other, "completed")
    assert row["state"] == ("completed" if style == "def" else "cancelled")
    assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]


@both
async def test_a_cancel_reaches_a_job_while_a_stop_drains_also_without_notifications(
    database_url: str, schema: str, way: Way, looks: Callable[[float], None]
) -> None:
    looks(OFTEN_SECONDS)
    worker = Held("async def")
    async with working(way, database_url, schema, workers=worker.workers, poll_only=True) as bench:
        job_id = bench.jobs.add()
        await eventually(lambda: worker.begun, "it has begun")
        stopping = asyncio.create_task(bench.stop())
        await eventually(lambda: producer_of(bench)._stopping, "it stops")
        mark(bench.jobs, job_id)
        await stopping
        assert bench.jobs.row(job_id)["state"] == "cancelled"


@both
@pytest.mark.parametrize("before", ['"2026-01-01T00:00:00Z"', "null", "7", '{"deep": [1]}'])
async def test_a_mark_from_before_the_claim_does_not_cancel_a_job_and_a_new_one_does(
    database_url: str, schema: str, way: Way, before: str, looks: Callable[[float], None]
) -> None:
    looks(OFTEN_SECONDS)
    worker = Held("def")
    async with working(way, database_url, schema, workers=worker.workers, poll_only=True) as bench:
        job_id = bench.jobs.add(metadata=f'{{"cancel_attempted_at": {before}}}')
        await eventually(lambda: worker.begun, "it has begun")
        looked = await looks_of(bench)
        await looked(3)
        assert not worker.contexts[0].cancelled
        mark(bench.jobs, job_id, "2020-01-01T00:00:00Z")
        await bench.jobs.until(job_id, "completed")
    assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]


@pytest.mark.parametrize("value", ['"2026-01-01T00:00:00Z"', "null", "[" * 5000 + "]" * 5000, "1" * 5000])
async def test_a_mark_of_any_value_cancels_a_job_that_had_none(
    database_url: str, schema: str, value: str, looks: Callable[[float], None]
) -> None:
    looks(OFTEN_SECONDS)
    worker = Held("def")
    async with working(ASYNCIO, database_url, schema, workers=worker.workers, poll_only=True) as bench:
        job_id = bench.jobs.add()
        await eventually(lambda: worker.begun, "it has begun")
        change = "UPDATE {job} SET metadata = jsonb_build_object('cancel_attempted_at', %s::jsonb) WHERE id = %s"
        bench.jobs.execute(change, value, job_id)
        await eventually(lambda: set(bench.jobs.states()) == {"completed"}, "it is completed")
        assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]


@both
async def test_what_was_asked_for_while_nobody_listened_is_found_when_it_listens_again(
    database_url: str, schema: str, way: Way
) -> None:
    worker = Held("async def")
    async with listening(way, database_url, schema, workers=worker.workers) as bench:
        job_id = await begun(bench, worker)
        # Nobody says so: it is as if the listener had not heard it.
        mark(bench.jobs, job_id)
        bench.jobs.execute("UPDATE {schema}.river_queue SET paused_at = now()")
        bench.jobs.terminate(bench.jobs.sessions(schema, LISTENING))
        await bench.jobs.until(job_id, "cancelled")
        await eventually(lambda: producer_of(bench).paused, "it is paused")


async def test_a_look_asks_once_for_all_jobs_of_all_queues_and_not_at_all_when_none_runs(
    database_url: str, schema: str, looks: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()
    ask_for = Postgres.job_cancellations

    def counted(self: Postgres, claims: Any) -> Any:
        asked.append(len(claims))
        return ask_for(self, claims)

    monkeypatch.setattr(Postgres, "job_cancellations", counted)
    looks(OFTEN_SECONDS)
    worker = Held("def")
    queues: Any = {"default": 5, "other": 5}
    async with working(ASYNCIO, database_url, schema, workers=worker.workers, queues=queues, poll_only=True) as bench:
        looked = await looks_of(bench)
        await looked(2)
        assert asked == []
        for queue in ("default", "other"):
            bench.jobs.add_many(3, queue=queue)
        await eventually(lambda: len(worker.begun) == 6, "all have begun")
        asked.clear()
        await eventually(lambda: len(asked) >= 2, "it has looked")
        assert set(asked) == {6}
        worker.free.set()


async def test_a_cancelled_job_whose_claim_had_no_answer_is_not_given_back_but_cancelled(
    database_url: str, schema: str
) -> None:
    driver = PsycopgDriver.connect(database_url)
    with jobs_of(database_url, schema) as jobs:
        cancelled, other = jobs.add(), jobs.add()
        sql, since = Postgres(schema), datetime.now(UTC) - timedelta(minutes=1)
        with driver.autocommit() as executor:
            run(executor, work.claim(sql, "default", client_id="me", limit=2))
            mark(jobs, cancelled)
            run(executor, work.give_back(sql, "default", client_id="me", since=since, in_hand=[]))
        rows = [(row["state"], row["attempt"], row["finalized_at"] is None) for row in jobs.rows()]
        assert rows == [("cancelled", 0, False), ("available", 0, True)]
        assert cancelled < other
    driver.close()


# Pausing


@both
@pytest.mark.parametrize("said", ["default", "*"])
async def test_a_paused_queue_claims_nothing_and_a_resumed_one_at_once(
    database_url: str, schema: str, way: Way, said: str
) -> None:
    worker = Held("def")
    worker.free.set()
    async with listening(way, database_url, schema, workers=worker.workers) as bench:
        for _ in range(2):  # again, for it must also be the same the second time
            notify(bench.jobs, action="pause", queue=said)
            notify(bench.jobs, action="pause", queue=said)
            await eventually(lambda: producer_of(bench).paused, "it is paused")
            waiting = bench.jobs.add()
            bench.jobs.execute("SELECT pg_notify(%s, %s)", f"{schema}.river_insert", '{"queue": "default"}')
            turns = producer_of(bench).turns
            notify(bench.jobs, action="pause", queue=said)
            await eventually(lambda turns=turns: producer_of(bench).turns > turns, "all has been heard")  # type: ignore[misc]
            assert bench.jobs.row(waiting)["state"] == "available"
            notify(bench.jobs, action="resume", queue=said)
            await bench.jobs.until(waiting, "completed")
            notify(bench.jobs, action="resume", queue=said)


@both
async def test_a_pause_concerns_the_queue_that_it_names_and_leaves_running_jobs_alone(
    database_url: str, schema: str, way: Way
) -> None:
    worker = Held("def")
    options: Any = {"queues": {"default": 2, "other": 2}, "workers": worker.workers}
    async with listening(way, database_url, schema, **options) as bench:
        running = await begun(bench, worker)
        notify(bench.jobs, action="pause", queue="default")
        await eventually(lambda: producer_of(bench).paused, "it is paused")
        assert not producer_of(bench, "other").paused
        other = await begun(bench, worker, "other")
        worker.free.set()
        await bench.jobs.until(running, "completed")
        await bench.jobs.until(other, "completed")
    assert worker.reasons == []


@both
async def test_a_client_that_starts_finds_its_queue_paused(database_url: str, schema: str, way: Way) -> None:
    worker = Held("def")
    worker.free.set()
    with jobs_of(database_url, schema) as jobs:
        jobs.execute("INSERT INTO {schema}.river_queue (name, paused_at, updated_at) VALUES ('default', now(), now())")
        waiting = jobs.add()
    async with listening(way, database_url, schema, workers=worker.workers) as bench:
        assert producer_of(bench).paused
        assert bench.jobs.row(waiting)["state"] == "available"
        assert bench.jobs.execute("SELECT paused_at FROM {schema}.river_queue")[0]["paused_at"] is not None
        notify(bench.jobs, action="resume", queue="default")
        await bench.jobs.until(waiting, "completed")


@both
async def test_a_client_that_only_polls_finds_pause_and_resume_in_the_row(
    database_url: str, schema: str, way: Way, looks: Callable[[float], None]
) -> None:
    looks(OFTEN_SECONDS)
    worker = Held("def")
    worker.free.set()
    async with working(way, database_url, schema, workers=worker.workers, poll_only=True) as bench:
        bench.jobs.execute("UPDATE {schema}.river_queue SET paused_at = now()")
        await eventually(lambda: producer_of(bench).paused, "it is paused")
        bench.jobs.execute("DELETE FROM {schema}.river_queue")
        looked = await looks_of(bench)
        await looked(2)
        assert producer_of(bench).paused  # a row that is gone says nothing
        waiting = bench.jobs.add()
        insert = "INSERT INTO {schema}.river_queue (name, updated_at) VALUES ('default', now())"
        bench.jobs.execute(insert)
        await bench.jobs.until(waiting, "completed")


async def test_a_pause_that_is_heard_during_a_look_is_newer_than_what_the_look_saw(
    database_url: str, schema: str
) -> None:
    worker = Held("def")
    async with listening(ASYNCIO, database_url, schema, workers=worker.workers) as bench:
        service: Any = bench.client._service
        held = producer_of(bench)

        class Overtaken:
            async def query(self, operation: Any, *, seconds: float) -> Any:
                answer = await service._store.query(operation, seconds=seconds)
                held.pause(True)
                return answer

        late: Any = Overtaken()
        looker = watch.Watch(late, service._client.sql("postgresql"), {"default": held}, lambda: False)
        await looker._look_at_queues()
        assert held.paused


# The rows of the queues


async def test_the_row_of_a_queue_says_again_and_again_that_it_is_worked(
    database_url: str, schema: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "KEEP_ALIVE_SECONDS", OFTEN_SECONDS)
    updated = "SELECT name, updated_at, metadata FROM {schema}.river_queue ORDER BY name"
    queues: Any = {"default": 1, "other": 1}
    async with working(ASYNCIO, database_url, schema, workers=Held("def").workers, queues=queues) as bench:
        bench.jobs.execute("UPDATE {schema}.river_queue SET metadata = '[1]' WHERE name = 'other'")
        for _ in range(2):
            before = bench.jobs.execute(updated)
            await eventually(
                lambda before=before: all(  # type: ignore[misc]
                    now["updated_at"] > then["updated_at"]
                    for now, then in zip(bench.jobs.execute(updated), before, strict=True)
                ),
                "both are newer",
            )
        bench.jobs.execute("ALTER TABLE {schema}.river_queue RENAME TO elsewhere")
        await eventually(lambda: "could not be kept" in caplog.text, "it has failed")
        bench.jobs.execute("ALTER TABLE {schema}.elsewhere RENAME TO river_queue")
        bench.jobs.execute("DELETE FROM {schema}.river_queue")
        await eventually(lambda: len(bench.jobs.execute(updated)) == 2, "the rows are there again")
    assert sum("could not be kept" in message for message in caplog.messages) == 1


@both
async def test_whatever_is_in_a_queues_metadata_a_client_starts_and_works(
    database_url: str, schema: str, way: Way
) -> None:
    worker = Held("def")
    worker.free.set()
    with jobs_of(database_url, schema) as jobs:
        insert = "INSERT INTO {schema}.river_queue (name, metadata, updated_at) VALUES ('default', '[7]', now())"
        jobs.execute(insert)
    async with working(way, database_url, schema, workers=worker.workers) as bench:
        await bench.jobs.until(bench.jobs.add(), "completed")


async def test_a_failing_look_is_said_once_and_made_again(
    database_url: str, schema: str, looks: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    looks(OFTEN_SECONDS)
    worker = Held("def")
    async with working(ASYNCIO, database_url, schema, workers=worker.workers, poll_only=True) as bench:
        job_id = bench.jobs.add()
        await eventually(lambda: worker.begun, "it has begun")
        bench.jobs.execute("ALTER TABLE {schema}.river_queue RENAME TO elsewhere")
        await eventually(lambda: "could not be looked up" in caplog.text, "it has failed")
        mark(bench.jobs, job_id)
        bench.jobs.execute("ALTER TABLE {schema}.elsewhere RENAME TO river_queue")
        await bench.jobs.until(job_id, "completed")
    assert worker.reasons == [CancelReason.CANCELLED_REMOTELY]
    assert sum("could not be looked up" in message for message in caplog.messages) == 1
