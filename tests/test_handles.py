"""A job is part of the host's transaction, whichever library's handle the host holds.

Each claim is tested on every handle that River adopts; tests/support/handles.py has the list. The host's connections
have a name by which the observer, a second connection, asks the server about them.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import psycopg
import psycopg2
import pytest
from psycopg.rows import class_row, dict_row, namedtuple_row, scalar_row
from psycopg_pool import ConnectionPool
from sqlalchemy import Column, Integer, MetaData, Table, Text, create_engine, event, exc
from sqlalchemy import inspect as inspect_orm
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, registry, sessionmaker

import river
from river import driver as seam
from river.operation import Rows, Statement, Value
from river_psycopg.blocking import ConnectionExecutor
from river_sqlalchemy import river_job
from tests.support.handles import (
    FEW_KINDS,
    KINDS,
    PSYCOPG_KINDS,
    SESSION_KINDS,
    SQLALCHEMY_KINDS,
    Host,
    Kind,
    Mail,
    Observer,
    SQLAlchemyHost,
    Undone,
    opened,
    opened_psycopg,
    opened_sqlalchemy,
    settle,
)
from tests.support.handles import named as with_name
from tests.support.urls import with_driver


@pytest.fixture
def host_url(database_url: str) -> str:
    """Where the host connects; the server knows its connections by a name."""
    return with_name(database_url, f"host_{uuid.uuid4().hex[:12]}")


@pytest.fixture
def observer(database_url: str, host_url: str, schema: str) -> Iterator[Observer]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Observer(connection, schema, host_url.rpartition("=")[2])


@pytest.fixture
def client(schema: str) -> river.Client:
    """A client without a database of its own: all that it does, it does on the host's handles."""
    return river.Client(None, schema=schema)


@pytest.fixture
async def host(kind: Kind, host_url: str, observer: Observer) -> AsyncIterator[Host]:
    """Depends on the observer, and so on the schema: it must let go of the tables before they are dropped."""
    async with opened(kind, host_url) as host:
        yield host


every_handle = pytest.mark.parametrize("kind", KINDS, ids=str)
every_session = pytest.mark.parametrize("kind", SESSION_KINDS, ids=str)
every_sqlalchemy_handle = pytest.mark.parametrize("kind", SQLALCHEMY_KINDS, ids=str)
every_psycopg_handle = pytest.mark.parametrize("kind", PSYCOPG_KINDS, ids=str)


async def write(host: Host, observer: Observer, note: str = "mine") -> None:
    """Something of the host's own, in the same transaction."""
    await host.execute(f"INSERT INTO {observer.schema}.note VALUES ('{note}')")


def calls(client: river.Client, handle: Any) -> list[Callable[[], Any]]:
    """Each method that takes a handle."""
    return [
        lambda: client.insert_tx(handle, Mail("a")),
        lambda: client.insert_many_tx(handle, [Mail("a")]),
        lambda: client.job_get_tx(handle, 1),
    ]


# The transaction is the host's.


@every_handle
async def test_a_job_exists_for_others_when_the_host_commits_and_not_before(
    host: Host, client: river.Client, observer: Observer
) -> None:
    inserted = await settle(client.insert_tx(host.handle, Mail("a")))
    assert observer.jobs() == []
    await host.commit()
    (job,) = observer.jobs()
    assert (job["id"], job["kind"], job["args"], job["state"]) == (inserted.job.id, "mail", {"to": "a"}, "available")
    assert inserted.job.args == Mail("a")


@every_handle
async def test_a_rollback_leaves_no_job(host: Host, client: river.Client, observer: Observer) -> None:
    await write(host, observer)
    await settle(client.insert_tx(host.handle, Mail("a")))
    await settle(client.insert_many_tx(host.handle, [Mail("b"), Mail("c")]))
    await host.rollback()
    assert (observer.jobs(), observer.notes()) == ([], [])
    await settle(client.insert_tx(host.handle, Mail("d")))
    await host.commit()
    assert observer.recipients() == ["d"]


@every_handle
async def test_a_savepoint_rolled_back_takes_its_jobs_along_and_no_others(
    host: Host, client: river.Client, observer: Observer
) -> None:
    await settle(client.insert_tx(host.handle, Mail("before")))
    with suppress(Undone):
        async with host.savepoint():
            await settle(client.insert_tx(host.handle, Mail("inside")))
            await settle(client.insert_many_tx(host.handle, [Mail("inside too")]))
            raise Undone
    async with host.savepoint():
        await settle(client.insert_tx(host.handle, Mail("released")))
    await settle(client.insert_tx(host.handle, Mail("after")))
    assert observer.jobs() == []
    await host.commit()
    assert observer.recipients() == ["before", "released", "after"]


