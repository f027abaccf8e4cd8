"""The ends of attempts, persisted: by statements in batches, behind a fence, and by the completer that forms them.

The statements are tried on every driver, because each binds and compiles in its own way; what they decide is
PostgreSQL's business, and is tried on one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from river import Client, DatabaseError, ErrorClass, Hook, Job, JobRow, JobSnooze, JobState, WorkContext
from river.driver import AnyDriver, driver_for, is_asyncio
from river.engine.transition import Persisted, Transition
from river.operation import Operation, run, run_async
from river.operations import maintain, work
from river.runtime import completer
from river.runtime.completer import Completer
from river.runtime.store import Store, store_for
from river.sql.postgres import Postgres
from tests.support.clients import (
    ASYNC_SOURCES,
    ASYNCIO,
    BLOCKING,
    BLOCKING_SOURCES,
    Jobs,
    Note,
    Way,
    call,
    eventually,
    jobs_of,
    made,
    source,
    workers_of,
    working,
)

CLAIMED_AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
FENCE = CLAIMED_AT.isoformat()
ERROR = {"at": "2026-01-02T03:04:05.678901Z", "attempt": 1, "error": "boom: 'x' \"y\" \\ %s :z ?", "trace": "line\n"}

each_driver = pytest.mark.parametrize("name", [*BLOCKING_SOURCES, *ASYNC_SOURCES])


@pytest.fixture
def jobs(database_url: str, schema: str) -> Iterator[Jobs]:
    with jobs_of(database_url, schema) as jobs:
        yield jobs


@asynccontextmanager
async def driver_of(name: str, url: str) -> AsyncIterator[AnyDriver]:
    async with source(name, url) as host:
        yield driver_for(host, "asyncio")


async def ask(driver: AnyDriver, operation: Operation[Any]) -> Any:
    if is_asyncio(driver):
        async with driver.autocommit() as executor:
            return await run_async(executor, operation)
    with driver.autocommit() as executor:
        return run(executor, operation)


def running(jobs: Jobs, **columns: object) -> int:
    values: dict[str, object] = {"state": "running", "attempt": 1, "attempted_at": CLAIMED_AT, **columns}
    return jobs.add(**values)


def many_running(jobs: Jobs, count: int) -> list[int]:
    jobs.add_many(count, state="running")
    jobs.execute("UPDATE {job} SET attempt = 2, attempted_at = %s", CLAIMED_AT)
    return [row["id"] for row in jobs.rows()]


def end(job_id: int, state: str = "completed", **fields: Any) -> Transition:
    return Transition(job_id=job_id, attempted_at=FENCE, state=JobState(state), **fields)


# The statements


@each_driver
async def test_thousands_of_mixed_transitions_are_written_at_once(
    database_url: str, schema: str, jobs: Jobs, name: str
) -> None:
    ids = many_running(jobs, 2_500)
    kinds = [
        lambda job_id: end(job_id),
        lambda job_id: end(job_id, metadata={"output": "é\U0001f600"}),
        lambda job_id: end(job_id, "available", delay_seconds=1.5, error=ERROR),
        lambda job_id: end(job_id, "retryable", delay_seconds=3600.25, error=ERROR),
        lambda job_id: end(job_id, "scheduled", delay_seconds=7200.0, attempt=1, metadata={"snoozes": 1}),
        lambda job_id: end(job_id, "cancelled", error=ERROR),
        lambda job_id: end(job_id, "discarded", error=ERROR),
    ]
    transitions = [kinds[n % 7](job_id) for n, job_id in enumerate(ids)]
    async with driver_of(name, database_url) as driver:
        persisted = await ask(driver, work.finish(Postgres(schema), transitions))
    assert persisted == {}
    for transition, row in zip(transitions, jobs.rows(), strict=True):
        assert row["state"] == transition.state
        assert (row["finalized_at"] is not None) == transition.state.finalized
        assert row["attempt"] == (transition.attempt or 2)
        assert row["errors"] == (None if transition.error is None else [ERROR])
        assert row["metadata"] == (transition.metadata or {})
        if transition.delay_seconds is None:
            assert row["scheduled_at"] == row["created_at"]
        else:
            due = row["created_at"] + timedelta(seconds=transition.delay_seconds)
            assert due <= row["scheduled_at"] < due + timedelta(minutes=2)


@each_driver
async def test_a_transition_whose_claim_is_over_touches_nothing(
    database_url: str, schema: str, jobs: Jobs, name: str
) -> None:
    late = CLAIMED_AT + timedelta(microseconds=1)
    over = [
        running(jobs, attempted_at=late),
        running(jobs, state="completed", finalized_at=late),
        running(jobs, state="available"),
        running(jobs, state="scheduled"),
    ]
    gone, good = running(jobs), running(jobs)
    jobs.execute("DELETE FROM {job} WHERE id = %s", gone)
    before = [jobs.row(job_id) for job_id in over]
    async with driver_of(name, database_url) as driver:
        for transition in (end(good), end(good, "retryable", delay_seconds=1.0, error=ERROR)):
            batch = [*(end(job_id, transition.state, error=transition.error) for job_id in (*over, gone)), transition]
            jobs.execute("UPDATE {job} SET state = 'running', finalized_at = NULL WHERE id = %s", good)
            persisted = await ask(driver, work.finish(Postgres(schema), batch))
            assert persisted == dict.fromkeys([*over, gone], Persisted.LOST)
            assert [jobs.row(job_id) for job_id in over] == before
            assert jobs.row(good)["state"] == transition.state


@each_driver
async def test_completing_twice_is_harmless(database_url: str, schema: str, jobs: Jobs, name: str) -> None:
    ids = [running(jobs), running(jobs), running(jobs)]
    batch = [end(ids[0]), end(ids[1], "discarded", error=ERROR), end(ids[2], "available", error=ERROR)]
    async with driver_of(name, database_url) as driver:
        assert await ask(driver, work.finish(Postgres(schema), batch)) == {}
        once = jobs.rows()
        assert await ask(driver, work.finish(Postgres(schema), batch)) == dict.fromkeys(ids, Persisted.LOST)
    assert jobs.rows() == once


@each_driver
async def test_a_row_that_somebody_holds_is_skipped_and_reported(
    database_url: str, schema: str, jobs: Jobs, name: str
) -> None:
    held, other, held_failure = running(jobs), running(jobs), running(jobs)
    batch = [end(held), end(other), end(held_failure, "discarded", error=ERROR)]
    with psycopg.connect(database_url) as host:
        host.execute(f'SELECT FROM "{schema}".river_job WHERE id IN ({held}, {held_failure}) FOR UPDATE'.encode())
        async with driver_of(name, database_url) as driver:
            persisted = await ask(driver, work.finish(Postgres(schema), batch))
    assert persisted == {held: Persisted.BUSY, held_failure: Persisted.BUSY}
    assert [row["state"] for row in jobs.rows()] == ["running", "completed", "running"]


@each_driver
@pytest.mark.parametrize("state", ["available", "retryable", "scheduled"])
async def test_a_job_whose_cancellation_was_asked_for_is_cancelled_instead_of_tried_again(
    database_url: str, schema: str, jobs: Jobs, name: str, state: str
) -> None:
    asked = running(jobs, attempt=3, metadata='{"cancel_attempted_at": "2026-01-02T03:04:05Z"}')
    other = running(jobs, attempt=3)
    async with driver_of(name, database_url) as driver:
        batch = [end(job_id, state, attempt=2, delay_seconds=60.0, error=ERROR) for job_id in (asked, other)]
        persisted = await ask(driver, work.finish(Postgres(schema), batch))
    assert persisted == {asked: Persisted.CANCELLED}
    row = jobs.row(asked)
    assert (row["state"], row["attempt"], row["errors"]) == ("cancelled", 3, [ERROR])
    assert (row["finalized_at"] is not None, row["scheduled_at"]) == (True, row["created_at"])
    assert jobs.row(other)["state"] == state


@pytest.mark.parametrize("state", ["completed", "discarded"])
async def test_a_job_that_ends_anyway_is_not_cancelled_as_well(
    database_url: str, schema: str, jobs: Jobs, state: str
) -> None:
    asked = running(jobs, metadata='{"cancel_attempted_at": "2026-01-02T03:04:05Z"}')
    async with driver_of("ConnectionPool", database_url) as driver:
        assert await ask(driver, work.finish(Postgres(schema), [end(asked, state)])) == {}
    assert jobs.row(asked)["state"] == state


# The fence, in a running client


@pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)
@pytest.mark.parametrize("late", ["success", "snooze", "failure"])
@pytest.mark.parametrize("meanwhile", ["rescued", "snoozed"])
async def test_a_late_result_does_not_touch_a_row_that_was_claimed_again(
    database_url: str, schema: str, way: Way, late: str, meanwhile: str
) -> None:
    release = threading.Event()

    def body(job: Job[Note], ctx: WorkContext) -> None:
        assert release.wait(60)
        if late == "snooze":
            raise JobSnooze(3600)
        if late == "failure":
            raise ValueError("late")

    async with working(way, database_url, schema, workers=workers_of("def", body)) as bench:
        job_id = await bench.insert(Note())
        await bench.jobs.until(job_id, "running")
        # Another client has it by now. After a snooze the number of the attempt is the same again.
        attempt = {"rescued": 2, "snoozed": 1}[meanwhile]
        bench.jobs.execute(
            "UPDATE {job} SET attempted_at = clock_timestamp(), attempt = %s, attempted_by = ARRAY['other']", attempt
        )
        before = bench.jobs.row(job_id)
        release.set()
        await bench.stop()
        assert bench.jobs.row(job_id) == before


async def test_a_rescued_job_does_not_take_a_late_result(database_url: str, schema: str, jobs: Jobs) -> None:
    job_id = running(jobs)
    async with driver_of("ConnectionPool", database_url) as driver:
        rescue = maintain.rescue(
            Postgres(schema),
            older_than=timedelta(hours=1),
            now=datetime.now(UTC),
            retry_at=lambda job: datetime.now(UTC) + timedelta(minutes=1),
        )
        assert [job.id for job in await ask(driver, rescue)] == [job_id]
        rescued = jobs.row(job_id)
        assert (rescued["state"], rescued["metadata"]) == ("retryable", {"river:rescue_count": 1})
        assert await ask(driver, work.finish(Postgres(schema), [end(job_id)])) == {job_id: Persisted.LOST}
    assert jobs.row(job_id) == rescued


# The completer


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with driver_of("AsyncConnectionPool", database_url) as driver:
        store = store_for(driver)
        yield store
        await store.close()


class Saving:
    """A completer that runs."""

    def __init__(self, store: Store, schema: str) -> None:
        self.relieved = 0
        self.completer = Completer(store, Postgres(schema), self._relieve)
        self.task: asyncio.Task[None] | None = None

    def _relieve(self) -> None:
        self.relieved += 1

    def submit(self, transitions: Sequence[Transition]) -> None:
        for transition in transitions:
            self.completer.submit(transition)

    def start(self) -> None:
        self.task = asyncio.create_task(self.completer.run())

    async def finish(self, budget: float = 60.0) -> None:
        assert self.task is not None
        self.completer.close(give_up_at=asyncio.get_running_loop().time() + budget)
        await self.task


async def test_thousands_of_results_are_saved_in_as_few_statements_as_batches_allow(
    schema: str, jobs: Jobs, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving = Saving(store, schema)
    saving.submit([end(job_id) for job_id in many_running(jobs, 2_500)])
    sizes: list[int] = []
    persist = saving.completer._persist

    async def counted(batch: Sequence[Transition]) -> None:
        sizes.append(len(batch))
        await persist(batch)

    monkeypatch.setattr(saving.completer, "_persist", counted)
    saving.start()
    await saving.finish()
    assert sizes == [1_000, 1_000, 500]
    assert jobs.states() == {"completed": 2_500}


async def test_a_held_row_stops_nobody_and_is_saved_when_it_is_free(
    database_url: str, schema: str, jobs: Jobs, store: Store
) -> None:
    held, other, failed = running(jobs), running(jobs), running(jobs)
    saving = Saving(store, schema)
    with psycopg.connect(database_url) as host:
        host.execute(f'SELECT FROM "{schema}".river_job WHERE id IN ({held}, {failed}) FOR UPDATE'.encode())
        saving.start()
        saving.submit([end(held), end(failed, "discarded", error=ERROR), end(other)])
        await jobs.until(other, "completed")
        later = running(jobs)
        saving.submit([end(later)])
        await jobs.until(later, "completed")
        assert [jobs.row(job_id)["state"] for job_id in (held, failed)] == ["running", "running"]
        host.rollback()
    await jobs.until(held, "completed")
    await jobs.until(failed, "discarded")
    await saving.finish()


async def test_a_held_row_is_asked_for_again_however_much_else_there_is_to_save(
    database_url: str, schema: str, jobs: Jobs, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, over = running(jobs), running(jobs, state="available")
    saving = Saving(store, schema)
    persist = saving.completer._persist
    batches = 0

    async def never_idle(batch: Sequence[Transition]) -> None:
        nonlocal batches
        batches += 1
        saving.submit([end(over)])
        await persist(batch)

    monkeypatch.setattr(saving.completer, "_persist", never_idle)
    with psycopg.connect(database_url) as host:
        host.execute(f'SELECT FROM "{schema}".river_job WHERE id = {held} FOR UPDATE'.encode())
        saving.submit([end(held)])
        saving.start()
        await eventually(lambda: batches > 20, "there is always something to save")
        host.rollback()
    await jobs.until(held, "completed")
    monkeypatch.undo()
    await saving.finish()


async def test_a_held_row_is_given_up_when_the_budget_is_spent(
    database_url: str, schema: str, jobs: Jobs, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    held = running(jobs)
    saving = Saving(store, schema)
    with psycopg.connect(database_url) as host:
        host.execute(f'SELECT FROM "{schema}".river_job WHERE id = {held} FOR UPDATE'.encode())
        saving.start()
        saving.submit([end(held)])
        await saving.finish(budget=0.2)
    assert [vars(record)["job_ids"] for record in caplog.records if record.levelno == logging.ERROR] == [[held]]
    assert jobs.row(held)["state"] == "running"


POISON = {
    "a delay without end": {"state": "retryable", "delay_seconds": 1e30},
    "a text with a zero byte": {"state": "discarded", "error": {**ERROR, "error": "a\x00b"}},
    "an attempt out of range": {"state": "retryable", "attempt": 40_000, "delay_seconds": 1.0},
    "metadata that is no object": {"state": "completed", "metadata": {"x": float("nan")}},
}


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
async def test_one_result_that_the_database_refuses_does_not_stop_the_others(
    schema: str, jobs: Jobs, store: Store, poison: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    ids = many_running(jobs, 50)
    saving = Saving(store, schema)
    saving.submit(
        [
            end(job_id, **poison) if job_id == ids[20] else end(job_id, "discarded" if n % 2 else "completed")
            for n, job_id in enumerate(ids)
        ]
    )
    saving.start()
    await saving.finish()
    assert jobs.states() == {"completed": 24, "discarded": 25, "running": 1}
    assert jobs.row(ids[20])["state"] == "running"
    refused = [record for record in caplog.records if record.message.startswith("a job's result cannot be saved")]
    assert [vars(record)["job_id"] for record in refused] == [ids[20]]


async def test_a_result_that_clashes_with_a_unique_job_does_not_stop_the_others(
    schema: str, jobs: Jobs, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Another implementation's unique job, which blocks others in these states only: 7 is available, 1 is running.
    key = {"unique_key": b"k" * 32, "unique_states": "00000001"}
    clashing = running(jobs, **key)
    jobs.add(**key)
    others = [running(jobs) for _ in range(5)]
    saving = Saving(store, schema)
    saving.start()
    saving.submit([end(clashing, "available", delay_seconds=0.0, error=ERROR)])
    saving.submit([end(job_id, "discarded", error=ERROR) for job_id in others])
    await eventually(lambda: jobs.states()["discarded"] == 5, "the others are saved", seconds=10)
    await saving.finish(budget=1.0)
    assert jobs.row(clashing)["state"] == "running"
    assert str(clashing) in str([vars(record).get("job_id") for record in caplog.records])


async def test_congestion_ends_when_results_are_saved_and_says_so_once(
    schema: str, jobs: Jobs, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completer, "CONGESTED_AT", 30)
    monkeypatch.setattr(completer, "BATCH", 10)
    ids = many_running(jobs, 45)
    saving = Saving(store, schema)
    saving.submit([end(job_id) for job_id in ids[:29]])
    assert not saving.completer.congested
    saving.submit([end(job_id) for job_id in ids[29:]])
    assert saving.completer.congested
    saving.start()
    await saving.finish()
    assert not saving.completer.congested
    assert saving.relieved == 1
    assert jobs.states() == {"completed": 45}


class _Unsaved:
    """A database that takes claims and no results, until it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        persist = Completer._persist

        async def refuse(this: Completer, batch: Sequence[Transition]) -> None:
            if not self.open.is_set():
                raise DatabaseError("away", error_class=ErrorClass.CONNECTION_LOST)
            await persist(this, batch)

        monkeypatch.setattr(Completer, "_persist", refuse)


@pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)
async def test_nothing_new_is_claimed_while_too_many_results_wait_to_be_saved(
    database_url: str, schema: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completer, "CONGESTED_AT", 6)
    monkeypatch.setattr(completer, "backoff_seconds", lambda failures: 0.01)
    unsaved = _Unsaved(monkeypatch)
    claimed: list[int] = []

    class Claims(Hook):
        def work_claimed(self, job: JobRow) -> None:
            claimed.append(job.id)

    workers = workers_of("async def", lambda job, ctx: None)
    async with made(way, database_url, schema, workers=workers, queues={"default": 2}, hooks=[Claims()]) as bench:
        bench.jobs.add_many(20)
        await bench.start()
        await eventually(lambda: len(claimed) >= 6, "six jobs are worked")
        # Several poll intervals' worth of notifications, none of which may lead to a claim.
        for _ in range(20):
            await bench.insert(Note())
        assert len(claimed) <= 7
        assert bench.jobs.states() == {"running": len(claimed), "available": 40 - len(claimed)}
        unsaved.open.set()
        await bench.jobs.until_all("completed")
    assert len(claimed) == len(set(claimed)) == 40


async def test_a_result_outlives_a_failover_during_which_the_server_is_read_only(
    database_url: str, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ConnectionPool(database_url, min_size=1, max_size=1) as pool, jobs_of(database_url, schema) as jobs:

        def switch(setting: str) -> None:
            with pool.connection() as connection:
                connection.execute(f"SET default_transaction_read_only = {setting}".encode())

        workers = workers_of("def", lambda _job, _ctx: switch("on"))
        client = Client(pool, schema=schema, workers=workers, queues={"default": 1}, poll_only=True)
        job_id = client.insert(Note()).job.id
        await call(client.start)
        try:
            await eventually(lambda: "job results could not be saved yet" in caplog.text, "the server has refused it")
            assert jobs.row(job_id)["state"] == "running"
            await asyncio.to_thread(switch, "off")
            assert (await jobs.until(job_id, "completed"))["attempt"] == 1
        finally:
            await asyncio.to_thread(switch, "off")
            await call(client.stop, timeout=30)
