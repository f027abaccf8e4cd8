"""Claims: each due job goes to one client, in order, and to nobody before its time."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from river import Job, JobRow, JobState, WorkContext
from river.engine.pacing import LIMITS
from river.job import UndecodableJob
from river.operation import run
from river.operations import maintain, work
from river.sql.postgres import Postgres
from river_psycopg import PsycopgDriver
from tests.support.clients import ASYNCIO, BLOCKING, NATURAL_WAYS, Jobs, Note, Way, jobs_of, workers_of, working


@pytest.fixture
def jobs(database_url: str, schema: str) -> Iterator[Jobs]:
    with jobs_of(database_url, schema) as jobs:
        yield jobs


@pytest.fixture
def driver(database_url: str) -> Iterator[PsycopgDriver]:
    driver = PsycopgDriver.connect(database_url)
    yield driver
    driver.close()


def claim(driver: PsycopgDriver, jobs: Jobs, limit: int = 10, client_id: str = "me") -> list[JobRow]:
    with driver.autocommit() as executor:
        claimed = run(executor, work.claim(Postgres(jobs.schema), "default", client_id=client_id, limit=limit))
    assert not [job for job in claimed if isinstance(job, UndecodableJob)]
    return [job for job in claimed if isinstance(job, JobRow)]


@pytest.mark.parametrize(
    "ways", [(BLOCKING, ASYNCIO), (ASYNCIO, ASYNCIO), (Way("Client", "Engine-psycopg2"), Way("AsyncClient", "url"))]
)
async def test_several_clients_work_thousands_of_jobs_once_each(
    database_url: str, schema: str, ways: tuple[Way, Way]
) -> None:
    count = 3_000
    lock = threading.Lock()
    worked: Counter[int] = Counter()

    def body(job: Job[Note], ctx: WorkContext) -> None:
        with lock:
            worked[job.id] += 1

    async with AsyncExitStack() as stack:
        for n, (way, style) in enumerate(zip(ways, ("def", "async def"), strict=True)):
            workers = workers_of("def" if style == "def" else "async def", body)
            bench = await stack.enter_async_context(
                working(way, database_url, schema, workers=workers, queues={"default": 50}, id=f"client-{n}")
            )
        bench.jobs.add_many(count)
        await bench.jobs.until_all("completed")
        by = Counter(row["attempted_by"][0] for row in bench.jobs.rows())
        assert {row["attempt"] for row in bench.jobs.rows()} == {1}
    assert len(worked) == count
    assert set(worked.values()) == {1}
    assert set(by) == {"client-0", "client-1"}


def test_two_claims_at_once_share_no_row_and_do_not_wait_for_each_other(
    database_url: str, driver: PsycopgDriver, jobs: Jobs
) -> None:
    jobs.add_many(20)
    first = work.claim(Postgres(jobs.schema), "default", client_id="other", limit=5)
    with driver.transaction() as executor:
        held = {job.id for job in run(executor, first) if isinstance(job, JobRow)}
        other = {job.id for job in claim(driver, jobs, 10)}
    assert (len(held), len(other), held & other) == (5, 10, set())
    assert jobs.states() == {"running": 15, "available": 5}


def test_a_claim_marks_the_row_and_returns_it_as_it_is_now(driver: PsycopgDriver, jobs: Jobs) -> None:
    job_id = jobs.add(attempt=2, attempted_by=["a", "b"], metadata='{"x": 1}', tags=["tag"])
    (job,) = claim(driver, jobs)
    row = jobs.row(job_id)
    assert (row["state"], row["attempt"], row["attempted_by"]) == ("running", 3, ["a", "b", "me"])
    assert (job.state, job.attempt, job.attempted_by) == ("running", 3, ["a", "b", "me"])
    assert job.attempted_at == row["attempted_at"]
    assert (job.metadata, job.tags) == ({"x": 1}, ["tag"])


def test_jobs_come_by_priority_then_time_then_id(driver: PsycopgDriver, jobs: Jobs) -> None:
    now = datetime.now(UTC)
    wanted = [
        jobs.add(priority=priority, scheduled_at=now - timedelta(minutes=minutes))
        for priority, minutes in [(4, 90), (1, 1), (1, 5), (2, 7), (1, 5)]
    ]
    assert [job.id for job in claim(driver, jobs)] == [wanted[n] for n in (2, 4, 1, 3, 0)]


@pytest.mark.parametrize("limit", LIMITS)
def test_a_claim_takes_the_first_rows_and_no_more_than_its_limit(driver: PsycopgDriver, jobs: Jobs, limit: int) -> None:
    jobs.add_many(limit + 3)
    first = [row["id"] for row in jobs.rows()][:limit]
    assert [job.id for job in claim(driver, jobs, limit)] == first
    assert jobs.states() == {"running": limit, "available": 3}


@pytest.mark.parametrize(
    "state", ["cancelled", "completed", "discarded", "pending", "retryable", "running", "scheduled"]
)
def test_only_available_jobs_are_claimed(driver: PsycopgDriver, jobs: Jobs, state: str) -> None:
    finalized = datetime.now(UTC) if JobState(state).finalized else None
    job_id = jobs.add(state=state, finalized_at=finalized)
    before = jobs.row(job_id)
    assert claim(driver, jobs) == []
    assert jobs.row(job_id) == before


def test_a_job_is_never_claimed_before_its_time(driver: PsycopgDriver, jobs: Jobs) -> None:
    early = jobs.add(scheduled_at=datetime.now(UTC) + timedelta(hours=1))
    due = jobs.add(scheduled_at=datetime.now(UTC) - timedelta(hours=1))
    assert [job.id for job in claim(driver, jobs)] == [due]
    assert jobs.row(early)["state"] == "available"


def test_scheduling_makes_jobs_available_within_the_horizon_and_leaves_their_time(
    driver: PsycopgDriver, jobs: Jobs
) -> None:
    now = datetime.now(UTC)
    at = {seconds: now + timedelta(seconds=seconds) for seconds in (-60, 60, 6_000)}
    ids = {
        (state, seconds): jobs.add(state=state, scheduled_at=due)
        for state in ("scheduled", "retryable", "pending")
        for seconds, due in at.items()
    }
    with driver.autocommit() as executor:
        operation = maintain.schedule(Postgres(jobs.schema), horizon=timedelta(minutes=5), limit=100)
        assert run(executor, operation) == 4
    for (state, seconds), job_id in ids.items():
        row = jobs.row(job_id)
        moved = state != "pending" and seconds < 300
        assert (row["state"], row["scheduled_at"]) == ("available" if moved else state, at[seconds])


def test_the_last_hundred_clients_are_remembered(driver: PsycopgDriver, jobs: Jobs) -> None:
    job_id = jobs.add(attempted_by=[f"client-{n}" for n in range(98)])
    for n in range(98, 103):
        jobs.execute("UPDATE {job} SET state = 'available'")
        assert len(claim(driver, jobs, client_id=f"client-{n}")) == 1
        first = max(n - 99, 0)
        assert jobs.row(job_id)["attempted_by"] == [f"client-{each}" for each in range(first, n + 1)]


def test_a_longer_list_of_clients_is_cut_to_the_last_hundred(driver: PsycopgDriver, jobs: Jobs) -> None:
    job_id = jobs.add(attempted_by=[f"client-{n}" for n in range(250)])
    claim(driver, jobs)
    assert jobs.row(job_id)["attempted_by"] == [*(f"client-{n}" for n in range(151, 250)), "me"]


@pytest.mark.parametrize("way", NATURAL_WAYS, ids=str)
async def test_a_client_of_any_driver_drains_a_queue_in_full_batches(database_url: str, schema: str, way: Way) -> None:
    worked: list[int] = []

    def body(job: Job[Note], ctx: WorkContext) -> None:
        worked.append(job.id)

    workers = workers_of("async def", body)
    async with working(way, database_url, schema, workers=workers, queues={"default": 150}) as bench:
        bench.jobs.add_many(400)
        await bench.jobs.until_all("completed")
        await asyncio.sleep(0)
        assert sorted(worked) == [row["id"] for row in bench.jobs.rows()]
