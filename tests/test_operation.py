"""The trampolines keep the law of operations, in both colours; and a scripted database for tests of operations.

`Script` and `AsyncScript` answer statements from a list and remember what they were asked. Inside `adoptable` they
are also handles, so that a client's ``_tx`` methods can be watched without a database.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from river import driver
from river.operation import AsyncExecutor, Database, Executor, Operation, Query, Row, Rows, Statement, run, run_async

Answer = Rows | BaseException | Callable[[Statement], Rows]

ONE = Statement("SELECT CAST(:n AS bigint)", {"n": 1})
TWO = Statement("SELECT CAST(:n AS bigint)", {"n": 2})


untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For properties: a busy machine must not fail a test."""


class _Answers:
    def __init__(self, *answers: Answer) -> None:
        self.asked: list[Statement] = []
        self._answers = list(answers)

    def answer(self, statement: Statement) -> Rows:
        self.asked.append(statement)
        if not self._answers:
            raise AssertionError(f"nobody expected this statement: {statement.sql}")
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer(statement) if callable(answer) else answer


class Script(Executor):
    """A blocking connection that answers from a list."""

    database: Database = "postgresql"

    def __init__(self, *answers: Answer) -> None:
        self._answers = _Answers(*answers)
        self.asked = self._answers.asked

    def execute(self, statement: Statement) -> Rows:
        return self._answers.answer(statement)

    def close(self) -> None:
        """So that it is a handle."""


class AsyncScript(AsyncExecutor):
    """An asyncio connection that answers from a list."""

    database: Database = "postgresql"

    def __init__(self, *answers: Answer) -> None:
        self._answers = _Answers(*answers)
        self.asked = self._answers.asked

    async def execute(self, statement: Statement) -> Rows:
        await asyncio.sleep(0)
        return self._answers.answer(statement)

    async def close(self) -> None:
        """So that it is a handle."""


@contextmanager
def adoptable() -> Iterator[None]:
    """Within it, scripts are handles."""
    driver.register_handles("tests", lambda handle: handle if isinstance(handle, Script | AsyncScript) else None)
    try:
        yield
    finally:
        driver._registered.pop("tests")
        driver._adopters.clear()


def job_row(**columns: Any) -> Row:
    """A row of ``river_job`` as statements return it."""
    return (json.dumps(JOB_COLUMNS | columns),)


def inserted(statement: Statement) -> Rows:
    """What the insert statement answers."""
    jobs: list[dict[str, Any]] = json.loads(str(statement.parameters["jobs"]))
    now = JOB_COLUMNS["created_at"]
    return [job_row(**job | {"id": id_, "scheduled_at": job["scheduled_at"] or now}) for id_, job in enumerate(jobs, 1)]


JOB_COLUMNS: dict[str, Any] = {
    "id": 1,
    "state": "available",
    "attempt": 0,
    "max_attempts": 25,
    "attempted_at": None,
    "created_at": "2026-01-02T03:04:05.6789+00:00",
    "finalized_at": None,
    "scheduled_at": "2026-01-02T03:04:05.6789+00:00",
    "priority": 1,
    "args": {},
    "attempted_by": None,
    "errors": None,
    "kind": "note",
    "metadata": {},
    "queue": "default",
    "tags": [],
    "unique_key": None,
    "unique_states": None,
}


def blocking(operation: Operation[Any] | Query[Any], *answers: Answer) -> tuple[Any, list[Statement]]:
    script = Script(*answers)
    return run(script, operation), script.asked


def in_a_loop(operation: Operation[Any] | Query[Any], *answers: Answer) -> tuple[Any, list[Statement]]:
    script = AsyncScript(*answers)
    return asyncio.run(run_async(script, operation)), script.asked


Trampoline = Callable[..., tuple[Any, list[Statement]]]
both = pytest.mark.parametrize("trampoline", [blocking, in_a_loop])