@every_handle
async def test_many_jobs_come_back_in_the_order_in_which_they_were_handed_over(
    host: Host, client: river.Client, observer: Observer
) -> None:
    batch: list[Any] = [Mail(f"{number}") for number in range(50)]
    batch[7] = river.InsertManyParams(Mail("7"), river.InsertOpts(queue="slow", priority=4))
    inserted = await settle(client.insert_many_tx(host.handle, batch))
    await host.commit()
    assert [result.job.args.to for result in inserted] == [f"{number}" for number in range(50)]
    assert [job["id"] for job in observer.jobs()] == [result.job.id for result in inserted]
    assert [job["id"] for job in observer.jobs() if job["queue"] == "slow"] == [inserted[7].job.id]


@every_handle
async def test_a_job_is_read_as_the_hosts_transaction_sees_it(
    host: Host, client: river.Client, observer: Observer
) -> None:
    inserted = (await settle(client.insert_tx(host.handle, Mail("a")))).job
    found = await settle(client.job_get_tx(host.handle, inserted.id))
    assert (found.id, found.kind, found.encoded_args) == (inserted.id, "mail", '{"to": "a"}')
    assert found.created_at == inserted.created_at
    await host.rollback()
    with pytest.raises(river.JobNotFoundError) as missing:
        await settle(client.job_get_tx(host.handle, inserted.id))
    assert missing.value.job_id == inserted.id
    # A look-up that finds nothing is no failure of the transaction.
    await settle(client.insert_tx(host.handle, Mail("b")))
    await host.commit()
    assert observer.recipients() == ["b"]


async def test_a_job_that_is_not_committed_is_not_found_from_outside_and_the_error_says_so(
    host_url: str, client: river.Client, observer: Observer
) -> None:
    async with opened(KINDS[0], host_url) as host:
        inserted = client.insert_tx(host.handle, Mail("a")).job
        with pytest.raises(river.JobNotFoundError, match="not visible to this transaction"):
            with observer.connection.transaction():
                client.job_get_tx(observer.connection, inserted.id)
        await host.commit()
        with observer.connection.transaction():
            assert client.job_get_tx(observer.connection, inserted.id).id == inserted.id


@every_handle
async def test_no_connection_is_taken_and_nothing_is_begun_or_ended(
    host: Host, schema: str, observer: Observer
) -> None:
    # Made over the host's own pool, which has one connection: taking another one would fail.
    client = river.Client(host.source, schema=schema)
    await write(host, observer)
    before, checkouts = observer.host_backends(), host.checkouts
    inserted = await settle(client.insert_tx(host.handle, Mail("a")))
    await settle(client.insert_many_tx(host.handle, [Mail("b"), Mail("c")]))
    await settle(client.job_get_tx(host.handle, inserted.job.id))
    with pytest.raises(river.JobNotFoundError):
        await settle(client.job_get_tx(host.handle, -1))
    after = observer.host_backends()
    assert [backend["state"] for backend in before] == ["idle in transaction"]
    assert before[0]["xid"] is not None
    for name in ("pid", "state", "xact_start", "xid"):
        assert [backend[name] for backend in after] == [backend[name] for backend in before], name
    assert host.checkouts == checkouts
    assert (observer.jobs(), observer.notes()) == ([], [])
    await host.commit()
    assert (observer.recipients(), observer.notes()) == (["a", "b", "c"], ["mine"])


@every_handle
async def test_without_a_transaction_yet_the_insert_begins_the_hosts_as_any_statement_would(
    host: Host, client: river.Client, observer: Observer
) -> None:
    await settle(client.insert_tx(host.handle, Mail("a")))
    assert [backend["state"] for backend in observer.host_backends()] == ["idle in transaction"]
    await host.rollback()
    assert observer.jobs() == []


@every_handle
@pytest.mark.parametrize("client_type", [river.Client, river.AsyncClient])
async def test_the_colour_is_the_handles_and_not_the_clients(
    host: Host, kind: Kind, client_type: type[Any], schema: str, observer: Observer
) -> None:
    client = client_type(None, schema=schema)
    returned = client.insert_tx(host.handle, Mail("a"))
    assert inspect.iscoroutine(returned) is (kind.colour == "asyncio")
    inserted = await settle(returned)
    returned_many = client.insert_many_tx(host.handle, [Mail("b")])
    assert inspect.iscoroutine(returned_many) is (kind.colour == "asyncio")
    await settle(returned_many)
    returned_job = client.job_get_tx(host.handle, inserted.job.id)
    assert inspect.iscoroutine(returned_job) is (kind.colour == "asyncio")
    assert (await settle(returned_job)).id == inserted.job.id
    await host.commit()
    assert observer.recipients() == ["a", "b"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.colour == "asyncio"], ids=str)
