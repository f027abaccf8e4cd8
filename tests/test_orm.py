"""River's mapped classes are queried like a host's own, and nothing is written through them.

The host of this module has River's tables in its own MetaData, under the schema name ``river``; a session of the test
translates that to the test's schema, so that under the empty search path a name without a schema would fail.
"""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from psycopg import sql
from psycopg.types.json import Jsonb
from sqlalchemy import Engine, MetaData, create_engine, event, func, inspect, select, text, update
from sqlalchemy.dialects.postgresql import ENUM
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    aliased,
    declarative_base,
    foreign,
    make_transient,
    mapped_column,
    registry,
    relationship,
    selectinload,
)
from sqlalchemy.orm.attributes import flag_modified
from sqlalchemy.pool import NullPool

import river
from river import JobState
from river.errors import ConfigurationError, RiverError
from river_sqlalchemy import river_job, river_queue, tables
from river_sqlalchemy import schema as river_schema
from river_sqlalchemy.orm import JobColumns, QueueColumns, ReadOnlyError, RiverJob, RiverQueue
from tests.support.handles import SESSION_KINDS, Host, Kind, Mail, opened_sqlalchemy, settle
from tests.support.snippets import mypy_complaints, pyright_complaints
from tests.support.urls import with_driver

PLAIN_SESSIONS = [kind for kind in SESSION_KINDS if kind.shape in ("Session", "AsyncSession")]
"""One for each database library."""

AT = datetime(2026, 1, 31, 12, 30, tzinfo=timezone(timedelta(hours=2)))


class Base(DeclarativeBase):
    """The host's."""

    metadata = MetaData(schema="river")


class User(Base):
    """Jobs are about users; nothing but their args says so."""

    __tablename__ = "app_user"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    jobs: Mapped[list[HostJob]] = relationship(
        primaryjoin="foreign(HostJob.args['user_id'].as_integer()) == User.id", viewonly=True, order_by="HostJob.id"
    )


class Report(Base):
    """The host's own record of a job."""

    __tablename__ = "app_report"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int | None]
    job: Mapped[HostJob | None] = relationship(
        primaryjoin=lambda: foreign(Report.job_id) == HostJob.id, cascade="save-update, delete"
    )
    foreign_job: Mapped[RiverJob | None] = relationship(
        RiverJob, primaryjoin=lambda: foreign(Report.job_id) == RiverJob.id, viewonly=True
    )


class Mailbox(Base):
    """A mistake: its collection would write the jobs' queue."""

    __tablename__ = "app_mailbox"

    name: Mapped[str] = mapped_column(primary_key=True)
    jobs: Mapped[list[HostJob]] = relationship(primaryjoin="foreign(HostJob.queue) == Mailbox.name")


RIVER = tables(None, Base.metadata)


class HostJob(JobColumns, Base):
    """A job, in the host's registry."""

    __table__ = RIVER.river_job

    user: Mapped[User | None] = relationship(
        primaryjoin="foreign(HostJob.args['user_id'].as_integer()) == User.id", viewonly=True
    )


class HostQueue(QueueColumns, Base):
    """A queue, in the host's registry."""

    __table__ = RIVER.river_queue


class Rows:
    """The test's rows, in SQL of its own."""

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        self.connection = connection
        self.schema = schema

    def execute(self, statement: str, parameters: Any = ()) -> list[Any]:
        """Run a statement in which ``{}`` is the schema; its rows."""
        cursor = self.connection.execute(sql.SQL(statement).format(sql.Identifier(self.schema)), parameters)
        return cursor.fetchall() if cursor.description else []

    def job(self, state: str = "available", *, kind: str = "mail", queue: str = "default", **args: object) -> int:
        """Insert a job; its id."""
        finalized = "now()" if JobState.COMPLETED.value == state else "NULL"
        ((job_id,),) = self.execute(
            "INSERT INTO {}.river_job (kind, args, queue, state, finalized_at) "
            f"VALUES (%s, %s, %s, %s, {finalized}) RETURNING id",
            (kind, Jsonb(args), queue, state),
        )
        return int(job_id)

    def jobs(self) -> list[Any]:
        """What a test could have changed by mistake."""
        return self.execute("SELECT id, state, queue, args FROM {}.river_job ORDER BY id")

    def users(self) -> list[str]:
        """The committed users."""
        return [email for (email,) in self.execute("SELECT email FROM {}.app_user ORDER BY email")]


