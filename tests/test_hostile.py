"""What hosts, rows and servers do to a client that nobody would do on purpose: one job may suffer, nobody else.

Each fault is provoked on a real database. The runtime's deadlines are shortened where one has to pass.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar

import psycopg
import pydantic
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import event

from river import (
    AsyncClient,
    Client,
    ClientStateError,
    HandleError,
    Hook,
    InsertOpts,
    InvalidArgsError,
    Job,
    JobRow,
    WorkContext,
    Workers,
)
from river.engine.attempt import ERROR_CHARACTERS, TRACE_CHARACTERS
from river.engine.pacing import LIMITS, Pacing
from river.operation import run
from river.operations import work
from river.runtime import completer, notifier, producer, service, store
from river.sql.postgres import Postgres
from river_psycopg.blocking import ConnectionExecutor
from tests.support.clients import (
    ASYNCIO,
    BLOCKING,
    STYLES,
    Bench,
    Jobs,
    Note,
    Style,
    Way,
    call,
    eventually,
    jobs_of,
    made,
    named,
    workers_of,
    working,
)
from tests.support.urls import with_driver

both = pytest.mark.parametrize("way", [BLOCKING, ASYNCIO], ids=str)
styles = pytest.mark.parametrize("style", STYLES)

BAD = "bad"
"""The text of a job that does what the test is about; the others do nothing."""


def bad_workers(style: Style, act: Callable[[], object]) -> Workers:
    """Workers whose one worker does *act* for a job of the text BAD."""

    def body(job: Job[Note], ctx: WorkContext) -> None:
        if job.args.text == BAD:
            act()

    return workers_of(style, body)


def raising(error: Callable[[], BaseException]) -> Callable[[], None]:
    def act() -> None:
        raise error()

    return act


@contextmanager
def short_pauses() -> Generator[None]:
    """Whatever fails is tried again soon."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (producer, completer, notifier):
            patch.setattr(module, "backoff_seconds", lambda _: 0.1)
        yield


@pytest.fixture
def jobs(database_url: str, schema: str) -> Iterator[Jobs]:
    with jobs_of(database_url, schema) as jobs:
        yield jobs


async def still_works(bench: Bench) -> None:
    """The client works one more job, and has not ended."""
    await bench.jobs.until(await bench.insert(Note("one more")), "completed")
    assert not bench.client.completed.done()


# Claims whose answer is lost


