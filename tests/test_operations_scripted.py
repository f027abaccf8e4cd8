"""What operations ask the database, seen on a scripted one: the statements, how many, and in which order."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from river import ConfigurationError, JobArgs, JobNotFoundError, JobNotRunningError, JobRow, JobState
from river.engine.transition import Persisted, Transition
from river.insert import InsertOpts, InsertParams, prepare
from river.job import UndecodableJob
from river.operation import Query, Statement, run
from river.operations import insert, jobs, maintain, work
from river.sql import Dialect, dialect_for
from tests.test_operation import Script, inserted, job_row

SQL = dialect_for("postgresql", "Jobs")
CLAIM = "2026-01-02T03:04:05.678900+00:00"
NOW = datetime(2026, 1, 2, 4, tzinfo=UTC)


def params(**options: Any) -> InsertParams:
    return prepare(JobArgs("note", {"n": 1}), InsertOpts(**options), max_attempts=25, now=datetime.now(UTC))


def transition(job_id: int, state: JobState = JobState.COMPLETED, **fields: Any) -> Transition:
    return Transition(job_id=job_id, attempted_at=CLAIM, state=state, **fields)


def sent(statement: Statement, name: str) -> Any:
    return json.loads(str(statement.parameters[name]))


def test_an_insert_of_many_jobs_and_their_notifications_are_one_statement() -> None:
    script = Script(inserted)
    rows = run(script, insert.insert_many(SQL, [params(queue="a"), params(queue="b"), params(queue="a")]))
    assert [row.queue for row, _ in rows] == ["a", "b", "a"]
    (statement,) = script.asked
    assert statement.parameters["muted"] == ""
    assert "pg_notify" in statement.sql


def test_an_inserts_document_says_everything_of_a_job() -> None:
    at = datetime(2026, 1, 2, 3, tzinfo=UTC)
    job = params(queue="q", priority=2, max_attempts=3, scheduled_at=at, tags=["abc"], metadata={"m": [1]})
    script = Script(inserted)
    run(script, insert.insert_many(SQL, [job, params()]))
    first, second = sent(script.asked[0], "jobs")
    assert first == {
        "args": {"n": 1},
        "kind": "note",
        "max_attempts": 3,
        "metadata": {"m": [1]},
        "priority": 2,
        "queue": "q",
        "scheduled_at": "2026-01-02T03:00:00+00:00",
        "delay_seconds": None,
        "state": "scheduled",
        "tags": ["abc"],
    }
    assert (second["scheduled_at"], second["state"], second["metadata"]) == (None, "available", {})


def test_a_found_job_takes_one_statement() -> None:
    script = Script([job_row(id=7)])
    assert run(script, jobs.get(SQL, 7)).id == 7
    assert [statement.parameters for statement in script.asked] == [{"id": 7}]


def test_a_job_that_is_not_there_is_an_error_that_knows_its_id() -> None:
    script = Script([])
    with pytest.raises(JobNotFoundError, match="job 7 ") as raised:
        run(script, jobs.get(SQL, 7))
    assert raised.value.job_id == 7
    assert len(script.asked) == 1


def test_a_claim_is_one_statement_and_its_order_is_made_here() -> None:
    rows = [
        job_row(id=1, priority=2, attempted_at=CLAIM),
        job_row(id=3, scheduled_at="2026-01-02T00:00:00+00:00", attempted_at=CLAIM),
        job_row(id=4, attempted_at=CLAIM),
        job_row(id=2, attempted_at=CLAIM),
    ]
    script = Script(rows)
    claimed = run(script, work.claim(SQL, "q", client_id="me", limit=10))
    assert [job.id for job in claimed if isinstance(job, JobRow)] == [3, 2, 4, 1]
    (statement,) = script.asked
    assert statement.parameters == {"queue": "q", "client_id": "me"}
    assert re.search(r"LIMIT 10\n", statement.sql)


def test_each_size_of_a_claim_is_a_statement_of_its_own_and_always_the_same() -> None:
    def text(limit: int) -> str:
        return SQL.job_claim("q", client_id="me", limit=limit).statement.sql

    assert text(10) is text(10)
    assert text(10) != text(20)


def test_one_bad_row_of_a_claim_does_not_stop_the_others() -> None:
    rows = [job_row(id=1, metadata=[1], attempted_at=CLAIM), job_row(id=2, attempted_at=CLAIM)]
    bad, good = run(Script(rows), work.claim(SQL, "q", client_id="me", limit=2))
    assert isinstance(bad, UndecodableJob)
    assert (bad.row.id, bad.row.metadata, bad.reason) == (1, {}, "metadata: Expected `object`, got `array`")
    assert isinstance(good, JobRow)


def test_completing_a_running_claim_takes_one_statement() -> None:
    script = Script([job_row(id=7, state="completed")])
    assert run(script, work.complete(SQL, 7, CLAIM)).state is JobState.COMPLETED
    assert [statement.parameters for statement in script.asked] == [{"id": 7, "attempted_at": CLAIM}]


@pytest.mark.parametrize(
    ("found", "error", "message"),
    [
        ([], JobNotFoundError, "job 7 was not found"),
        ([job_row(id=7, state="completed")], JobNotRunningError, "it is completed by now"),
        ([job_row(id=7, state="cancelled")], JobNotRunningError, "it is cancelled by now"),
        ([job_row(id=7, state="running", attempt=3)], JobNotRunningError, "attempt 3 of it is running elsewhere"),
    ],
)
def test_completing_a_claim_that_is_over_asks_once_more_to_say_why(
    found: Any, error: type[Exception], message: str
) -> None:
    script = Script([], found)
    with pytest.raises(error, match=message):
        run(script, work.complete(SQL, 7, CLAIM))
    assert [statement.sql.split()[0] for statement in script.asked] == ["UPDATE", "SELECT"]


def test_plain_successes_take_the_lean_statement_alone() -> None:
    script = Script([])
    assert run(script, work.finish(SQL, [transition(1), transition(2)])) == {}
    (statement,) = script.asked
    assert statement.parameters == {"ids": "{1,2}", "attempted_ats": f"{{{CLAIM},{CLAIM}}}"}


def test_other_ends_take_the_general_statement_alone() -> None:
    script = Script([])
    error = {"at": CLAIM, "attempt": 1, "error": "é", "trace": ""}
    run(script, work.finish(SQL, [transition(1, JobState.RETRYABLE, delay_seconds=16.0, error=error, attempt=1)]))
    (statement,) = script.asked
    assert sent(statement, "transitions") == [
        {
            "id": 1,
            "attempted_at": CLAIM,
            "state": "retryable",
            "attempt": 1,
            "delay_seconds": 16.0,
            "error": error,
            "metadata": None,
        }
    ]


def test_a_success_with_metadata_is_not_plain() -> None:
    script = Script([])
    run(script, work.finish(SQL, [transition(1, metadata={"output": 1})]))
    assert sent(script.asked[0], "transitions")[0]["metadata"] == {"output": 1}


def test_a_mixed_batch_takes_two_statements_and_its_answers_are_put_together() -> None:
    script = Script([(1, "lost")], [(2, "busy"), (3, "cancelled")])
    batch = [transition(1), transition(2, JobState.DISCARDED), transition(3, JobState.AVAILABLE), transition(4)]
    persisted = run(script, work.finish(SQL, batch))
    assert persisted == {1: Persisted.LOST, 2: Persisted.BUSY, 3: Persisted.CANCELLED}
    lean, general = script.asked
    assert lean.parameters["ids"] == "{1,4}"
    assert [end["id"] for end in sent(general, "transitions")] == [2, 3]


def test_an_error_of_the_first_statement_of_a_batch_leaves_the_second_unasked() -> None:
    script = Script(ConnectionError("away"))
    with pytest.raises(ConnectionError):
        run(script, work.finish(SQL, [transition(1), transition(2, JobState.DISCARDED)]))
    assert len(script.asked) == 1


def test_an_empty_batch_asks_nothing() -> None:
    assert run(Script(), work.finish(SQL, [])) == {}


def test_scheduling_is_one_statement_that_says_how_many() -> None:
    script = Script([(3,)])
    assert run(script, maintain.schedule(SQL, horizon=timedelta(seconds=5), limit=100)) == 3
    assert [statement.parameters for statement in script.asked] == [{"horizon": "5.0", "limit": 100}]


def rescue(script: Script, **options: Any) -> list[JobRow]:
    return run(
        script,
        maintain.rescue(
            SQL,
            older_than=timedelta(hours=1),
            now=NOW,
            retry_at=lambda job: NOW + timedelta(seconds=job.attempt),
            **options,
        ),
    )


def test_a_rescue_without_stuck_jobs_takes_one_statement() -> None:
    script = Script([])
    assert rescue(script, after_id=5, limit=10) == []
    assert [statement.parameters for statement in script.asked] == [
        {"older_than": "3600.0", "after_id": 5, "limit": 10}
    ]


def test_a_rescue_tries_again_what_has_attempts_left_and_discards_the_rest() -> None:
    stuck = [
        job_row(id=1, state="running", attempt=2, max_attempts=3, attempted_at=CLAIM),
        job_row(id=2, state="running", attempt=3, max_attempts=3, attempted_at=CLAIM),
        job_row(id=3, state="running", attempt=1, attempted_at=CLAIM, metadata={"river:rescue_count": 4}),
        job_row(id=4, state="running", attempt=1, attempted_at=CLAIM, metadata={"river:rescue_count": "x"}),
    ]
    script = Script(stuck, [])
    assert [job.id for job in rescue(script)] == [1, 2, 3, 4]
    first, second, third, fourth = sent(script.asked[1], "transitions")
    assert first == {
        "id": 1,
        "attempted_at": CLAIM,
        "state": "retryable",
        "attempt": None,
        "delay_seconds": 2.0,
        "error": {
            "at": "2026-01-02T04:00:00Z",
            "attempt": 2,
            "error": "Stuck job rescued by JobRescuer",
            "trace": "",
        },
        "metadata": {"river:rescue_count": 1},
    }
    assert (second["state"], second["delay_seconds"]) == ("discarded", None)
    assert third["metadata"] == {"river:rescue_count": 5}
    assert fourth["metadata"] == {"river:rescue_count": 1}


def test_a_rescue_does_not_report_what_it_did_not_rescue() -> None:
    stuck = [job_row(id=n, state="running", attempt=1, attempted_at=CLAIM) for n in (1, 2, 3, 4)]
    script = Script(stuck, [(1, "busy"), (2, "lost"), (3, "cancelled")])
    assert [job.id for job in rescue(script)] == [3, 4]


def test_a_rescued_job_whose_cancellation_was_asked_for_is_cancelled_at_any_attempt() -> None:
    asked = {"cancel_attempted_at": "2026-01-02T03:04:05Z"}
    attempts = [(1, 25), (25, 25)]
    stuck = [
        job_row(id=n, state="running", attempt=attempt, max_attempts=most, attempted_at=CLAIM, metadata=asked)
        for n, (attempt, most) in enumerate(attempts)
    ]
    script = Script(stuck, [])
    rescue(script)
    assert [each["state"] for each in sent(script.asked[1], "transitions")] == ["cancelled", "cancelled"]


def test_a_retry_time_in_the_past_means_at_once() -> None:
    script = Script([job_row(id=1, state="running", attempt=1, attempted_at=CLAIM)], [])
    run(
        script,
        maintain.rescue(SQL, older_than=timedelta(hours=1), now=NOW, retry_at=lambda _: NOW - timedelta(days=1)),
    )
    assert sent(script.asked[1], "transitions")[0]["delay_seconds"] == 0.0


def every_query(sql: Dialect) -> list[Query[Any]]:
    return [
        sql.greeting(),
        sql.job_insert_many([params()]),
        sql.job_get(1),
        sql.job_claim("q", client_id="me", limit=5),
        sql.job_claim("q", client_id="me", limit=5, kinds=["a"]),
        sql.job_due_in("q"),
        sql.job_cancellations([(1, CLAIM)]),
        sql.job_give_back("q", client_id="me", since=NOW, until=NOW, in_hand=[1]),
        sql.queues_paused(["q"]),
        sql.probe("topic", "{}"),
        sql.job_complete(1, CLAIM),
        sql.job_complete_many([(1, CLAIM)]),
        sql.job_finish_many([transition(1)]),
        sql.job_schedule(timedelta(seconds=5), 10),
        sql.job_stuck(timedelta(hours=1), after_id=0, limit=10),
        sql.queue_upsert("q"),
    ]


@pytest.mark.parametrize("schema", ["Jobs", None])
def test_each_statement_uses_each_of_its_parameters_and_casts_it_where_it_stands(schema: str | None) -> None:
    for query in every_query(dialect_for("postgresql", schema)):
        text = re.sub(r"--.*", "", query.statement.sql)
        named = set(re.findall(r"(?<![:\w]):(\w+)", text))
        assert named == set(query.statement.parameters)
        for name in named:
            assert len(re.findall(rf"CAST\(:{name} AS (?:bigint|text)\)", text)) == len(re.findall(rf":{name}\b", text))
        for value in query.statement.parameters.values():
            assert value is None or isinstance(value, int | str)


def test_each_table_and_type_is_named_with_its_schema() -> None:
    for query in every_query(SQL):
        text = re.sub(r"--.*", "", query.statement.sql)
        assert re.findall(r"(?<!\"\.)\briver_\w+", text.replace("'.river_insert'", "")) == [], text


def test_no_statement_uses_casts_with_colons_or_percent_signs() -> None:
    for query in every_query(SQL):
        assert "::" not in query.statement.sql
        assert "%" not in query.statement.sql


def test_a_database_without_statements_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="sqlite"):
        dialect_for("sqlite", None)