@pytest.fixture
def rows(schema_connection: psycopg.Connection, schema: str) -> Rows:
    """Also makes the host's tables."""
    rows = Rows(schema_connection, schema)
    rows.execute("CREATE TABLE {}.app_user (id integer PRIMARY KEY, email text NOT NULL)")
    rows.execute("CREATE TABLE {}.app_report (id integer PRIMARY KEY, job_id bigint)")
    rows.execute("CREATE TABLE {}.app_mailbox (name text PRIMARY KEY)")
    return rows


@pytest.fixture
def engine(database_url: str, schema: str, rows: Rows) -> Engine:
    """The host's."""
    return create_engine(
        with_driver(database_url, "postgresql+psycopg"),
        poolclass=NullPool,
        execution_options={"schema_translate_map": {"river": schema, None: schema}},
    )


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


@pytest.fixture
async def host(kind: Kind, database_url: str, schema: str, rows: Rows) -> AsyncIterator[Host]:
    """A session over each database library; it must let go of the tables before they are dropped."""
    translated = {"schema_translate_map": {"river": schema}}
    async with opened_sqlalchemy(kind, database_url, execution_options=translated) as host:
        yield host


every_library = pytest.mark.parametrize("kind", PLAIN_SESSIONS, ids=str)


FULL = """\
INSERT INTO {}.river_job (
    state, attempt, max_attempts, attempted_at, created_at, finalized_at, scheduled_at, priority, args, attempted_by,
    errors, kind, metadata, queue, tags, unique_key, unique_states
)
VALUES (
    'discarded', 3, 3, %(at)s, %(at)s, %(at)s, %(at)s, 2, '{{"user_id": 1}}', '{{a,b}}',
    ARRAY[CAST('{{"attempt": 1, "error": "no"}}' AS jsonb), CAST('{{"attempt": 2, "error": "no"}}' AS jsonb)],
    'mail', '{{"snoozes": 1}}', 'slow', '{{x,y}}', '\\x00ff', B'10000001'
)
RETURNING id
"""

EMPTY = "INSERT INTO {}.river_job (kind, args) VALUES ('mail', '{{}}') RETURNING id"


@every_library
async def test_a_jobs_values_have_the_declared_types_on_every_library(host: Host, rows: Rows) -> None:
    ((full,),) = rows.execute(FULL, {"at": AT})
    job = await settle(host.handle.get(HostJob, full))
    assert values(job) == {
        "id": full,
        "state": JobState.DISCARDED,
        "attempt": 3,
        "max_attempts": 3,
        "attempted_at": AT,
        "created_at": AT,
        "finalized_at": AT,
        "scheduled_at": AT,
        "priority": 2,
        "args": {"user_id": 1},
        "attempted_by": ["a", "b"],
        "errors": [{"attempt": 1, "error": "no"}, {"attempt": 2, "error": "no"}],
        "kind": "mail",
        "metadata_": {"snoozes": 1},
        "queue": "slow",
        "tags": ["x", "y"],
        "unique_key": b"\x00\xff",
        "unique_states": "10000001",
    }
    assert (type(job.state), type(job.unique_states), type(job.unique_key)) == (JobState, str, bytes)
    assert all(getattr(job, name).utcoffset() is not None for name in values(job) if name.endswith("_at"))


@every_library
async def test_what_a_job_has_not_is_none_or_empty_on_every_library(host: Host, rows: Rows) -> None:
    ((empty,),) = rows.execute(EMPTY)
    job = await settle(host.handle.get(HostJob, empty))
    nothing = {name for name, value in values(job).items() if value is None}
    assert nothing == {"attempted_at", "attempted_by", "errors", "finalized_at", "unique_key", "unique_states"}
    assert (job.tags, job.metadata_, job.args) == ([], {}, {})


