"""The plans of what runs all the time, where the planner has reason to be wrong.

Statistics were gathered while the table was nearly empty and nothing ran; then came 10,000 running, 20,000 available
and 50,000 completed rows. Whatever the planner makes of that, generic or custom, it must not read the whole table.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from typing_extensions import Unpack

from river.args import JobArgs
from river.engine.transition import Transition
from river.insert import InsertParams
from river.job import JobState
from river.listing import JobDeletion, JobListCursor, JobListing, JobListOptions, SortField
from river.operation import Query
from river.sql.postgres import Postgres
from tests.support.clients import Jobs, jobs_of

_FILL = """\
INSERT INTO {job} (kind, args, max_attempts, state, queue, attempt, attempted_at, attempted_by, scheduled_at,
    finalized_at)
SELECT
    'note', '{{}}', 25, state, 'default', 1, now() - n * interval '1 millisecond', ARRAY['me'],
    now() - n * interval '1 second', CASE WHEN state = 'completed' THEN now() - n * interval '1 second' END
FROM (
    SELECT n, (CASE
        WHEN mod(n, 8) = 0 THEN 'running'
        WHEN mod(n, 8) IN (1, 2) THEN 'available'
        ELSE 'completed'
    END)::{schema}.river_job_state AS state
    FROM generate_series(1, 80000) AS n
) AS rows
"""


@dataclass
class Stale:
    """A table whose statistics are those of a table of another kind."""

    jobs: Jobs
    running: list[tuple[int, str]]


@pytest.fixture(scope="module")
def stale(database_url: str, schema_connection: psycopg.Connection) -> Iterator[Stale]:
    from tests.conftest import run_script
    from tests.support.schemas import creation

    schema = f"river_t_{uuid.uuid4().hex}"
    run_script(schema_connection, [f"CREATE SCHEMA {schema}", *creation(schema)])
    with jobs_of(database_url, schema) as jobs:
        jobs.execute("ALTER TABLE {job} SET (autovacuum_enabled = off)")
        jobs.execute(_FILL.replace("80000", "800").replace("'running'", "'available'"))
        jobs.execute("ANALYZE {job}")
        jobs.execute("DELETE FROM {job}")
        jobs.execute(_FILL)
        running = jobs.execute(
            "SELECT id, to_json(attempted_at) #>> '{{}}' AS at FROM {job} WHERE state = 'running' "
            "ORDER BY id LIMIT 1000"
        )
        assert jobs.states() == {"running": 10_000, "available": 20_000, "completed": 50_000}
        yield Stale(jobs, [(row["id"], row["at"]) for row in running])
    run_script(schema_connection, [f"DROP SCHEMA {schema} CASCADE"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def explain(jobs: Jobs, query: Query[Any], mode: str) -> list[dict[str, Any]]:
    """The nodes of the plan of a prepared statement, run and rolled back."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    text = re.sub(r"(?<![:\w]):(\w+)", number, query.statement.sql)
    values = ", ".join(psycopg.sql.quote(query.statement.parameters[name]) for name in names)
    with jobs.connection.transaction(force_rollback=True):
        jobs.connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        jobs.connection.execute(f"PREPARE statement AS {text}".encode())
        try:
            row = jobs.connection.execute(
                f"EXPLAIN (ANALYZE, FORMAT json) EXECUTE statement{f'({values})' if names else ''}".encode()
            ).fetchone()
        finally:
            jobs.connection.execute(b"DEALLOCATE statement")
    assert row is not None
    plan = row["QUERY PLAN"]
    return list(nodes((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))


Claims = list[tuple[int, str]]
Make = Callable[[Postgres, Claims], Query[Any]]


def claim(queue: str, limit: int) -> Make:
    return lambda sql, _: sql.job_claim(queue, client_id="me", limit=limit)


def claim_known(kinds: list[str], limit: int) -> Make:
    return lambda sql, _: sql.job_claim("default", client_id="me", limit=limit, kinds=kinds)


def complete(count: int, *, lost: bool = False) -> Make:
    return lambda sql, claims: sql.job_complete_many(some(claims, count, lost=lost))


def finish(count: int, *, lost: bool = False) -> Make:
    def make(sql: Postgres, claims: Claims) -> Query[Any]:
        state = JobState.RETRYABLE
        transitions = [
            Transition(job_id=job_id, attempted_at=at, state=state, delay_seconds=9.0)
            for job_id, at in some(claims, count, lost=lost)
        ]
        return sql.job_finish_many(transitions)

    return make


def cancellations(count: int) -> Make:
    return lambda sql, claims: sql.job_cancellations(claims[:count])


def some(claims: Claims, count: int, *, lost: bool) -> Claims:
    """So many claims, or as many that are over, as those of jobs that their workers have completed are."""
    return [(job_id, "2020-01-01T00:00:00+00:00" if lost else at) for job_id, at in claims[:count]]


def listing(**options: Unpack[JobListOptions]) -> Make:
    return lambda sql, _: sql.job_list(JobListing.of(options))


def after(sort_field: SortField, job_id: int) -> JobListCursor:
    time = None if sort_field == "id" else datetime.now(UTC) + timedelta(days=1)
    return JobListCursor(id=job_id, kind="note", queue="default", sort_field=sort_field, time=time)


def delete_many(count: int) -> Make:
    """Jobs of which one in eight runs."""
    return lambda sql, _: sql.job_delete_many(JobDeletion.of({"ids": range(3, 3 + count), "first": 10_000}))


KINDS = [f"kind_{n}" for n in range(30)]

STATEMENTS: dict[str, tuple[Make, int]] = {
    **{f"claim-{limit}": (claim("default", limit), limit) for limit in (1, 10, 100, 500)},
    **{f"claim-known-{limit}": (claim_known(["note", *KINDS], limit), limit) for limit in (1, 100)},
    "claim-known-nothing": (lambda sql, _: sql.job_claim("empty", client_id="me", limit=9, kinds=KINDS), 0),
    "due-in": (lambda sql, _: sql.job_due_in("default"), 20),
    "due-in-nothing": (lambda sql, _: sql.job_due_in("empty"), 0),
    **{f"cancellations-{count}": (cancellations(count), count) for count in (1, 100, 1000)},
    "claim-nothing": (claim("empty", 100), 0),
    "complete-one": (lambda sql, claims: sql.job_complete(*claims[0]), 1),
    **{f"complete-{count}": (complete(count), count) for count in (1, 10, 100, 1000)},
    **{f"complete-{count}-lost": (complete(count, lost=True), count) for count in (1, 100, 1000)},
    **{f"finish-{count}": (finish(count), count) for count in (1, 10, 100, 1000)},
    **{f"finish-{count}-lost": (finish(count, lost=True), count) for count in (1, 100, 1000)},
    "schedule": (lambda sql, _: sql.job_schedule(timedelta(seconds=5), 10_000), 0),
    "stuck": (lambda sql, _: sql.job_stuck(timedelta(hours=1), after_id=0, limit=10_000), 10_000),
    "get": (lambda sql, claims: sql.job_get(claims[0][0]), 1),
    "cancel": (lambda sql, claims: sql.job_cancel(claims[0][0], "2026-01-02T03:04:05Z"), 1),
    "cancel-nothing": (lambda sql, _: sql.job_cancel(0, "2026-01-02T03:04:05Z"), 0),
    "retry": (lambda sql, _: sql.job_retry(3), 1),
    "retry-running": (lambda sql, claims: sql.job_retry(claims[0][0]), 1),
    "delete": (lambda sql, _: sql.job_delete(3), 1),
    "delete-running": (lambda sql, claims: sql.job_delete(claims[0][0]), 1),
    "update": (lambda sql, claims: sql.job_update(claims[0][0], '{"output": 1}'), 1),
    **{f"delete-many-{count}": (delete_many(count), count) for count in (1, 100, 1000)},
    **{f"list-ids-{count}": (listing(ids=range(3, 3 + count), first=10_000), count) for count in (1, 100, 1000)},
    "list-ids-descending": (listing(ids=range(3, 103), descending=True), 100),
    "list-all": (listing(), 100),
    "list-all-descending": (listing(descending=True), 100),
    "list-page": (listing(after=after("id", 40_000)), 100),
    "list-page-descending": (listing(after=after("id", 40_000), descending=True), 100),
    "list-running": (listing(states=["running"], first=10_000), 10_000),
    "list-discarded": (listing(states=["discarded"]), 0),
    "list-completed-by-end": (listing(states=["completed"], order_by="time"), 100),
    "list-completed-by-end-descending": (listing(states=["completed"], order_by="finalized_at", descending=True), 100),
    "list-completed-page": (
        listing(states=["completed"], order_by="time", after=after("time", 40_000), descending=True),
        100,
    ),
}


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize(("make", "rows"), STATEMENTS.values(), ids=STATEMENTS)
def test_no_statement_of_the_runtime_reads_the_whole_table(stale: Stale, make: Make, rows: int, mode: str) -> None:
    plan = explain(stale.jobs, make(Postgres(stale.jobs.schema), stale.running), mode)
    scans = [node["Node Type"] for node in plan if node.get("Relation Name") == "river_job"]
    assert scans
    assert "Seq Scan" not in scans
    # What a scan finds and throws away is read all the same.
    read = sum(
        (node.get("Rows Removed by Filter", 0) + node["Actual Rows"]) * node["Actual Loops"]
        for node in plan
        if "Scan" in node["Node Type"] and node.get("Relation Name") == "river_job"
    )
    assert read <= 5 * max(rows, 20)
    updated = [node for node in plan if node["Node Type"] == "ModifyTable" and node["Operation"] == "Update"]
    assert len(updated) <= 1


_FILL_UNIQUE = """\
INSERT INTO {job} (kind, args, max_attempts, state, scheduled_at, unique_key, unique_states)
SELECT 'note', '{{}}', 25, CAST(%s AS text)::{schema}.river_job_state, now() - n * interval '1 second',
    sha256(CAST(n AS text)::bytea), B'11010101'
FROM generate_series(1, 3000) AS n
"""


def unique_note(number: int) -> InsertParams:
    key = hashlib.sha256(str(number).encode()).digest()
    return InsertParams(
        args=JobArgs("note", {}),
        kind="note",
        encoded_args="{}",
        queue="default",
        priority=1,
        max_attempts=25,
        unique_key=key,
        unique_states=0b11010101,
    )


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("count", [1, 1000])
def test_an_insert_reads_no_other_rows(stale: Stale, count: int, mode: str) -> None:
    dialect = Postgres(stale.jobs.schema)
    batch = [unique_note(number) for number in range(2500, 2500 + count)]
    with stale.jobs.connection.transaction(force_rollback=True):
        stale.jobs.execute(_FILL_UNIQUE, "available")
        for query in (dialect.job_insert_many(batch), dialect.job_insert_many_fast(batch)):
            plan = explain(stale.jobs, query, mode)
            assert [node["Node Type"] for node in plan if node.get("Relation Name") == "river_job"] == ["ModifyTable"]
            assert not [
                node for node in plan if node["Node Type"] == "Nested Loop" and node["Actual Rows"] > 1000 * count
            ]


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("held", [False, True])
def test_scheduling_unique_jobs_reads_them_and_who_has_their_keys(stale: Stale, held: bool, mode: str) -> None:
    dialect = Postgres(stale.jobs.schema)
    with stale.jobs.connection.transaction(force_rollback=True):
        stale.jobs.execute(_FILL_UNIQUE, "retryable")
        if held:
            stale.jobs.execute(_FILL_UNIQUE, "available")
        due = dialect.job_due_unique(timedelta(seconds=5), 500)
        assert_reads(explain(stale.jobs, due, mode), 3000)
        ids = stale.jobs.execute("SELECT id FROM {job} WHERE state = 'retryable' ORDER BY scheduled_at, id LIMIT 500")
        scheduling = dialect.job_schedule_unique([row["id"] for row in ids])
        assert_reads(explain(stale.jobs, scheduling, mode), 500)


def assert_reads(plan: list[dict[str, Any]], rows: int) -> None:
    """No scan of the whole table, and little read besides so many rows."""
    scans = [node for node in plan if "Scan" in node["Node Type"] and node.get("Relation Name") == "river_job"]
    assert "Seq Scan" not in [node["Node Type"] for node in scans]
    read = sum((node.get("Rows Removed by Filter", 0) + node["Actual Rows"]) * node["Actual Loops"] for node in scans)
    assert read <= 5 * rows


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_jobs_of_the_far_future_are_not_read_when_others_fall_due(stale: Stale, mode: str) -> None:
    dialect = Postgres(stale.jobs.schema)
    with stale.jobs.connection.transaction(force_rollback=True):
        stale.jobs.add_many(20_000, state="scheduled")
        stale.jobs.execute("UPDATE {job} SET scheduled_at = now() + interval '1 year' WHERE state = 'scheduled'")
        stale.jobs.add_many(10, state="scheduled")
        assert_reads(explain(stale.jobs, dialect.job_schedule(timedelta(seconds=5), 10_000), mode), 20)
        assert_reads(explain(stale.jobs, dialect.job_due_unique(timedelta(seconds=5), 500), mode), 20)