async def test_on_an_asyncio_handle_nothing_happens_before_it_is_awaited(
    host: Host, client: river.Client, observer: Observer
) -> None:
    await write(host, observer)
    before = observer.host_backends()
    client.insert_tx(host.handle, Mail("a")).close()
    assert observer.host_backends() == before
    await host.commit()
    assert observer.jobs() == []


# Notifications are the transaction's, too.


@every_handle
async def test_workers_are_told_of_a_job_by_the_commit(host: Host, client: river.Client, observer: Observer) -> None:
    observer.listen()
    await settle(client.insert_many_tx(host.handle, [Mail("a"), Mail("b")]))
    assert observer.heard() == []
    await host.commit()
    assert observer.heard() == ['{"queue": "default"}']


@every_handle
async def test_workers_are_not_told_of_a_job_that_was_rolled_back(
    host: Host, client: river.Client, observer: Observer
) -> None:
    observer.listen()
    await settle(client.insert_tx(host.handle, Mail("a")))
    await host.rollback()
    assert observer.heard() == []


@every_handle
async def test_workers_are_not_told_of_a_job_whose_savepoint_was_rolled_back(
    host: Host, client: river.Client, observer: Observer
) -> None:
    observer.listen()
    await settle(client.insert_tx(host.handle, Mail("a"), queue="outer"))
    with suppress(Undone):
        async with host.savepoint():
            await settle(client.insert_tx(host.handle, Mail("b"), queue="inner"))
            raise Undone
    await host.commit()
    assert observer.heard() == ['{"queue": "outer"}']


# What is refused, and leaves the transaction as it was.


def bad_inserts() -> list[Callable[[river.Client, Any], Any]]:
    no_kind: Any = object()
    twice = river.InsertOpts(priority=2)
    return [
        lambda client, handle: client.insert_tx(handle, no_kind),
        lambda client, handle: client.insert_tx(handle, Mail("\x00")),  # PostgreSQL has no such text
        lambda client, handle: client.insert_tx(handle, Mail("a"), queue="No Queue"),
        lambda client, handle: client.insert_tx(handle, Mail("a"), twice, priority=3),
        lambda client, handle: client.insert_many_tx(handle, []),
        lambda client, handle: client.insert_many_tx(handle, [Mail("a"), Mail("\ud800")]),
    ]


@every_handle
async def test_a_bad_job_is_refused_before_the_first_statement(
    host: Host, client: river.Client, observer: Observer
) -> None:
    await write(host, observer)
    before, statements = observer.host_backends(), list(host.statements)
    for bad_insert in bad_inserts():
        with pytest.raises(river.InvalidJobError):
            await settle(bad_insert(client, host.handle))
    assert observer.host_backends() == before
    assert host.statements == statements
    await settle(client.insert_tx(host.handle, Mail("good")))
    await host.commit()
    assert (observer.recipients(), observer.notes()) == (["good"], ["mine"])


@every_handle
async def test_a_kind_without_a_worker_is_refused_before_the_first_statement(
    host: Host, schema: str, observer: Observer
) -> None:
    workers = river.Workers()
    workers.work(kind="other")(lambda job, ctx: None)
    client = river.Client(None, schema=schema, workers=workers)
    await write(host, observer)
    before = observer.host_backends()
    with pytest.raises(river.UnknownJobKindError, match="mail"):
        await settle(client.insert_tx(host.handle, Mail("a")))
    assert observer.host_backends() == before
    await host.commit()
    assert (observer.jobs(), observer.notes()) == ([], ["mine"])


@every_handle
async def test_an_error_of_the_database_is_the_librarys_own(
    host: Host, kind: Kind, client: river.Client, observer: Observer
) -> None:
    elsewhere = river.Client(None, schema="no_such_schema")
    expected = exc.ProgrammingError if kind.over_sqlalchemy else psycopg.errors.UndefinedTable
    for call in calls(elsewhere, host.handle):
        with pytest.raises(expected, match=r"no_such_schema\.river_job") as passed:
            await settle(call())
        assert type(passed.value) is expected
        await host.rollback()
    await settle(client.insert_tx(host.handle, Mail("b")))
    await host.commit()
    assert observer.recipients() == ["b"]


