"""Unique jobs on a real PostgreSQL: one row per key, whoever competes for it, and however that ends."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

import river
from river import Client, InsertOpts, InvalidJobError, JobArgs, JobState
from river.operation import run
from river.operations import maintain
from river.sql.postgres import Postgres
from river.unique import UniqueOpts
from river_psycopg.blocking import OwnedExecutor
from tests.support.clients import ASYNCIO, BLOCKING, Jobs, Note, Row, Way, call, eventually, jobs_of, made

BY_ARGS = UniqueOpts(by_args=True)
both_colours = pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)


@dataclass
class Sync:
    """One at a time for each customer."""

    kind: ClassVar[str] = "sync"
    insert_opts: ClassVar[InsertOpts] = InsertOpts(unique=BY_ARGS)
    customer_id: Annotated[int, river.Unique]
    reason: str = ""


@pytest.fixture
def jobs(database_url: str, schema: str) -> Iterator[Jobs]:
    with jobs_of(database_url, schema) as jobs:
        yield jobs


@pytest.fixture
def connection(database_url: str, schema: str) -> Iterator[psycopg.Connection[Row]]:
    """Closed before *schema* is dropped, for which its locks would be in the way."""
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def client(schema: str) -> Client:
    return Client(None, schema=schema)


# What an insert answers.


@both_colours
async def test_the_second_insert_gives_back_the_first_job_as_it_is(way: Way, database_url: str, schema: str) -> None:
    async with made(way, database_url, schema, queues={}) as bench:
        first = await call(bench.client.insert, Sync(1, "first"), metadata={"a": 1}, priority=2)
        before = bench.jobs.row(first.job.id)
        second = await call(bench.client.insert, Sync(1, "second"), metadata={"b": 2}, priority=3)
        other = await call(bench.client.insert, Sync(2, "other"))
        assert (first.duplicate, second.duplicate, other.duplicate) == (False, True, False)
        assert (second.job.id, second.job.args, second.job.metadata) == (first.job.id, Sync(1, "first"), {"a": 1})
        assert bench.jobs.row(first.job.id) == before
        assert [row["id"] for row in bench.jobs.rows()] == [first.job.id, other.job.id]


def test_a_batch_may_mix_new_jobs_and_those_that_are_there_already(
    client: Client, connection: psycopg.Connection
) -> None:
    there = client.insert_tx(connection, Sync(1)).job
    batch: list[Any] = [Sync(2), Note("not unique"), Sync(1, "again"), Note("not unique"), Sync(3)]
    results = client.insert_many_tx(connection, batch)
    assert [result.duplicate for result in results] == [False, False, True, False, False]
    assert [result.job.kind for result in results] == ["sync", "note", "sync", "note", "sync"]
    assert [result.job.args for result in results] == [Sync(2), batch[1], Sync(1, ""), batch[3], Sync(3)]
    assert results[2].job.id == there.id
    new = [result.job.id for result in results if not result.duplicate]
    assert new == sorted(new)


def test_a_thousand_jobs_that_are_there_already_come_back_in_the_order_of_the_batch(
    client: Client, connection: psycopg.Connection
) -> None:
    ids = {number: client.insert_tx(connection, Sync(number)).job.id for number in reversed(range(0, 1000, 7))}
    results = client.insert_many_tx(connection, [Sync(number) for number in range(1000)])
    assert [result.job.args.customer_id for result in results] == list(range(1000))
    assert {number: result.job.id for number, result in enumerate(results) if result.duplicate} == ids


def test_a_fast_insert_leaves_out_what_is_there_already(
    client: Client, connection: psycopg.Connection[Row], jobs: Jobs
) -> None:
    client.insert_tx(connection, Sync(1, "first"))
    assert client.insert_many_fast_tx(connection, [Sync(1, "second"), Sync(2), Note("a"), Note("a")]) == 3
    connection.commit()
    assert [row["args"] for row in jobs.rows()] == [
        {"customer_id": 1, "reason": "first"},
        {"customer_id": 2, "reason": ""},
        {"text": "a"},
        {"text": "a"},
    ]


def test_a_job_of_another_kind_with_the_same_key_keeps_its_kind(
    client: Client, connection: psycopg.Connection[Row]
) -> None:
    unique = UniqueOpts(by_args=True, exclude_kind=True)
    first = client.insert_tx(connection, JobArgs("one", {"n": 1}), unique=unique).job
    second = client.insert_tx(connection, JobArgs("two", {"n": 1}), unique=unique)
    assert (second.duplicate, second.job.id, second.job.kind) == (True, first.id, "one")
    assert client.job_get_tx(connection, first.id).kind == "one"


def test_args_that_the_class_cannot_read_come_back_as_plain_json(
    client: Client, connection: psycopg.Connection[Row], jobs: Jobs
) -> None:
    job_id = client.insert_tx(connection, Sync(1)).job.id
    connection.commit()
    jobs.execute("""UPDATE {job} SET args = '{{"customer_id": "of another version"}}'""")
    result = client.insert_tx(connection, Sync(1))
    args: object = result.job.args
    assert (result.job.id, args) == (job_id, {"customer_id": "of another version"})


def test_the_row_holds_key_and_states_as_river_does(
    client: Client, connection: psycopg.Connection[Row], jobs: Jobs
) -> None:
    plain = client.insert_tx(connection, Note("a")).job
    every = list(JobState)
    default = client.insert_tx(connection, JobArgs("worker_1", {}), unique=BY_ARGS).job
    wide = client.insert_tx(connection, Note("b"), unique=UniqueOpts(by_args=True, by_state=every)).job
    connection.commit()
    assert (jobs.row(plain.id)["unique_key"], jobs.row(plain.id)["unique_states"]) == (None, None)
    row = jobs.row(default.id)
    # SHA-256 of "&kind=worker_1&args={}", as River's own tests have it.
    assert row["unique_key"].hex() == "8a7ac299a41c27cd6f9fd578368f1330752168a7bf53761a5baba22ec7ab226a"
    assert default.unique_key == row["unique_key"]
    assert row["unique_states"] == "11110101"
    assert jobs.row(wide.id)["unique_states"] == "11111111"


def test_a_job_that_is_there_already_and_odd_does_not_make_the_insert_of_others_fail(
    client: Client, connection: psycopg.Connection[Row], jobs: Jobs, database_url: str, schema: str
) -> None:
    job_id = client.insert_tx(connection, Sync(1)).job.id
    connection.commit()
    jobs.execute("UPDATE {job} SET metadata = '[]', scheduled_at = 'infinity'")
    with ConnectionPool(database_url, min_size=1) as pool:
        results = Client(pool, schema=schema).insert_many([Sync(0), Sync(1), Sync(2)])
    assert [result.duplicate for result in results] == [False, True, False]
    assert (results[1].job.id, results[1].job.metadata) == (job_id, {})


# When a job blocks others.


@pytest.mark.parametrize(
    ("state", "blocks"),
    [
        ("available", True),
        ("pending", True),
        ("retryable", True),
        ("running", True),
        ("scheduled", True),
        ("completed", True),
        ("cancelled", False),
        ("discarded", False),
    ],
)
def test_by_default_a_job_blocks_others_unless_it_was_given_up(
    state: str, blocks: bool, client: Client, connection: psycopg.Connection[Row], jobs: Jobs
) -> None:
    client.insert_tx(connection, Sync(1))
    connection.commit()
    final = state in ("completed", "cancelled", "discarded")
    jobs.execute(
        "UPDATE {job} SET state = CAST(%s AS text)::{schema}.river_job_state", state
    ) if not final else jobs.execute(
        "UPDATE {job} SET state = CAST(%s AS text)::{schema}.river_job_state, finalized_at = now()", state
    )
    assert client.insert_tx(connection, Sync(1)).duplicate is blocks


def test_without_completed_among_its_states_a_completed_job_blocks_nobody(
    client: Client, connection: psycopg.Connection[Row], jobs: Jobs
) -> None:
    states = [JobState.AVAILABLE, JobState.PENDING, JobState.RUNNING, JobState.SCHEDULED, JobState.RETRYABLE]
    unique = UniqueOpts(by_args=True, by_state=states)
    first = client.insert_tx(connection, Sync(1), unique=unique).job
    connection.commit()
    jobs.execute("UPDATE {job} SET state = 'completed', finalized_at = now()")
    again = client.insert_tx(connection, Sync(1), unique=unique)
    assert (again.duplicate, again.job.id != first.id) == (False, True)


def test_a_period_is_that_of_the_time_at_which_the_job_is_due(
    client: Client, connection: psycopg.Connection[Row]
) -> None:
    unique = UniqueOpts(by_period=timedelta(hours=1))
    noon = datetime(2040, 1, 2, 12, tzinfo=UTC)

    def duplicate(at: datetime) -> bool:
        return client.insert_tx(connection, Sync(1), scheduled_at=at, unique=unique).duplicate

    assert duplicate(noon) is False
    assert duplicate(noon + timedelta(minutes=59, seconds=59)) is True
    assert duplicate(noon + timedelta(hours=1)) is False
    assert client.insert_tx(connection, Sync(1), unique=unique).duplicate is False
    assert client.insert_tx(connection, Sync(1), delay=timedelta(days=1), unique=unique).duplicate is False


def test_options_that_ask_for_nothing_leave_the_class_its_own(
    client: Client, connection: psycopg.Connection[Row]
) -> None:
    client.insert_tx(connection, Sync(1))
    assert client.insert_tx(connection, Sync(1), unique=UniqueOpts()).duplicate is True
    assert client.insert_tx(connection, Sync(1), unique=UniqueOpts(by_queue=True)).duplicate is False


# Twice in one batch.


@both_colours
@pytest.mark.parametrize("method", ["insert_many", "insert_many_fast"])
async def test_the_same_key_twice_in_a_batch_is_refused_before_anything_is_written(
    way: Way, method: str, database_url: str, schema: str
) -> None:
    batch = [Note("a"), Sync(7, "one"), Sync(8), Sync(7, "two")]
    async with made(way, database_url, schema, queues={}) as bench:
        with pytest.raises(InvalidJobError, match=r"jobs 1 and 3 of the batch .* kind 'sync'.* same unique key"):
            await call(getattr(bench.client, method), batch)
        assert bench.jobs.rows() == []


def test_in_the_hosts_transaction_the_same_key_twice_is_refused_before_the_first_statement(
    client: Client, connection: psycopg.Connection
) -> None:
    for method in (client.insert_many_tx, client.insert_many_fast_tx):
        with pytest.raises(InvalidJobError, match="jobs 0 and 1 of the batch"):
            method(connection, [Sync(7), Sync(7)])
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


# Competitors.


def insert_all(url: str, schema: str, rounds: int, keys: int) -> list[int]:
    """In a process of its own: insert every key again and again, and say which this process was the first to insert."""
    mine: list[int] = []
    with psycopg.connect(url, autocommit=True) as connection:
        client = Client(None, schema=schema)
        for _ in range(rounds):
            for key in range(keys):
                with connection.transaction():
                    result = client.insert_tx(connection, Sync(key))
                if not result.duplicate:
                    mine.append(key)
            with connection.transaction():
                results = client.insert_many_tx(connection, [Sync(key) for key in range(keys, 2 * keys)])
            mine += [result.job.args.customer_id for result in results if not result.duplicate]
    return mine


def test_of_competing_processes_exactly_one_inserts_each_key(database_url: str, schema: str, jobs: Jobs) -> None:
    processes, keys = 4, 50
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(insert_all, database_url, schema, 3, keys) for _ in range(processes)]
        won = Counter(key for future in futures for key in future.result(timeout=120))
    assert won == Counter(range(2 * keys))
    assert sorted(row["args"]["customer_id"] for row in jobs.rows()) == list(range(2 * keys))


def competing(client: Client, url: str, args: Sync) -> tuple[int, Future[river.InsertResult[Sync]]]:
    """An insert in another session, which is committed when it returns; the session's process id, and its result."""
    connection = psycopg.connect(url)

    def insert() -> river.InsertResult[Sync]:
        with connection:
            return client.insert_tx(connection, args)

    pool = ThreadPoolExecutor(1)
    future = pool.submit(insert)
    pool.shutdown(wait=False)
    return connection.info.backend_pid, future


