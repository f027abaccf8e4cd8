"""A job's way through a running client: claimed, worked, and ended as its worker asked.

The whole matrix of clients, drivers and workers does one job each; what an outcome becomes does not depend on them, so
the rest is asked of one client of each colour.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from river import (
    Args,
    Hook,
    InsertOpts,
    Job,
    JobArgs,
    JobCancel,
    JobDiscard,
    JobRow,
    JobSnooze,
    QueueConfig,
    WorkCancelled,
    WorkContext,
    Worker,
    Workers,
    current,
)
from river.engine.attempt import error_record
from tests.support.clients import (
    ASYNCIO,
    BLOCKING,
    STYLES,
    WAYS,
    Bench,
    Note,
    Row,
    Style,
    Way,
    eventually,
    made,
    workers_of,
    working,
)

Z_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")

both = pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)
styles = pytest.mark.parametrize("style", STYLES)


def raising(style: Style, error: BaseException) -> Workers:
    def body(job: Job[Note], ctx: WorkContext) -> None:
        raise error

    return workers_of(style, body)


async def outcome(bench: Bench, *states: str, opts: InsertOpts | None = None) -> Row:
    """The row of a job once it has ended in one of *states*."""
    return await bench.jobs.until(await bench.insert(Note(), opts), *states)


def delay_of(row: Row) -> float:
    """From the claim, the last time that the row knows, to when the job is due; the test's own speed is in it."""
    return float((row["scheduled_at"] - row["attempted_at"]).total_seconds())


# One job, every way


@styles
@pytest.mark.parametrize("poll_only", [False, True], ids=["listening", "polling"])
@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_job_is_inserted_worked_and_completed(
    database_url: str, schema: str, way: Way, poll_only: bool, style: Style
) -> None:
    seen: list[tuple[str, JobRow, str]] = []

    def body(job: Job[Note], ctx: WorkContext) -> None:
        assert current() is ctx
        seen.append((job.args.text, ctx.job, threading.current_thread().name))

    workers = workers_of(style, body)
    async with working(way, database_url, schema, workers=workers, poll_only=poll_only, id="me") as bench:
        job_id = await bench.insert(Note("hello"))
        row = await bench.jobs.until(job_id, "completed")
        read = await bench.get(job_id)
    assert [(text, job.id, job.state, job.attempt) for text, job, _ in seen] == [("hello", job_id, "running", 1)]
    assert (row["attempt"], row["attempted_by"], row["errors"]) == (1, ["me"], None)
    assert row["created_at"] <= row["scheduled_at"] <= row["attempted_at"] <= row["finalized_at"]
    assert seen[0][1].attempted_at == row["attempted_at"]
    assert (read.state, read.finalized_at) == ("completed", row["finalized_at"])
    in_a_worker_thread = seen[0][2].startswith("river-worker-")
    assert in_a_worker_thread == (style != "async def")


# Failures


@both
@styles
async def test_a_first_failure_is_recorded_and_the_job_is_available_again_a_second_later(
    database_url: str, schema: str, way: Way, style: Style
) -> None:
    begun = datetime.now(UTC)
    async with made(way, database_url, schema, workers=raising(style, ValueError("no such user"))) as bench:
        job_id = await bench.insert(Note())
        await bench.start()
        await eventually(lambda: bench.jobs.row(job_id)["errors"], "the failure is recorded")
        row = bench.jobs.row(job_id)
    assert row["state"] in ("available", "running", "retryable")
    (error, *_) = row["errors"]
    assert list(error) == ["at", "error", "trace", "attempt"]  # jsonb's order: by length, then by name
    assert (error["attempt"], error["error"]) == (1, "no such user")
    assert Z_TIME.fullmatch(error["at"])
    assert begun <= datetime.fromisoformat(error["at"]) <= datetime.now(UTC)