@every_handle
async def test_a_failed_transaction_takes_no_job_until_it_is_rolled_back(
    host: Host, kind: Kind, client: river.Client, observer: Observer
) -> None:
    await write(host, observer)
    with pytest.raises(exc.DBAPIError if kind.over_sqlalchemy else psycopg.DataError):
        await host.execute("SELECT 1 / 0")
    expected = river.TransactionRequiredError if kind.knows_failure else exc.DBAPIError
    with pytest.raises(expected, match=r"failed|aborted"):
        await settle(client.insert_tx(host.handle, Mail("a")))
    with pytest.raises(expected, match=r"failed|aborted"):
        await settle(client.job_get_tx(host.handle, 1))
    await host.rollback()
    assert (observer.jobs(), observer.notes()) == ([], [])
    await settle(client.insert_tx(host.handle, Mail("b")))
    await host.commit()
    assert observer.recipients() == ["b"]


@every_handle
async def test_a_savepoint_saves_the_transaction_from_an_error_of_the_database(
    host: Host, kind: Kind, client: river.Client, observer: Observer
) -> None:
    await write(host, observer)
    with pytest.raises(exc.ProgrammingError if kind.over_sqlalchemy else psycopg.errors.UndefinedTable):
        async with host.savepoint():
            await settle(river.Client(None, schema="no_such_schema").insert_tx(host.handle, Mail("a")))
    await settle(client.insert_tx(host.handle, Mail("b")))
    await host.commit()
    assert (observer.recipients(), observer.notes()) == (["b"], ["mine"])


@every_psycopg_handle
async def test_psycopg_in_autocommit_is_refused_without_a_transaction_and_used_with_one(
    kind: Kind, host_url: str, client: river.Client, observer: Observer
) -> None:
    async with opened_psycopg(kind, host_url, autocommit=True) as host:
        with pytest.raises(river.TransactionRequiredError, match=r"connection\.transaction\(\)"):
            await settle(client.insert_tx(host.handle, Mail("refused")))
        assert observer.jobs() == []
        async with host.savepoint():  # psycopg's transaction(), which is the outermost here
            await settle(client.insert_tx(host.handle, Mail("in a block")))
            assert observer.jobs() == []
        assert observer.recipients() == ["in a block"]
        await host.execute("BEGIN")
        await settle(client.insert_tx(host.handle, Mail("begun by hand")))
        await host.execute("ROLLBACK")
        assert host.connection.autocommit is True
        assert observer.recipients() == ["in a block"]


def set_autocommit(connection: Any) -> None:
    """On the DB-API's connection, where SQLAlchemy does not see it."""
    connection.connection.dbapi_connection.autocommit = True


@asynccontextmanager
async def in_autocommit(kind: Kind, url: str, way: str) -> AsyncIterator[SQLAlchemyHost]:
    """A SQLAlchemy handle that commits each statement by itself."""
    settings: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if way == "engine" else {}
    async with opened_sqlalchemy(kind, url, **settings) as host:
        if way == "connection" and kind.is_session:
            await host.on_connection(lambda _: None, execution_options={"isolation_level": "AUTOCOMMIT"})
        elif way == "connection":
            await settle(host.handle.execution_options(isolation_level="AUTOCOMMIT"))
        elif way == "DB-API":
            await host.on_connection(set_autocommit)
        yield host


@every_sqlalchemy_handle
@pytest.mark.parametrize("way", ["engine", "connection", "DB-API"])
async def test_sqlalchemy_in_autocommit_is_refused_however_it_was_set(
    kind: Kind, way: str, host_url: str, client: river.Client, observer: Observer
) -> None:
    async with in_autocommit(kind, host_url, way) as host:
        for call in calls(client, host.handle):
            with pytest.raises(river.TransactionRequiredError, match="autocommit"):
                await settle(call())
        assert observer.jobs() == []
        assert not any("river_job" in statement for statement in host.statements)
        await write(host, observer)
        assert observer.notes() == ["mine"], "the handle is in autocommit as before"


@every_sqlalchemy_handle
async def test_a_two_phase_transaction_is_refused(
    kind: Kind, host_url: str, client: river.Client, observer: Observer
) -> None:
    options = {"twophase": True} if kind.is_session else {}
    async with opened_sqlalchemy(kind, host_url, session_options=options) as host:
        if not kind.is_session:
            await host.on_connection(lambda connection: connection.begin_twophase("a_transaction"))
        with pytest.raises(river.HandleError, match="two-phase"):
            await settle(client.insert_tx(host.handle, Mail("a")))
        await host.rollback()
    assert observer.jobs() == []


