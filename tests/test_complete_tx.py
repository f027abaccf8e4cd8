"""A worker completes its job in its own transaction: with the work, or not at all.

Each test runs a client on a real database. What a worker does is a coroutine, `Body`, which an ``async def`` worker
awaits and a ``def`` worker drives: those of a blocking handle never suspend. A test waits until the worker has ended,
stops the client, which saves all results, and then looks at the rows.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import threading
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import psycopg
import pytest
from psycopg.errors import SerializationFailure
from sqlalchemy import create_engine, exc
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

import river
from river.runtime.watch import Watch
from tests.support.handles import (
    DEADLINE_SECONDS,
    FEW_KINDS,
    KINDS,
    Ending,
    Host,
    Kind,
    Mail,
    Observer,
    Undone,
    drive,
    end,
    opened,
    opened_psycopg,
    opened_sqlalchemy,
    settle,
)
from tests.support.handles import named as with_name
from tests.support.urls import with_driver

Body: TypeAlias = Callable[[river.Job[Mail], river.WorkContext], Coroutine[Any, Any, None]]
ClientType: TypeAlias = type[river.Client] | type[river.AsyncClient]

CLIENTS = [river.Client, river.AsyncClient]
every_client = pytest.mark.parametrize("client_type", CLIENTS)
every_handle = pytest.mark.parametrize("kind", KINDS, ids=str)
a_few_handles = pytest.mark.parametrize("kind", FEW_KINDS, ids=str)
both_endings = pytest.mark.parametrize("ending", ["commit", "rollback"])


@pytest.fixture
def host_url(database_url: str) -> str:
    """Where workers connect; the server knows their connections by a name."""
    return with_name(database_url, f"host_{uuid.uuid4().hex[:12]}")


@pytest.fixture
def client_url(database_url: str) -> str:
    """Where the client connects, under another name."""
    return with_name(database_url, f"client_{uuid.uuid4().hex[:12]}")


@pytest.fixture
def observer(database_url: str, host_url: str, schema: str) -> Iterator[Observer]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Observer(connection, schema, host_url.rpartition("=")[2])


class WorkError(Exception):
    """What a worker of these tests raises on purpose."""


class InAnHour:
    """A failed job is not tried again while its test looks at it."""

    def next_retry(self, job: river.JobRow, now: datetime) -> datetime:
        return now + timedelta(hours=1)


class Bench:
    """A client and its one worker.

    Attributes:
        ended: Set when the worker has returned or raised, for the first time.
    """

    def __init__(self, client_type: ClientType, source: object, schema: str, kind: Kind, body: Body) -> None:
        self.ended = threading.Event()
        self.faults: list[BaseException] = []
        self._body = body
        self.client: Any = client_type(
            source,
            schema=schema,
            workers=self._workers(kind),
            queues={"default": 5},
            retry_policy=InAnHour(),
        )

    def _workers(self, kind: Kind) -> river.Workers:
        workers = river.Workers()
        if kind.colour == "asyncio":

            @workers.work()
            async def work_in_task(job: river.Job[Mail], ctx: river.WorkContext) -> None:
                await self._work(job, ctx)

        else:

            @workers.work()
            def work_in_thread(job: river.Job[Mail], ctx: river.WorkContext) -> None:
                drive(self._work(job, ctx))

        return workers

    async def _work(self, job: river.Job[Mail], ctx: river.WorkContext) -> None:
        try:
            await self._body(job, ctx)
        except (WorkError, river.JobSnooze, river.JobCancel, river.JobDiscard):
            raise
        except BaseException as fault:
            self.faults.append(fault)
            raise
        finally:
            self.ended.set()

    async def insert(self, *recipients: str) -> list[int]:
        """Insert jobs in transactions of their own."""
        batch = [Mail(recipient) for recipient in recipients]
        return [inserted.job.id for inserted in await self._call(self.client.insert_many, batch)]

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """The client works; leaving stops it softly, and shows what went wrong in the worker."""
        await self._call(self.client.start)
        try:
            yield
        finally:
            await self._call(self.client.stop, timeout=DEADLINE_SECONDS)
        for fault in self.faults:
            raise fault

    async def _call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method of a client of either colour, without blocking the test's loop."""
        if inspect.iscoroutinefunction(method):
            return await method(*arguments, **options)
        return await asyncio.to_thread(method, *arguments, **options)