@every_library
async def test_a_queues_values_have_the_declared_types_on_every_library(host: Host, rows: Rows) -> None:
    rows.execute("INSERT INTO {}.river_queue (name, created_at, updated_at) VALUES ('slow', %s, %s)", (AT, AT))
    queue = (await settle(host.handle.scalars(select(HostQueue).where(HostQueue.paused_at.is_(None))))).one()
    assert values(queue) == {
        "name": "slow",
        "created_at": AT,
        "metadata_": {},
        "paused_at": None,
        "updated_at": AT,
    }


@every_library
async def test_a_state_of_a_newer_river_breaks_no_query_on_any_library(host: Host, rows: Rows) -> None:
    rows.execute("ALTER TYPE {}.river_job_state ADD VALUE 'archived'")
    known, unknown = rows.job(), rows.job("archived")
    query = select(HostJob.id, HostJob.state).order_by(HostJob.id)
    assert (await settle(host.handle.execute(query))).all() == [(known, JobState.AVAILABLE), (unknown, "archived")]
    archived = (await settle(host.handle.scalars(select(HostJob).where(HostJob.state == "archived")))).one()
    assert (archived.id, archived.state) == (unknown, "archived")


@every_library
async def test_jobs_are_found_by_their_columns_and_joined_with_the_hosts_tables(host: Host, rows: Rows) -> None:
    rows.execute("INSERT INTO {}.app_user VALUES (1, 'a@example.com'), (2, 'b@example.com')")
    first, _other, running = rows.job(user_id=1), rows.job(user_id=3), rows.job("running", user_id=2)
    joined = (
        select(HostJob.id, User.email)
        .join(User, HostJob.args["user_id"].as_integer() == User.id)
        .where(HostJob.state.in_([JobState.AVAILABLE, JobState.RUNNING]))
        .order_by(HostJob.id)
    )
    assert (await settle(host.handle.execute(joined))).all() == [(first, "a@example.com"), (running, "b@example.com")]
    for condition in (HostJob.state == JobState.RUNNING, HostJob.args.contains({"user_id": 2}), HostJob.id == running):
        assert (await settle(host.handle.scalars(select(HostJob).where(condition)))).one().id == running


@every_library
async def test_relationships_of_the_host_lead_to_its_jobs_and_back(host: Host, rows: Rows) -> None:
    rows.execute("INSERT INTO {}.app_user VALUES (1, 'a@example.com')")
    jobs = [rows.job(user_id=1), rows.job(user_id=1)]
    rows.job(user_id=2)
    query = select(User).options(selectinload(User.jobs).joinedload(HostJob.user)).where(User.jobs.any(kind="mail"))
    user = (await settle(host.handle.scalars(query))).one()
    assert [job.id for job in user.jobs] == jobs
    assert user.jobs[0].user is user


@every_library
async def test_a_job_inserted_in_the_session_is_read_in_the_same_transaction(host: Host, rows: Rows) -> None:
    client = river.Client(None, schema=rows.schema)
    inserted = await settle(client.insert_tx(host.handle, Mail("someone"), tags=["new"]))
    query = select(HostJob).where(HostJob.args["to"].as_string() == "someone")
    job = (await settle(host.handle.scalars(query))).one()
    assert (job.id, job.kind, job.tags, job.state) == (inserted.job.id, "mail", ["new"], JobState.AVAILABLE)
    await host.rollback()
    assert (await settle(host.handle.scalars(query))).all() == []


def test_a_condition_on_the_state_is_one_on_the_column_so_that_its_indexes_are_used() -> None:
    condition = (HostJob.state == JobState.RUNNING).compile(compile_kwargs={"literal_binds": True})
    assert str(condition) == "river.river_job.state = 'running'"