@every_handle
async def test_a_closed_handle_is_refused_where_it_can_be_told(
    host: Host, kind: Kind, client: river.Client, observer: Observer
) -> None:
    await settle(client.insert_tx(host.handle, Mail("a")))
    await host.rollback()
    await host.close()
    if not kind.is_session:
        with pytest.raises(river.HandleClosedError):
            await settle(client.insert_tx(host.handle, Mail("b")))
        assert observer.jobs() == []
        return
    # A session that was closed is as good as new, and begins a transaction for the job as for anything else.
    await settle(client.insert_tx(host.handle, Mail("b")))
    assert observer.jobs() == []
    await host.commit()
    assert observer.recipients() == ["b"]


@pytest.mark.parametrize("kind", [kind for kind in PSYCOPG_KINDS if "Cursor" in kind.shape], ids=str)
async def test_the_cursor_of_a_closed_connection_is_refused(host: Host, client: river.Client) -> None:
    assert not host.handle.closed
    await settle(host.handle.connection.close())
    with pytest.raises(river.HandleClosedError):
        await settle(client.insert_tx(host.handle, Mail("a")))


@every_session
async def test_a_session_that_was_closed_for_good_is_refused_by_sqlalchemy(
    kind: Kind, host_url: str, client: river.Client, observer: Observer
) -> None:
    async with opened_sqlalchemy(kind, host_url, session_options={"close_resets_only": False}) as host:
        session = host.handle() if "scoped" in kind.shape else host.handle
        await settle(session.close())
        with pytest.raises(exc.InvalidRequestError, match="closed"):
            await settle(client.insert_tx(session, Mail("a")))
    assert observer.jobs() == []


async def test_an_asyncio_connection_that_was_never_opened_is_refused(host_url: str, client: river.Client) -> None:
    engine = create_async_engine(with_driver(host_url, "postgresql+asyncpg"))
    with pytest.raises(river.HandleClosedError, match="async with"):
        await client.insert_tx(engine.connect(), Mail("a"))
    await engine.dispose()


@every_sqlalchemy_handle
async def test_a_connection_lost_in_a_transaction_takes_no_job(
    host: SQLAlchemyHost, client: river.Client, observer: Observer
) -> None:
    await write(host, observer)
    await host.on_connection(lambda connection: connection.invalidate())
    with pytest.raises(exc.PendingRollbackError):
        await settle(client.insert_tx(host.handle, Mail("a")))
    await host.rollback()
    assert (observer.jobs(), observer.notes()) == ([], [])


@pytest.mark.parametrize("kind", [kind for kind in SQLALCHEMY_KINDS if not kind.is_session], ids=str)
@pytest.mark.parametrize("way", ["engine", "no autocommit"])
async def test_a_lost_connection_is_refused_until_its_next_transaction(
    kind: Kind, way: str, host_url: str, client: river.Client, observer: Observer
) -> None:
    """It connects again at its next statement, which must not be River's: that might be committed by itself."""
    async with in_autocommit(kind, host_url, way) as host:
        await host.on_connection(lambda connection: connection.invalidate())
        for call in calls(client, host.handle):
            with pytest.raises(river.HandleClosedError, match="begin a transaction"):
                await settle(call())
        await settle(host.handle.begin())
        if way == "engine":
            with pytest.raises(river.TransactionRequiredError):
                await settle(client.insert_tx(host.handle, Mail("a")))
        else:
            await settle(client.insert_tx(host.handle, Mail("b")))
        assert observer.jobs() == []
        await host.commit()
    assert observer.recipients() == ([] if way == "engine" else ["b"])


# The host's own settings of a psycopg connection stay its own.


def settings_of_psycopg(colour: str) -> dict[str, dict[str, Any]]:
    asyncio_ = colour == "asyncio"
    client_cursor: type[Any] = psycopg.AsyncClientCursor if asyncio_ else psycopg.ClientCursor
    raw_cursor: type[Any] = psycopg.AsyncRawCursor if asyncio_ else psycopg.RawCursor

    class BinaryCursor(psycopg.AsyncCursor[Any] if asyncio_ else psycopg.Cursor[Any]):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.format = psycopg.pq.Format.BINARY

    return {
        "dict_row": {"row_factory": dict_row},
        "namedtuple_row": {"row_factory": namedtuple_row},
        "class_row": {"row_factory": class_row(SimpleNamespace)},
        "scalar_row": {"row_factory": scalar_row},
        "RawCursor": {"cursor_factory": raw_cursor},
        "ClientCursor": {"cursor_factory": client_cursor},
        "binary": {"cursor_factory": BinaryCursor},
        "no prepared statements": {"prepare_threshold": None},
        "prepared at once": {"prepare_threshold": 0},
    }