async def work_one(bench: Bench) -> int:
    """Insert a job, have it worked once, and stop the client."""
    (job_id,) = await bench.insert("a")
    async with bench.working():
        await happened(bench.ended)
    return job_id


async def happened(signal: threading.Event) -> None:
    """Wait for something in another thread or task."""
    assert await asyncio.to_thread(signal.wait, DEADLINE_SECONDS)


async def wait_in_worker(kind: Kind, signal: threading.Event) -> None:
    """Wait in a worker, as one of its colour does."""
    if kind.colour == "asyncio":
        await happened(signal)
    else:
        assert signal.wait(DEADLINE_SECONDS)


async def until(condition: Callable[[], object]) -> None:
    """Wait until the database says so."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        await asyncio.sleep(0.01)


async def write(host: Host, observer: Observer, note: str = "mine") -> None:
    """The work's own writes."""
    await host.execute(f"INSERT INTO {observer.schema}.note VALUES ('{note}')")


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# Committed with the work, or not at all.


@every_client
@every_handle
async def test_the_completion_is_committed_with_the_work(
    client_type: ClientType,
    kind: Kind,
    client_url: str,
    host_url: str,
    observer: Observer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    completed: list[river.Job[Any]] = []

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await write(host, observer)
            returned = ctx.complete_tx(host.handle)
            assert inspect.iscoroutine(returned) is (kind.colour == "asyncio")
            completed.append(await settle(returned))
            assert (observer.job(job.id)["state"], observer.notes()) == ("running", [])
            await host.commit()
            assert (observer.job(job.id)["state"], observer.notes()) == ("completed", ["mine"])

    job_id = await work_one(Bench(client_type, client_url, observer.schema, kind, body))
    (job,) = completed
    assert (job.id, job.state, job.args) == (job_id, river.JobState.COMPLETED, Mail("a"))
    row = observer.job(job_id)
    # What the client writes afterwards, of its own accord, changes nothing.
    assert (row["state"], row["finalized_at"], row["attempt"]) == ("completed", job.finalized_at, 1)
    assert row["errors"] is None
    assert observer.notes() == ["mine"]
    assert complaints(caplog) == []


@every_client
@every_handle
async def test_a_rollback_takes_the_completion_back_and_the_workers_error_decides(
    client_type: ClientType, kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await write(host, observer)
            await settle(ctx.complete_tx(host.handle))
            await host.rollback()
        raise WorkError("did not work")

    job_id = await work_one(Bench(client_type, client_url, observer.schema, kind, body))
    row = observer.job(job_id)
    assert (row["state"], row["finalized_at"], observer.notes()) == ("retryable", None, [])
    assert [error["error"] for error in row["errors"]] == ["did not work"]


@every_handle
async def test_after_a_rollback_the_job_can_be_completed_again(
    kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await write(host, observer, "first")
            await settle(ctx.complete_tx(host.handle))
            await host.rollback()
            assert observer.job(job.id)["state"] == "running"
            await write(host, observer, "second")
            assert (await settle(ctx.complete_tx(host.handle))).state is river.JobState.COMPLETED
            await host.commit()

    job_id = await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    assert (observer.job(job_id)["state"], observer.notes()) == ("completed", ["second"])


@every_handle
async def test_a_savepoint_rolled_back_takes_the_completion_back(
    kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await write(host, observer)
            with suppress(Undone):
                async with host.savepoint():
                    await settle(ctx.complete_tx(host.handle))
                    raise Undone
            await host.commit()
        assert (observer.job(job.id)["state"], observer.notes()) == ("running", ["mine"])
        raise WorkError

    job_id = await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    assert observer.job(job_id)["state"] == "retryable"


@a_few_handles
@both_endings
async def test_a_job_that_follows_exists_if_and_only_if_its_forerunner_is_completed(
    kind: Kind, ending: Ending, client_url: str, host_url: str, observer: Observer
) -> None:
    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        if job.args.to != "a":
            return
        async with opened(kind, host_url) as host:
            await settle(ctx.client.insert_tx(host.handle, Mail("next")))
            await settle(ctx.complete_tx(host.handle))
            await end(host, ending)
        raise WorkError

    await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    state, *others = [job["state"] for job in observer.jobs()]
    assert (state, len(others)) == (("completed", 1) if ending == "commit" else ("retryable", 0))


@every_client
@a_few_handles
async def test_an_error_after_the_commit_leaves_the_job_completed(
    client_type: ClientType, kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await write(host, observer)
            await settle(ctx.complete_tx(host.handle))
            await host.commit()
        raise WorkError

    row = observer.job(await work_one(Bench(client_type, client_url, observer.schema, kind, body)))
    assert (row["state"], row["errors"], observer.notes()) == ("completed", None, ["mine"])


@a_few_handles
@pytest.mark.parametrize("outcome", [river.JobSnooze(60), river.JobCancel("late"), river.JobDiscard("late")])
async def test_an_outcome_after_the_commit_leaves_the_job_completed(
    kind: Kind, outcome: river.RiverError, client_url: str, host_url: str, observer: Observer
) -> None:
    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await settle(ctx.complete_tx(host.handle))
            await host.commit()
        raise outcome

    row = observer.job(await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body)))
    assert (row["state"], row["errors"], row["attempt"]) == ("completed", None, 1)


@a_few_handles
async def test_a_second_completion_in_the_transaction_is_refused_and_leaves_the_first(
    kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await settle(ctx.complete_tx(host.handle))
            with pytest.raises(river.JobNotRunningError, match="completed by now"):
                await settle(ctx.complete_tx(host.handle))
            await write(host, observer)
            await host.commit()

    job_id = await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    assert (observer.job(job_id)["state"], observer.notes()) == ("completed", ["mine"])


async def test_on_an_asyncio_handle_nothing_is_completed_before_it_is_awaited(
    client_url: str, host_url: str, observer: Observer
) -> None:
    kind = FEW_KINDS[-1]

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await write(host, observer)
            before = observer.host_backends()
            asking: Any = ctx.complete_tx(host.handle)
            asking.close()
            assert observer.host_backends() == before
            await host.commit()
        raise WorkError

    job_id = await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    assert observer.job(job_id)["state"] == "retryable"


@every_client
async def test_an_async_worker_may_use_a_blocking_session(
    client_type: ClientType, client_url: str, host_url: str, observer: Observer
) -> None:
    blocking = Kind("postgresql+psycopg2", "Session", "blocking")

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(blocking, host_url) as host:
            ctx.complete_tx(host.handle)
            await host.commit()

    job_id = await work_one(Bench(client_type, client_url, observer.schema, FEW_KINDS[-1], body))
    assert observer.job(job_id)["state"] == "completed"


# Refused: nothing is written, and the work's own transaction is the host's to end.

MEANWHILE = {
    "rescued": (
        "UPDATE {}.river_job SET state = 'available', scheduled_at = now() + interval '1 hour' WHERE id = %(id)s",
        river.JobNotRunningError,
    ),
    "rescued for later": (
        "UPDATE {}.river_job SET state = 'retryable', scheduled_at = now() + interval '1 hour' WHERE id = %(id)s",
        river.JobNotRunningError,
    ),
    "claimed again": (
        "UPDATE {}.river_job SET attempt = attempt + 1, attempted_at = clock_timestamp() WHERE id = %(id)s",
        river.JobNotRunningError,
    ),
    "snoozed and claimed again": (
        "UPDATE {}.river_job SET attempted_at = clock_timestamp() WHERE id = %(id)s",
        river.JobNotRunningError,
    ),
    "deleted": ("DELETE FROM {}.river_job WHERE id = %(id)s", river.JobNotFoundError),
    "completed": (
        "UPDATE {}.river_job SET state = 'completed', finalized_at = now() WHERE id = %(id)s",
        river.JobNotRunningError,
    ),
    "cancelled": (
        "UPDATE {}.river_job SET state = 'cancelled', finalized_at = now() WHERE id = %(id)s",
        river.JobNotRunningError,
    ),
    "discarded": (
        "UPDATE {}.river_job SET state = 'discarded', finalized_at = now() WHERE id = %(id)s",
        river.JobNotRunningError,
    ),
}


@a_few_handles
@both_endings
@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_a_job_that_is_not_this_attempts_any_more_is_left_as_it_is(
    kind: Kind, meanwhile: str, ending: Ending, client_url: str, host_url: str, observer: Observer
) -> None:
    statement, expected = MEANWHILE[meanwhile]
    left: list[list[dict[str, Any]]] = []

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await write(host, observer)
            observer.execute(statement, {"id": job.id})
            left.append(observer.jobs())
            with pytest.raises(expected) as refused:
                await settle(ctx.complete_tx(host.handle))
            assert refused.value.job_id == job.id  # type: ignore[attr-defined]
            await write(host, observer, "after the refusal")
            await end(host, ending)

    await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    assert [observer.jobs()] == left
    assert observer.notes() == (["after the refusal", "mine"] if ending == "commit" else [])


@a_few_handles
async def test_the_refusal_says_what_became_of_the_job(
    kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    said: list[str] = []

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            for meanwhile in ("claimed again", "cancelled", "deleted"):
                observer.execute(MEANWHILE[meanwhile][0], {"id": job.id})
                with pytest.raises(river.RiverError) as refused:
                    await settle(ctx.complete_tx(host.handle))
                said.append(str(refused.value).replace(f"job {job.id} ", ""))

    await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    assert said == [
        "cannot be completed: attempt 2 of it is running elsewhere; this one was rescued and claimed again",
        "cannot be completed: it is cancelled by now",
        "was not found: it was deleted, or it is not visible to this transaction",
    ]


@a_few_handles
async def test_a_job_whose_cancellation_was_asked_for_is_completed_while_it_still_runs(
    kind: Kind, client_url: str, host_url: str, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_yet(_: Watch) -> None:
        """Look for nothing, so that the cancellation has not reached the worker when it completes its job."""

    monkeypatch.setattr(Watch, "_look_at_jobs", not_yet)
    mark = """UPDATE {}.river_job SET metadata = metadata || '{{"cancel_attempted_at": "2026-01-01T00:00:00Z"}}'"""

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            observer.execute(mark)
            await settle(ctx.complete_tx(host.handle))
            await host.commit()

    job_id = await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    assert observer.job(job_id)["state"] == "completed"


@a_few_handles
@both_endings
async def test_a_completion_waits_for_who_holds_the_row_and_then_decides(
    kind: Kind, ending: Ending, client_url: str, host_url: str, database_url: str, observer: Observer
) -> None:
    """Somebody cancels the job in a transaction that is still open when the worker completes it."""
    cancelled, said = threading.Event(), []

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        await wait_in_worker(kind, cancelled)
        async with opened(kind, host_url) as host:
            await write(host, observer)
            try:
                await settle(ctx.complete_tx(host.handle))
            except river.JobNotRunningError as refused:
                said.append(str(refused))
            await host.commit()

    bench = Bench(river.AsyncClient, client_url, observer.schema, kind, body)
    (job_id,) = await bench.insert("a")
    with psycopg.connect(database_url) as other:
        async with bench.working():
            await until(lambda: observer.job(job_id)["state"] == "running")
            statement, _ = MEANWHILE["cancelled"]
            other.execute(statement.replace("{}", observer.schema).encode(), {"id": job_id})
            cancelled.set()
            await until(lambda: is_waiting_for_a_lock(observer))
            other.commit() if ending == "commit" else other.rollback()
            await happened(bench.ended)
    assert len(said) == (1 if ending == "commit" else 0)
    assert observer.job(job_id)["state"] == ("cancelled" if ending == "commit" else "completed")
    assert observer.notes() == ["mine"]


def is_waiting_for_a_lock(observer: Observer) -> bool:
    waiting = observer.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = %(name)s AND wait_event_type = 'Lock'",
        {"name": observer.host_name},
    )
    return len(waiting) > 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.shape not in {"AppSession", "Cursor"}], ids=str)
async def test_a_serialization_failure_passes_and_a_retry_of_the_transaction_completes_the_job(
    kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    async def work_of_a_transaction(host: Host) -> None:
        await host.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await write(host, observer)

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await work_of_a_transaction(host)
            observer.execute("UPDATE {}.river_job SET tags = ARRAY['changed']")
            with pytest.raises(exc.DBAPIError if kind.over_sqlalchemy else SerializationFailure, match="serialize"):
                await settle(ctx.complete_tx(host.handle))
            await host.rollback()
            assert (observer.job(job.id)["state"], observer.notes()) == ("running", [])
            await work_of_a_transaction(host)
            await settle(ctx.complete_tx(host.handle))
            await host.commit()

    job_id = await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    assert (observer.job(job_id)["state"], observer.notes()) == ("completed", ["mine"])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.is_session], ids=str)
async def test_in_autocommit_the_completion_is_refused_and_the_job_runs_on(
    kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        autocommitting: Any = (
            opened_sqlalchemy(kind, host_url, isolation_level="AUTOCOMMIT")
            if kind.over_sqlalchemy
            else opened_psycopg(kind, host_url, autocommit=True)
        )
        async with autocommitting as host:
            with pytest.raises(river.TransactionRequiredError):
                await settle(ctx.complete_tx(host.handle))
        assert observer.job(job.id)["state"] == "running"
        raise WorkError

    job_id = await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    assert observer.job(job_id)["state"] == "retryable"


@every_client
async def test_what_is_no_handle_is_refused_and_the_job_runs_on(
    client_type: ClientType, client_url: str, observer: Observer
) -> None:
    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        things: list[Any] = [create_engine("postgresql+psycopg://"), None, "postgresql://somewhere"]
        for thing in things:
            with pytest.raises(river.UnsupportedHandleError):
                ctx.complete_tx(thing)
        assert observer.job(job.id)["state"] == "running"

    job_id = await work_one(Bench(client_type, client_url, observer.schema, FEW_KINDS[0], body))
    assert observer.job(job_id)["state"] == "completed"


# Only the worker, only its own job, only while it works.


@every_client
@a_few_handles
async def test_when_the_worker_has_returned_its_context_completes_nothing(
    client_type: ClientType, kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    kept: list[river.WorkContext] = []

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        kept.append(ctx)
        raise WorkError

    job_id = await work_one(Bench(client_type, client_url, observer.schema, kind, body))
    async with opened(kind, host_url) as host:
        await write(host, observer)
        before = observer.host_backends()
        with pytest.raises(river.NotInWorkerError, match=f"job {job_id} is over"):
            await settle(kept[0].complete_tx(host.handle))
        assert observer.host_backends() == before
        await host.commit()
    assert (observer.job(job_id)["state"], observer.notes()) == ("retryable", ["mine"])


async def test_a_completion_asked_for_in_time_and_awaited_too_late_is_refused(
    client_url: str, host_url: str, observer: Observer
) -> None:
    kind = FEW_KINDS[-1]
    asked: list[Any] = []
    async with opened(kind, host_url) as host:

        async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
            asked.append(ctx.complete_tx(host.handle))
            raise WorkError

        job_id = await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
        with pytest.raises(river.NotInWorkerError):
            await asked[0]
        await host.commit()
    assert observer.job(job_id)["state"] == "retryable"


@every_client
@a_few_handles
async def test_a_worker_cannot_complete_the_job_of_another(
    client_type: ClientType, kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    lent: list[river.WorkContext] = []
    ready, refused = threading.Event(), threading.Event()

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        if job.args.to == "lender":
            lent.append(ctx)
            ready.set()
            await wait_in_worker(kind, refused)
            raise WorkError
        await wait_in_worker(kind, ready)
        try:
            async with opened(kind, host_url) as host:
                with pytest.raises(river.NotInWorkerError, match=f"context of job {lent[0].job.id}"):
                    await settle(lent[0].complete_tx(host.handle))
                await settle(ctx.complete_tx(host.handle))
                await host.commit()
        finally:
            refused.set()

    bench = Bench(client_type, client_url, observer.schema, kind, body)
    lender, borrower = await bench.insert("lender", "borrower")
    async with bench.working():
        await until(lambda: observer.job(lender)["state"] == "retryable")
    assert observer.job(borrower)["state"] == "completed"


@every_client
@a_few_handles
async def test_deeper_code_finds_the_context_of_its_job(
    client_type: ClientType, kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    async def deeper(host: Host) -> None:
        await settle(river.current().complete_tx(host.handle))

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        assert river.current() is ctx
        async with opened(kind, host_url) as host:
            await deeper(host)
            await host.commit()

    job_id = await work_one(Bench(client_type, client_url, observer.schema, kind, body))
    assert observer.job(job_id)["state"] == "completed"
    with pytest.raises(river.NotInWorkerError):
        river.current()


def test_outside_of_a_worker_there_is_no_context() -> None:
    with pytest.raises(river.NotInWorkerError, match="call this in a worker"):
        river.current()


async def test_a_task_that_outlives_its_worker_has_no_context_any_more(client_url: str, observer: Observer) -> None:
    left: list[asyncio.Task[str]] = []
    returned = asyncio.Event()

    async def outlive() -> str:
        assert river.current().job.kind == "mail"
        await returned.wait()
        with pytest.raises(river.NotInWorkerError) as refused:
            river.current()
        return str(refused.value)

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        left.append(asyncio.create_task(outlive()))
        await asyncio.sleep(0)

    await work_one(Bench(river.AsyncClient, client_url, observer.schema, FEW_KINDS[-1], body))
    returned.set()
    assert "no job is being worked here" in await left[0]


@every_client
async def test_a_thread_that_the_worker_started_may_complete_its_job(
    client_type: ClientType, client_url: str, host_url: str, observer: Observer
) -> None:
    kind = FEW_KINDS[0]

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        helper = threading.Thread(target=lambda: drive(help_out(ctx)))
        helper.start()
        helper.join()
        assert observer.job(job.id)["state"] == "completed"

    async def help_out(ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await settle(ctx.complete_tx(host.handle))
            await host.commit()

    await work_one(Bench(client_type, client_url, observer.schema, kind, body))


@every_client
async def test_a_task_and_a_thread_of_an_async_worker_may_complete_its_job(
    client_type: ClientType, client_url: str, host_url: str, observer: Observer
) -> None:
    asyncio_kind, blocking_kind = FEW_KINDS[-1], FEW_KINDS[0]

    async def complete(kind: Kind, ctx: river.WorkContext, ending: Ending) -> None:
        async with opened(kind, host_url) as host:
            await settle(ctx.complete_tx(host.handle))
            await end(host, ending)

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        await asyncio.create_task(complete(asyncio_kind, ctx, "rollback"))
        await asyncio.to_thread(lambda: drive(complete(blocking_kind, ctx, "commit")))
        assert observer.job(job.id)["state"] == "completed"

    await work_one(Bench(client_type, client_url, observer.schema, asyncio_kind, body))


# A transaction that stays open, and connections that are lost.


@a_few_handles
@both_endings
@pytest.mark.parametrize("raises", [False, True])
async def test_a_transaction_left_open_holds_up_its_own_job_and_no_other(
    kind: Kind,
    ending: Ending,
    raises: bool,
    client_url: str,
    host_url: str,
    observer: Observer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    held: list[Host] = []
    async with AsyncExitStack() as left_open:

        async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
            if job.args.to == "held":
                host = await left_open.enter_async_context(opened(kind, host_url))
                await settle(ctx.complete_tx(host.handle))
                held.append(host)
                if raises:
                    raise WorkError

        bench = Bench(river.AsyncClient, client_url, observer.schema, kind, body)
        (held_id,) = await bench.insert("held")
        async with bench.working():
            await happened(bench.ended)
            others = await bench.insert(*(f"{number}" for number in range(20)))
            await until(lambda: {observer.job(job_id)["state"] for job_id in others} == {"completed"})
            assert observer.job(held_id)["state"] == "running"
            await end(held[0], ending)
            await until(lambda: observer.job(held_id)["state"] != "running")
    row = observer.job(held_id)
    if ending == "rollback" and raises:
        assert (row["state"], row["finalized_at"], len(row["errors"])) == ("retryable", None, 1)
    else:
        assert (row["state"], row["errors"]) == ("completed", None)
    if not raises:
        assert complaints(caplog) == []


@a_few_handles
async def test_a_connection_lost_before_the_commit_leaves_nothing_and_the_job_is_tried_again(
    kind: Kind, client_url: str, host_url: str, observer: Observer
) -> None:
    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await write(host, observer)
            await settle(ctx.complete_tx(host.handle))
            terminate(observer, observer.host_name)
            with pytest.raises((psycopg.OperationalError, exc.DBAPIError)) as lost:
                await host.commit()
        raise WorkError from lost.value

    job_id = await work_one(Bench(river.AsyncClient, client_url, observer.schema, kind, body))
    assert (observer.job(job_id)["state"], observer.notes()) == ("retryable", [])


@every_client
@a_few_handles
async def test_connections_killed_between_claim_and_completion_cost_no_result(
    client_type: ClientType, kind: Kind, client_url: str, observer: Observer
) -> None:
    attempts: list[int] = []

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        attempts.append(job.attempt)
        terminate(observer, client_url.rpartition("=")[2])

    bench = Bench(client_type, client_url, observer.schema, kind, body)
    (job_id,) = await bench.insert("a")
    async with bench.working():
        await until(lambda: observer.job(job_id)["state"] == "completed")
    assert attempts == [1]


def terminate(observer: Observer, application_name: str) -> None:
    """End connections, and wait until they are gone."""
    killed = observer.execute(
        "SELECT pg_terminate_backend(pid, 10000) AS gone FROM pg_stat_activity WHERE application_name = %(name)s",
        {"name": application_name},
    )
    assert killed
    assert all(row["gone"] for row in killed)


# One client for all of it.

ENGINES = [
    "postgresql+psycopg",
    "postgresql+psycopg2",
    "postgresql+pg8000",
    "async postgresql+psycopg",
    "async postgresql+asyncpg",
]


def engine_of(library: str, url: str) -> Any:
    """An engine of one of `ENGINES`; it keeps no connections.

    Those of an asyncio engine live in a blocking client's own loop, where its host cannot dispose of them.
    """
    asyncio_, _, drivername = library.rpartition(" ")
    create: Callable[..., Any] = create_async_engine if asyncio_ else create_engine
    return create(with_driver(url, drivername), poolclass=NullPool)


@every_client
@a_few_handles
@pytest.mark.parametrize("library", ENGINES)
async def test_one_client_over_one_engine_inserts_and_works(
    client_type: ClientType, kind: Kind, library: str, client_url: str, host_url: str, observer: Observer
) -> None:
    engine = engine_of(library, client_url)

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        async with opened(kind, host_url) as host:
            await settle(ctx.complete_tx(host.handle))
            await host.commit()

    try:
        job_id = await work_one(Bench(client_type, engine, observer.schema, kind, body))
    finally:
        await settle(engine.dispose())
    assert observer.job(job_id)["state"] == "completed"


async def test_an_async_worker_may_use_what_the_hosts_loop_made_before_the_start(
    client_url: str, host_url: str, observer: Observer
) -> None:
    kind = FEW_KINDS[-1]
    turn = asyncio.Lock()
    async with opened(kind, host_url) as host:
        await write(host, observer)
        await host.commit()

        async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
            async with turn:
                await settle(ctx.complete_tx(host.handle))
                await host.commit()

        async with turn:
            bench = Bench(river.AsyncClient, client_url, observer.schema, kind, body)
            (job_id,) = await bench.insert("a")
            await bench.client.start()
            await until(lambda: observer.job(job_id)["state"] == "running")
        await happened(bench.ended)
        await bench.client.stop()
    assert observer.job(job_id)["state"] == "completed"
    assert bench.faults == []


async def test_an_async_worker_that_only_its_own_frame_refers_to_is_not_collected(
    client_url: str, observer: Observer
) -> None:
    waiting: list[weakref.ref[asyncio.Future[None]]] = []

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        only_here = asyncio.get_running_loop().create_future()
        waiting.append(weakref.ref(only_here))
        await only_here

    bench = Bench(river.AsyncClient, client_url, observer.schema, FEW_KINDS[-1], body)
    (job_id,) = await bench.insert("a")
    async with bench.working():
        await until(lambda: waiting)
        gc.collect()
        future = waiting[0]()
        assert future is not None
        future.set_result(None)
        await happened(bench.ended)
    assert observer.job(job_id)["state"] == "completed"


@pytest.fixture
async def no_default_threads() -> AsyncIterator[None]:
    """The loop's default executor has one thread, and that is taken."""
    release = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    taken = loop.run_in_executor(None, release.wait)
    yield
    release.set()
    await taken


@pytest.mark.parametrize("library", ["postgresql+psycopg2", "async postgresql+asyncpg"])
async def test_def_workers_and_their_clients_work_need_none_of_the_loops_default_threads(
    library: str, client_url: str, observer: Observer, no_default_threads: None
) -> None:
    all_at_once = threading.Barrier(5)

    async def body(job: river.Job[Mail], ctx: river.WorkContext) -> None:
        all_at_once.wait(DEADLINE_SECONDS)

    engine = engine_of(library, client_url)
    bench = Bench(river.AsyncClient, engine, observer.schema, FEW_KINDS[0], body)
    with observer.connection.transaction():
        bench.client.insert_many_tx(observer.connection, [Mail(f"{number}") for number in range(5)])
    await bench.client.start()
    await until(lambda: {job["state"] for job in observer.jobs()} == {"completed"})
    # stop() would close the driver in a thread of the loop's.
    await bench.client._service.stop()
    assert bench.faults == []
    await settle(engine.dispose())


async def test_an_asyncio_clients_own_calls_need_none_of_the_loops_default_threads(
    client_url: str, observer: Observer, no_default_threads: None
) -> None:
    """Else threads of the host's that wait for an insert could keep it from being made."""
    engine = engine_of("postgresql+psycopg2", client_url)
    client = river.AsyncClient(engine, schema=observer.schema)
    async with asyncio.timeout(5):
        await client.insert(Mail("a"))
        await client.close()
    assert observer.recipients() == ["a"]
    engine.dispose()


def test_a_completion_in_a_transaction_that_nobody_commits_is_warned_of_once(
    database_url: str, schema: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("river.runtime.completer.BUSY_WARNING_SECONDS", 0.2)
    workers = river.Workers()

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "river.completer"]

    with psycopg.connect(database_url) as forgotten:

        @workers.work(kind="forgetful")
        def forgetful(job: river.Job[dict[str, Any]], ctx: river.WorkContext) -> None:
            ctx.complete_tx(forgotten)

        client = river.Client(database_url, schema=schema, workers=workers, queues={"default": 1})
        job = client.insert(river.JobArgs("forgetful", {})).job
        with client:
            deadline = time.monotonic() + 30
            while not warnings() and time.monotonic() < deadline:
                time.sleep(0.01)
            assert f"job {job.id} has ended, but another transaction has held its row" in warnings()[0]
            forgotten.commit()
        assert len(warnings()) == 1
        assert client.job_get(job.id).state is river.JobState.COMPLETED
        client.close()