def test_the_default_classes_follow_the_search_path(database_url: str, rows: Rows) -> None:
    rows.execute("INSERT INTO {}.river_queue (name) VALUES ('slow')")
    job_id = rows.job("running")
    url = database_url.replace("search_path%3D", f"search_path%3D{rows.schema}")
    with Session(create_engine(with_driver(url, "postgresql+psycopg"), poolclass=NullPool)) as session:
        assert session.scalars(select(RiverJob.id).where(RiverJob.state == JobState.RUNNING)).all() == [job_id]
        assert session.get_one(RiverQueue, "slow").paused_at is None


def test_a_relationship_leads_to_a_class_of_another_registry(session: Session, rows: Rows) -> None:
    job_id = rows.job()
    session.add(Report(id=1, job_id=job_id))
    session.flush()
    assert session.get_one(Report, 1).foreign_job is session.get_one(RiverJob, job_id)


def test_the_hosts_own_column_follows_a_relationship_to_a_job(session: Session, rows: Rows) -> None:
    job = session.get_one(HostJob, rows.job())
    session.add(Report(id=1, job=job))
    session.commit()
    assert rows.execute("SELECT job_id FROM {}.app_report") == [(job.id,)]


def test_an_aliased_class_has_the_same_attributes(session: Session, rows: Rows) -> None:
    first, second = rows.job("running"), rows.job()
    other = aliased(HostJob)
    query = select(HostJob.state, other.state).join(other, other.id > HostJob.id)
    assert session.execute(query).all() == [(JobState.RUNNING, JobState.AVAILABLE)]
    assert session.scalars(select(other).where(other.state == JobState.AVAILABLE)).one().id == second
    assert first < second


def test_states_can_be_counted(session: Session, rows: Rows) -> None:
    for state in ("running", "available", "available"):
        rows.job(state)
    counted = select(HostJob.state, func.count()).group_by(HostJob.state).order_by(HostJob.state)
    found = [(state, count) for state, count in session.execute(counted)]
    assert found == [(JobState.AVAILABLE, 2), (JobState.RUNNING, 1)]
    assert all(isinstance(state, JobState) for state, _ in found)


def test_an_instance_is_as_old_as_its_query_until_it_is_refreshed(session: Session, rows: Rows) -> None:
    job = session.get_one(HostJob, rows.job())
    rows.execute("UPDATE {}.river_job SET state = 'running'")
    query = select(HostJob)
    assert session.scalars(query).one() is job
    assert state_of(job) == "available"
    session.refresh(job, ["state"])
    assert state_of(job) == "running"
    rows.execute("UPDATE {}.river_job SET state = 'pending'")
    session.scalars(query.execution_options(populate_existing=True)).one()
    assert state_of(job) == "pending"
    rows.execute("UPDATE {}.river_job SET state = 'scheduled'")
    session.commit()
    assert state_of(job) == "scheduled"


@pytest.mark.parametrize("bound", [river_job, RiverJob], ids=["table", "class"])
def test_a_session_with_several_engines_finds_rivers_by_table_or_class(
    bound: Any, database_url: str, rows: Rows
) -> None:
    url = with_driver(database_url.replace("search_path%3D", f"search_path%3D{rows.schema}"), "postgresql+psycopg")
    rivers = create_engine(url, poolclass=NullPool)
    others = create_engine("postgresql+psycopg://nowhere.invalid/")
    with Session(binds={bound: rivers, river_queue: rivers, User: others}) as session:
        inserted = river.Client(None).insert_tx(session, Mail("someone"))
        assert session.scalars(select(RiverJob.id)).all() == [inserted.job.id]
        assert session.scalars(select(RiverQueue)).all() == []
        assert session.get_bind(User) is others


def test_an_instance_shows_what_is_loaded_and_loads_nothing(session: Session, rows: Rows) -> None:
    job_id = rows.job()
    job = session.get_one(HostJob, job_id)
    assert repr(job) == f"<HostJob id={job_id} kind=mail state=available queue=default>"
    session.expire(job, ["state"])
    assert repr(job) == f"<HostJob id={job_id} kind=mail queue=default>"
    session.commit()
    session.close()
    assert repr(job) == "<HostJob>"