@every_psycopg_handle
@pytest.mark.parametrize("name", settings_of_psycopg("blocking"))
async def test_rows_and_cursors_of_the_hosts_choice_change_nothing(
    kind: Kind, name: str, host_url: str, client: river.Client, observer: Observer
) -> None:
    settings = settings_of_psycopg(kind.colour)[name]
    async with opened_psycopg(kind, host_url, **settings) as host:
        before = (host.connection.row_factory, host.connection.cursor_factory, host.connection.autocommit)
        inserted = await settle(client.insert_tx(host.handle, Mail("a 100% :to")))
        await settle(client.insert_many_tx(host.handle, [Mail("b"), Mail("c")]))
        found = await settle(client.job_get_tx(host.handle, inserted.job.id))
        assert found.encoded_args == '{"to": "a 100% :to"}'
        after = (host.connection.row_factory, host.connection.cursor_factory, host.connection.autocommit)
        assert after == before
        await host.commit()
    assert observer.recipients() == ["a 100% :to", "b", "c"]


@pytest.mark.parametrize("kind", [kind for kind in PSYCOPG_KINDS if "Cursor" in kind.shape], ids=str)
async def test_what_a_cursor_has_still_to_give_is_left_to_the_host(
    host: Host, client: river.Client, observer: Observer
) -> None:
    await host.execute("SELECT generate_series(1, 3)")
    assert await settle(host.handle.fetchone()) == (1,)
    await settle(client.insert_tx(host.handle, Mail("a")))
    assert await settle(host.handle.fetchall()) == [(2,), (3,)]
    await host.commit()
    assert observer.recipients() == ["a"]


@every_psycopg_handle
async def test_settings_of_the_hosts_session_change_nothing_that_is_read(
    host: Host, client: river.Client, observer: Observer
) -> None:
    await host.execute("SET LOCAL TimeZone TO 'Asia/Kathmandu'")
    await host.execute("SET LOCAL DateStyle TO 'SQL, DMY'")
    await host.execute("SET LOCAL bytea_output TO 'escape'")
    inserted = (await settle(client.insert_tx(host.handle, Mail("ä€𝄞")))).job
    await host.commit()
    (job,) = observer.jobs()
    assert (inserted.created_at, inserted.args.to) == (job["created_at"], "ä€𝄞")


# Sessions keep their state, and their events see what is done.


@every_sqlalchemy_handle
async def test_the_hosts_events_see_one_statement_and_no_savepoint(
    host: Host, client: river.Client, schema: str
) -> None:
    await settle(client.insert_tx(host.handle, Mail("a")))
    (statement,) = host.statements
    assert f'INSERT INTO "{schema}".river_job' in statement
    await host.rollback()


class Note:
    """An object of the host's, mapped to its own table."""

    note: str

    def __init__(self, note: str) -> None:
        self.note = note


@pytest.fixture
def mapped(schema: str) -> Iterator[type[Note]]:
    mapper_registry = registry()
    table = Table("note", MetaData(schema=schema), Column("note", Text, primary_key=True))
    mapper_registry.map_imperatively(Note, table)
    yield Note
    mapper_registry.dispose()


@every_session
async def test_a_session_is_neither_flushed_nor_expired(
    host: Host, client: river.Client, observer: Observer, mapped: type[Note]
) -> None:
    session = host.handle
    loaded, changed, pending = mapped("loaded"), mapped("changed"), mapped("pending")
    session.add_all([loaded, changed])
    await settle(session.flush())
    changed.note = "changed since"
    session.add(pending)
    flushes: list[str] = []
    sync_session = session.sync_session if isinstance(session, AsyncSession) else session
    real = sync_session() if not isinstance(sync_session, Session) else sync_session
    real = getattr(real, "sync_session", real)
    event.listen(real, "before_flush", lambda *_: flushes.append("flush"))
    options = (real.expire_on_commit, real.autoflush)

    inserted = await settle(client.insert_tx(session, Mail("a")))
    await settle(client.insert_many_tx(session, [Mail("b")]))
    await settle(client.job_get_tx(session, inserted.job.id))

    assert flushes == []
    assert pending in session.new
    assert changed in session.dirty
    assert not inspect_orm(loaded).expired_attributes
    assert (real.expire_on_commit, real.autoflush) == options
    await host.commit()
    assert observer.notes() == ["changed since", "loaded", "pending"]
    assert observer.recipients() == ["a", "b"]