@both
async def test_retries_follow_rivers_schedule(database_url: str, schema: str, way: Way) -> None:
    async with made(way, database_url, schema, workers=raising("def", ValueError("again"))) as bench:
        job_id = await bench.insert(Note())
        await bench.start()
        await eventually(lambda: bench.jobs.row(job_id)["errors"], "the first failure is recorded")
        await bench.stop()
        first = bench.jobs.row(job_id)
        assert (first["state"], first["attempt"], first["finalized_at"]) == ("available", 1, None)
        assert delay_of(first) >= 0.9

        bench.jobs.execute("UPDATE {job} SET scheduled_at = now()")
        await bench.start()
        second = await bench.jobs.until(job_id, "retryable")
        assert (second["attempt"], second["finalized_at"]) == (2, None)
        assert 16 * 0.9 <= delay_of(second) < 81 * 0.9
        assert [error["attempt"] for error in second["errors"]] == [1, 2]


@both
async def test_a_retry_that_succeeds_keeps_its_errors(database_url: str, schema: str, way: Way) -> None:
    def body(job: Job[Note], ctx: WorkContext) -> None:
        if job.attempt == 1:
            raise ValueError("once")

    async with working(way, database_url, schema, workers=workers_of("def", body)) as bench:
        row = await outcome(bench, "completed")
    assert (row["attempt"], len(row["errors"]), len(row["attempted_by"])) == (2, 1, 2)