def delete_attribute(session: Session, job: HostJob) -> None:
    del job.kind


def merge(session: Session, job: HostJob) -> None:
    session.expunge(job)
    session.merge(job)


def delete_parent(session: Session, job: HostJob) -> None:
    session.add(report := Report(id=9, job=job))
    session.flush()
    session.delete(report)


REFUSED: dict[str, Callable[[Session, HostJob], Any]] = {
    "attribute 'state' cannot be set": lambda session, job: setattr(job, "state", JobState.RUNNING),
    "attribute 'id' cannot be set": lambda session, job: setattr(job, "id", 2),
    "attribute 'metadata_' cannot be set": lambda session, job: setattr(job, "metadata_", {}),
    "attribute 'unique_states' cannot be set": lambda session, job: setattr(job, "unique_states", None),
    "attribute 'tags' cannot be set": lambda session, job: setattr(job, "tags", job.tags),
    "attribute 'kind' cannot be deleted": delete_attribute,
    "attribute 'args' cannot be marked": lambda session, job: flag_modified(job, "args"),
    "no instance of it can be made": lambda session, job: type(job)(kind="mail"),  # type: ignore[call-arg]
    "its rows cannot be deleted": lambda session, job: session.delete(job),
    "its attribute '[a-z]+' cannot be set": merge,
    "its rows cannot be deleted.": delete_parent,
}
"""What a host may try, by what is said of it."""


@pytest.mark.parametrize("said", REFUSED)
def test_what_would_write_a_job_is_refused_at_once_and_the_transaction_goes_on(
    session: Session, rows: Rows, said: str
) -> None:
    rows.job(user_id=1)
    before = rows.jobs()
    session.add(User(id=1, email="before@example.com"))
    job = session.scalars(select(HostJob)).one()
    with pytest.raises(ReadOnlyError, match=rf"^HostJob is read-only: .*{said}.* client\.insert_tx\(session"):
        REFUSED[said](session, job)
    assert (list(session.new), list(session.dirty), list(session.deleted)) == ([], [], [])
    session.add(User(id=2, email="more@example.com"))
    session.commit()
    assert rows.users() == ["before@example.com", "more@example.com"]
    assert rows.jobs() == before
    assert session.scalars(select(HostJob)).one().state == JobState.AVAILABLE


def test_what_would_write_a_queue_is_refused_too(session: Session, rows: Rows) -> None:
    rows.execute("INSERT INTO {}.river_queue (name) VALUES ('slow')")
    queue = session.get_one(HostQueue, "slow")
    for attempt in (
        lambda: setattr(queue, "paused_at", datetime.now(UTC)),
        lambda: session.delete(queue),
        lambda: type(queue)(name="fast"),  # type: ignore[call-arg]
    ):
        with pytest.raises(
            ReadOnlyError, match=r"^HostQueue is read-only: .*Queues are made and changed by River's cl"
        ):
            attempt()
    session.commit()
    assert rows.execute("SELECT name, paused_at FROM {}.river_queue") == [("slow", None)]


async def test_an_asyncio_session_is_refused_at_once_too(database_url: str, rows: Rows) -> None:
    job_id = rows.job()
    engine = create_async_engine(
        with_driver(database_url, "postgresql+asyncpg"),
        poolclass=NullPool,
        execution_options={"schema_translate_map": {"river": rows.schema}},
    )
    async with AsyncSession(engine) as session:
        job = await session.get_one(HostJob, job_id)
        with pytest.raises(ReadOnlyError, match="HostJob"):
            await session.delete(job)
        session.add(User(id=1, email="more@example.com"))
        await session.commit()
    assert rows.users() == ["more@example.com"]
    assert [row[0] for row in rows.jobs()] == [job_id]