async def until_it_waits(jobs: Jobs, pid: int) -> None:
    text = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    await eventually(lambda: jobs.execute(text, pid), f"session {pid} waits for a lock")


async def test_a_competitor_that_is_rolled_back_leaves_exactly_one_job(
    client: Client, connection: psycopg.Connection[Row], jobs: Jobs, database_url: str
) -> None:
    withdrawn = client.insert_tx(connection, Sync(1, "withdrawn")).job
    pid, future = competing(client, database_url, Sync(1, "waits"))
    await until_it_waits(jobs, pid)
    connection.rollback()
    result = future.result(timeout=30)
    assert (result.duplicate, result.job.args.reason) == (False, "waits")
    assert [row["id"] for row in jobs.rows()] == [result.job.id] != [withdrawn.id]


async def test_a_competitor_that_commits_is_what_the_other_gets(
    client: Client, connection: psycopg.Connection[Row], jobs: Jobs, database_url: str
) -> None:
    first = client.insert_tx(connection, Sync(1, "first")).job
    pid, future = competing(client, database_url, Sync(1, "waits"))
    await until_it_waits(jobs, pid)
    connection.commit()
    result = future.result(timeout=30)
    assert (result.duplicate, result.job.id, result.job.args.reason) == (True, first.id, "first")
    assert len(jobs.rows()) == 1


