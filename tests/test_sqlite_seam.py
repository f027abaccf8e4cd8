"""The seam holds for a second database: operations that insert and claim run on SQLite, through a host's connection.

River's schema there needs JSONB, which came with SQLite 3.45; the interpreter's own library may be older, so the
test brings one.
"""

import importlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa

from river.driver import adopt
from river.insert import InsertOpts, prepare
from river.job import JobRow, JobState
from river.operation import Executor, run
from river.operations import work
from river.operations.insert import insert_many
from river.sql.sqlite import SQLite

# The columns of River's table at version 8; source: the catalogue that River's own migrations make on SQLite.
RIVER_JOB = """
CREATE TABLE river_job (
    id integer PRIMARY KEY AUTOINCREMENT,
    args blob NOT NULL DEFAULT (jsonb('{}')),
    attempt integer NOT NULL DEFAULT 0,
    attempted_at timestamp,
    attempted_by blob,
    created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
    errors blob,
    finalized_at timestamp,
    kind text NOT NULL,
    metadata blob NOT NULL DEFAULT (jsonb('{}')),
    priority integer NOT NULL DEFAULT 1,
    queue text NOT NULL DEFAULT 'default',
    state text NOT NULL DEFAULT 'available',
    scheduled_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
    tags blob NOT NULL DEFAULT (jsonb('[]')),
    unique_key blob,
    unique_states integer,
    max_attempts integer NOT NULL DEFAULT 25
)
"""


@dataclass
class Mail:
    kind: ClassVar[str] = "mail"
    user_id: int


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    new_enough = sqlite3.sqlite_version_info >= (3, 45)
    engine = sa.create_engine("sqlite://", module=sqlite3 if new_enough else importlib.import_module("pysqlite3"))
    with engine.connect() as connection:
        connection.execute(sa.text(RIVER_JOB))
        connection.commit()
        yield connection
    engine.dispose()


def executor_of(connection: sa.Connection) -> Executor:
    executor = adopt(connection)
    assert isinstance(executor, Executor)
    assert executor.database == "sqlite"
    return executor


def insert(connection: sa.Connection, *user_ids: int, **options: Any) -> list[JobRow]:
    batch = [
        prepare(Mail(user_id), InsertOpts(**options), max_attempts=25, now=datetime.now(UTC)) for user_id in user_ids
    ]
    return [job for job, _ in run(executor_of(connection), insert_many(SQLite(None), batch))]


def claim(connection: sa.Connection, limit: int) -> list[Any]:
    operation = work.claim(SQLite(None), "default", client_id="me", limit=limit)
    return run(executor_of(connection), operation)


def test_inserted_jobs_come_back_in_the_order_of_the_batch(connection: sa.Connection) -> None:
    inserted = insert(connection, 3, 1, 2, tags=["first"], metadata={"a": [1, None]})
    assert [job.encoded_args for job in inserted] == ['{"user_id":3}', '{"user_id":1}', '{"user_id":2}']
    assert [(job.state, job.tags, job.metadata) for job in inserted] == [
        (JobState.AVAILABLE, ["first"], {"a": [1, None]})
    ] * 3
    assert all(job.created_at.tzinfo is UTC for job in inserted)


def test_an_insert_is_undone_with_the_hosts_transaction(connection: sa.Connection) -> None:
    insert(connection, 1)
    connection.rollback()
    assert connection.scalar(sa.text("SELECT count(*) FROM river_job")) == 0


def test_a_claim_takes_due_jobs_by_priority_and_marks_them(connection: sa.Connection) -> None:
    late = insert(connection, 1, scheduled_at=datetime(2999, 1, 1, tzinfo=UTC))
    second, first = insert(connection, 2, priority=3) + insert(connection, 3, priority=1)
    claimed = claim(connection, 5)
    assert [job.id for job in claimed] == [first.id, second.id]
    assert all((job.state, job.attempt, job.attempted_by) == (JobState.RUNNING, 1, ["me"]) for job in claimed)
    assert claim(connection, 5) == []
    assert late[0].state is JobState.SCHEDULED
