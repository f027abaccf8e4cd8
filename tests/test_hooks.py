"""Hooks and middleware run around an insert and an attempt, in their order, and an error in one is the job's."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from river import (
    AsyncClient,
    CancellationToken,
    CancelReason,
    Client,
    Hook,
    InsertParams,
    InvalidArgsError,
    InvalidJobError,
    Job,
    JobRow,
    JobSnooze,
    JobState,
    Middleware,
    WorkContext,
    Workers,
    current,
)
from river.errors import SwallowedError
from river.outcome import Completed, Failed, Outcome, Snoozed
from river.runtime.attempt import Attempt, work_in_task, work_in_thread
from river.sql import decode
from tests.support.urls import with_driver
from tests.test_operation import AsyncScript, Script, adoptable, inserted, job_row

AT = datetime(2026, 1, 2, 3, tzinfo=UTC)
CLAIM = "2026-01-02T03:04:05.678900+00:00"


@dataclass
class Note:
    kind: ClassVar[str] = "note"
    number: int = 1


class NoteError(Exception):
    """What goes wrong here."""


class Log:
    """What happened, in order; and hooks and middleware that write it down."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def hook(self, name: str, change: Callable[[InsertParams], object] | None = None) -> Hook:
        log = self.seen

        class Logging(Hook):
            def insert_begin(self, params: InsertParams) -> None:
                log.append(f"{name} insert {params.kind}")
                if change:
                    change(params)

            def work_begin(self, ctx: WorkContext) -> None:
                log.append(f"{name} begin")

            def work_end(self, ctx: WorkContext, error: Exception | None) -> Exception | None:
                log.append(f"{name} end {error!r}")
                return error

        return Logging()

    def middleware(self, name: str) -> Middleware:
        log = self.seen

        @contextmanager
        def around(what: str) -> Generator[None]:
            log.append(f"{name} enters {what}")
            try:
                yield
            except BaseException as error:
                log.append(f"{name} leaves {what} with {type(error).__name__}")
                raise
            log.append(f"{name} leaves {what}")

        class Logging(Middleware):
            def insert(self, jobs: Sequence[InsertParams]) -> AbstractContextManager[Any]:
                return around(f"insert of {len(jobs)}")

            def work(self, ctx: WorkContext) -> AbstractContextManager[Any]:
                return around("work")

        return Logging()


def hooked(change: Callable[[InsertParams], object]) -> Hook:
    return Log().hook("", change)


def failing(error: Exception) -> Callable[[InsertParams], None]:
    def fail(_: InsertParams) -> None:
        raise error

    return fail


class Around(Middleware):
    """A middleware of one context manager."""

    def __init__(self, make: Callable[[Any], AbstractContextManager[Any]]) -> None:
        self._make = make

    def insert(self, jobs: Sequence[InsertParams]) -> AbstractContextManager[Any]:
        return self._make(jobs)

    def work(self, ctx: WorkContext) -> AbstractContextManager[Any]:
        return self._make(ctx)


@contextmanager
def failing_afterwards(_: object) -> Generator[None]:
    yield
    raise NoteError("afterwards")


@contextmanager
def swallowing(_: object) -> Generator[None]:
    try:
        yield
    except Exception:
        return


@pytest.fixture(autouse=True)
def scripts() -> Iterator[None]:
    with adoptable():
        yield


def test_the_order_around_an_insert() -> None:
    log = Log()
    client = Client(
        None,
        hooks=[log.hook("a"), log.hook("b")],
        middleware=[log.middleware("outer"), log.middleware("inner")],
    )

    def answer(statement: Any) -> Any:
        log.seen.append("statement")
        return inserted(statement)

    client.insert_many_tx(Script(answer), [Note(), Note()])
    assert log.seen == [
        "outer enters insert of 2",
        "inner enters insert of 2",
        "a insert note",
        "b insert note",
        "a insert note",
        "b insert note",
        "statement",
        "inner leaves insert of 2",
        "outer leaves insert of 2",
    ]