async def test_a_job_that_gives_its_key_up_while_another_waits_for_it_lets_that_one_in(
    client: Client, connection: psycopg.Connection[Row], jobs: Jobs, database_url: str
) -> None:
    first = client.insert_tx(connection, Sync(1, "first")).job
    connection.commit()
    ours = Jobs(connection, jobs.schema)
    ours.execute("UPDATE {job} SET state = 'cancelled', finalized_at = now() WHERE id = %s", first.id)
    pid, future = competing(client, database_url, Sync(1, "waits"))
    await until_it_waits(jobs, pid)
    connection.commit()
    result = future.result(timeout=30)
    assert (result.duplicate, result.job.args.reason) == (False, "waits")
    assert jobs.states() == {"cancelled": 1, "available": 1}


async def test_an_insert_waits_for_a_completion_that_is_not_committed_yet(
    client: Client, connection: psycopg.Connection[Row], jobs: Jobs, database_url: str
) -> None:
    first = client.insert_tx(connection, Sync(1)).job
    connection.commit()
    ours = Jobs(connection, jobs.schema)
    ours.execute("UPDATE {job} SET state = 'completed', finalized_at = now() WHERE id = %s", first.id)
    pid, future = competing(client, database_url, Sync(1))
    await until_it_waits(jobs, pid)
    connection.commit()
    assert future.result(timeout=30).duplicate is True


