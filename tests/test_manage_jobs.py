"""Cancel, retry, delete and update jobs: what becomes of a row, who is told, and who else may be at it."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

import river
from river import AsyncClient, Client, JobNotFoundError, JobState
from river.driver import adopt
from river.errors import (
    DatabaseError,
    ErrorClass,
    InvalidOptionError,
    JobRunningError,
    QueueNotFoundError,
    UniqueConflictError,
    sqlstate_of,
)
from river.listing import rfc3339
from river.listing.values import OUTPUT_MOST_BYTES
from river.operation import Executor, run
from tests.support.clients import Bench, Jobs, Row, Way, call, eventually, jobs_of, made
from tests.support.handles import FEW_KINDS, KINDS, Host, Kind, Mail, Observer, end, opened, settle
from tests.support.handles import named as with_name
from tests.support.urls import with_driver
from tests.test_operation import job_row

JOB = msgspec.json.decode(str(job_row()[0]), type=river.JobRow)
NOBODY: Any = Client(None)
"""A client that has no database: what it refuses, it refuses before any statement."""

WAYS = [Way("Client", "ConnectionPool"), Way("AsyncClient", "AsyncEngine-asyncpg")]
every_way = pytest.mark.parametrize("way", WAYS, ids=str)
every_state = pytest.mark.parametrize("state", [state.value for state in JobState])

FINAL = ("cancelled", "completed", "discarded")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LATER = datetime(2090, 1, 1, tzinfo=UTC)
ASKED_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,5}[1-9])?Z")


@pytest.fixture
def jobs(database_url: str, schema: str) -> Iterator[Jobs]:
    with jobs_of(database_url, schema) as jobs:
        yield jobs


@pytest.fixture
async def bench(way: Way, database_url: str, schema: str) -> AsyncGenerator[Bench]:
    async with made(way, database_url, schema, queues={}) as bench:
        yield bench


def add(jobs: Jobs, state: str, **columns: object) -> Row:
    """A job of a state, with values in every column that an operation could touch by mistake."""
    values = {
        "state": state,
        "attempt": 3,
        "max_attempts": 5,
        "attempted_at": LONG_AGO,
        "attempted_by": ["somebody"],
        "finalized_at": LONG_AGO if state in FINAL else None,
        "scheduled_at": LATER,
        "metadata": '{"mine": [1], "snoozes": 2}',
        "tags": ["abc"],
        "priority": 2,
        "queue": "mail",
        "created_at": LONG_AGO,
        "unique_key": uuid.uuid4().bytes,
        "unique_states": "11111111",
        **columns,
    }
    job_id = jobs.add(**values)
    jobs.execute("UPDATE {job} SET errors = ARRAY['{{\"attempt\": 1}}'::jsonb] WHERE id = %s", job_id)
    return jobs.row(job_id)


class Ear:
    """Hears what River says on its control channel."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self.channel = f"{schema}.river_control"
        connection.execute(f'LISTEN "{self.channel}"'.encode())

    def heard(self) -> list[Any]:
        """What was said since the last call. Notifications come in the order of their commits, so ours is the last."""
        last = uuid.uuid4().hex
        self.connection.execute("SELECT pg_notify(%s, %s)", [self.channel, last])
        payloads: list[Any] = []
        for notification in self.connection.notifies(timeout=30):
            if notification.payload == last:
                return payloads
            payloads.append(json.loads(notification.payload))
        raise AssertionError("the ear did not hear itself")


@pytest.fixture
def ear(database_url: str, schema: str) -> Iterator[Ear]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Ear(connection, schema)


def told(job: Row) -> list[Any]:
    return [{"action": "cancel", "job_id": job["id"], "queue": "mail"}]


def changed(before: Row, after: Row) -> dict[str, Any]:
    """The columns that are not as they were."""
    return {name: value for name, value in after.items() if value != before[name]}


def recent(at: datetime) -> bool:
    return abs(datetime.now(UTC) - at) < timedelta(minutes=1)


# Cancel.