@both
@styles
async def test_a_failure_at_the_last_attempt_discards_the_job(
    database_url: str, schema: str, way: Way, style: Style, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(way, database_url, schema, workers=raising(style, ValueError("last"))) as bench:
        row = await outcome(bench, "discarded", opts=InsertOpts(max_attempts=1))
    assert row["finalized_at"] >= row["attempted_at"]
    assert [error["error"] for error in row["errors"]] == ["last"]
    (record,) = [record for record in caplog.records if "failed at its last attempt" in record.message]
    assert vars(record)["job_id"] == row["id"]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "last"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_traceback_starts_in_the_workers_own_file(database_url: str, schema: str, is_async: bool) -> None:
    workers = Workers()
    if is_async:

        @workers.work()
        async def boom_async(job: Job[Note], ctx: WorkContext) -> None:
            raise ValueError("boom")

    else:

        @workers.work()
        def boom(job: Job[Note], ctx: WorkContext) -> None:
            raise ValueError("boom")

    async with working(ASYNCIO, database_url, schema, workers=workers) as bench:
        row = await outcome(bench, "discarded", opts=InsertOpts(max_attempts=1))
    lines = row["errors"][0]["trace"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].strip().startswith(f'File "{__file__}"')
    assert lines[-1] == "ValueError: boom"


def test_a_host_module_whose_path_begins_like_rivers_stays_in_the_traceback() -> None:
    import river

    path = str(Path(river.__file__).parent) + "side/jobs.py"
    scope: dict[str, Any] = {}
    exec(compile("def work():\n    helper()\ndef helper():\n    raise ValueError('boom')", path, "exec"), scope)
    with pytest.raises(ValueError, match="boom") as raised:
        scope["work"]()
    trace = raised.value.__traceback__
    assert trace is not None
    record = error_record(raised.value.with_traceback(trace.tb_next), 1, datetime.now(UTC))
    assert record["trace"].splitlines()[1].strip().endswith("in work")


class _SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this fails")


class _NotTextError(Exception):
    def __str__(self) -> str:
        return cast("str", 7)


AWKWARD: list[tuple[BaseException, str]] = [
    (ValueError("a\x00b"), r"a\x00b"),
    (ValueError("a\ud800b"), r"a\ud800b"),
    (ValueError("\U0001f600 \x1b \u2028"), "\U0001f600 \x1b \u2028"),
    (ValueError('"}\\u0000{"'), '"}\\u0000{"'),
    (ValueError(), "ValueError"),
    (KeyError("user"), "KeyError: 'user'"),
    (_SpeechlessError(), "_SpeechlessError: (its text cannot be read)"),
    (_NotTextError(), "_NotTextError: (its text cannot be read)"),
    (ExceptionGroup("several", [ValueError("one\x00")]), "several (1 sub-exception)"),
]


@pytest.mark.parametrize(("error", "text"), AWKWARD, ids=range(len(AWKWARD)))
@pytest.mark.parametrize("style", ["def", "async def"])
async def test_no_text_of_an_exception_costs_the_job_its_outcome(
    database_url: str, schema: str, style: Style, error: BaseException, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="river.executor")  # a log has troubles of its own with such texts
    async with working(ASYNCIO, database_url, schema, workers=raising(style, error)) as bench:
        row = await outcome(bench, "discarded", opts=InsertOpts(max_attempts=1))
    assert row["errors"][0]["error"] == text


@both
async def test_an_exception_of_ten_megabytes_does_not_cost_the_job_its_outcome(
    database_url: str, schema: str, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="river.executor")  # its text would otherwise be in the log as well
    async with working(way, database_url, schema, workers=raising("def", ValueError("x" * 10_000_000))) as bench:
        row = await outcome(bench, "discarded", opts=InsertOpts(max_attempts=1))
    assert row["errors"][0]["error"].startswith("x" * 1_000)


@both
@styles
@pytest.mark.parametrize(
    "error", [SystemExit(3), WorkCancelled("stop"), asyncio.CancelledError("mine"), GeneratorExit()], ids=repr
)
async def test_an_exit_of_a_worker_is_a_failed_attempt_and_ends_nobody_else(
    database_url: str, schema: str, way: Way, style: Style, error: BaseException
) -> None:
    async with working(way, database_url, schema, workers=raising(style, error)) as bench:
        for _ in range(2):
            row = await outcome(bench, "discarded", opts=InsertOpts(max_attempts=1))
            name = type(error).__name__
            assert row["errors"][0]["error"] == (f"{name}: {error}" if str(error) else name)


async def test_a_keyboard_interrupt_of_a_def_worker_is_a_failed_attempt(database_url: str, schema: str) -> None:
    async with working(BLOCKING, database_url, schema, workers=raising("def", KeyboardInterrupt())) as bench:
        row = await outcome(bench, "discarded", opts=InsertOpts(max_attempts=1))
    assert row["errors"][0]["error"] == "KeyboardInterrupt"


# What a worker may ask for


@both
@styles
async def test_a_long_snooze_gives_the_attempt_back_and_is_counted(
    database_url: str, schema: str, way: Way, style: Style
) -> None:
    async with working(way, database_url, schema, workers=raising(style, JobSnooze(timedelta(hours=1)))) as bench:
        job_id = await bench.insert(Note(), InsertOpts(metadata={"mine": 1}))
        row = await bench.jobs.until(job_id, "scheduled")
        assert (row["attempt"], row["errors"], row["finalized_at"]) == (0, None, None)
        assert row["metadata"] == {"mine": 1, "snoozes": 1}
        assert 3600 <= delay_of(row) < 3700

        bench.jobs.execute("UPDATE {job} SET state = 'available', scheduled_at = now()")
        await eventually(lambda: bench.jobs.row(job_id)["metadata"]["snoozes"] == 2, "the second snooze is counted")
        row = await bench.jobs.until(job_id, "scheduled")
        assert (row["attempt"], len(row["attempted_by"])) == (0, 2)


@both
async def test_a_short_snooze_leaves_the_job_available(database_url: str, schema: str, way: Way) -> None:
    def body(job: Job[Note], ctx: WorkContext) -> None:
        if job.metadata.get("snoozes", 0) < 3:
            raise JobSnooze(0.01)

    async with working(way, database_url, schema, workers=workers_of("def", body)) as bench:
        row = await outcome(bench, "completed", opts=InsertOpts(max_attempts=1))
    assert (row["attempt"], row["metadata"], row["errors"]) == (1, {"snoozes": 3}, None)


async def test_a_snooze_overwrites_a_count_that_is_none(database_url: str, schema: str) -> None:
    async with working(ASYNCIO, database_url, schema, workers=raising("def", JobSnooze(3600))) as bench:
        row = await outcome(bench, "scheduled", opts=InsertOpts(metadata={"snoozes": "many"}))
    assert row["metadata"] == {"snoozes": 1}


@both
@styles
@pytest.mark.parametrize(
    ("error", "state", "text"),
    [(JobCancel("no user"), "cancelled", "JobCancelError: no user"), (JobDiscard("bad"), "discarded", "bad")],
)
async def test_a_worker_can_end_its_job_for_good(
    database_url: str, schema: str, way: Way, style: Style, error: Exception, state: str, text: str
) -> None:
    async with working(way, database_url, schema, workers=raising(style, error)) as bench:
        row = await outcome(bench, state)
    assert (row["attempt"], [each["error"] for each in row["errors"]]) == (1, [text])
    assert row["finalized_at"] is not None


async def test_a_def_worker_that_returns_a_coroutine_has_failed(database_url: str, schema: str) -> None:
    worked = False

    async def later() -> None:
        nonlocal worked
        worked = True

    workers = Workers()

    @workers.work()
    def forgetful(job: Job[Note], ctx: WorkContext) -> Any:
        return later()

    async with working(ASYNCIO, database_url, schema, workers=workers) as bench:
        row = await outcome(bench, "discarded", opts=InsertOpts(max_attempts=1))
    assert "declare it `async def`" in row["errors"][0]["error"]
    assert not worked


# When a failed job is due again


class Stubborn(Worker[Note]):
    """Fails, and says itself when it wants to be tried again."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[Job[Note]] = []

    def work(self, job: Job[Note], ctx: WorkContext) -> None:
        raise ValueError("again")

    def next_retry(self, job: Job[Note]) -> datetime | None:
        self.asked.append(job)
        if isinstance(self.answer, Exception):
            raise self.answer
        return cast("datetime | None", self.answer)


class FixedPolicy:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def next_retry(self, job: JobRow, now: datetime) -> datetime:
        if isinstance(self.answer, Exception):
            raise self.answer
        return cast("datetime", self.answer)


async def test_a_worker_decides_when_its_job_is_due_again(database_url: str, schema: str) -> None:
    worker = Stubborn(datetime.now(UTC) + timedelta(hours=3))
    workers = Workers()
    workers.add(worker)
    async with working(ASYNCIO, database_url, schema, workers=workers) as bench:
        job_id = await bench.insert(Note("mine"))
        row = await bench.jobs.until(job_id, "retryable")
    assert [(job.id, job.args.text) for job in worker.asked] == [(job_id, "mine")]
    assert abs(row["scheduled_at"] - cast("datetime", worker.answer)) < timedelta(seconds=60)


async def test_the_retry_policy_decides_where_the_worker_does_not(database_url: str, schema: str) -> None:
    due = datetime.now(UTC) + timedelta(hours=5)
    workers = Workers()
    workers.add(Stubborn(None))
    async with working(ASYNCIO, database_url, schema, workers=workers, retry_policy=FixedPolicy(due)) as bench:
        row = await outcome(bench, "retryable")
    assert abs(row["scheduled_at"] - due) < timedelta(seconds=60)


@pytest.mark.parametrize("culprit", ["worker", "policy"])
@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("no idea"),
        datetime(2020, 1, 1, tzinfo=UTC),
        datetime(2040, 1, 1),  # noqa: DTZ001 - a naive one is the point
        "tomorrow",
    ],
    ids=["raises", "past", "naive", "text"],
)
async def test_an_unusable_answer_leaves_the_retry_to_rivers_own_schedule(
    database_url: str, schema: str, culprit: str, answer: object
) -> None:
    workers = Workers()
    workers.add(Stubborn(answer if culprit == "worker" else None))
    policy = FixedPolicy(datetime.now(UTC) + timedelta(days=9) if culprit == "worker" else answer)
    async with made(ASYNCIO, database_url, schema, workers=workers, retry_policy=policy) as bench:
        job_id = bench.jobs.add(attempt=1, errors=['{"attempt": 1}'])
        await bench.start()
        row = await bench.jobs.until(job_id, "retryable")
    assert 16 * 0.9 <= delay_of(row) < 81 * 0.9


@pytest.mark.parametrize("seconds", [1e10, 1e13, 1e300])
async def test_a_delay_of_any_length_does_not_cost_the_job_its_outcome(
    database_url: str, schema: str, seconds: float
) -> None:
    async with working(ASYNCIO, database_url, schema, workers=raising("def", JobSnooze(seconds))) as bench:
        row = await bench.jobs.until(await bench.insert(Note()), "scheduled")
        assert row["metadata"] == {"snoozes": 1}
        left = bench.jobs.execute("SELECT scheduled_at > now() + interval '200 years' AS far FROM {job}")
    assert left == [{"far": True}]


# Jobs that cannot be worked


def two_kinds(seen: list[str]) -> Workers:
    def body(job: Job[Note], ctx: WorkContext) -> None:
        seen.append(job.args.text)

    return workers_of("def", body)


@both
async def test_a_job_of_an_unknown_kind_is_a_failed_attempt(database_url: str, schema: str, way: Way) -> None:
    async with working(way, database_url, schema, workers=two_kinds([]), skip_unknown_job_check=True) as bench:
        strange = cast("Args", JobArgs("strange", {}))
        row = await bench.jobs.until(await bench.insert(strange, InsertOpts(max_attempts=1)), "discarded")
    assert [(error["error"], error["attempt"], error["trace"]) for error in row["errors"]] == [
        ("job kind is not registered in the client's Workers bundle: strange", 1, "")
    ]


@both
async def test_args_that_do_not_decode_are_a_failed_attempt(database_url: str, schema: str, way: Way) -> None:
    seen: list[str] = []
    async with made(way, database_url, schema, workers=two_kinds(seen)) as bench:
        bad = bench.jobs.add(args='{"text": 7}', max_attempts=1)
        good = bench.jobs.add(args='{"text": "fine"}')
        await bench.start()
        await bench.jobs.until(good, "completed")
        row = await bench.jobs.until(bad, "discarded")
    assert row["errors"][0]["error"].startswith("args of 'note' could not be decoded: ")
    assert "$.text" in row["errors"][0]["error"]
    assert seen == ["fine"]


UNREADABLE = {
    "metadata": ("metadata = '[1]'", "metadata: "),
    "tags": ("tags = ARRAY['fine', NULL]::varchar[]", "tags"),
    "attempted_by": ("attempted_by = ARRAY[NULL]::text[]", "attempted_by"),
    "scheduled_at": ("scheduled_at = '-infinity'", "scheduled_at: "),
    "created_at": ("created_at = 'infinity'", "created_at: "),
    "year-12000": ("created_at = '12000-01-01'", "created_at: "),
}


@both
@pytest.mark.parametrize(("change", "column"), UNREADABLE.values(), ids=UNREADABLE)
async def test_a_row_that_cannot_be_read_fails_alone(
    database_url: str, schema: str, way: Way, change: str, column: str
) -> None:
    seen: list[str] = []
    async with made(way, database_url, schema, workers=two_kinds(seen), queues={"default": 10}) as bench:
        bad = bench.jobs.add(max_attempts=1)
        bench.jobs.execute("UPDATE {job} SET " + change)
        for n in range(5):
            bench.jobs.add(args=f'{{"text": "{n}"}}')
        await bench.start()
        await eventually(lambda: bench.jobs.states() == {"completed": 5, "discarded": 1}, "all have ended")
        (row,) = bench.jobs.execute("SELECT state, attempt, errors FROM {job} WHERE id = %s", bad)
    assert sorted(seen) == ["0", "1", "2", "3", "4"]
    assert row["attempt"] == 1
    assert row["errors"][0]["error"].startswith(f"job row couldn't be decoded: {column}")


async def test_a_row_that_cannot_be_read_is_tried_again_like_any_other(database_url: str, schema: str) -> None:
    async with made(ASYNCIO, database_url, schema, workers=two_kinds([])) as bench:
        job_id = bench.jobs.add(metadata="[]", attempt=1, errors=['{"attempt": 1}'])
        await bench.start()
        row = await bench.jobs.until(job_id, "retryable")
        assert 16 * 0.9 <= delay_of(row) < 81 * 0.9
        bench.jobs.execute("UPDATE {job} SET metadata = '{{}}', state = 'available', scheduled_at = now()")
        assert (await bench.jobs.until(job_id, "completed"))["attempt"] == 3


async def test_a_scheduled_time_of_infinity_is_never_due(database_url: str, schema: str) -> None:
    async with made(ASYNCIO, database_url, schema, workers=two_kinds([])) as bench:
        bench.jobs.add()
        bench.jobs.execute("UPDATE {job} SET scheduled_at = 'infinity'")
        await bench.start()
        assert (await outcome(bench, "completed"))["attempt"] == 1
        assert bench.jobs.states() == {"completed": 1, "available": 1}


# Context variables

request_id: ContextVar[str] = ContextVar("request_id", default="none")


@both
@styles
async def test_attempts_see_the_context_of_start_and_not_each_others(
    database_url: str, schema: str, way: Way, style: Style
) -> None:
    seen: list[str] = []

    def body(job: Job[Note], ctx: WorkContext) -> None:
        seen.append(request_id.get())
        request_id.set(job.args.text)

    async with made(way, database_url, schema, workers=workers_of(style, body), queues={"default": 1}) as bench:
        token = request_id.set("start")
        await bench.start()
        request_id.reset(token)
        for n in range(3):
            await bench.jobs.until(await bench.insert(Note(str(n))), "completed")
    assert seen == ["start"] * 3
    assert request_id.get() == "none"


# Order and slots


@both
@styles
async def test_jobs_start_by_priority_then_time_then_id(database_url: str, schema: str, way: Way, style: Style) -> None:
    seen: list[str] = []

    def body(job: Job[Note], ctx: WorkContext) -> None:
        seen.append(job.args.text)

    async with made(way, database_url, schema, workers=workers_of(style, body), queues={"default": 1}) as bench:
        for text, priority, age in [("e", 4, 9), ("c", 2, 1), ("d", 2, 1), ("b", 2, 5), ("a", 1, 0)]:
            due = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=age)
            bench.jobs.add(args=f'{{"text": "{text}"}}', priority=priority, scheduled_at=due)
        await bench.start()
        await eventually(lambda: len(seen) == 5, "all are worked")
    assert seen == ["a", "b", "c", "d", "e"]


@both
@pytest.mark.parametrize("style", ["def", "async def"])
async def test_no_more_jobs_run_than_the_queue_has_slots(
    database_url: str, schema: str, way: Way, style: Style
) -> None:
    lock = threading.Lock()
    running = 0
    most = 0
    full = threading.Event()

    def enter() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 7:
                full.set()

    def leave() -> None:
        nonlocal running
        with lock:
            running -= 1

    workers = Workers()
    if style == "def":

        @workers.work()
        def work(job: Job[Note], ctx: WorkContext) -> None:
            enter()
            assert full.wait(30)
            leave()

    else:

        @workers.work()
        async def work_async(job: Job[Note], ctx: WorkContext) -> None:
            enter()
            while not full.is_set():  # noqa: ASYNC110 - a threading.Event, because def workers wait for it too
                await asyncio.sleep(0.001)
            leave()

    async with made(way, database_url, schema, workers=workers, queues={"default": 7}) as bench:
        bench.jobs.add_many(200)
        await bench.start()
        await bench.jobs.until_all("completed")
    assert most == 7


@both
async def test_a_queue_whose_slots_are_all_taken_delays_no_other_queue_and_no_async_worker(
    database_url: str, schema: str, way: Way
) -> None:
    release = threading.Event()
    workers = Workers()

    @workers.work(kind="blocker")
    def block(job: Job[Any], ctx: WorkContext) -> None:
        assert release.wait(60)

    @workers.work(kind="quick")
    def quick(job: Job[Any], ctx: WorkContext) -> None:
        pass

    @workers.work(kind="quick-async")
    async def quick_async(job: Job[Any], ctx: WorkContext) -> None:
        await asyncio.sleep(0)

    queues: dict[str, int | QueueConfig] = {"slow": QueueConfig(max_workers=3), "fast": 2}
    async with working(way, database_url, schema, workers=workers, queues=queues) as bench:
        blocked = [bench.jobs.add(kind="blocker", queue="slow") for _ in range(4)]
        for job_id in blocked[:3]:
            await bench.jobs.until(job_id, "running")
        for kind in ("quick", "quick-async", "quick"):
            await bench.jobs.until(bench.jobs.add(kind=kind, queue="fast"), "completed")
        states = [bench.jobs.row(job_id)["state"] for job_id in blocked]
        release.set()
        await bench.jobs.until_all("completed")
    assert states == ["running", "running", "running", "available"]


async def test_a_blocking_def_worker_does_not_keep_its_own_queue_from_fetching(database_url: str, schema: str) -> None:
    release = threading.Event()

    def body(job: Job[Note], ctx: WorkContext) -> None:
        if job.args.text == "block":
            assert release.wait(60)

    async with working(ASYNCIO, database_url, schema, workers=workers_of("def", body)) as bench:
        blocked = [await bench.insert(Note("block")) for _ in range(3)]
        for _ in range(5):
            await outcome(bench, "completed")
        assert {bench.jobs.row(job_id)["state"] for job_id in blocked} == {"running"}
        release.set()


async def test_jobs_of_other_queues_are_left_alone(database_url: str, schema: str) -> None:
    async with made(ASYNCIO, database_url, schema, workers=two_kinds([]), queues={"mine": 2}) as bench:
        other = bench.jobs.add(queue="other")
        await bench.start()
        await bench.jobs.until(bench.jobs.add(queue="mine"), "completed")
        assert bench.jobs.row(other)["state"] == "available"
        assert [row["name"] for row in bench.jobs.execute("SELECT name FROM {schema}.river_queue")] == ["mine"]


# Due jobs


@both
async def test_due_jobs_become_available_and_are_worked(database_url: str, schema: str, way: Way) -> None:
    async with made(way, database_url, schema, workers=two_kinds([]), fetch_poll_interval=60.0) as bench:
        past, future = datetime.now(UTC) - timedelta(minutes=1), datetime.now(UTC) + timedelta(hours=1)
        due = [bench.jobs.add(state=state, scheduled_at=past) for state in ("scheduled", "retryable")]
        later = [bench.jobs.add(state=state, scheduled_at=future) for state in ("scheduled", "retryable")]
        parked = bench.jobs.add(state="pending", scheduled_at=past)
        await bench.start()
        for job_id in due:
            await bench.jobs.until(job_id, "completed")
        assert [bench.jobs.row(job_id)["state"] for job_id in (*later, parked)] == ["scheduled", "retryable", "pending"]


async def test_a_job_that_is_due_soon_is_available_early_and_never_worked_early(database_url: str, schema: str) -> None:
    async with made(ASYNCIO, database_url, schema, workers=two_kinds([])) as bench:
        due = datetime.now(UTC) + timedelta(seconds=2.5)
        job_id = await bench.insert(Note(), InsertOpts(scheduled_at=due))
        assert bench.jobs.row(job_id)["state"] == "scheduled"
        await bench.start()
        await bench.jobs.until(job_id, "available")
        row = await bench.jobs.until(job_id, "completed")
    assert row["attempted_at"] >= row["scheduled_at"] == due


# Hooks


async def test_a_claim_hook_that_fails_costs_nothing_but_a_line_in_the_log(
    database_url: str, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Hook):
        def work_claimed(self, job: JobRow) -> None:
            raise RuntimeError("hook")

    async with working(ASYNCIO, database_url, schema, workers=two_kinds([]), hooks=[Broken()]) as bench:
        await outcome(bench, "completed")
    assert "a work_claimed hook failed" in caplog.messages