# When jobs with a key fall due.


@pytest.fixture
def executor(database_url: str, schema: str) -> Iterator[OwnedExecutor]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield OwnedExecutor(connection)


WITHOUT_RETRYABLE = "11010101"


def due(jobs: Jobs, key: bytes, state: str = "retryable", **columns: object) -> int:
    """A job with a key that is due; by default it has given its key up while it waits."""
    return jobs.add(
        state=state,
        unique_key=key,
        unique_states=columns.pop("unique_states", WITHOUT_RETRYABLE),
        scheduled_at=columns.pop("scheduled_at", datetime(2026, 1, 1, tzinfo=UTC)),
        **columns,
    )


def schedule(executor: OwnedExecutor, schema: str) -> list[int]:
    """Make what is due available; the ids of what was discarded."""
    dialect = Postgres(schema)
    job_ids = run(executor, maintain.due_unique(dialect, horizon=timedelta(seconds=5), limit=100))
    return run(executor, maintain.schedule_unique(dialect, job_ids))


def test_a_job_whose_key_nobody_else_has_becomes_available(executor: OwnedExecutor, jobs: Jobs) -> None:
    job_id = due(jobs, b"k")
    assert schedule(executor, jobs.schema) == []
    row = jobs.row(job_id)
    assert (row["state"], row["finalized_at"], row["metadata"]) == ("available", None, {})