@pytest.mark.parametrize("library", ["postgresql+psycopg", "postgresql+psycopg2", "postgresql+pg8000"])
async def test_a_session_in_a_transaction_from_outside_leaves_the_end_to_the_outside(
    library: str, host_url: str, client: river.Client, observer: Observer
) -> None:
    """As test suites do: what the tested code commits is a savepoint, and goes with the test's own rollback."""
    async with opened_sqlalchemy(Kind(library, "Connection", "blocking"), host_url) as host:
        outer = host.handle.begin()
        with Session(host.handle, join_transaction_mode="create_savepoint") as session:
            committed = client.insert_tx(session, Mail("a")).job
            session.commit()
            rolled_back = client.insert_tx(session, Mail("b")).job
            session.rollback()
            assert client.job_get_tx(session, committed.id).id == committed.id
            with pytest.raises(river.JobNotFoundError):
                client.job_get_tx(session, rolled_back.id)
        outer.rollback()
    assert observer.jobs() == []


@pytest.mark.parametrize("library", ["postgresql+psycopg", "postgresql+asyncpg"])
async def test_an_asyncio_session_in_a_transaction_from_outside_leaves_the_end_to_the_outside(
    library: str, host_url: str, client: river.Client, observer: Observer
) -> None:
    async with opened_sqlalchemy(Kind(library, "AsyncConnection", "asyncio"), host_url) as host:
        outer = await host.handle.begin()
        async with AsyncSession(bind=host.handle, join_transaction_mode="create_savepoint") as session:
            inserted = await client.insert_tx(session, Mail("a"))
            await session.commit()
            assert (await client.job_get_tx(session, inserted.job.id)).id == inserted.job.id
        await outer.rollback()
    assert observer.jobs() == []


async def test_a_scoped_session_is_resolved_in_the_task_of_the_caller(
    host_url: str, client: river.Client, observer: Observer
) -> None:
    engine = create_async_engine(with_driver(host_url, "postgresql+asyncpg"))
    scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    await asyncio.create_task(client.insert_tx(scoped, Mail("a")))  # another task, with another session in its scope
    assert len(scoped.registry.registry) == 1
    await scoped.commit()
    assert observer.recipients() == ["a"]
    await scoped.remove()
    await engine.dispose()


# Several engines: the one of River's table.


class Elsewhere:
    """An object that is stored in another database than jobs are."""


@pytest.fixture
def mapped_elsewhere() -> Iterator[type[Elsewhere]]:
    mapper_registry = registry()
    mapper_registry.map_imperatively(Elsewhere, Table("elsewhere", MetaData(), Column("id", Integer, primary_key=True)))
    yield Elsewhere
    mapper_registry.dispose()


@pytest.mark.parametrize("kind", [kind for kind in SESSION_KINDS if kind.shape.endswith("Session")], ids=str)
async def test_of_a_sessions_engines_the_one_of_rivers_table_takes_the_job(
    kind: Kind, host_url: str, client: river.Client, observer: Observer, mapped_elsewhere: type[Elsewhere]
) -> None:
    async with opened_sqlalchemy(kind, host_url) as other, opened_sqlalchemy(kind, host_url) as ours:
        session_type: Any = type(other.handle)
        binds = {mapped_elsewhere: other.source, river_job: ours.source}
        session = session_type(binds=binds)
        try:
            await settle(client.insert_tx(session, Mail("a")))
            await settle(session.commit())
        finally:
            await settle(session.close())
        assert other.statements == []
        assert [statement for statement in ours.statements if "river_job" in statement]
    assert observer.recipients() == ["a"]


@pytest.mark.parametrize("kind", [kind for kind in SESSION_KINDS if kind.shape.endswith("Session")], ids=str)
async def test_of_a_sessions_engines_the_default_takes_the_job_if_none_is_rivers(
    kind: Kind, host_url: str, client: river.Client, observer: Observer, mapped_elsewhere: type[Elsewhere]
) -> None:
    async with opened_sqlalchemy(kind, host_url) as other, opened_sqlalchemy(kind, host_url) as default:
        session_type: Any = type(other.handle)
        session = session_type(default.source, binds={mapped_elsewhere: other.source})
        try:
            await settle(client.insert_tx(session, Mail("a")))
            await settle(session.commit())
        finally:
            await settle(session.close())
        assert other.statements == []
    assert observer.recipients() == ["a"]


@pytest.mark.parametrize("kind", [kind for kind in SESSION_KINDS if kind.shape.endswith("Session")], ids=str)
async def test_a_session_whose_engines_are_all_for_other_tables_is_refused_with_the_remedy(
    kind: Kind, host_url: str, client: river.Client, observer: Observer, mapped_elsewhere: type[Elsewhere]
) -> None:
    async with opened_sqlalchemy(kind, host_url) as other:
        session_type: Any = type(other.handle)
        for session in (session_type(binds={mapped_elsewhere: other.source}), session_type()):
            try:
                with pytest.raises(river.HandleError, match=r"river_sqlalchemy\.river_job"):
                    await settle(client.insert_tx(session, Mail("a")))
            finally:
                await settle(session.close())
        assert other.statements == []
    assert observer.jobs() == []


