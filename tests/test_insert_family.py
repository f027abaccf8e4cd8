"""Everything that inserts, on a real PostgreSQL: how many, how late, how parked, and who is told."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import psycopg
import pytest
import sqlalchemy as sa
import time_machine
from psycopg import sql

import river
from river import AsyncClient, Client, InsertManyParams, InsertOpts, InvalidJobError, JobArgs, JobState
from river.engine.limiter import NotifyLimiter
from river.insert import InsertParams
from river.operations import insert
from tests.support.clients import ASYNCIO, BLOCKING, NATURAL_WAYS, Bench, Note, Way, call, jobs_of, made, working
from tests.support.urls import with_driver

every_natural_way = pytest.mark.parametrize("way", NATURAL_WAYS, ids=str)
both_colours = pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)


def inserting(way: Way, url: str, schema: str, **options: Any) -> AbstractAsyncContextManager[Bench]:
    """A client that only inserts."""
    return made(way, url, schema, queues={}, **options)


def notes(count: int) -> list[Note]:
    return [Note(str(number)) for number in range(count)]


# Many.


@every_natural_way
async def test_ten_thousand_jobs_in_one_call_come_back_in_their_order(way: Way, database_url: str, schema: str) -> None:
    async with inserting(way, database_url, schema) as bench:
        results = await call(bench.client.insert_many, notes(10_000))
        assert [result.job.args.text for result in results] == [str(number) for number in range(10_000)]
        rows = bench.jobs.execute("SELECT id, args->>'text' AS text FROM {job} ORDER BY id")
        assert [row["id"] for row in rows] == [result.job.id for result in results]
        assert [row["text"] for row in rows] == [str(number) for number in range(10_000)]


@every_natural_way
async def test_ten_thousand_jobs_are_inserted_fast_and_counted(way: Way, database_url: str, schema: str) -> None:
    async with inserting(way, database_url, schema) as bench:
        assert await call(bench.client.insert_many_fast, notes(10_000)) == 10_000
        assert bench.jobs.states() == {"available": 10_000}


@both_colours
@pytest.mark.parametrize("method", ["insert_many", "insert_many_fast"])
async def test_more_jobs_than_one_statement_takes_are_inserted_all_or_none(
    way: Way, method: str, database_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert, "ROWS", 50)
    async with inserting(way, database_url, schema) as bench:
        bench.jobs.execute("ALTER TABLE {job} ADD CONSTRAINT no_bad_queue CHECK (queue <> 'bad')")
        batch: list[Any] = [*notes(2 * insert.ROWS), InsertManyParams(Note("bad"), InsertOpts(queue="bad"))]
        with pytest.raises(river.DatabaseError, match="no_bad_queue"):
            await call(getattr(bench.client, method), batch)
        assert bench.jobs.states() == {}
        await call(getattr(bench.client, method), batch[:-1])
        assert bench.jobs.states() == {"available": 2 * insert.ROWS}


def params_of(text: str) -> InsertParams:
    return InsertParams(
        args=JobArgs("note", {}), kind="note", encoded_args=text, queue="default", priority=1, max_attempts=1
    )


@pytest.mark.parametrize(
    ("sizes", "lengths"),
    [
        ([1], [1]),
        ([insert.TEXT], [1]),
        ([insert.TEXT + 1], [1]),
        ([insert.TEXT, 1], [1, 1]),
        ([1, insert.TEXT], [1, 1]),
        ([1, insert.TEXT - 1, 1], [2, 1]),
        ([insert.TEXT // 2] * 5, [2, 2, 1]),
    ],
)
def test_what_one_statement_takes_is_bounded_by_the_length_of_its_text(sizes: list[int], lengths: list[int]) -> None:
    texts = {size: "x" * size for size in set(sizes)}
    jobs = [params_of(texts[size]) for size in sizes]
    parts = list(insert.chunks(jobs))
    assert [len(part) for part in parts] == lengths
    assert [job for part in parts for job in part] == jobs


def test_metadata_count_as_much_as_args() -> None:
    jobs = [params_of("{}") for _ in range(3)]
    for job in jobs:
        job.metadata = {"text": "x" * (insert.TEXT // 2)}
    assert [len(part) for part in insert.chunks(jobs)] == [1, 1, 1]


@both_colours
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
async def test_a_schedule_at_the_edge_of_the_calendar_is_refused_before_it_is_written(
    way: Way, zone: str, database_url: str, schema: str
) -> None:
    url = f"{database_url}%20-cTimeZone%3D{zone}"
    async with inserting(way, database_url, schema, through=url) as bench:
        for at in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
            with pytest.raises(InvalidJobError, match=r"scheduled_at .* leads outside of the years 1 to 9999"):
                await call(bench.client.insert, Note("a"), scheduled_at=at)
        for at in (datetime(1, 1, 2, 1, tzinfo=UTC), datetime(9999, 12, 30, 23, tzinfo=UTC)):
            assert (await call(bench.client.insert, Note("a"), scheduled_at=at)).job.scheduled_at == at
        assert len(bench.jobs.rows()) == 2


@pytest.mark.parametrize(
    ("count", "lengths"), [(1, [1]), (insert.ROWS, [insert.ROWS]), (insert.ROWS + 1, [insert.ROWS, 1])]
)
def test_what_one_statement_takes_is_bounded_by_the_number_of_jobs(count: int, lengths: list[int]) -> None:
    assert [len(part) for part in insert.chunks([params_of("{}")] * count)] == lengths


@every_natural_way
async def test_a_mebibyte_of_args_comes_back(way: Way, database_url: str, schema: str) -> None:
    text = "é" * (512 * 1024)
    async with inserting(way, database_url, schema) as bench:
        result = await call(bench.client.insert, Note(text))
        found = await bench.get(result.job.id)
        assert bench.client.typed(found).args == {"text": text}


@both_colours
@pytest.mark.parametrize("method", ["insert_many", "insert_many_fast"])
@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([], "no jobs to insert: the batch is empty"),
        (Note("one"), "takes a list of args, not one Note"),
        ([Note("a"), InsertManyParams(Note("b"), InsertOpts(priority=7))], "priority must be a whole number"),
    ],
)
async def test_a_bad_batch_is_refused_as_a_whole(
    way: Way, method: str, batch: object, message: str, database_url: str, schema: str
) -> None:
    async with inserting(way, database_url, schema) as bench:
        with pytest.raises(InvalidJobError, match=message):
            await call(getattr(bench.client, method), batch)
        assert bench.jobs.states() == {}


async def test_a_fast_insert_is_part_of_the_hosts_transaction(database_url: str, schema: str) -> None:
    client = Client(None, schema=schema)
    with jobs_of(database_url, schema) as jobs:
        with psycopg.connect(database_url) as connection:
            assert client.insert_many_fast_tx(connection, notes(3)) == 3
            assert jobs.states() == {}
            connection.commit()
            assert client.insert_many_fast_tx(connection, notes(3)) == 3
            connection.rollback()
        async with await psycopg.AsyncConnection.connect(database_url) as async_connection:
            awaitable = client.insert_many_fast_tx(async_connection, notes(2))
            assert await awaitable == 2
        assert jobs.states() == {"available": 5}


# When they are due.


@dataclass
class Later:
    """Due in an hour, unless the call says something else."""

    kind: ClassVar[str] = "later"
    insert_opts: ClassVar[InsertOpts] = InsertOpts(delay=3600)


@both_colours
async def test_a_delay_counts_from_the_insert_by_the_servers_clock(way: Way, database_url: str, schema: str) -> None:
    async with inserting(way, database_url, schema) as bench:
        with time_machine.travel(datetime(2001, 1, 1, tzinfo=UTC)):
            result = await call(bench.client.insert, Note("a"), delay=timedelta(hours=1))
        assert result.job.state is JobState.SCHEDULED
        delay = result.job.scheduled_at - result.job.created_at
        assert timedelta(hours=1) <= delay < timedelta(hours=1, seconds=30)


def test_a_delay_counts_from_the_insert_and_not_from_the_beginning_of_the_transaction(
    database_url: str, schema: str
) -> None:
    client = Client(None, schema=schema)
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT pg_sleep(0.05)")
        before = instant(connection)
        job = client.insert_tx(connection, Note("a"), delay=60).job
        after = instant(connection)
    assert before <= job.scheduled_at - timedelta(seconds=60) <= after


def instant(connection: psycopg.Connection) -> datetime:
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    at: datetime = row[0]
    return at


@both_colours
async def test_a_job_without_a_schedule_takes_its_times_from_the_server(
    way: Way, database_url: str, schema: str
) -> None:
    async with inserting(way, database_url, schema) as bench:
        with time_machine.travel(datetime(2001, 1, 1, tzinfo=UTC)):
            job = (await call(bench.client.insert, Note("a"))).job
        assert job.created_at == job.scheduled_at
        assert job.created_at > datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("delay", [0, 0.0, timedelta(0)])
def test_no_delay_is_none(delay: Any, database_url: str, schema: str) -> None:
    with psycopg.connect(database_url) as connection:
        client = Client(None, schema=schema)
        assert client.insert_tx(connection, Later(), delay=delay).job.state is JobState.AVAILABLE


def test_the_calls_schedule_wins_over_the_class_whichever_way_it_is_given(database_url: str, schema: str) -> None:
    at = datetime(2040, 1, 2, tzinfo=UTC)
    client = Client(None, schema=schema)
    with psycopg.connect(database_url) as connection:
        declared = client.insert_tx(connection, Later()).job
        assert timedelta(minutes=59) < declared.scheduled_at - declared.created_at < timedelta(minutes=61)
        assert client.insert_tx(connection, Later(), scheduled_at=at).job.scheduled_at == at
        soon = client.insert_tx(connection, Later(), delay=timedelta(minutes=1)).job
        assert soon.scheduled_at - soon.created_at < timedelta(minutes=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": -1}, "delay must be 0 seconds or more, or such a timedelta, not -1"),
        ({"delay": timedelta(seconds=-1)}, "delay must be 0 seconds or more"),
        ({"delay": float("nan")}, "delay must be 0 seconds or more"),
        ({"delay": "5"}, "delay must be 0 seconds or more, or such a timedelta, not '5'"),
        ({"delay": True}, "delay must be 0 seconds or more"),
        ({"delay": float("inf")}, "delay inf leads outside of the years 1 to 9999"),
        ({"delay": 1e12}, "leads outside of the years 1 to 9999"),
        ({"delay": timedelta.max}, "leads outside of the years 1 to 9999"),
        ({"delay": 5, "scheduled_at": datetime(2040, 1, 1, tzinfo=UTC)}, "scheduled_at .* and delay 5 are both given"),
        ({"pending": 1}, "pending must be True or False, not 1"),
        ({"unique": {"by_args": True}}, r"unique must be river.UniqueOpts\(...\), not \{"),
    ],
)
def test_a_bad_option_is_refused_before_the_first_statement(
    options: dict[str, Any], message: str, database_url: str, schema: str
) -> None:
    client = Client(None, schema=schema)
    with psycopg.connect(database_url) as connection:
        for refused in (
            lambda: client.insert_tx(connection, Note("a"), **options),
            lambda: client.insert_many_tx(connection, [InsertManyParams(Note("a"), InsertOpts(**options))]),
            lambda: client.insert_many_fast_tx(connection, [InsertManyParams(Note("a"), InsertOpts(**options))]),
        ):
            with pytest.raises(InvalidJobError, match=message):
                refused()
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@both_colours
async def test_a_pending_job_is_parked_whatever_its_schedule(way: Way, database_url: str, schema: str) -> None:
    async with inserting(way, database_url, schema) as bench:
        at = datetime(2040, 1, 2, tzinfo=UTC)
        parked = (await call(bench.client.insert, Note("a"), pending=True)).job
        both = (await call(bench.client.insert, Note("b"), pending=True, scheduled_at=at)).job
        assert (parked.state, both.state, both.scheduled_at) == (JobState.PENDING, JobState.PENDING, at)


@dataclass
class Parked:
    kind: ClassVar[str] = "parked"
    insert_opts: ClassVar[InsertOpts] = InsertOpts(pending=True, metadata={"team": "a"})


def test_a_class_may_park_its_jobs_and_give_them_metadata_unless_the_call_says_otherwise(
    database_url: str, schema: str
) -> None:
    client = Client(None, schema=schema)
    with psycopg.connect(database_url) as connection:
        declared = client.insert_tx(connection, Parked()).job
        called = client.insert_tx(connection, Parked(), pending=False, metadata={}).job
    assert (declared.state, declared.metadata) == (JobState.PENDING, {"team": "a"})
    assert (called.state, called.metadata) == (JobState.AVAILABLE, {})


# Who is told.


class Ear:
    """Hears of inserts; `heard` are the queues, in their order."""

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        self.connection = connection
        self.channel = f"{schema}.river_insert"
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))

    def heard(self) -> list[str]:
        """What was notified until now: PostgreSQL delivers in the order of the commits, and this comes last."""
        self.connection.execute("SELECT pg_notify(%s, 'now')", [self.channel])
        payloads: list[str] = []
        for notification in self.connection.notifies(timeout=30):
            if notification.payload == "now":
                break
            payloads.append(notification.payload)
        return payloads


@pytest.fixture
def ear(database_url: str, schema: str) -> Any:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Ear(connection, schema)


def told(*queues: str) -> list[str]:
    return [f'{{"queue": "{queue}"}}' for queue in queues]


@both_colours
async def test_of_many_inserts_in_a_row_the_first_of_each_queue_is_told(
    way: Way, database_url: str, schema: str, ear: Ear
) -> None:
    async with inserting(way, database_url, schema, fetch_cooldown=60, fetch_poll_interval=60) as bench:
        for number in range(5):
            await call(bench.client.insert, Note(str(number)))
        assert ear.heard() == told("default")
        await call(bench.client.insert_many, [InsertManyParams(Note("a"), InsertOpts(queue="other")), Note("b")])
        assert ear.heard() == told("other")
        await call(bench.client.insert_many_fast, notes(2))
        assert ear.heard() == []


@both_colours
async def test_an_insert_in_the_hosts_transaction_is_always_told(
    way: Way, database_url: str, schema: str, ear: Ear
) -> None:
    async with inserting(way, database_url, schema, fetch_cooldown=60, fetch_poll_interval=60) as bench:
        await call(bench.client.insert, Note("mutes the queue"))
        assert ear.heard() == told("default")
        with psycopg.connect(database_url) as connection:
            bench.client.insert_tx(connection, Note("a"))
            assert ear.heard() == []
            connection.commit()
            assert ear.heard() == told("default")
            bench.client.insert_many_fast_tx(connection, notes(2))
        assert ear.heard() == told("default")


async def test_an_insert_in_a_hosts_open_transaction_mutes_nobody(database_url: str, schema: str, ear: Ear) -> None:
    async with inserting(BLOCKING, database_url, schema, fetch_cooldown=60, fetch_poll_interval=60) as bench:
        with psycopg.connect(database_url) as connection:
            bench.client.insert_tx(connection, Note("not committed"))
            await call(bench.client.insert, Note("committed"))
            assert ear.heard() == told("default")


class Refuses(river.Middleware):
    """Fails an insert after its statement, and before the commit."""

    refusing = True

    @contextmanager
    def insert(self, jobs: Sequence[InsertParams]) -> Any:
        yield
        if self.refusing:
            raise RuntimeError("refused")


@both_colours
async def test_an_insert_that_was_rolled_back_mutes_nobody(way: Way, database_url: str, schema: str, ear: Ear) -> None:
    middleware = Refuses()
    options: Any = {"fetch_cooldown": 60, "fetch_poll_interval": 60, "middleware": [middleware]}
    async with inserting(way, database_url, schema, **options) as bench:
        with pytest.raises(RuntimeError, match="refused"):
            await call(bench.client.insert, Note("a"))
        assert (ear.heard(), bench.jobs.states()) == ([], {})
        middleware.refusing = False
        await call(bench.client.insert, Note("b"))
        assert ear.heard() == told("default")


@both_colours
async def test_without_notify_nobody_is_told(way: Way, database_url: str, schema: str, ear: Ear) -> None:
    async with inserting(way, database_url, schema, notify=False) as bench:
        await call(bench.client.insert, Note("a"))
        await call(bench.client.insert_many_fast, notes(2))
        with psycopg.connect(database_url) as connection:
            bench.client.insert_many_tx(connection, notes(2))
        assert (ear.heard(), bench.jobs.states()) == ([], {"available": 5})


@pytest.mark.parametrize(
    "options", [{"pending": True}, {"delay": 60}, {"scheduled_at": datetime(2001, 1, 1, tzinfo=UTC)}]
)
def test_of_a_job_that_nobody_can_claim_nobody_is_told(
    options: dict[str, Any], database_url: str, schema: str, ear: Ear
) -> None:
    client = Client(None, schema=schema)
    with psycopg.connect(database_url) as connection:
        client.insert_tx(connection, Note("a"), **options)
    assert ear.heard() == []


def test_the_limiter_lets_one_through_per_queue_and_window() -> None:
    limiter = NotifyLimiter(0.1)
    assert limiter.muted({"a", "b"}, 0.0) == frozenset()
    limiter.told(["a"], 0.0)
    assert limiter.muted({"a", "b"}, 0.099) == {"a"}
    assert limiter.muted({"a"}, 0.1) == frozenset()
    limiter.told(["a"], 0.1)
    assert limiter.muted({"a"}, 0.15) == {"a"}


# What an error in the host's transaction says.


def test_without_rivers_tables_the_librarys_error_says_what_to_do(database_url: str) -> None:
    client = Client(None, schema="river_nowhere")
    with psycopg.connect(database_url) as connection:
        for refused in errors_of(client, connection):
            with pytest.raises(psycopg.errors.UndefinedTable) as raised:
                refused()
            assert_says_what_to_do(raised.value)
            connection.rollback()
    engine = sa.create_engine(with_driver(database_url, "postgresql+psycopg2"))
    with engine.connect() as sa_connection:
        with pytest.raises(sa.exc.ProgrammingError) as sa_raised:
            client.insert_tx(sa_connection, Note("a"))
        assert_says_what_to_do(sa_raised.value)
    engine.dispose()


async def test_without_rivers_tables_an_asyncio_librarys_error_says_what_to_do(database_url: str) -> None:
    client = AsyncClient(None, schema="river_nowhere")
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable) as raised:
            await client.insert_tx(connection, Note("a"))
        assert_says_what_to_do(raised.value)


def errors_of(client: Client, connection: psycopg.Connection) -> list[Callable[[], object]]:
    return [
        lambda: client.insert_tx(connection, Note("a")),
        lambda: client.insert_many_fast_tx(connection, [Note("a")]),
        lambda: client.job_get_tx(connection, 1),
    ]


def assert_says_what_to_do(error: BaseException) -> None:
    notes = " ".join(getattr(error, "__notes__", []))
    assert "your transaction, which has failed with it as a whole: roll it back" in notes
    assert "river migrate-up" in notes


# Several instances in one database.


async def test_instances_in_their_own_schemas_do_not_see_each_other(
    database_url: str, schema: str, second_schema: str
) -> None:
    one_ran, two_ran = asyncio.Event(), asyncio.Event()
    async with (
        working(ASYNCIO, database_url, schema, workers=setting(one_ran), fetch_poll_interval=30) as one,
        working(ASYNCIO, database_url, second_schema, workers=setting(two_ran), fetch_poll_interval=30) as two,
    ):
        job_id = await one.insert(Note("one"))
        await one.jobs.until(job_id, "completed")
        assert (two.jobs.states(), two_ran.is_set()) == ({}, False)
        other_id = await two.insert(Note("two"))
        await two.jobs.until(other_id, "completed")
        assert one.jobs.states() == {"completed": 1}
        assert one_ran.is_set()


def setting(event: asyncio.Event) -> river.Workers:
    workers = river.Workers()

    @workers.work
    async def work(job: river.Job[Note], ctx: river.WorkContext) -> None:
        event.set()

    return workers


@pytest.fixture
def second_schema(schema_connection: psycopg.Connection) -> Any:
    from tests.conftest import run_script
    from tests.support.schemas import creation

    name = f"River_Second_{uuid.uuid4().hex}"
    run_script(
        schema_connection, [f'DROP SCHEMA IF EXISTS "{name}" CASCADE', f'CREATE SCHEMA "{name}"', *creation(name)]
    )
    yield name
    run_script(schema_connection, [f'DROP SCHEMA "{name}" CASCADE'])