@pytest.mark.parametrize("state", ["available", "pending", "retryable", "scheduled"])
@every_way
async def test_cancelling_a_job_that_waits_ends_it_and_tells_its_client(
    bench: Bench, jobs: Jobs, ear: Ear, state: str
) -> None:
    before = add(jobs, state)
    cancelled = await call(bench.client.job_cancel, before["id"])
    after = changed(before, jobs.row(before["id"]))
    assert after.pop("state") == "cancelled" == cancelled.state
    assert recent(after["finalized_at"])
    assert cancelled.finalized_at == after.pop("finalized_at")
    asked_at = after["metadata"]["cancel_attempted_at"]
    assert after == {"metadata": {"mine": [1], "snoozes": 2, "cancel_attempted_at": asked_at}}
    assert cancelled.metadata == after["metadata"]
    assert ASKED_AT.fullmatch(asked_at)
    assert recent(datetime.fromisoformat(asked_at))
    assert ear.heard() == told(before)


@every_way
async def test_cancelling_a_running_job_only_asks_for_its_end_each_time_anew(
    bench: Bench, jobs: Jobs, ear: Ear
) -> None:
    before = add(jobs, "running", metadata='{"cancel_attempted_at": "2020-01-01T00:00:00Z"}')
    running = await call(bench.client.job_cancel, before["id"])
    assert (running.state, running.finalized_at) == (JobState.RUNNING, None)
    after = changed(before, jobs.row(before["id"]))
    assert after.keys() == {"metadata"}
    assert recent(datetime.fromisoformat(after["metadata"]["cancel_attempted_at"]))
    assert ear.heard() == told(before)


@pytest.mark.parametrize("state", FINAL)
@every_way
async def test_cancelling_a_job_that_has_ended_changes_nothing_and_tells_nobody(
    bench: Bench, jobs: Jobs, ear: Ear, state: str
) -> None:
    before = add(jobs, state)
    assert (await call(bench.client.job_cancel, before["id"])).state == state
    assert jobs.row(before["id"]) == before
    assert ear.heard() == []


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 120_000, tzinfo=UTC), "2026-01-02T03:04:05.12Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=UTC), "2026-01-02T03:04:05.000001Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
        (datetime.fromisoformat("2026-01-02T03:04:05+05:30"), "2026-01-01T21:34:05Z"),
    ],
)
def test_a_time_is_written_as_go_writes_it(at: datetime, text: str) -> None:
    assert rfc3339(at) == text


# Retry.


@pytest.mark.parametrize("state", [state.value for state in JobState if state is not JobState.RUNNING])
@pytest.mark.parametrize("attempt", [0, 5, 6], ids=lambda attempt: f"attempt{attempt}of5")
@every_way
async def test_retrying_makes_a_job_available_now_and_gives_it_an_attempt_if_it_has_none_left(
    bench: Bench, jobs: Jobs, ear: Ear, state: str, attempt: int
) -> None:
    asked = '{"mine": [1], "cancel_attempted_at": "2020-01-01T00:00:00Z"}'
    before = add(jobs, state, attempt=attempt, metadata=asked)
    retried = await call(bench.client.job_retry, before["id"])
    after = jobs.row(before["id"])
    assert (after["state"], after["finalized_at"], retried.state) == ("available", None, JobState.AVAILABLE)
    assert recent(after["scheduled_at"])
    assert retried.scheduled_at == after["scheduled_at"]
    assert after["max_attempts"] == (6 if attempt == 5 else 5)
    assert after["metadata"] == {"mine": [1]}
    assert changed(before, after).keys() <= {"state", "finalized_at", "scheduled_at", "max_attempts", "metadata"}
    assert ear.heard() == []


@pytest.mark.parametrize("state", FINAL)
async def test_retrying_a_job_that_was_due_long_ago_makes_it_due_now_so_that_it_jumps_no_queue(
    jobs: Jobs, database_url: str, schema: str, state: str
) -> None:
    before = add(jobs, state, scheduled_at=LONG_AGO)
    with psycopg.connect(database_url) as connection:
        assert recent(Client(None, schema=schema).job_retry_tx(connection, before["id"]).scheduled_at)