def test_an_expired_attribute_is_refused_without_a_query(session: Session, engine: Engine, rows: Rows) -> None:
    job = session.get_one(HostJob, rows.job())
    session.commit()
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    with pytest.raises(ReadOnlyError, match="'state'"):
        setattr(job, "state", JobState.RUNNING)  # noqa: B010 - a type checker refuses the plain assignment
    assert statements == []


def test_a_pickled_job_is_merged_without_a_load(session: Session, rows: Rows) -> None:
    pickled = pickle.dumps(session.get_one(HostJob, rows.job(user_id=1)))
    session.expunge_all()
    job = session.merge(pickle.loads(pickled), load=False)
    assert (job.args, job.state, job in session) == ({"user_id": 1}, JobState.AVAILABLE, True)


def test_what_only_the_flush_finds_is_refused_there(session: Session, rows: Rows) -> None:
    job_id = rows.job()
    before = rows.jobs()
    job = session.get_one(HostJob, job_id)
    make_transient(job)
    session.add_all([job, User(id=1, email="lost@example.com")])
    with pytest.raises(ReadOnlyError, match="HostJob is read-only: its rows cannot be written"):
        session.flush()
    session.rollback()
    session.add(Mailbox(name="a", jobs=[session.get_one(HostJob, job_id)]))
    with pytest.raises(ReadOnlyError, match="'queue' cannot be set"):
        session.commit()
    session.rollback()
    assert rows.jobs() == before
    assert (rows.users(), rows.execute("SELECT * FROM {}.app_mailbox")) == ([], [])
    assert session.get_one(HostJob, job_id).queue == "default"


def test_the_refusal_is_no_attribute_error_which_a_hasattr_would_swallow() -> None:
    assert issubclass(ReadOnlyError, RiverError)
    assert issubclass(ReadOnlyError, TypeError)
    assert not issubclass(ReadOnlyError, AttributeError)


def test_a_core_statement_on_the_table_is_the_hosts_own_business(session: Session, rows: Rows) -> None:
    rows.job()
    session.execute(update(RIVER.river_job).values(priority=4))
    assert session.scalars(select(HostJob.priority)).one() == 4


def declared_beside_dataclasses(schema: str) -> Any:
    """SQLAlchemy makes no dataclass over a table that is there already."""

    class DataclassBase(MappedAsDataclass, DeclarativeBase):
        pass

    @DataclassBase.registry.mapped
    class Declared(JobColumns):
        __table__ = tables(schema, DataclassBase.metadata).river_job

    return Declared


def declared_over_a_base_function(schema: str) -> Any:
    base: Any = declarative_base()
    return type("Declared", (JobColumns, base), {"__table__": tables(schema, base.metadata).river_job})


def declared_by_a_decorator(schema: str) -> Any:
    mapping = registry()

    @mapping.mapped
    class Declared(JobColumns):
        __table__ = tables(schema, mapping.metadata).river_job

    return Declared


def declared_as_a_subclass(schema: str) -> Any:
    class OwnBase(DeclarativeBase):
        metadata = MetaData(schema=schema)

    class Parent(JobColumns, OwnBase):
        __table__ = tables(None, OwnBase.metadata).river_job

    class Declared(Parent):
        pass

    return Declared


@pytest.mark.parametrize(
    "declare",
    [declared_beside_dataclasses, declared_over_a_base_function, declared_by_a_decorator, declared_as_a_subclass],
)
def test_every_style_of_declaration_gives_a_read_only_class(
    declare: Callable[[str], Any], session: Session, rows: Rows
) -> None:
    declared = declare(rows.schema)
    job_id = rows.job("running", user_id=1)
    job = session.scalars(select(declared).where(declared.state == JobState.RUNNING)).one()
    assert (job.id, job.state.finalized, job.args, job.metadata_) == (job_id, False, {"user_id": 1}, {})
    for attempt in (lambda: declared(), lambda: setattr(job, "state", "x"), lambda: session.delete(job)):
        with pytest.raises(ReadOnlyError, match="Declared is read-only"):
            attempt()
    assert (list(session.new), list(session.dirty), list(session.deleted)) == ([], [], [])