async def test_the_order_around_an_asyncio_insert_is_the_same_and_nothing_happens_before_the_await() -> None:
    log = Log()
    client = AsyncClient(None, hooks=[log.hook("a")], middleware=[log.middleware("m")])
    insertion = client.insert_tx(AsyncScript(inserted), Note())
    assert log.seen == []
    await insertion
    assert log.seen == ["m enters insert of 1", "a insert note", "m leaves insert of 1"]


def test_a_hooks_error_withdraws_the_insert_before_its_statement() -> None:
    log, script = Log(), Script()
    client = Client(
        None, hooks=[log.hook("a", failing(NoteError("no"))), log.hook("b")], middleware=[log.middleware("m")]
    )
    with pytest.raises(NoteError, match="no"):
        client.insert_many_tx(script, [Note(), Note()])
    assert script.asked == []
    assert log.seen == ["m enters insert of 2", "a insert note", "m leaves insert of 2 with NoteError"]


def test_middleware_sees_the_error_of_the_statement() -> None:
    log = Log()
    client = Client(None, middleware=[log.middleware("m")])
    with pytest.raises(ConnectionError):
        client.insert_tx(Script(ConnectionError("lost")), Note())
    assert log.seen == ["m enters insert of 1", "m leaves insert of 1 with ConnectionError"]


def test_what_a_hook_changes_is_what_is_written() -> None:
    def change(params: InsertParams) -> None:
        params.queue, params.priority, params.max_attempts = "changed", 4, 3
        params.tags.append("hooked")
        params.metadata["trace"] = "abc"
        params.encoded_args = '{"encrypted":"é"}'

    job = Client(None, hooks=[hooked(change)]).insert_tx(Script(inserted), Note()).job
    assert (job.queue, job.priority, job.max_attempts, job.tags, job.metadata) == (
        "changed",
        4,
        3,
        ["hooked"],
        {"trace": "abc"},
    )
    assert json.loads(job.encoded_args) == {"encrypted": "é"}


def setting(**values: Any) -> Callable[[InsertParams], None]:
    def change(params: InsertParams) -> None:
        for name, value in values.items():
            setattr(params, name, value)

    return change