@pytest.mark.parametrize(
    ("state", "scheduled_at"), [("running", LONG_AGO), ("running", LATER), ("available", LONG_AGO)]
)
@every_way
async def test_retrying_a_job_that_runs_or_is_due_already_changes_nothing(
    bench: Bench, jobs: Jobs, state: str, scheduled_at: datetime
) -> None:
    before = add(jobs, state, attempt=5, scheduled_at=scheduled_at)
    assert (await call(bench.client.job_retry, before["id"])).state == state
    assert jobs.row(before["id"]) == before


def test_a_job_with_as_many_attempts_as_can_be_counted_can_be_retried(
    database_url: str, schema: str, jobs: Jobs
) -> None:
    before = add(jobs, "discarded", attempt=32_767, max_attempts=32_767)
    with psycopg.connect(database_url) as connection:
        assert Client(None, schema=schema).job_retry_tx(connection, before["id"]).max_attempts == 32_767


def conflicting(jobs: Jobs) -> Row:
    """A job whose unique key belongs to another by now, because it had given it up when it ended."""
    states = "00000001"  # of all states, the key is held in `available` only
    key = uuid.uuid4().bytes
    before = add(jobs, "completed", unique_key=key, unique_states=states)
    add(jobs, "available", unique_key=key, unique_states=states)
    return before


@every_way
async def test_retrying_a_job_whose_unique_key_is_taken_is_a_conflict_that_changes_nothing(
    bench: Bench, jobs: Jobs
) -> None:
    before = conflicting(jobs)
    with pytest.raises(UniqueConflictError, match=f"job {before['id']} cannot be made available") as raised:
        await call(bench.client.job_retry, before["id"])
    error = raised.value
    assert (error.job_id, error.sqlstate, error.constraint) == (before["id"], "23505", "river_job_unique_idx")
    assert error.error_class is ErrorClass.UNIQUE_VIOLATION
    assert isinstance(error, DatabaseError)
    assert jobs.row(before["id"]) == before


@pytest.mark.parametrize("kind", FEW_KINDS, ids=str)
async def test_in_the_hosts_transaction_a_conflict_is_the_librarys_error_with_a_note(
    kind: Kind, database_url: str, schema: str, jobs: Jobs
) -> None:
    before = conflicting(jobs)
    async with opened(kind, database_url) as host:
        with pytest.raises(Exception, match="river_job_unique_idx") as raised:
            await settle(Client(None, schema=schema).job_retry_tx(host.handle, before["id"]))
        await host.rollback()
    assert not isinstance(raised.value, river.RiverError)
    assert sqlstate_of(raised.value) == "23505"
    notes = "\n".join(raised.value.__notes__)
    assert f"job {before['id']} cannot be made available" in notes
    assert "roll it back" in notes
    assert jobs.row(before["id"]) == before


# Delete.


@every_state
@every_way
async def test_any_job_but_a_running_one_can_be_deleted(bench: Bench, jobs: Jobs, ear: Ear, state: str) -> None:
    before, other = add(jobs, state), add(jobs, state)
    if state == "running":
        with pytest.raises(JobRunningError, match=f"job {before['id']} is running, and cannot be deleted") as raised:
            await call(bench.client.job_delete, before["id"])
        assert raised.value.job_id == before["id"]
        assert jobs.rows() == [before, other]
    else:
        deleted = await call(bench.client.job_delete, before["id"])
        assert (deleted.id, deleted.state, deleted.metadata) == (before["id"], state, before["metadata"])
        assert jobs.rows() == [other]
        with pytest.raises(JobNotFoundError):
            await call(bench.client.job_delete, before["id"])
    assert ear.heard() == []


DELETIONS: list[tuple[dict[str, Any], set[int]]] = [
    ({"ids": [2, 4, 99]}, {2, 4}),
    ({"ids": []}, set()),
    ({"ids": [], "states": ["completed"]}, set()),
    ({"kinds": ["a"]}, {1, 3, 7}),
    ({"priorities": [3, 4]}, {3, 4, 7, 8}),
    ({"queues": ["q1", "q2"]}, {1, 2, 4, 7, 8}),
    ({"states": ["completed", JobState.PENDING]}, {3, 4}),
    ({"states": ["running"]}, set()),
    ({"all_jobs": True}, {1, 2, 3, 4, 6, 7, 8}),
    ({"all_jobs": True, "first": 3}, {1, 2, 3}),
    ({"kinds": ["a"], "first": 2}, {1, 3}),
    ({"ids": [1, 2, 3], "kinds": ["a"], "priorities": [1], "queues": ["q1"], "states": ["available"]}, {1}),
]