def test_a_class_that_replaces_rivers_mapper_arguments_is_refused() -> None:
    base: Any = declarative_base()
    body = {"__table__": tables("river", base.metadata).river_job, "__mapper_args__": {"eager_defaults": False}}
    with pytest.raises(ConfigurationError, match="Declared has other __mapper_args__ than River's"):
        type("Declared", (JobColumns, base), body)


def test_the_classes_are_over_rivers_tables_and_change_nothing_of_them() -> None:
    assert inspect(RiverJob).local_table is river_job
    assert inspect(RiverQueue).local_table is river_queue
    assert RiverJob.metadata is river_schema.metadata
    assert isinstance(river_job.c.state.type, ENUM)
    assert len(river_job.c) == len(tables("other").river_job.c) == len(inspect(RiverJob).columns)


def test_alembic_finds_nothing_to_change_for_a_host_with_the_classes(engine: Engine, rows: Rows) -> None:
    class OwnBase(DeclarativeBase):
        pass

    described = tables(rows.schema, OwnBase.metadata)

    class OwnJob(JobColumns, OwnBase):
        __table__ = described.river_job

    class OwnQueue(QueueColumns, OwnBase):
        __table__ = described.river_queue

    def include(_object: Any, name: str | None, kind: str, _reflected: bool, _compared: Any) -> bool:
        return not (kind == "table" and name is not None and name.startswith("app_"))

    options = {
        "include_schemas": True,
        "include_name": lambda name, kind, _parents: kind != "schema" or name == rows.schema,
        "include_object": include,
        "compare_type": True,
        "compare_server_default": True,
    }
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), OwnBase.metadata) == []
    assert {OwnJob.__table__, OwnQueue.__table__} <= set(OwnBase.metadata.tables.values())


def test_on_sqlite_the_raw_values_come_back() -> None:
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        session.execute(text(f"CREATE TABLE river_job ({', '.join(river_job.c.keys())})"))
        session.execute(
            text(
                "INSERT INTO river_job (id, state, created_at, metadata, unique_states)"
                " VALUES (1, 'available', '2026-01-01 00:00:00.12', X'00', 129)"
            )
        )
        job = session.scalars(select(RiverJob).where(RiverJob.state == JobState.AVAILABLE)).one()
        assert {name: value for name, value in values(job).items() if value is not None} == {
            "id": 1,
            "state": JobState.AVAILABLE,
            "created_at": "2026-01-01 00:00:00.12",
            "metadata_": b"\x00",
            "unique_states": "129",
        }
    engine.dispose()