# What is no handle at all.


def refusal(client: river.Client, thing: Any) -> str:
    """What is said of a thing that is no handle, by each method that takes one."""
    said = set()
    for call in calls(client, thing):
        with pytest.raises(river.UnsupportedHandleError) as refused:
            call()
        said.add(str(refused.value))
    (message,) = said
    return message


def test_what_is_no_handle_is_refused_by_its_type_and_with_the_installed_drivers(client: river.Client) -> None:
    engine = create_engine("postgresql+psycopg://")
    with sqlite3.connect(":memory:") as connection, ConnectionPool("", open=False) as pool:
        for thing, name in {
            None: "builtins.NoneType",
            "postgresql://somewhere": "builtins.str",
            42: "builtins.int",
            Session: "builtins.type",
            engine: "sqlalchemy.engine.base.Engine",
            sessionmaker(engine): "sqlalchemy.orm.session.sessionmaker",
            create_async_engine("postgresql+asyncpg://"): "sqlalchemy.ext.asyncio.engine.AsyncEngine",
            pool: "psycopg_pool.pool.ConnectionPool",
            connection: "sqlite3.Connection",
        }.items():
            message = refusal(client, thing)
            assert message.startswith(f"{name} is no connection or session")
            assert "psycopg, sqlalchemy" in message
    connection.close()


def test_a_connection_of_psycopg2s_own_is_refused(client: river.Client, database_url: str) -> None:
    connection = psycopg2.connect(database_url)
    assert refusal(client, connection).startswith("psycopg2.extensions.connection is no")
    connection.close()


# Handles of others.


class Wrapped:
    """A host's own wrapper of a connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def execute(self, statement: str) -> object:
        return self.connection.execute(statement.encode())

    def close(self) -> None:
        self.connection.close()


class LoggedExecutor(ConnectionExecutor):
    """What an adopter of the host's own may make of it."""

    asked: list[Statement]

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self.asked = []

    def execute(self, statement: Statement) -> Rows:
        self.asked.append(statement)
        return super().execute(statement)


@pytest.fixture
def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "_registered", {})
    monkeypatch.setattr(seam, "_adopters", {})


def test_a_registered_adopter_makes_handles_of_a_hosts_own_class(
    fresh_registry: None, client: river.Client, database_url: str, observer: Observer
) -> None:
    class Derived(Wrapped):
        pass

    made: list[LoggedExecutor] = []

    def adopt(handle: Any) -> LoggedExecutor | None:
        if not isinstance(handle, Wrapped):
            return None
        made.append(LoggedExecutor(handle.connection))
        return made[-1]

    with psycopg.connect(database_url) as connection:
        with pytest.raises(river.UnsupportedHandleError):
            client.insert_tx(Wrapped(connection), Mail("before"))
        river.register_handles(__name__.partition(".")[0], adopt)
        client.insert_tx(Wrapped(connection), Mail("a"))
        client.insert_tx(Derived(connection), Mail("b"))
        assert observer.jobs() == []
        connection.commit()
    assert observer.recipients() == ["a", "b"]
    values: set[type[Value]] = {
        type(value) for executor in made for statement in executor.asked for value in statement.parameters.values()
    }
    assert values <= {int, str, bool, type(None)}


def test_an_adopter_that_does_not_know_a_handle_leaves_it_to_the_others(
    fresh_registry: None, client: river.Client, database_url: str, observer: Observer
) -> None:
    seen: list[object] = []
    river.register_handles("psycopg", seen.append)
    with psycopg.connect(database_url) as connection:
        client.insert_tx(connection, Mail("a"))
        assert seen == [connection]
        connection.commit()
    assert observer.recipients() == ["a"]


class Proxy:
    """What a monitoring tool puts in the place of a connection: it says that it is what it wraps."""

    def __init__(self, wrapped: object) -> None:
        self._wrapped = wrapped

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._wrapped.__class__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


@pytest.mark.parametrize("kind", FEW_KINDS, ids=str)
async def test_the_proxy_of_a_handle_is_as_good_as_the_handle(
    host: Host, client: river.Client, observer: Observer
) -> None:
    proxy: Any = Proxy(host.handle)
    await settle(client.insert_tx(proxy, Mail("a")))
    assert observer.jobs() == []
    await host.commit()
    assert observer.recipients() == ["a"]
