"""The official insert-only client's API, over River's own: options, results, refusals, handles and errors.

Whole applications are in test_riverqueue_apps.py.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

import river
from river import riverqueue
from river.errors import ConfigurationError, HandleError, InvalidJobError, TransactionRequiredError
from river.riverqueue.driver import AsyncDriverProtocol, DriverProtocol, riversqlalchemy
from river.unique import state_mask
from tests.support.riverqueue import of_libpq, of_schema
from tests.support.snippets import rows
from tests.support.urls import with_driver


@dataclass
class Mail:
    to: str

    kind: str = "mail"

    def to_json(self) -> str:
        return json.dumps({"to": self.to})


@dataclass
class Declared:
    """Args that say how they are inserted."""

    opts: Any
    kind: str = "declared"

    def to_json(self) -> str:
        return "{}"

    def insert_opts(self) -> Any:
        return self.opts


class Written:
    """Args that write whatever they are told to."""

    kind = "written"

    def __init__(self, text: Any) -> None:
        self.text = text

    def to_json(self) -> Any:
        return self.text


class KindOnly:
    kind = "kind_only"


@pytest.fixture
def engine(database_url: str, schema: str) -> Iterator[sa.Engine]:
    """An engine whose sessions find River's tables."""
    engine = sa.create_engine(of_schema(database_url, schema, "postgresql+psycopg"), poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
async def async_engine(database_url: str, schema: str) -> AsyncIterator[AsyncEngine]:
    """An asyncio engine whose sessions find River's tables."""
    engine = create_async_engine(of_schema(database_url, schema, "postgresql+asyncpg"), poolclass=NullPool)
    yield engine
    await engine.dispose()


@pytest.fixture
def client(engine: sa.Engine) -> riverqueue.Client:
    return riverqueue.Client(riversqlalchemy.Driver(engine))


@pytest.fixture
def async_client(async_engine: AsyncEngine) -> riverqueue.AsyncClient:
    return riverqueue.AsyncClient(riversqlalchemy.AsyncDriver(async_engine))


@pytest.fixture
def jobs(schema_connection: psycopg.Connection, schema: str) -> Callable[[str], list[tuple[object, ...]]]:
    """Some columns of all jobs that are committed."""
    return lambda columns: rows(schema_connection, schema, columns, "river_job")


Jobs = Callable[[str], list[tuple[object, ...]]]


# Options


def test_what_is_falsy_counts_as_not_given(client: riverqueue.Client) -> None:
    opts = riverqueue.InsertOpts(
        max_attempts=0, priority=0, queue="", tags=[], unique_opts=riverqueue.UniqueOpts(by_period=0, by_state=[])
    )
    job = client.insert(Mail("a"), opts).job
    assert (job.max_attempts, job.priority, job.queue, job.tags, job.unique_key) == (25, 1, "default", [], None)
    assert job.scheduled_at == job.created_at


def test_options_of_the_call_win_one_by_one_over_those_of_the_args(client: riverqueue.Client) -> None:
    declared = riverqueue.InsertOpts(max_attempts=3, priority=2, queue="of_args", tags=["of_args"])
    job = client.insert(Declared(declared), riverqueue.InsertOpts(priority=4, tags=[])).job
    assert (job.max_attempts, job.priority, job.queue, job.tags) == (3, 4, "of_args", ["of_args"])


def test_args_that_rivers_own_client_inserts_too_may_declare_its_options(client: riverqueue.Client) -> None:
    shared = Declared(river.InsertOpts(queue="shared"))
    assert client.insert(shared).job.queue == client.river.insert(shared).job.queue == "shared"


def test_options_of_the_args_may_be_none(client: riverqueue.Client) -> None:
    assert client.insert(Declared(None)).job.queue == "default"


def test_options_can_be_changed_after_they_are_made(client: riverqueue.Client) -> None:
    opts = riverqueue.InsertOpts()
    opts.queue = "later"
    assert client.insert(Mail("a"), insert_opts=opts).job.queue == "later"


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_a_naive_time_is_in_the_local_time_of_the_process(
    client: riverqueue.Client, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = {"America/New_York": timedelta(hours=-5), "Asia/Kolkata": timedelta(hours=5, minutes=30)}[zone]
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        job = client.insert(
            Mail("a"), riverqueue.InsertOpts(scheduled_at=datetime.fromisoformat("2040-01-01 12:00"))
        ).job
    finally:
        monkeypatch.undo()
        time.tzset()
    assert job.scheduled_at == datetime(2040, 1, 1, 12, tzinfo=UTC) - offset
    assert job.state == riverqueue.JobState.SCHEDULED


def test_the_default_states_of_unique_jobs_are_rivers(client: riverqueue.Client) -> None:
    by_default = client.insert(Mail("a"), unique(by_args=True)).job
    named = client.insert(Mail("a"), unique(by_args=True, by_state=riverqueue.UNIQUE_STATES_DEFAULT))
    assert (named.unique_skipped_as_duplicated, named.job.id) == (True, by_default.id)
    listed = river.UniqueOpts(by_args=True, by_state=riverqueue.UNIQUE_STATES_DEFAULT)
    assert state_mask(listed) == state_mask(river.UniqueOpts(by_args=True))


def test_the_constants_are_what_is_inserted_without_options(client: riverqueue.Client) -> None:
    job = client.insert(Mail("a")).job
    assert (job.max_attempts, job.priority, job.queue) == (
        riverqueue.MAX_ATTEMPTS_DEFAULT,
        riverqueue.PRIORITY_DEFAULT,
        riverqueue.QUEUE_DEFAULT,
    )


# Results


def test_a_result_is_the_row_as_it_is_stored(client: riverqueue.Client, jobs: Jobs) -> None:
    opts = riverqueue.InsertOpts(tags=["one_tag"], unique_opts=riverqueue.UniqueOpts(by_args=True))
    job = client.insert(Mail("a"), opts).job
    fields = [field.name for field in dataclasses.fields(riverqueue.Job)]
    (stored,) = jobs(" ".join(fields))
    assert {name: getattr(job, name) for name in fields} == dict(zip(fields, stored, strict=True))
    assert isinstance(job.state, riverqueue.JobState)
    assert job.created_at.tzinfo is UTC


def test_a_duplicate_is_the_job_that_was_there_with_its_own_args_and_errors(
    client: riverqueue.Client, schema_connection: psycopg.Connection, schema: str
) -> None:
    first = client.insert(Mail("a"), unique(by_queue=True))
    error = riverqueue.AttemptError(datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC), 1, "boom", "line 1")
    schema_connection.execute(
        sql.SQL("UPDATE {} SET attempted_by = %s, errors = %s::jsonb[], attempt = 1").format(
            sql.Identifier(schema, "river_job")
        ),
        (["worker_1"], [error.to_json(), "{}"]),
    )
    second = client.insert(Mail("b"), unique(by_queue=True))
    assert second.unique_skipped_as_duplicated
    assert not first.unique_skipped_as_duplicated
    assert (second.job.id, second.job.args) == (first.job.id, {"to": "a"})
    assert second.job.attempted_by == ["worker_1"]
    assert second.job.errors == [error, riverqueue.AttemptError(datetime(1, 1, 1, tzinfo=UTC), 0, "", "")]


async def test_a_duplicate_is_the_job_that_was_there_on_asyncio_and_in_a_transaction_too(
    async_client: riverqueue.AsyncClient, async_engine: AsyncEngine
) -> None:
    first = await async_client.insert(Mail("a"), unique(by_args=True))
    second = await async_client.insert(Mail("a"), unique(by_args=True))
    async with async_engine.begin() as connection:
        third = await async_client.insert_tx(connection, Mail("a"), unique(by_args=True))
        other = await async_client.insert_tx(connection, Mail("b"), unique(by_args=True))
    skipped = [each.unique_skipped_as_duplicated for each in (first, second, third, other)]
    assert skipped == [False, True, True, False]
    assert first.job.id == second.job.id == third.job.id != other.job.id


def test_a_job_of_rivers_own_client_prevents_one_of_this_layer_and_the_other_way_round(
    client: riverqueue.Client,
) -> None:
    own = client.river.insert(Mail("a"), unique=river.UniqueOpts(by_args=True))
    assert client.insert(Mail("a"), unique(by_args=True)).job.id == own.job.id
    layer = client.insert(Mail("b"), unique(by_args=True))
    assert client.river.insert(Mail("b"), unique=river.UniqueOpts(by_args=True)).job.id == layer.job.id


def test_an_error_is_written_as_rows_hold_it() -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    assert json.loads(riverqueue.AttemptError(at, 2, "boom", "").to_json()) == {
        "at": "2030-01-02T03:04:05.678000Z",
        "attempt": 2,
        "error": "boom",
        "trace": "",
    }


# What is refused


insert_opts: Any = riverqueue.InsertOpts  # the checkers would refuse these, too

REFUSED: dict[str, tuple[Any, Any]] = {
    "priority above 4": (Mail("a"), insert_opts(priority=5)),
    "priority below 0": (Mail("a"), insert_opts(priority=-1)),
    "too many attempts": (Mail("a"), insert_opts(max_attempts=40_000)),
    "no queue name": (Mail("a"), insert_opts(queue="Not A Queue")),
    "no tag": (Mail("a"), insert_opts(tags=["a,b"])),
    "tags that are a text": (Mail("a"), insert_opts(tags="abc")),
    "a time that is a text": (Mail("a"), insert_opts(scheduled_at="tomorrow")),
    "options of another class": (Mail("a"), river.UniqueOpts(by_args=True)),
    "options that are a dict": (Mail("a"), {"queue": "mail"}),
    "unique options that are a dict": (Mail("a"), insert_opts(unique_opts={"by_args": True})),
    "unique options of another class": (Mail("a"), insert_opts(unique_opts=river.UniqueOpts(by_args=True))),
    "a negative period": (Mail("a"), insert_opts(unique_opts=riverqueue.UniqueOpts(by_period=-1))),
    "states without River's four": (
        Mail("a"),
        insert_opts(unique_opts=riverqueue.UniqueOpts(by_args=True, by_state=[riverqueue.JobState.AVAILABLE])),
    ),
    "declared options that are a dict": (Declared({"queue": "mail"}), None),
    "declared options with no queue name": (Declared(insert_opts(queue="Not A Queue")), None),
    "a class": (Mail, None),
    "no args": (object(), None),
    "args that do not write themselves": (KindOnly(), None),
    "no text": (Written(None), None),
    "bytes": (Written(b"{}"), None),
    "an array": (Written("[1]"), None),
    "null": (Written("null"), None),
    "no JSON": (Written("{"), None),
    "NaN": (Written('{"a": NaN}'), None),
    "U+0000": (Written('{"a": "\\u0000"}'), None),
}


@pytest.mark.parametrize(("args", "opts"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_bad_value_is_a_value_error_before_anything_is_written(
    args: Any, opts: Any, client: riverqueue.Client, async_client: riverqueue.AsyncClient, jobs: Jobs
) -> None:
    with pytest.raises(ValueError) as refusal:
        client.insert(args, opts)
    assert isinstance(refusal.value, InvalidJobError)
    with pytest.raises(ValueError) as refusal_of_many:
        client.insert_many([Mail("first"), riverqueue.InsertManyParams(args, opts)])
    assert isinstance(refusal_of_many.value, InvalidJobError)
    with pytest.raises(ValueError) as async_refusal:
        await async_client.insert(args, opts)
    assert str(async_refusal.value) == str(refusal.value)
    assert jobs("id") == []


@pytest.mark.parametrize(
    "job",
    [
        riverqueue.InsertManyParams(Mail("a"), riverqueue.InsertOpts(unique_opts=riverqueue.UniqueOpts(by_args=True))),
        Declared(riverqueue.InsertOpts(unique_opts=riverqueue.UniqueOpts(by_queue=True))),
    ],
    ids=["of the call", "of the args"],
)
def test_many_jobs_cannot_be_unique_and_the_error_says_where_they_can(
    job: Any, client: riverqueue.Client, engine: sa.Engine, jobs: Jobs
) -> None:
    with pytest.raises(ValueError, match=r"the insert_many of river\.Client"):
        client.insert_many([Mail("first"), job])
    with engine.begin() as connection, pytest.raises(ValueError, match=r"the insert_many of river\.Client"):
        client.insert_many_tx(connection, [Mail("first"), job])
    assert jobs("id") == []


class FailingArgs:
    kind = "failing"

    def to_json(self) -> str:
        raise LookupError("no such customer")


def test_an_error_of_to_json_passes_through(client: riverqueue.Client, jobs: Jobs) -> None:
    with pytest.raises(LookupError, match="no such customer"):
        client.insert(FailingArgs())
    assert jobs("id") == []


@pytest.mark.parametrize("prefix", [-1, 2**32])
def test_an_advisory_lock_prefix_of_more_than_four_bytes_is_refused(prefix: int, engine: sa.Engine) -> None:
    with pytest.raises(OverflowError, match="four bytes"):
        riverqueue.Client(riversqlalchemy.Driver(engine), advisory_lock_prefix=prefix)


def test_an_advisory_lock_prefix_is_kept(engine: sa.Engine) -> None:
    assert riverqueue.Client(riversqlalchemy.Driver(engine), 2**32 - 1).advisory_lock_prefix == 2**32 - 1


def test_a_driver_refuses_a_url_and_does_not_show_its_password() -> None:
    url: Any = "postgresql://app:secret@localhost/app"
    with pytest.raises(ConfigurationError, match="takes a SQLAlchemy engine or connection") as refusal:
        riversqlalchemy.Driver(url)
    assert "secret" not in str(refusal.value)


def test_a_client_refuses_an_engine_without_its_driver(engine: sa.Engine) -> None:
    bare: Any = engine
    with pytest.raises(ConfigurationError, match=r"Client\(riversqlalchemy\.Driver\(engine\)\)"):
        riverqueue.Client(bare)


async def test_drivers_and_clients_refuse_what_is_of_the_other_colour(
    engine: sa.Engine, async_engine: AsyncEngine
) -> None:
    blocking: Any = riversqlalchemy.Driver(engine)
    asynchronous: Any = riversqlalchemy.AsyncDriver(async_engine)
    other_engine: Any = async_engine
    with pytest.raises(ConfigurationError, match="use AsyncDriver and AsyncClient for it"):
        riversqlalchemy.Driver(other_engine)
    with pytest.raises(ConfigurationError, match="use AsyncDriver and AsyncClient for it"):
        riverqueue.Client(asynchronous)
    with pytest.raises(ConfigurationError, match="use Driver and Client for it"):
        riverqueue.AsyncClient(blocking)
    async with async_engine.connect() as async_connection:
        other: Any = async_connection
        with pytest.raises(ConfigurationError, match="use AsyncDriver and AsyncClient for it"):
            riversqlalchemy.Driver(other)
    with engine.connect() as connection:
        other = connection
        with pytest.raises(ConfigurationError, match="use Driver and Client for it"):
            riversqlalchemy.AsyncDriver(other)


async def test_a_handle_of_the_other_colour_is_refused_before_anything_is_written(
    engine: sa.Engine,
    async_engine: AsyncEngine,
    client: riverqueue.Client,
    async_client: riverqueue.AsyncClient,
    jobs: Jobs,
) -> None:
    async with async_engine.begin() as async_connection, AsyncSession(async_engine) as async_session:
        handle: Any
        for handle in (async_connection, async_session):
            with pytest.raises(HandleError, match="use AsyncClient for it"):
                client.insert_tx(handle, Mail("a"))
            with pytest.raises(HandleError, match="use AsyncClient for it"):
                client.insert_many_tx(handle, [Mail("a")])
    with engine.begin() as connection, scoped_session_of(engine) as session:
        for handle in (connection, session):
            with pytest.raises(HandleError, match="use Client for it"):
                await async_client.insert_tx(handle, Mail("a"))
            with pytest.raises(HandleError, match="use Client for it"):
                await async_client.insert_many_tx(handle, [Mail("a")])
    assert jobs("id") == []


def test_a_connection_in_autocommit_is_refused(client: riverqueue.Client, engine: sa.Engine, jobs: Jobs) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(TransactionRequiredError):
            client.insert_tx(connection, Mail("a"))
        with pytest.raises(TransactionRequiredError):
            riverqueue.Client(riversqlalchemy.Driver(connection)).insert(Mail("a"))
    assert jobs("id") == []


# Handles


def test_sessions_of_every_blocking_shape_take_jobs(
    client: riverqueue.Client, engine: sa.Engine, database_url: str, schema: str, jobs: Jobs
) -> None:
    with Session(engine) as session, session.begin():
        client.insert_tx(session, Mail("session"))
    with scoped_session_of(engine) as scoped:
        client.insert_tx(scoped, Mail("scoped"))
        scoped.commit()
    with psycopg.connect(of_libpq(database_url, schema)) as connection:
        client.insert_tx(connection, Mail("psycopg"))
    assert [args for (args,) in jobs("args")] == [{"to": "session"}, {"to": "scoped"}, {"to": "psycopg"}]


async def test_asyncio_sessions_and_psycopg_connections_take_jobs(
    async_client: riverqueue.AsyncClient, async_engine: AsyncEngine, database_url: str, schema: str, jobs: Jobs
) -> None:
    async with AsyncSession(async_engine) as session, session.begin():
        await async_client.insert_tx(session, Mail("session"))
    async with await psycopg.AsyncConnection.connect(of_libpq(database_url, schema)) as connection:
        await async_client.insert_tx(connection, Mail("psycopg"))
    assert [args for (args,) in jobs("args")] == [{"to": "session"}, {"to": "psycopg"}]


def test_nothing_to_insert_is_no_statement(client: riverqueue.Client, engine: sa.Engine) -> None:
    statements: list[str] = []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    with engine.connect() as connection:
        assert client.insert_many([]) == client.insert_many_tx(connection, []) == 0
    assert statements == []


def test_drivers_and_applications_own_drivers_satisfy_the_protocols(engine: sa.Engine) -> None:
    driver: DriverProtocol = riversqlalchemy.Driver(engine)
    make: Callable[[AsyncEngine], AsyncDriverProtocol] = riversqlalchemy.AsyncDriver
    assert driver.engine is engine
    assert driver.handle is None
    assert make is riversqlalchemy.AsyncDriver


# Errors of the database


def test_without_a_server_the_error_is_sqlalchemys(database_url: str) -> None:
    engine = sa.create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nowhere", poolclass=NullPool)
    client = riverqueue.Client(riversqlalchemy.Driver(engine))
    for call in (lambda: client.insert(Mail("a")), lambda: client.insert_many([Mail("a")])):
        with pytest.raises(sa.exc.OperationalError):
            call()


async def test_without_tables_the_error_is_sqlalchemys_and_says_what_makes_them(database_url: str) -> None:
    engine = sa.create_engine(with_driver(database_url, "postgresql+psycopg"), poolclass=NullPool)
    client = riverqueue.Client(riversqlalchemy.Driver(engine))
    async_engine = create_async_engine(with_driver(database_url, "postgresql+asyncpg"), poolclass=NullPool)
    async_client = riverqueue.AsyncClient(riversqlalchemy.AsyncDriver(async_engine))

    async def blocking_insert() -> None:
        client.insert(Mail("a"))

    calls: list[Callable[[], Awaitable[object]]] = [
        blocking_insert,
        lambda: async_client.insert(Mail("a")),
        lambda: async_client.insert_many([Mail("a")]),
    ]
    for call in calls:
        with pytest.raises(sa.exc.ProgrammingError) as failure:
            await call()
        assert any("river migrate-up" in note for note in failure.value.__notes__)
    await async_engine.dispose()


# Helpers


def unique(**options: Any) -> riverqueue.InsertOpts:
    return riverqueue.InsertOpts(unique_opts=riverqueue.UniqueOpts(**options))


@contextmanager
def scoped_session_of(engine: sa.Engine) -> Iterator[scoped_session[Session]]:
    session = scoped_session(sessionmaker(engine))
    try:
        yield session
    finally:
        session.remove()