class Log:
    """An operation that writes down what happens to it."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def operation(self) -> Operation[str]:
        try:
            self.seen.append((yield ONE))
            self.seen.append((yield TWO))
        except BaseException as error:
            self.seen.append(type(error))
            raise
        finally:
            self.seen.append("closed")
        return "result"


@both
def test_rows_are_sent_to_the_yield_that_asked_and_the_value_is_the_operations(trampoline: Trampoline) -> None:
    log = Log()
    assert trampoline(log.operation(), [(1,)], [(2,)]) == ("result", [ONE, TWO])
    assert log.seen == [[(1,)], [(2,)], "closed"]


@both
def test_a_query_is_an_operation_of_one_statement(trampoline: Trampoline) -> None:
    query = Query(ONE, lambda rows: [row[0] for row in rows])
    assert trampoline(query, [(7,), (8,)]) == ([7, 8], [ONE])


@both
def test_operations_compose(trampoline: Trampoline) -> None:
    def inner(statement: Statement) -> Operation[int]:
        return (yield from Query(statement, len))

    def outer() -> Operation[tuple[int, int]]:
        return ((yield from inner(ONE)), (yield from inner(TWO)))

    assert trampoline(outer(), [()], [(), ()]) == ((1, 2), [ONE, TWO])


@both
def test_an_operation_may_ask_nothing(trampoline: Trampoline) -> None:
    def operation() -> Operation[str]:
        return "nothing to do"
        yield ONE

    assert trampoline(operation()) == ("nothing to do", [])


@both
def test_a_database_error_is_thrown_at_its_yield_and_passes(trampoline: Trampoline) -> None:
    log, error = Log(), OSError("lost")
    with pytest.raises(OSError, match="lost") as raised:
        trampoline(log.operation(), [(1,)], error)
    assert raised.value is error
    assert log.seen == [[(1,)], OSError, "closed"]


@both
def test_an_operation_may_answer_an_error_with_another_statement(trampoline: Trampoline) -> None:
    def operation() -> Operation[Rows]:
        try:
            return (yield ONE)
        except OSError:
            return (yield TWO)

    assert trampoline(operation(), OSError(), [(2,)]) == ([(2,)], [ONE, TWO])


@both
def test_an_operation_may_answer_an_error_with_its_result(trampoline: Trampoline) -> None:
    def operation() -> Operation[str]:
        try:
            yield ONE
        except OSError:
            return "handled"
        return "unreached"

    assert trampoline(operation(), OSError()) == ("handled", [ONE])


@both
def test_an_operation_may_translate_an_error(trampoline: Trampoline) -> None:
    def operation() -> Operation[None]:
        try:
            yield ONE
        except OSError as error:
            raise LookupError("translated") from error

    with pytest.raises(LookupError, match="translated") as raised:
        trampoline(operation(), OSError())
    assert isinstance(raised.value.__cause__, OSError)


@both
def test_what_an_operation_raises_itself_passes_and_nothing_more_is_asked(trampoline: Trampoline) -> None:
    def operation() -> Operation[None]:
        yield ONE
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        trampoline(operation(), [])


@both
def test_a_decoders_error_passes(trampoline: Trampoline) -> None:
    with pytest.raises(ZeroDivisionError):
        trampoline(Query(ONE, lambda rows: 1 // len(rows)), [])


@both
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interruption_closes_the_operation_and_passes(
    trampoline: Trampoline, interruption: type[BaseException]
) -> None:
    log = Log()
    with pytest.raises(interruption):
        trampoline(log.operation(), [(1,)], interruption())
    assert log.seen == [[(1,)], GeneratorExit, "closed"]


@both
def test_an_interruption_is_not_shown_to_the_operation(trampoline: Trampoline) -> None:
    def operation() -> Operation[str]:
        try:
            yield ONE
        except Exception:
            return "swallowed"
        return "unreached"

    with pytest.raises(KeyboardInterrupt):
        trampoline(operation(), KeyboardInterrupt())


async def test_a_cancellation_closes_the_operation_and_passes() -> None:
    log, waiting = Log(), asyncio.Event()

    class Slow(AsyncExecutor):
        database: Database = "postgresql"

        async def execute(self, statement: Statement) -> Rows:
            waiting.set()
            await asyncio.Event().wait()
            return []

    task = asyncio.create_task(run_async(Slow(), log.operation()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.seen == [GeneratorExit, "closed"]


async def test_nothing_is_asked_before_the_awaitable_is_awaited() -> None:
    script = AsyncScript([(1,)])
    call: Coroutine[Any, Any, Any] = run_async(script, Query(ONE, list))
    assert script.asked == []
    assert await call == [(1,)]


def test_an_operation_that_is_not_run_asks_nothing_and_can_be_dropped() -> None:
    log = Log()
    log.operation().close()
    assert log.seen == []