@pytest.mark.parametrize("state", ["available", "running", "scheduled", "pending"])
def test_a_job_whose_key_another_has_by_now_is_discarded_and_says_why(
    state: str, executor: OwnedExecutor, jobs: Jobs
) -> None:
    job_id = due(jobs, b"k", metadata=json.dumps({"mine": 1}))
    holder = due(jobs, b"k", state, scheduled_at=datetime(2040, 1, 1, tzinfo=UTC))
    before = jobs.row(holder)
    assert schedule(executor, jobs.schema) == [job_id]
    row = jobs.row(job_id)
    assert row["state"] == "discarded"
    assert row["finalized_at"] is not None
    assert row["metadata"] == {"mine": 1, "unique_key_conflict": "scheduler_discarded"}
    assert jobs.row(holder) == before


def test_another_that_has_given_its_key_up_is_no_conflict(executor: OwnedExecutor, jobs: Jobs) -> None:
    job_id = due(jobs, b"k")
    due(jobs, b"k", "discarded", finalized_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert schedule(executor, jobs.schema) == []
    assert jobs.row(job_id)["state"] == "available"


def test_of_two_that_fall_due_with_one_key_the_first_becomes_available(executor: OwnedExecutor, jobs: Jobs) -> None:
    late = due(jobs, b"k", scheduled_at=datetime(2026, 1, 2, tzinfo=UTC))
    early = due(jobs, b"k", scheduled_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert schedule(executor, jobs.schema) == [late]
    assert (jobs.row(early)["state"], jobs.row(late)["state"]) == ("available", "discarded")


def test_the_one_that_holds_the_key_while_it_waits_keeps_it(executor: OwnedExecutor, jobs: Jobs) -> None:
    first = due(jobs, b"k", scheduled_at=datetime(2026, 1, 1, tzinfo=UTC), priority=1)
    holder = due(jobs, b"k", unique_states="11110101", scheduled_at=datetime(2026, 1, 3, tzinfo=UTC), priority=4)
    assert schedule(executor, jobs.schema) == [first]
    assert (jobs.row(holder)["state"], jobs.row(first)["state"]) == ("available", "discarded")


def test_a_job_that_would_hold_its_key_as_a_discarded_one_is_discarded_all_the_same(
    executor: OwnedExecutor, jobs: Jobs
) -> None:
    holder = due(jobs, b"k", "available", unique_states="11011101")
    job_id = due(jobs, b"k", unique_states="11011101")
    assert schedule(executor, jobs.schema) == [job_id]
    assert (jobs.row(holder)["state"], jobs.row(job_id)["state"]) == ("available", "discarded")


async def test_a_key_in_somebodys_open_transaction_holds_up_no_other_job(
    executor: OwnedExecutor, jobs: Jobs, connection: psycopg.Connection[Row], database_url: str, schema: str
) -> None:
    held, free = due(jobs, b"held"), due(jobs, b"free")
    Jobs(connection, schema).add(unique_key=b"held", unique_states="11110101")
    async with made(ASYNCIO, database_url, schema, workers=idle(), queues={"another": 1}) as bench:
        await bench.start()
        await jobs.until(free, "available")
        assert jobs.row(held)["state"] == "retryable"
        connection.rollback()
        await jobs.until(held, "available")


def idle() -> river.Workers:
    workers = river.Workers()

    @workers.work
    async def work(job: river.Job[Note], ctx: river.WorkContext) -> None: ...

    return workers


def test_two_schedulers_at_once_leave_one_job_per_key(database_url: str, schema: str, jobs: Jobs) -> None:
    ids = [due(jobs, str(number % 100).encode()) for number in range(300)]
    barrier = threading.Barrier(2)

    def scheduling() -> None:
        with psycopg.connect(database_url, autocommit=True) as connection:
            barrier.wait(30)
            for _ in range(20):
                try:
                    schedule(OwnedExecutor(connection), schema)
                except river.DatabaseError as error:
                    if error.error_class not in (river.ErrorClass.UNIQUE_VIOLATION, river.ErrorClass.TRANSIENT):
                        raise

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(scheduling) for _ in range(2)]:
            future.result(timeout=60)
    assert jobs.states() == {"available": 100, "discarded": 200}
    keys = Counter(bytes(row["unique_key"]) for row in jobs.rows() if row["state"] == "available")
    assert (set(keys.values()), len(ids)) == ({1}, 300)