WRONG = [
    (setting(queue="Not A Queue"), "queue 'Not A Queue' is no queue name"),
    (setting(priority=9), "priority must be"),
    (setting(max_attempts=0), "max_attempts must be"),
    (setting(tags=["x"]), "tag 'x' is no tag"),
    (setting(metadata={"a": "\x00"}), "metadata cannot be stored"),
    (setting(metadata=[1]), "metadata must be a JSON object"),
    (setting(metadata={1: 2}), "metadata cannot be stored"),
    (setting(scheduled_at=datetime(2026, 1, 1)), "aware datetime"),  # noqa: DTZ001
    (setting(kind=""), "must be a text of 1 to 127 characters"),
    (setting(kind="k\x00"), r"holds U\+0000"),
    *[(setting(delay_seconds=value), "delay must be 0 seconds or more") for value in ("x", True, -5, float("nan"))],
    (setting(delay_seconds=1e30), "delay 1e.30 leads outside of the years 1 to 9999"),
    (setting(unique_key="abc"), "unique_key must be 32 bytes or None, not 'abc'"),
    (setting(unique_key=b"abc"), "unique_key must be 32 bytes or None, not b'abc'"),
    (setting(unique_key=b"k" * 32, unique_states=999), "unique_states must be eight bits, 1 to 255"),
    (setting(unique_key=b"k" * 32), "unique_states must be eight bits, 1 to 255"),
    (setting(encoded_args=b"{}"), "their text is no JSON, but bytes"),
    (setting(encoded_args="{"), "no JSON"),
    (setting(encoded_args="[1]"), "JSON object"),
    (setting(encoded_args='{"a":"\\u0000"}'), "field 'a' holds"),
    (setting(encoded_args='{"a":NaN}'), "field 'a' is nan"),
    (setting(encoded_args=None), "no JSON"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_a_hook_or_a_middleware_changes_is_checked_again_before_the_statement(
    change: Callable[[InsertParams], None], message: str
) -> None:
    @contextmanager
    def changing(jobs: Sequence[InsertParams]) -> Generator[None]:
        change(jobs[-1])
        yield

    for extensions in ({"hooks": [hooked(change)]}, {"middleware": [Around(changing)]}):
        script, options = Script(), dict[str, Any](extensions)
        with pytest.raises(InvalidJobError, match=message):
            Client(None, **options).insert_many_tx(script, [Note(), Note()])
        assert script.asked == []


def test_a_middleware_that_swallows_an_error_of_an_insert_does_not_make_it_a_success() -> None:
    client = Client(None, hooks=[hooked(failing(NoteError()))], middleware=[Around(swallowing)])
    script = Script()
    with pytest.raises(SwallowedError, match="swallowed"):
        client.insert_tx(script, Note())
    assert script.asked == []
    with pytest.raises(SwallowedError, match="swallowed"):
        Client(None, middleware=[Around(swallowing)]).insert_tx(Script(ConnectionError()), Note())


async def test_nor_does_it_for_an_asyncio_insert() -> None:
    client = AsyncClient(None, middleware=[Around(swallowing)])
    with pytest.raises(SwallowedError, match="swallowed"):
        await client.insert_tx(AsyncScript(ConnectionError()), Note())


@pytest.fixture
def connection(database_url: str, schema: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url) as connection:
        yield connection
        connection.rollback()


def count(connection: psycopg.Connection, schema: str) -> int:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}.river_job").format(sql.Identifier(schema))).fetchone()
    assert row is not None
    return int(row[0])


EXTENSIONS: list[dict[str, Any]] = [
    {"middleware": [Around(failing_afterwards)]},
    {"hooks": [hooked(failing(NoteError("before")))]},
    {"hooks": [hooked(lambda _: None)], "middleware": [Around(nullcontext), Around(failing_afterwards)]},
]


@pytest.mark.parametrize("extensions", EXTENSIONS, ids=["after", "before", "both"])
def test_an_error_rolls_a_blocking_clients_insert_back(
    database_url: str, connection: psycopg.Connection, schema: str, extensions: dict[str, Any]
) -> None:
    with ConnectionPool(database_url, min_size=1) as pool, Client(pool, schema=schema, **extensions) as client:
        with pytest.raises(NoteError):
            client.insert(Note())
        with pytest.raises(NoteError):
            client.insert_many([Note(), Note()])
        assert count(connection, schema) == 0


@pytest.mark.parametrize("extensions", EXTENSIONS, ids=["after", "before", "both"])
async def test_an_error_rolls_an_asyncio_clients_insert_back(
    database_url: str, connection: psycopg.Connection, schema: str, extensions: dict[str, Any]
) -> None:
    async with AsyncConnectionPool(database_url, min_size=1, open=False) as pool:
        async with AsyncClient(pool, schema=schema, **extensions) as client:
            with pytest.raises(NoteError):
                await client.insert(Note())
            with pytest.raises(NoteError):
                await client.insert_many([Note(), Note()])
            assert count(connection, schema) == 0


@pytest.mark.parametrize("drivername", ["postgresql+psycopg", "postgresql+psycopg2", "postgresql+pg8000"])
def test_an_error_rolls_an_insert_back_on_an_engine_in_autocommit_too(
    database_url: str, connection: psycopg.Connection, schema: str, drivername: str
) -> None:
    engine = create_engine(with_driver(database_url, drivername), isolation_level="AUTOCOMMIT")
    client = Client(engine, schema=schema, **EXTENSIONS[0])
    with pytest.raises(NoteError):
        client.insert(Note())
    assert count(connection, schema) == 0
    engine.dispose()


async def test_an_error_rolls_an_insert_back_on_an_asyncio_engine_in_autocommit_too(
    database_url: str, connection: psycopg.Connection, schema: str
) -> None:
    engine = create_async_engine(with_driver(database_url, "postgresql+asyncpg"), isolation_level="AUTOCOMMIT")
    client = AsyncClient(engine, schema=schema, **EXTENSIONS[0])
    with pytest.raises(NoteError):
        await client.insert(Note())
    assert count(connection, schema) == 0
    await engine.dispose()


def test_in_the_hosts_transaction_an_error_passes_and_the_host_rolls_back(
    connection: psycopg.Connection, schema: str
) -> None:
    client = Client(None, schema=schema, middleware=[Around(failing_afterwards)])
    with pytest.raises(NoteError), connection.transaction():
        client.insert_tx(connection, Note())
    assert count(connection, schema) == 0


def test_an_insert_with_extensions_that_do_not_fail_is_committed(
    database_url: str, connection: psycopg.Connection, schema: str
) -> None:
    log = Log()
    with Client(database_url, schema=schema, hooks=[log.hook("a")], middleware=[log.middleware("m")]) as client:
        client.insert(Note())
    assert count(connection, schema) == 1
    assert log.seen == ["m enters insert of 1", "a insert note", "m leaves insert of 1"]


# Around an attempt. No database: an attempt is made of a row, a registration and a context.

Work = Callable[[Job[Note], WorkContext], None]
Make = Callable[[Attempt], Outcome]


def attempt_of(work: Work, *, asyncio: bool, args: str = '{"number":5}', **extensions: Any) -> Attempt:
    workers = Workers()
    if asyncio:

        async def async_work(job: Job[Note], ctx: WorkContext) -> None:
            work(job, ctx)

        async_work.__annotations__["job"] = Job[Note]
        workers.work()(async_work)
    else:

        def blocking_work(job: Job[Note], ctx: WorkContext) -> None:
            work(job, ctx)

        workers.work()(blocking_work)
    client = Client(None, workers=workers, **extensions)
    (row,) = decode.jobs([job_row(state="running", attempt=1, attempted_at=CLAIM, args=json.loads(args))])
    registration = workers.get("note")
    assert registration is not None
    context = WorkContext(client, row, CLAIM, CancellationToken(), AT)
    return Attempt(row, CLAIM, registration, context, client.extensions)


@pytest.fixture(params=["def", "async def"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "async def")


async def make(attempt: Attempt) -> Outcome:
    if attempt.registration.is_async:
        return await work_in_task(attempt)
    return work_in_thread(attempt)


async def test_the_order_around_an_attempt(is_async: bool) -> None:
    log = Log()
    attempt = attempt_of(
        lambda job, ctx: log.seen.append(f"work {job.args.number}"),
        asyncio=is_async,
        hooks=[log.hook("a"), log.hook("b")],
        middleware=[log.middleware("outer"), log.middleware("inner")],
    )
    assert await make(attempt) == Completed()
    assert log.seen == [
        "outer enters work",
        "inner enters work",
        "a begin",
        "b begin",
        "work 5",
        "a end None",
        "b end None",
        "inner leaves work",
        "outer leaves work",
    ]


def working(error: BaseException) -> Work:
    def work(job: Job[Note], ctx: WorkContext) -> None:
        raise error

    return work


async def test_an_attempts_error_passes_hooks_and_middleware_and_is_its_outcome(is_async: bool) -> None:
    log, error = Log(), NoteError("no")
    attempt = attempt_of(
        working(error), asyncio=is_async, hooks=[log.hook("a"), log.hook("b")], middleware=[log.middleware("m")]
    )
    assert await make(attempt) == Failed(error)
    assert log.seen == [
        "m enters work",
        "a begin",
        "b begin",
        "a end NoteError('no')",
        "b end NoteError('no')",
        "m leaves work with NoteError",
    ]


async def test_an_outcome_that_is_raised_passes_them_too(is_async: bool) -> None:
    log = Log()
    attempt = attempt_of(working(JobSnooze(60)), asyncio=is_async, hooks=[log.hook("a")])
    assert await make(attempt) == Snoozed(60.0)


class Replacing(Hook):
    """Answers an error with another."""

    def __init__(self, answer: Exception | None) -> None:
        self._answer = answer

    def work_end(self, ctx: WorkContext, error: Exception | None) -> Exception | None:
        return self._answer


async def test_a_hook_may_turn_an_error_into_a_success_and_the_next_hook_sees_it(is_async: bool) -> None:
    log = Log()
    attempt = attempt_of(working(NoteError()), asyncio=is_async, hooks=[Replacing(None), log.hook("b")])
    assert await make(attempt) == Completed()
    assert log.seen == ["b begin", "b end None"]


async def test_a_hook_may_turn_a_success_into_an_error(is_async: bool) -> None:
    error = NoteError("replaced")
    attempt = attempt_of(lambda job, ctx: None, asyncio=is_async, hooks=[Replacing(error)])
    assert await make(attempt) == Failed(error)


class Failing(Hook):
    """Fails where it is told to."""

    def __init__(self, where: str) -> None:
        self._where = where

    def work_begin(self, ctx: WorkContext) -> None:
        if self._where == "begin":
            raise NoteError("begin")

    def work_end(self, ctx: WorkContext, error: Exception | None) -> Exception | None:
        raise NoteError("end")


async def test_a_hook_that_fails_before_the_work_fails_the_attempt_and_there_is_no_work(is_async: bool) -> None:
    log = Log()
    attempt = attempt_of(
        lambda job, ctx: log.seen.append("work"),
        asyncio=is_async,
        hooks=[Failing("begin"), log.hook("b")],
        middleware=[log.middleware("m")],
    )
    outcome = await make(attempt)
    assert isinstance(outcome, Failed)
    assert str(outcome.error) == "begin"
    assert log.seen == ["m enters work", "m leaves work with NoteError"]


async def test_a_hook_that_fails_after_the_work_fails_the_attempt(is_async: bool) -> None:
    outcome = await make(attempt_of(lambda job, ctx: None, asyncio=is_async, hooks=[Failing("end")]))
    assert isinstance(outcome, Failed)
    assert str(outcome.error) == "end"


async def test_a_middleware_that_fails_after_the_work_fails_the_attempt(is_async: bool) -> None:
    outcome = await make(attempt_of(lambda job, ctx: None, asyncio=is_async, middleware=[Around(failing_afterwards)]))
    assert isinstance(outcome, Failed)
    assert str(outcome.error) == "afterwards"


async def test_a_middleware_may_swallow_the_error_of_an_attempt(is_async: bool) -> None:
    assert (
        await make(attempt_of(working(NoteError()), asyncio=is_async, middleware=[Around(swallowing)])) == Completed()
    )


async def test_args_that_do_not_decode_fail_the_attempt_after_work_begin(is_async: bool) -> None:
    log = Log()
    attempt = attempt_of(
        lambda job, ctx: log.seen.append("work"), asyncio=is_async, args='{"number":"x"}', hooks=[log.hook("a")]
    )
    outcome = await make(attempt)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, InvalidArgsError)
    assert "number" in str(outcome.error)
    assert log.seen == ["a begin"]


async def test_an_attempt_knows_its_context_and_its_token_is_cancelled_at_its_end(is_async: bool) -> None:
    seen: list[object] = []
    attempt = attempt_of(lambda job, ctx: seen.extend([current() is ctx, ctx.cancelled]), asyncio=is_async)
    assert await make(attempt) == Completed()
    assert seen == [True, False]
    assert attempt.context.cancel_reason is CancelReason.ATTEMPT_FINISHED


def test_the_claim_of_a_job_is_told_to_each_hook_in_order() -> None:
    seen: list[str] = []

    class Claimed(Hook):
        def __init__(self, name: str) -> None:
            self._name = name

        def work_claimed(self, job: JobRow) -> None:
            seen.append(f"{self._name} {job.id}")

    (row,) = decode.jobs([job_row(id=7)])
    Client(None, hooks=[Claimed("a"), Claimed("b")]).extensions.claimed(row)
    assert seen == ["a 7", "b 7"]


def test_the_defaults_of_hooks_and_middleware_change_nothing() -> None:
    client = Client(None, hooks=[Hook()], middleware=[Middleware()])
    assert client.insert_tx(Script(inserted), Note(3)).job.state is JobState.AVAILABLE
    assert work_in_thread(attempt_of(lambda job, ctx: None, asyncio=False, hooks=[Hook()])) == Completed()