PROGRAM = """\
# pyright: strict, reportUnnecessaryTypeIgnoreComment=error
from collections.abc import Sequence
from datetime import datetime
from typing import Any, assert_type

from river import JobState
from river_sqlalchemy import tables
from river_sqlalchemy.orm import JobColumns, QueueColumns, RiverJob, RiverQueue
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import (
    DeclarativeBase, Mapped, Session, aliased, defer, foreign, load_only, mapped_column, relationship, selectinload
)


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    jobs: Mapped[list["HostJob"]] = relationship(
        primaryjoin=lambda: foreign(HostJob.args["user_id"].as_integer()) == User.id, viewonly=True
    )


river = tables("jobs", Base.metadata)


class HostJob(JobColumns, Base):
    __table__ = river.river_job
    user: Mapped[User | None] = relationship(
        primaryjoin="foreign(HostJob.args['user_id'].as_integer()) == User.id", viewonly=True
    )


class HostQueue(QueueColumns, Base):
    __table__ = river.river_queue


def attributes(job: RiverJob, own: HostJob, queue: RiverQueue, own_queue: HostQueue) -> None:
    assert_type(job.id, int)
    assert_type(job.state, JobState)
    assert_type(job.state.finalized, bool)
    assert_type(job.attempt, int)
    assert_type(job.max_attempts, int)
    assert_type(job.attempted_at, datetime | None)
    assert_type(job.created_at, datetime)
    assert_type(job.finalized_at, datetime | None)
    assert_type(job.scheduled_at, datetime)
    assert_type(job.priority, int)
    assert_type(job.args, dict[str, Any])
    assert_type(job.attempted_by, list[str] | None)
    assert_type(job.errors, list[dict[str, Any]] | None)
    assert_type(job.kind, str)
    assert_type(job.metadata_, dict[str, Any])
    assert_type(job.queue, str)
    assert_type(job.tags, list[str])
    assert_type(job.unique_key, bytes | None)
    assert_type(job.unique_states, str | None)
    assert_type(own.state, JobState)
    assert_type(own.user, User | None)
    assert_type(queue.name, str)
    assert_type(queue.paused_at, datetime | None)
    assert_type(queue.metadata_, dict[str, Any])
    assert_type(own_queue.created_at, datetime)
    assert_type(own_queue.updated_at, datetime)


def queries(session: Session, user: User) -> None:
    running = select(RiverJob).where(RiverJob.state == JobState.RUNNING, RiverJob.tags.contains(["new"]))
    assert_type(session.scalars(running).all(), Sequence[RiverJob])
    assert_type(session.get(RiverJob, 1), RiverJob | None)
    assert_type(session.scalars(select(RiverJob.kind)).one(), str)
    mine = select(RiverJob).where(RiverJob.args["user_id"].as_integer() == 1)
    assert_type(session.scalars(mine.order_by(RiverJob.scheduled_at.desc())).first(), RiverJob | None)
    joined = select(RiverJob.id, User.email).join(User, RiverJob.args["user_id"].as_integer() == User.id)
    for job_id, email in session.execute(joined).tuples():
        assert_type(job_id, int)
        assert_type(email, str)
    counted = select(HostJob.state, func.count()).group_by(HostJob.state)
    assert_type(dict(session.execute(counted).tuples().all()), dict[JobState, int])
    other = aliased(HostJob)
    assert_type(session.scalars(select(other).where(other.id < 3)).one(), HostJob)
    few = select(HostJob).options(load_only(HostJob.id), defer(HostJob.args))
    assert_type(session.scalars(few).first(), HostJob | None)
    assert_type(user.jobs, list[HostJob])
    session.scalars(select(User).options(selectinload(User.jobs)).join(User.jobs).where(HostJob.kind == "mail"))


async def asynchronous(session: AsyncSession) -> None:
    assert_type((await session.scalars(select(RiverQueue))).all(), Sequence[RiverQueue])


def refused(job: RiverJob, own: HostJob, queue: RiverQueue) -> None:
    job.state = JobState.RUNNING  # type: ignore[assignment]
    job.id = 1  # type: ignore[assignment]
    job.errors = None  # type: ignore[assignment]
    own.tags = own.tags  # type: ignore[assignment]
    queue.paused_at = None  # type: ignore[assignment]
    RiverJob()  # type: ignore[call-arg]
    RiverJob(id=1)  # type: ignore[call-arg]
    HostJob(kind="mail")  # type: ignore[call-arg]
    RiverQueue(name="slow")  # type: ignore[call-arg]
    RiverJob.colour  # type: ignore[attr-defined]
    job.metadata["snoozes"]  # type: ignore[index]
    job.state.colour  # type: ignore[attr-defined]
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program alone. A line that must be an error has a comment that is one if it is none."""
    folder = tmp_path_factory.mktemp("typing")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    return folder


@pytest.mark.slow
def test_mypy_strict_knows_every_attribute_and_refuses_to_set_it(program: Path) -> None:
    assert mypy_complaints(program) == ""


@pytest.mark.slow
def test_pyright_strict_knows_every_attribute_and_refuses_to_set_it(program: Path) -> None:
    assert pyright_complaints(program) == ""


def state_of(job: HostJob) -> str:
    """For a type checker, which takes an attribute for what it was in the line before."""
    return job.state.value


def values(row: object) -> dict[str, Any]:
    """A row's columns, by attribute."""
    return {name: getattr(row, name) for name in inspect(type(row)).columns.keys()}  # noqa: SIM118