@every_way
async def test_the_jobs_that_every_filter_lets_through_are_deleted_lowest_ids_first_and_no_running_one(
    bench: Bench, jobs: Jobs
) -> None:
    states = ["available", "cancelled", "completed", "pending", "running", "retryable", "scheduled", "discarded"]
    for options, expected in DELETIONS:
        jobs.execute("TRUNCATE {job} RESTART IDENTITY")
        for n, state in enumerate(states):
            add(jobs, state, kind="ab"[n % 2], priority=n % 4 + 1, queue=f"q{n % 3 + 1}")
        rows = jobs.rows()
        deleted = await call(bench.client.job_delete_many, **options)
        assert [job.id for job in deleted] == sorted(expected), options
        assert jobs.rows() == [row for row in rows if row["id"] not in expected], options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "job_delete_many has no filter, which would delete any job: give ids, .* or all_jobs=True"),
        ({"first": 10}, "job_delete_many has no filter"),
        ({"all_jobs": False}, "job_delete_many has no filter"),
        ({"ids": None, "states": None}, "job_delete_many has no filter"),
        ({"all_jobs": True, "kinds": ["a"]}, "all_jobs=True stands for no filter, and there is one"),
        ({"all_jobs": True, "ids": []}, "all_jobs=True stands for no filter, and there is one"),
        ({"all_jobs": 1}, "all_jobs must be True or False, not 1"),
        ({"all": True}, "job_delete_many has no option 'all'; "),
        ({"tags_any": ["abc"]}, "job_delete_many has no option 'tags_any'"),
        ({"all_jobs": True, "first": 0}, "first must be a whole number from 1 to 10,000, not 0"),
        ({"ids": 3}, "ids must be a list, not 3"),
        ({"states": ["done"]}, "each of states must be a state, not 'done'"),
    ],
    ids=str,
)
def test_a_deletion_that_is_not_asked_for_clearly_is_refused_before_any_statement(options: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        NOBODY.job_delete_many_tx(None, **options)


def test_a_deletion_leaves_out_what_others_have_locked_and_does_not_wait_for_them(
    database_url: str, schema: str, jobs: Jobs
) -> None:
    rows = [add(jobs, "completed") for _ in range(3)]
    with psycopg.connect(database_url) as holder, psycopg.connect(database_url) as connection:
        holder.execute(f"SELECT FROM {schema}.river_job WHERE id = 2 FOR UPDATE".encode())
        connection.execute("SET lock_timeout = '5s'")
        deleted = Client(None, schema=schema).job_delete_many_tx(connection, states=["completed"])
        connection.commit()
    assert [job.id for job in deleted] == [1, 3]
    assert jobs.rows() == [rows[1]]


# Update.


@dataclass
class Report:
    rows: int
    at: datetime


class Struct(msgspec.Struct):
    name: str


OUTPUTS: list[tuple[object, object]] = [
    ({"a": [1, 1.5, True, None, "ü\u2028"]}, {"a": [1, 1.5, True, None, "ü\u2028"]}),
    ("text", "text"),
    (None, None),
    (0, 0),
    ([], []),
    ((1, 2), [1, 2]),
    (Report(3, datetime(2026, 1, 2, tzinfo=UTC)), {"rows": 3, "at": "2026-01-02T00:00:00Z"}),
    (Struct("a"), {"name": "a"}),
    (10**30, 10**30),
]


@every_state
@every_way
async def test_an_output_replaces_the_one_before_and_changes_nothing_else_in_any_state(
    bench: Bench, jobs: Jobs, ear: Ear, state: str
) -> None:
    before = add(jobs, state, metadata='{"mine": 1, "output": {"old": true}}')
    for output, stored in OUTPUTS:
        updated = await call(bench.client.job_update, before["id"], output=output)
        after = jobs.row(before["id"])
        assert after["metadata"] == {"mine": 1, "output": stored} == updated.metadata
        assert changed(before, after).keys() == {"metadata"}
    assert ear.heard() == []


@every_way
async def test_metadata_are_merged_key_by_key_and_an_output_with_them(bench: Bench, jobs: Jobs) -> None:
    before = add(jobs, "completed", metadata='{"a": {"x": 1}, "b": 2}')
    updated = await call(bench.client.job_update, before["id"], metadata={"a": {"y": 1}, "c": None}, output=7)
    expected = {"a": {"y": 1}, "b": 2, "c": None, "output": 7}
    assert updated.metadata == expected == jobs.row(before["id"])["metadata"]


@every_way
async def test_an_update_with_nothing_to_write_changes_nothing(bench: Bench, jobs: Jobs) -> None:
    before = add(jobs, "completed")
    version = jobs.execute("SELECT xmin::text FROM {job}")
    nothing: list[dict[str, Any]] = [{}, {"metadata": {}}, {"metadata": None}]
    for options in nothing:
        assert (await call(bench.client.job_update, before["id"], **options)).metadata == before["metadata"]
    assert jobs.execute("SELECT xmin::text FROM {job}") == version


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": float("nan")}, "output .*a value is nan"),
        ({"output": {"a": "\0"}}, "output cannot be stored: field 'a' holds U\\+0000"),
        ({"output": "\ud800"}, "output .* half a surrogate pair"),
        ({"output": {1: 2}}, "output"),
        ({"output": object()}, "output cannot be written as JSON"),
        (
            {"output": "x" * (OUTPUT_MOST_BYTES - 1)},
            r"output is too large: 33,554,433 bytes of JSON, and at most 33,554,432",
        ),
        ({"metadata": {"river:log": []}}, "metadata has the key 'river:log', which is River's own"),
        (
            {"metadata": {"cancel_attempted_at": None}},
            "metadata has the key 'cancel_attempted_at', .*: use a key of your",
        ),
        ({"metadata": {"output": 1}}, r"metadata has the key 'output', .*: pass output=..."),
        ({"metadata": [1]}, "metadata must be a mapping, a JSON object, not list"),
        ({"metadata": {"a": {2: 3}}}, "metadata"),
    ],
    ids=[str(n) for n in range(11)],
)
def test_an_update_that_breaks_a_rule_is_refused_before_any_statement(options: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        NOBODY.job_update_tx(None, 1, **options)


@pytest.mark.slow
def test_the_largest_output_can_be_stored(database_url: str, schema: str, jobs: Jobs) -> None:
    job_id = jobs.add()
    with psycopg.connect(database_url) as connection:
        largest = "x" * (OUTPUT_MOST_BYTES - 2)
        assert (
            Client(None, schema=schema).job_update_tx(connection, job_id, output=largest).metadata["output"] == largest
        )


ODD_METADATA: list[tuple[str, dict[str, Any]]] = [
    ("[1]", {"river:odd_metadata": [1]}),
    ('["cancel_attempted_at"]', {"river:odd_metadata": ["cancel_attempted_at"]}),
    ('"a text"', {"river:odd_metadata": "a text"}),
    ("0", {"river:odd_metadata": 0}),
    ("false", {"river:odd_metadata": False}),
    ("null", {}),
]


@pytest.mark.parametrize(("odd", "kept"), ODD_METADATA, ids=[odd for odd, _ in ODD_METADATA])
@every_way
async def test_metadata_that_are_no_object_become_one_that_holds_what_is_stored(
    bench: Bench, jobs: Jobs, odd: str, kept: dict[str, Any]
) -> None:
    job_id = add(jobs, "completed", metadata=odd)["id"]
    updated = await call(bench.client.job_update, job_id, output=1, metadata={"mine": 2})
    assert updated.metadata == {**kept, "output": 1, "mine": 2} == jobs.row(job_id)["metadata"]
    again = await call(bench.client.job_update, job_id, output=3)
    assert again.metadata == {**kept, "output": 3, "mine": 2}


@pytest.mark.parametrize(("odd", "kept"), ODD_METADATA, ids=[odd for odd, _ in ODD_METADATA])
@every_way
async def test_a_request_to_cancel_is_recorded_whatever_the_metadata_are(
    bench: Bench, jobs: Jobs, ear: Ear, odd: str, kept: dict[str, Any]
) -> None:
    before = add(jobs, "running", metadata=odd)
    cancelled = await call(bench.client.job_cancel, before["id"])
    metadata = jobs.row(before["id"])["metadata"]
    assert cancelled.metadata == metadata
    assert recent(datetime.fromisoformat(metadata.pop("cancel_attempted_at")))
    assert metadata == kept
    assert ear.heard() == told(before)
    claims = [(before["id"], "2020-01-01T00:00:00Z")]
    with psycopg.connect(jobs.connection.info.dsn) as connection:
        executor = adopt(connection)
        assert isinstance(executor, Executor)
        asked = run(executor, bench.client.sql("postgresql").job_cancellations(claims))
    assert asked.keys() == {before["id"]}  # and its client finds it, even if it heard nothing


# No such job, and odd ones.


METHODS = ["job_get", "job_cancel", "job_retry", "job_delete", "job_update"]


@pytest.mark.parametrize("method", METHODS)
@every_way
async def test_a_job_that_is_not_there_is_not_found_and_nobody_is_told(
    bench: Bench, jobs: Jobs, ear: Ear, method: str
) -> None:
    before = add(jobs, "available")
    for job_id in (0, -1, before["id"] + 1, (1 << 63) - 1):
        with pytest.raises(JobNotFoundError) as raised:
            await call(getattr(bench.client, method), job_id)
        assert raised.value.job_id == job_id
    assert jobs.rows() == [before]
    assert ear.heard() == []


NO_IDS: list[tuple[object, str]] = [
    (True, "a whole number, not bool: True; pass job.id"),
    ("1", r"a whole number, not str: '1'; pass job.id, or int\(text\) of a text"),
    (None, "a whole number, not NoneType: None"),
    (1.0, "a whole number, not float: 1.0"),
    (JOB, "a whole number, not JobRow: <JobRow 1 note available .*; pass job.id"),
    (1 << 63, "job_id must have at most 64 bits, unlike 9223372036854775808: no job has such an id"),
    (-(1 << 63) - 1, "job_id must have at most 64 bits, unlike -9223372036854775809"),
]


@pytest.mark.parametrize(("job_id", "message"), NO_IDS, ids=str)
@pytest.mark.parametrize("method", METHODS)
async def test_what_cannot_be_an_id_is_refused_before_a_connection_is_taken(
    method: str, job_id: Any, message: str, database_url: str
) -> None:
    options: dict[str, Any] = {"output": 1} if method == "job_update" else {}
    taken: list[object] = []
    engine = create_engine(with_driver(database_url, "postgresql+psycopg"))
    asyncio_engine = create_async_engine(with_driver(database_url, "postgresql+psycopg"))
    for pool in (engine, asyncio_engine.sync_engine):
        event.listen(pool, "do_connect", lambda *_: taken.append("a connection"))
    with pytest.raises(InvalidOptionError, match=message):
        getattr(Client(engine), method)(job_id, **options)
    with pytest.raises(InvalidOptionError, match=message):
        await getattr(AsyncClient(asyncio_engine), method)(job_id, **options)
    assert taken == []


@pytest.mark.parametrize(("job_id", "message"), NO_IDS, ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", FEW_KINDS, ids=str)
async def test_in_the_hosts_transaction_what_cannot_be_an_id_is_refused_by_the_call_itself(
    kind: Kind, method: str, job_id: Any, message: str, database_url: str, schema: str
) -> None:
    client = Client(None, schema=schema)
    async with opened(kind, database_url) as host:
        with pytest.raises(InvalidOptionError, match=message):  # and nothing is awaited
            getattr(client, f"{method}_tx")(host.handle, job_id)
        assert [job.id for job in await settle(client.job_list_tx(host.handle))] == []


def test_an_integer_of_another_library_is_an_id(database_url: str, schema: str, jobs: Jobs) -> None:
    class Number:
        def __index__(self) -> int:
            return job_id

    job_id, number = jobs.add(), Number()
    with psycopg.connect(database_url) as connection:
        for method in METHODS[:3]:
            assert getattr(Client(None, schema=schema), f"{method}_tx")(connection, number).id == job_id


def test_a_job_that_cannot_be_read_can_be_cancelled_retried_updated_and_deleted(
    database_url: str, schema: str, jobs: Jobs
) -> None:
    def metadata() -> object:
        return jobs.execute("SELECT metadata FROM {job} WHERE id = %s", job_id)[0]["metadata"]

    client = Client(database_url, schema=schema)
    try:
        job_id = jobs.add(metadata="[1]", queue="mail", scheduled_at="infinity", tags="{{a,b},{c,d}}")
        with pytest.raises(river.UndecodableJobError, match="metadata: "):
            client.job_get(job_id)
        assert (client.job_retry(job_id).state, metadata()) == (JobState.AVAILABLE, [1])
        assert client.job_cancel(job_id).state is JobState.CANCELLED
        assert client.job_update(job_id, output=1).metadata == metadata()
        assert client.job_delete(job_id).metadata["river:odd_metadata"] == [1]
        odd = jobs.add(metadata="[1]")
        assert [job.id for job in client.job_delete_many(all_jobs=True)] == [odd]
        assert jobs.rows() == []
    finally:
        client.close()


# Somebody else is at the row.


async def overtaken(
    change: str, act: Callable[[Client, psycopg.Connection[Any]], object], database_url: str, jobs: Jobs
) -> object:
    """What an operation says of a job that another transaction changes, and commits, while the operation waits."""
    name = f"waits_{uuid.uuid4().hex[:12]}"
    said: list[object] = []

    def wait() -> None:
        with psycopg.connect(database_url, application_name=name) as connection:
            try:
                said.append(act(Client(None, schema=jobs.schema), connection))
            except Exception as error:
                said.append(error)

    with psycopg.connect(database_url) as other:
        other.execute(change.format(job=f"{jobs.schema}.river_job").encode())
        waiting = threading.Thread(target=wait)
        waiting.start()
        await eventually(lambda: jobs.sessions(name, "wait_event_type = 'Lock'"), "the operation waits for the row")
        other.commit()
        waiting.join(30)
    return said[0]


COMPLETED = "UPDATE {job} SET state = 'completed', finalized_at = now()"
CLAIMED = "UPDATE {job} SET state = 'running', attempt = 4"


async def test_a_cancel_that_waited_for_a_completion_finds_the_job_completed(
    database_url: str, jobs: Jobs, ear: Ear
) -> None:
    job_id = add(jobs, "running")["id"]
    job = await overtaken(COMPLETED, lambda client, handle: client.job_cancel_tx(handle, job_id), database_url, jobs)
    assert isinstance(job, river.JobRow)
    assert (job.state, "cancel_attempted_at" in job.metadata) == (JobState.COMPLETED, False)
    assert ear.heard() == []


async def test_a_cancel_that_waited_for_a_claim_asks_the_running_job_to_end(database_url: str, jobs: Jobs) -> None:
    job_id = add(jobs, "available")["id"]
    job = await overtaken(CLAIMED, lambda client, handle: client.job_cancel_tx(handle, job_id), database_url, jobs)
    assert isinstance(job, river.JobRow)
    assert (job.state, job.attempt, job.finalized_at) == (JobState.RUNNING, 4, None)
    assert "cancel_attempted_at" in job.metadata


async def test_a_deletion_that_waited_for_a_claim_is_refused(database_url: str, jobs: Jobs) -> None:
    job_id = add(jobs, "available")["id"]
    error = await overtaken(CLAIMED, lambda client, handle: client.job_delete_tx(handle, job_id), database_url, jobs)
    assert isinstance(error, JobRunningError)
    assert jobs.row(job_id)["state"] == "running"


async def test_a_retry_that_waited_for_a_claim_leaves_the_running_job_alone(database_url: str, jobs: Jobs) -> None:
    job_id = add(jobs, "retryable")["id"]
    job = await overtaken(CLAIMED, lambda client, handle: client.job_retry_tx(handle, job_id), database_url, jobs)
    assert isinstance(job, river.JobRow)
    assert job.state is JobState.RUNNING
    assert jobs.row(job_id)["state"] == "running"


async def test_an_update_that_waited_for_another_keeps_what_that_one_wrote(database_url: str, jobs: Jobs) -> None:
    job_id = add(jobs, "completed", metadata="{}")["id"]
    job = await overtaken(
        "UPDATE {job} SET metadata = jsonb_build_object('theirs', 1)",
        lambda client, handle: client.job_update_tx(handle, job_id, output=2),
        database_url,
        jobs,
    )
    assert isinstance(job, river.JobRow)
    assert job.metadata == {"theirs": 1, "output": 2}


async def test_a_cancel_that_waited_for_a_deletion_finds_no_job(database_url: str, jobs: Jobs) -> None:
    job_id = add(jobs, "available")["id"]
    error = await overtaken(
        "DELETE FROM {job}", lambda client, handle: client.job_cancel_tx(handle, job_id), database_url, jobs
    )
    assert isinstance(error, JobNotFoundError)


# On every handle, in the host's transaction.


@pytest.fixture
def host_url(database_url: str) -> str:
    return with_name(database_url, f"host_{uuid.uuid4().hex[:12]}")


@pytest.fixture
def observer(database_url: str, host_url: str, schema: str) -> Iterator[Observer]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Observer(connection, schema, host_url.rpartition("=")[2])


@asynccontextmanager
async def host_of(kind: Kind, url: str) -> AsyncIterator[Host]:
    async with opened(kind, url) as host:
        yield host


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_what_is_managed_in_the_hosts_transaction_happens_if_and_only_if_it_commits(
    kind: Kind, ending: Any, host_url: str, observer: Observer, ear: Ear, schema: str
) -> None:
    client = Client(None, schema=schema)
    ids = [insert(client, observer, n) for n in range(7)]
    observer.execute("INSERT INTO {}.river_queue (name, updated_at) VALUES ('mail', now())")
    queues = observer.execute("SELECT * FROM {}.river_queue")
    before = observer.jobs()
    async with host_of(kind, host_url) as host:
        handle = host.handle
        assert (await settle(client.job_get_tx(handle, ids[0]))).id == ids[0]
        assert (await settle(client.job_cancel_tx(handle, ids[0]))).state is JobState.CANCELLED
        assert (await settle(client.job_retry_tx(handle, ids[1]))).state is JobState.AVAILABLE
        assert (await settle(client.job_delete_tx(handle, ids[2]))).id == ids[2]
        assert [job.id for job in await settle(client.job_delete_many_tx(handle, ids=ids[3:5]))] == ids[3:5]
        assert (await settle(client.job_update_tx(handle, ids[5], output="ü"))).metadata == {"output": "ü"}
        page = await settle(
            client.job_list_tx(handle, first=3, where="kind = :kind", where_parameters={"kind": "mail"})
        )
        everything = page.all()
        listed = list(everything) if kind.colour == "blocking" else [job async for job in everything]
        assert [job.id for job in listed] == [*ids[:2], *ids[5:]]
        assert (await settle(client.queue_get_tx(handle, "mail"))).name == "mail"
        await settle(client.queue_pause_tx(handle, "mail"))
        assert (await settle(client.queue_update_tx(handle, "mail", metadata={"a": 1}))).metadata == {"a": 1}
        assert [queue.paused for queue in await settle(client.queue_list_tx(handle))] == [True]
        await settle(client.queue_resume_tx(handle, "*"))
        with pytest.raises(QueueNotFoundError):
            await settle(client.queue_pause_tx(handle, "nobodys"))
        assert observer.jobs() == before
        assert ear.heard() == []
        await end(host, ending)
    if ending == "rollback":
        assert (observer.jobs(), observer.execute("SELECT * FROM {}.river_queue")) == (before, queues)
        assert ear.heard() == []
    else:
        assert [job["id"] for job in observer.jobs()] == [*ids[:2], *ids[5:]]
        assert [heard["action"] for heard in ear.heard()] == ["cancel", "pause", "metadata_changed", "resume"]


def insert(client: Client, observer: Observer, n: int) -> int:
    with observer.connection.transaction():
        return client.insert_tx(observer.connection, Mail(str(n))).job.id