@pytest.mark.parametrize(
    "way",
    [
        BLOCKING,
        ASYNCIO,
        Way("Client", "Engine-psycopg2"),
        Way("AsyncClient", "AsyncEngine-asyncpg"),
    ],
    ids=str,
)
async def test_a_claim_that_the_server_makes_after_nobody_waits_for_it_is_given_back_and_worked_once(
    database_url: str, schema: str, way: Way, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(producer, "CLAIM_SECONDS", 0.3)
    monkeypatch.setattr(store, "GRACE_SECONDS", 0.1)
    runs: Counter[int] = Counter()
    workers = workers_of("async def", lambda job, _: runs.update([job.id]))
    with short_pauses():
        async with working(way, database_url, schema, workers=workers) as bench:
            lost: list[int] = []
            await still_works(bench)
            # Perhaps more than once, because a claim that is to be prepared first is never executed. asyncpg prepares
            # each statement when a connection first has it, psycopg only what it has had five times.
            before = 8 if "asyncpg" in way.source else 0
            while not _messages(caplog, "claimed without an answer"):
                assert len(lost) < 120
                for _ in range(before):
                    await still_works(bench)
                failed = len(_messages(caplog, "could not be fetched"))
                with bench.jobs.connection.transaction():
                    bench.jobs.execute("LOCK TABLE {job} IN ACCESS EXCLUSIVE MODE")
                    lost += [bench.jobs.add() for _ in range(6)]
                    await eventually(partial(_more_than, caplog, failed), "a claim failed")
                await bench.jobs.until_all("completed")
            attempts = {job_id: bench.jobs.row(job_id)["attempt"] for job_id in lost}
    given_back = {job_id for record in caplog.records for job_id in vars(record).get("job_ids", ())}
    assert given_back
    assert given_back <= set(lost)
    assert runs == Counter(runs.keys())
    assert attempts == dict.fromkeys(lost, 1)


def _messages(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


def _more_than(caplog: pytest.LogCaptureFixture, failed: int) -> bool:
    return len(_messages(caplog, "could not be fetched")) > failed


def test_giving_back_leaves_alone_what_is_not_a_lost_claim_of_this_client(jobs: Jobs) -> None:
    now = datetime.now(UTC)

    def claim(**columns: object) -> int:
        values: dict[str, object] = {
            "state": "running",
            "attempt": 3,
            "attempted_at": now,
            "attempted_by": ["somebody", "me"],
        }
        return jobs.add(**(values | columns))

    lost = claim()
    never_attempted = claim(attempt=0)
    others = {
        "it runs here, or its end waits to be saved": claim(),
        "another client's": claim(attempted_by=["me", "another"]),
        "nobody's": claim(attempted_by=None),
        "an odd row": claim(attempted_by=[["me"], ["me"]]),
        "an earlier client's of the same id": claim(attempted_at=now - timedelta(hours=1)),
        "of another queue": claim(queue="other"),
        "not running": claim(state="retryable"),
        "claimed after the question was asked": claim(attempted_at=now + timedelta(hours=1)),
    }
    before = [jobs.row(job_id) for job_id in others.values()]
    operation = work.give_back(
        Postgres(jobs.schema),
        "default",
        client_id="me",
        since=now - timedelta(minutes=1),
        in_hand={next(iter(others.values())), 2**62},
    )
    given_back = run(ConnectionExecutor(jobs.connection), operation)
    assert sorted(given_back) == [lost, never_attempted]
    assert [(jobs.row(each)["state"], jobs.row(each)["attempt"]) for each in (lost, never_attempted)] == [
        ("available", 2),
        ("available", 0),
    ]
    assert [jobs.row(job_id) for job_id in others.values()] == before


def test_a_question_for_lost_claims_that_arrives_late_finds_no_later_claims(jobs: Jobs) -> None:
    """Its client has given up on it, and claimed again, before the server runs it."""
    executor, sql = ConnectionExecutor(jobs.connection), Postgres(jobs.schema)
    since = run(executor, sql.greeting()).now
    question = work.give_back(sql, "default", client_id="me", since=since, in_hand=())
    statement = next(question)
    late = question.send(executor.execute(statement))  # what the client sends before the claim
    job_id = jobs.add()
    (claimed,) = run(executor, work.claim(sql, "default", client_id="me", limit=10))
    assert isinstance(claimed, JobRow)
    assert claimed.id == job_id
    assert executor.execute(late) == []
    assert jobs.row(job_id)["state"] == "running"


def test_after_each_failed_claim_the_next_is_smaller_and_success_makes_it_large_again() -> None:
    pacing = Pacing(slots=1_000, cooldown_seconds=0.1, poll_seconds=1)
    assert pacing.limit(1_000) == LIMITS[0]
    limits: list[int] = []
    for _ in range(12):
        pacing.failed(0.0, 1.0)
        limits.append(pacing.limit(1_000))
    assert limits[0] < LIMITS[0]
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == 1
    for _ in range(12):
        pacing.claimed(0.0, 1, 1, 0.5)
    assert pacing.limit(1_000) == LIMITS[0]
    assert pacing.limit(3) == 2


# Errors and rows that are odd


@both
async def test_an_error_text_of_fifty_megabytes_is_kept_short_and_its_neighbours_are_saved(
    database_url: str, schema: str, way: Way
) -> None:
    text = "\x01" * 50_000_000
    workers = bad_workers("def", raising(lambda: ValueError(text)))
    async with made(way, database_url, schema, workers=workers) as bench:
        bad = await bench.insert(Note(BAD), InsertOpts(max_attempts=1))
        good = await bench.insert_many([Note() for _ in range(20)])
        await bench.start()
        for job_id in good:
            await bench.jobs.until(job_id, "completed")
        (error,) = (await bench.jobs.until(bad, "discarded"))["errors"]
        assert len(error["error"]) < ERROR_CHARACTERS + 100
        assert len(error["trace"]) < TRACE_CHARACTERS + 100
        await still_works(bench)


ODD = {
    "an attempt that is the last number": ("attempt = 32767, max_attempts = 32767", "discarded"),
    "attempted_by of two dimensions": ("attempted_by = '{{{{a}},{{b}}}}', max_attempts = 1", "discarded"),
    "attempted_by that does not begin at 1": ("attempted_by = '[5:6]={{a,b}}', max_attempts = 1", "discarded"),
    "errors of two dimensions": (
        'errors = array_fill(CAST(\'{{"at": "x"}}\' AS jsonb), ARRAY[2, 2]), max_attempts = 1',
        "discarded",
    ),
}


@pytest.mark.parametrize(("change", "end"), ODD.values(), ids=ODD.keys())
async def test_an_odd_row_ends_and_does_not_keep_others_from_being_worked(
    database_url: str, schema: str, change: str, end: str
) -> None:
    workers = bad_workers("def", raising(lambda: ValueError("no")))
    async with made(ASYNCIO, database_url, schema, workers=workers, queues={"default": 2}) as bench:
        odd = bench.jobs.add(args='{"text": "bad"}', scheduled_at=datetime(2020, 1, 1, tzinfo=UTC))
        bench.jobs.execute("UPDATE {job} SET " + change)
        bench.jobs.add_many(10)
        await bench.start()
        await bench.jobs.until(odd, end)
        await eventually(lambda: bench.jobs.states() == Counter({"completed": 10, end: 1}), "all have ended")
        await still_works(bench)


# A host's own code, where it connects, logs and decides


class Token:
    """What a host asks for a password on each connect."""

    def __init__(self) -> None:
        self.available = True

    def fetch(self) -> None:
        if not self.available:
            raise LookupError("the token service is down")


@asynccontextmanager
async def connecting_with(token: Token, way: Way, url: str, schema: str, name: str) -> AsyncGenerator[Bench]:
    """A client that works, and asks for a token whenever it connects."""

    def settings() -> dict[str, Any]:
        token.fetch()
        return {}

    def on_connect(*_: object) -> None:
        token.fetch()

    workers = workers_of("def", lambda *_: None)
    if way.source.endswith("ConnectionPool"):
        cls, pool_cls = (Client, ConnectionPool) if way is BLOCKING else (AsyncClient, AsyncConnectionPool)
        pool: Any = pool_cls(named(url, name), min_size=1, max_size=4, timeout=0.5, kwargs=settings, open=False)
        await call(pool.open)
        client = cls(pool, schema=schema, workers=workers, queues={"default": 2}, fetch_poll_interval=0.1)
        with jobs_of(url, schema) as jobs:
            bench = Bench(client, jobs, pool)
            await bench.start()
            try:
                yield bench
            finally:
                await bench.stop()
                await call(pool.close)
    else:
        async with made(way, url, schema, through=named(url, name), workers=workers) as bench:
            event.listen(getattr(bench.host, "sync_engine", bench.host), "do_connect", on_connect)
            await bench.start()
            yield bench


@pytest.mark.parametrize(
    "way",
    [BLOCKING, ASYNCIO, Way("Client", "Engine-psycopg"), Way("AsyncClient", "AsyncEngine-asyncpg")],
    ids=str,
)
async def test_a_connect_callback_of_the_hosts_that_raises_does_not_end_the_client(
    database_url: str, schema: str, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    token, name = Token(), f"hostile-{schema[-20:]}"
    with short_pauses():
        async with connecting_with(token, way, database_url, schema, name) as bench:
            await still_works(bench)
            token.available = False
            bench.jobs.terminate(bench.jobs.sessions(name))
            await eventually(lambda: _messages(caplog, "the token service is down"), "the callback raised")
            await eventually(lambda: _messages(caplog, "could not be fetched"), "a claim failed")
            job_id = bench.jobs.add()
            token.available = True
            await bench.jobs.until(job_id, "completed")
            assert not bench.client.completed.done()


class Raising(logging.Handler):
    """A handler that raises, and a filter that does, too, if asked."""

    filters_too = True

    def emit(self, record: logging.LogRecord) -> None:
        raise LookupError("a broken handler")

    def filter(self, record: logging.LogRecord) -> bool:
        if self.filters_too:
            raise LookupError("a broken filter")
        return True


@both
@pytest.mark.parametrize("where", ["filter", "handler"])
async def test_a_logging_filter_or_handler_that_raises_costs_no_job_its_outcome(
    database_url: str, schema: str, way: Way, where: str
) -> None:
    logger = logging.getLogger("river.executor")
    broken = Raising()
    if where == "filter":
        logger.addFilter(broken)
    else:
        broken.filters_too = False
        logger.addHandler(broken)
    try:
        workers = bad_workers("async def", raising(lambda: ValueError("no")))
        async with working(way, database_url, schema, workers=workers) as bench:
            for _ in range(5):
                job_id = await bench.insert(Note(BAD), InsertOpts(max_attempts=1))
                await bench.jobs.until(job_id, "discarded")
            await still_works(bench)
    finally:
        logger.removeFilter(broken)
        logger.removeHandler(broken)


@both
@pytest.mark.parametrize("error", [LookupError, asyncio.CancelledError, SystemExit], ids=lambda error: error.__name__)
async def test_a_retry_policy_that_raises_costs_no_job_its_outcome(
    database_url: str, schema: str, way: Way, error: type[BaseException]
) -> None:
    class Policy:
        def next_retry(self, job: JobRow, now: datetime) -> datetime:
            raise error("policy")

    workers = bad_workers("async def", raising(lambda: ValueError("no")))
    async with working(way, database_url, schema, workers=workers, retry_policy=Policy()) as bench:
        bad = await bench.insert(Note(BAD))
        await eventually(lambda: bench.jobs.row(bad)["errors"], "the failure is recorded")
        await still_works(bench)


class NoBoolError(Exception):
    def __bool__(self) -> bool:
        raise LookupError("no bool")


class NoStrError(Exception):
    def __str__(self) -> str:
        raise LookupError("no str")

    __repr__ = __str__


class InterruptingStrError(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


@both
@styles
@pytest.mark.parametrize("error", [NoBoolError, NoStrError, InterruptingStrError], ids=lambda error: error.__name__)
async def test_an_exception_whose_methods_raise_costs_no_job_its_outcome(
    database_url: str, schema: str, way: Way, style: Style, error: type[Exception]
) -> None:
    async with working(way, database_url, schema, workers=bad_workers(style, raising(error))) as bench:
        bad = await bench.insert(Note(BAD), InsertOpts(max_attempts=1))
        (recorded,) = (await bench.jobs.until(bad, "discarded"))["errors"]
        assert error is NoBoolError or error.__name__ in recorded["error"]
        await still_works(bench)


@both
@styles
@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit], ids=lambda error: error.__name__)
async def test_a_claim_hook_that_raises_anything_costs_no_job_its_outcome(
    database_url: str, schema: str, way: Way, style: Style, error: type[BaseException]
) -> None:
    class Broken(Hook):
        def work_claimed(self, job: JobRow) -> None:
            raise error("hook")

    workers = workers_of(style, lambda *_: None)
    async with made(way, database_url, schema, workers=workers, hooks=[Broken()]) as bench:
        bench.jobs.add_many(20)
        await bench.start()
        await bench.jobs.until_all("completed")
        await still_works(bench)


# Workers that attack the event loop


def exits_in_a_task() -> None:
    async def exits() -> None:
        raise SystemExit(2)

    _held.append(asyncio.create_task(exits()))


_held: list[asyncio.Task[None]] = []

ATTACKS: dict[str, tuple[Callable[[], object], str]] = {
    "KeyboardInterrupt": (raising(KeyboardInterrupt), "discarded"),
    "SystemExit": (raising(lambda: SystemExit(1)), "discarded"),
    "sys.exit in a task": (exits_in_a_task, "completed"),
    "sys.exit in a callback": (
        lambda: asyncio.get_running_loop().call_soon(raising(lambda: SystemExit(3))),
        "completed",
    ),
    "loop.stop": (lambda: asyncio.get_running_loop().stop(), "completed"),
}


@pytest.mark.parametrize(("attack", "end"), ATTACKS.values(), ids=ATTACKS.keys())
async def test_no_async_worker_ends_the_event_loop_of_a_blocking_client(
    database_url: str, schema: str, attack: Callable[[], object], end: str
) -> None:
    async with working(BLOCKING, database_url, schema, workers=bad_workers("async def", attack)) as bench:
        bad = await bench.insert(Note(BAD), InsertOpts(max_attempts=1))
        await bench.jobs.until(bad, end)
        await still_works(bench)
        await bench.stop(timeout=5)
    _held.clear()


def cancels_the_services() -> None:
    for task in asyncio.all_tasks():
        if task.get_name().startswith("river-"):
            task.cancel()


async def ended(bench: Bench) -> BaseException | None:
    """Why the client ended by itself."""
    completed: Any = bench.client.completed
    if isinstance(completed, Future):
        completed = asyncio.wrap_future(completed)
    (result,) = await asyncio.wait_for(asyncio.gather(completed, return_exceptions=True), 20)
    assert result is None or isinstance(result, BaseException)
    return result


@pytest.mark.parametrize(
    "way", [BLOCKING, ASYNCIO, Way("AsyncClient", "url-psycopg2"), Way("Client", "url-asyncpg")], ids=str
)
async def test_a_worker_that_cancels_the_clients_tasks_ends_it_with_a_reason_and_without_a_loss(
    database_url: str, schema: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a claim on its way may take longer than it is given. One that is cut off may be made by the
    # server later on, and its jobs are then for a rescue, which is not what this is about.
    monkeypatch.setattr(store, "GRACE_SECONDS", 10.0)
    workers = bad_workers("async def", cancels_the_services)
    async with made(way, database_url, schema, workers=workers) as bench:
        job_ids = [*await bench.insert_many([Note(), Note(BAD), Note()])]
        await bench.start()
        reason = await ended(bench)
        assert isinstance(reason, ClientStateError)
        assert "cancelled by somebody else" in str(reason)
        await bench.stop(timeout=30)
        states = [bench.jobs.row(job_id)["state"] for job_id in job_ids]
        assert states[1] == "completed"
        assert set(states) <= {"completed", "available"}


async def test_the_ids_of_results_that_were_not_saved_are_logged_when_the_clients_tasks_were_cancelled(
    database_url: str, schema: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(completer, "STATEMENT_SECONDS", 0.3)
    monkeypatch.setattr(producer, "CLAIM_SECONDS", 0.3)
    monkeypatch.setattr(store, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(service, "FINALIZE_SECONDS", 0.5)
    began, go_on = threading.Event(), asyncio.Event()
    workers = Workers()

    @workers.work()
    async def note(job: Job[Note], ctx: WorkContext) -> None:
        began.set()
        await go_on.wait()
        cancels_the_services()

    async with made(ASYNCIO, database_url, schema, workers=workers) as bench:
        job_id = await bench.insert(Note())
        await bench.start()
        await eventually(began.is_set, "the worker began")
        with bench.jobs.connection.transaction():
            bench.jobs.execute("LOCK TABLE {job} IN ACCESS EXCLUSIVE MODE")
            go_on.set()
            assert isinstance(await ended(bench), ClientStateError)
            await bench.stop(timeout=10)
    lost = [vars(record)["job_ids"] for record in caplog.records if "were not saved" in record.getMessage()]
    assert [job_id] in lost


# Attempts that are cancelled


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def is_cancelled_by_another() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.sleep(60)


async def raises_a_cancellation() -> None:
    raise asyncio.CancelledError


@both
@pytest.mark.parametrize("cancelled", [cancels_itself, is_cancelled_by_another, raises_a_cancellation])
async def test_a_worker_that_is_cancelled_by_anybody_but_river_is_a_failed_attempt(
    database_url: str, schema: str, way: Way, cancelled: Callable[[], Any]
) -> None:
    runs: list[int] = []
    workers = Workers()

    @workers.work()
    async def note(job: Job[Note], ctx: WorkContext) -> None:
        if job.args.text == BAD:
            runs.append(job.attempt)
            await cancelled()

    async with working(way, database_url, schema, workers=workers) as bench:
        job_id = await bench.insert(Note(BAD), InsertOpts(max_attempts=2))
        await still_works(bench)
        row = await bench.jobs.until(job_id, "discarded")
    assert runs == [1, 2]
    assert [(error["attempt"], error["error"]) for error in row["errors"]] == [
        (1, "CancelledError"),
        (2, "CancelledError"),
    ]
    first, second = (datetime.fromisoformat(error["at"]) for error in row["errors"])
    assert second - first >= timedelta(seconds=0.8)  # no hot loop: the retry policy decided


async def test_an_attempt_that_is_cancelled_before_its_first_step_is_a_failed_attempt(
    database_url: str, schema: str
) -> None:
    def cancels_other_attempts() -> None:
        for task in asyncio.all_tasks():
            if getattr(task.get_coro(), "__name__", "") == "work_in_task" and task is not asyncio.current_task():
                task.cancel()

    workers = Workers()

    @workers.work()
    async def note(job: Job[Note], ctx: WorkContext) -> None:
        if job.args.text == BAD:
            cancels_other_attempts()

    async with made(ASYNCIO, database_url, schema, workers=workers) as bench:
        bad = await bench.insert(Note(BAD))
        victim = await bench.insert(Note(), InsertOpts(max_attempts=1))
        await bench.start()
        await bench.jobs.until(bad, "completed")
        (error,) = (await bench.jobs.until(victim, "discarded"))["errors"]
        assert error["error"].startswith("CancelledError")
        await still_works(bench)


# Clients that are used in odd ways


# Python's own complaints about connections and tasks that were alive when their loop ended.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("library", ["psycopg", "asyncpg"])
def test_an_asyncio_client_works_in_a_second_event_loop_after_the_first_ended_without_a_stop(
    database_url: str, schema: str, jobs: Jobs, library: str
) -> None:
    url = named(database_url, schema)
    if library == "asyncpg":
        url = with_driver(url, "postgresql+asyncpg").render_as_string(hide_password=False)
    workers = workers_of("async def", lambda *_: None)
    client = AsyncClient(url, schema=schema, workers=workers, queues={"default": 2}, fetch_poll_interval=0.1)
    bench = Bench(client, jobs, None)

    async def works() -> None:
        await bench.start()
        await still_works(bench)

    async def stops() -> None:
        await bench.stop(timeout=5)

    async def works_and_stops() -> None:
        await works()
        await stops()

    for part in (works, works, stops, works, works_and_stops, stops):
        asyncio.run(part())
    gc.collect()
    assert jobs.states() == Counter({"completed": 4})
    jobs.terminate(jobs.sessions(schema))  # of the loops that ended in the middle of a call


async def test_many_threads_may_stop_a_blocking_client_at_once(database_url: str, schema: str) -> None:
    workers = workers_of("def", lambda *_: None)
    async with made(BLOCKING, database_url, schema, workers=workers) as bench:
        for _ in range(5):
            await bench.start()
            await still_works(bench)
            await asyncio.gather(*(call(bench.client.stop, timeout=10) for _ in range(6)))


@both
@pytest.mark.parametrize("threads", [0, 2])
async def test_a_system_without_threads_to_spare_does_not_end_the_client(
    database_url: str, schema: str, way: Way, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    left = threads

    def start_or_not(thread: threading.Thread) -> None:
        nonlocal left
        if thread.name.startswith("river-worker"):
            if left <= 0:
                raise RuntimeError("can't start new thread")
            left -= 1
        start(thread)

    async with made(way, database_url, schema, workers=workers_of("def", lambda *_: None)) as bench:
        job_ids = await bench.insert_many([Note() for _ in range(4)])
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start_or_not)
            await bench.start()
            for job_id in job_ids:
                await eventually(
                    lambda job_id=job_id: (
                        bench.jobs.row(job_id)["errors"]  # type: ignore[misc]
                        or bench.jobs.row(job_id)["state"] == "completed"
                    ),
                    "the attempt ended",
                )
        await bench.jobs.until_all("completed")
        await still_works(bench)
        failed = [row for row in bench.jobs.rows() if row["errors"]]
    assert bool(failed) == (threads == 0)
    assert {error["error"] for row in failed for error in row["errors"]} <= {"can't start new thread"}


# Handles and args that would not do what they say


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_psycopg_connection_in_pipeline_mode_is_refused_and_nothing_is_written(
    database_url: str, schema: str, jobs: Jobs, autocommit: bool
) -> None:
    client = Client(None, schema=schema)
    with psycopg.connect(database_url, autocommit=autocommit) as connection:
        with connection.pipeline():
            connection.execute("SELECT 1")
            with pytest.raises(HandleError, match="pipeline"):
                client.insert_tx(connection, Note())
    assert jobs.rows() == []


async def test_an_asyncio_psycopg_connection_in_pipeline_mode_is_refused_and_nothing_is_written(
    database_url: str, schema: str, jobs: Jobs
) -> None:
    client = AsyncClient(None, schema=schema)
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        async with connection.pipeline():
            await connection.execute("SELECT 1")
            with pytest.raises(HandleError, match="pipeline"):
                await client.insert_tx(connection, Note())
    assert jobs.rows() == []


class Login(pydantic.BaseModel):
    kind: ClassVar[str] = "login"
    password: pydantic.SecretStr


class LoginBytes(pydantic.BaseModel):
    kind: ClassVar[str] = "login"
    nested: dict[str, pydantic.SecretBytes]


class Renamed(pydantic.BaseModel):
    kind: ClassVar[str] = "renamed"
    number: int = pydantic.Field(default=0, validation_alias="in", serialization_alias="out")


class Exact(pydantic.BaseModel):
    kind: ClassVar[str] = "exact"
    numbers: set[int]
    names: frozenset[str]
    at: datetime
    duration: timedelta


@dataclass
class ExactDataclass:
    kind: ClassVar[str] = "exact_dataclass"
    names: set[str]
    at: datetime


@both
async def test_args_that_would_be_read_back_as_something_else_are_refused(
    database_url: str, schema: str, way: Way
) -> None:
    renamed = Renamed.model_validate({"in": 5})
    async with made(way, database_url, schema, workers=workers_of("def", lambda *_: None)) as bench:
        for args, complaint in (
            (Login(password=pydantic.SecretStr("x")), "asterisks"),
            (LoginBytes(nested={"a": pydantic.SecretBytes(b"x")}), "asterisks"),
            (renamed, "read back as something else"),
        ):
            with pytest.raises(InvalidArgsError, match=complaint):
                await bench.insert(args)
        assert bench.jobs.rows() == []


async def test_sets_and_times_are_read_back_as_they_were_written(database_url: str, schema: str) -> None:
    seen: list[object] = []
    workers = Workers()

    @workers.work()
    def exact(job: Job[Exact], ctx: WorkContext) -> None:
        seen.append(job.args)

    @workers.work()
    def exact_dataclass(job: Job[ExactDataclass], ctx: WorkContext) -> None:
        seen.append(job.args)

    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    names = {f"name {number}" for number in range(50)}
    first = Exact(
        numbers=set(range(0, 5_000, 7)), names=frozenset(names), at=at, duration=timedelta(seconds=1, microseconds=1)
    )
    second = ExactDataclass(names, at)
    async with working(BLOCKING, database_url, schema, workers=workers) as bench:
        for args in (first, second):
            await bench.jobs.until(await bench.insert(args), "completed")
    assert seen == [first, second]


@both
async def test_a_client_that_was_made_before_a_fork_gives_nothing_back(
    database_url: str, schema: str, way: Way, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its siblings go by the same id, and what they have in hand is not its own."""
    given_back: list[str] = []
    give_back = work.give_back

    def noted(*args: Any, **kwargs: Any) -> Any:
        given_back.append(str(kwargs["client_id"]))
        return give_back(*args, **kwargs)

    monkeypatch.setattr(work, "give_back", noted)
    monkeypatch.setattr(producer, "CLAIM_SECONDS", 0.2)
    monkeypatch.setattr(store, "GRACE_SECONDS", 0.1)
    for made_here in (True, False):
        given_back.clear()
        caplog.clear()
        async with made(way, database_url, schema, workers=workers_of("def", lambda *_: None)) as bench:
            if not made_here:
                bench.client.made_in_process = -1
            await bench.start()
            with psycopg.connect(database_url) as locking:
                locking.execute(f"LOCK TABLE {schema}.river_job".encode())
                await eventually(lambda: "could not be fetched" in caplog.text, "a claim fails")
            await still_works(bench)
            await bench.stop()
        assert bool(given_back) is made_here
