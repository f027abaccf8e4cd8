"""What a driver says of a failure, what becomes of the connection, and that the driver goes on afterwards."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from ...errors import DatabaseError, ErrorClass
from ...operation import Query, Rows
from .playing import claim
from .stage import Session, Stage, question
from .transactions import HOW

FAILURES: dict[str, tuple[str, ErrorClass, str]] = {
    "an undefined table": ("SELECT 1 FROM nowhere.river_job", ErrorClass.UNDEFINED_TABLE, "42P01"),
    "a division by zero": ("SELECT 1 / 0", ErrorClass.OTHER, "22012"),
    "a syntax error": ("SELEKT 1", ErrorClass.OTHER, "42601"),
    "a deadlock": (
        "DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '40P01'; END $$",
        ErrorClass.TRANSIENT,
        "40P01",
    ),
    "too many connections": (
        "DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '53300'; END $$",
        ErrorClass.TRANSIENT,
        "53300",
    ),
    "a cancelled statement": (
        "SELECT pg_cancel_backend(pg_backend_pid()) FROM pg_sleep(0)",
        ErrorClass.CANCELLED,
        "57014",
    ),
}


class FailureClaims:
    """Errors, lost connections, and calls that are aborted."""

    @pytest.mark.parametrize("name", FAILURES)
    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_every_failure_has_its_class_its_sqlstate_and_a_message(
        self, stage: Stage, how: str, name: str
    ) -> None:
        sql, error_class, sqlstate = FAILURES[name]
        seen: list[DatabaseError] = []
        with pytest.raises(DatabaseError) as failed:
            async with stage.opened(how) as session:
                try:
                    await session.ask(sql)
                except DatabaseError as inside:  # the operation that has asked sees it first
                    seen.append(inside)
                    raise
        error = failed.value
        assert seen == [error]
        assert (error.error_class, error.sqlstate, error.constraint) == (error_class, sqlstate, None)
        assert str(error)
        assert error.__cause__ is not None, "raise DatabaseError(...) from the library's error"
        assert await stage.value("SELECT 1", how) == 1

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_a_violated_constraint_is_named(self, stage: Stage, how: str) -> None:
        name = stage.name()
        await stage.run(stage.noting(name))
        sql = f"INSERT INTO {stage.note} (name) VALUES (CAST(:name AS text))"
        error = await stage.failure(sql, how, name=name)
        assert (error.error_class, error.sqlstate, error.constraint) == (
            ErrorClass.UNIQUE_VIOLATION,
            "23505",
            "note_once",
        )
        sql = f"INSERT INTO {stage.at('river_queue')} (name, metadata, updated_at) VALUES (NULL, '{{}}', now())"
        error = await stage.failure(sql, how)
        assert (error.error_class, error.sqlstate) == (ErrorClass.OTHER, "23502")

    @claim
    async def test_a_serialization_failure_is_transient(self, stage: Stage) -> None:
        name = stage.name()
        await stage.run(stage.noting(name))
        update = f"UPDATE {stage.note} SET number = number + 1 WHERE name = CAST(:name AS text)"
        with pytest.raises(DatabaseError) as failed:
            async with stage.transaction() as session:
                await session.ask("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                await session.ask(f"SELECT count(*) FROM {stage.note}")
                await stage.ask(update, name=name)
                await session.ask(update, name=name)
        assert (failed.value.error_class, failed.value.sqlstate) == (ErrorClass.TRANSIENT, "40001")
        sql = f"SELECT number FROM {stage.note} WHERE name = CAST(:name AS text)"
        assert await stage.value(sql, name=name) == 1

    @claim
    async def test_a_lock_that_is_not_to_be_had_is_transient(self, stage: Stage) -> None:
        name = stage.name()
        await stage.run(stage.noting(name))
        locking = f"SELECT number FROM {stage.note} WHERE name = CAST(:name AS text) FOR UPDATE"
        async with stage.transaction() as holder:
            await holder.ask(locking, name=name)
            with pytest.raises(DatabaseError) as failed:
                async with stage.transaction() as session:
                    await session.ask("SELECT set_config('lock_timeout', '20ms', true)")
                    await session.ask(locking, name=name)
        assert (failed.value.error_class, failed.value.sqlstate) == (ErrorClass.TRANSIENT, "55P03")
        async with stage.transaction() as session:
            assert await session.value(f"{locking} NOWAIT", name=name) == 0

    @claim
    async def test_a_statement_that_takes_too_long_for_the_server_is_cancelled(self, stage: Stage) -> None:
        with pytest.raises(DatabaseError) as failed:
            async with stage.transaction() as session:
                await session.ask("SELECT set_config('statement_timeout', '20ms', true)")
                await session.ask("SELECT count(*) FROM pg_sleep(60)")
        assert (failed.value.error_class, failed.value.sqlstate) == (ErrorClass.CANCELLED, "57014")

    @claim
    async def test_an_error_at_the_commit_is_said_and_nothing_is_written(self, stage: Stage) -> None:
        table, name = stage.table(), stage.name()
        once = f"{table.rpartition('.')[2]}_once"
        await stage.ask(f"CREATE TABLE {table} (id bigint CONSTRAINT {once} UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        with pytest.raises(DatabaseError) as failed:
            async with stage.transaction() as session:
                await session.run(stage.noting(name))
                await session.ask(f"INSERT INTO {table} VALUES (1), (1)")
        error = failed.value
        assert (error.error_class, error.sqlstate, error.constraint) == (
            ErrorClass.UNIQUE_VIOLATION,
            "23505",
            once,
        )
        assert await stage.notes(name) == []

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_a_connection_that_is_lost_between_two_statements_is_said_to_be_lost(
        self, stage: Stage, how: str
    ) -> None:
        name = stage.name()
        with pytest.raises(DatabaseError) as failed:
            async with stage.opened(how) as session:
                pid = await session.pid()
                await stage.terminate(pid)
                await session.run(stage.noting(name))
        await self._is_lost_and_replaced(stage, failed.value, how)
        assert await stage.notes(name) == []

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_a_connection_that_is_lost_during_a_statement_is_said_to_be_lost(
        self, stage: Stage, how: str
    ) -> None:
        error = await stage.failure("SELECT pg_terminate_backend(pg_backend_pid()) FROM pg_sleep(0)", how)
        await self._is_lost_and_replaced(stage, error, how)

    @claim
    async def test_a_connection_that_is_lost_before_the_commit_is_said_to_be_lost(self, stage: Stage) -> None:
        name = stage.name()
        with pytest.raises(DatabaseError) as failed:
            async with stage.transaction() as session:
                await session.run(stage.noting(name))
                await stage.terminate(await session.pid())
        await self._is_lost_and_replaced(stage, failed.value, "transaction")
        assert await stage.notes(name) == []

    @claim
    async def test_a_lost_connection_does_not_swallow_an_exception_of_the_caller(self, stage: Stage) -> None:
        # The rollback may fail in its turn; Python then says of both.
        with pytest.raises((ZeroDivisionError, DatabaseError)):
            async with stage.transaction() as session:
                await stage.terminate(await session.pid())
                raise ZeroDivisionError
        assert await stage.value("SELECT 1", "transaction") == 1

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_connections_that_are_lost_while_nobody_uses_them_are_replaced(self, stage: Stage, how: str) -> None:
        async with stage.opened(how) as first, stage.opened(how) as second:
            pids = {await first.pid(), await second.pid()}
        async with stage.autocommit() as session:
            for pid in pids - {await session.pid()}:
                await session.ask("SELECT pg_terminate_backend(CAST(:pid AS integer))", pid=pid)
        for _ in range(10):
            try:
                async with stage.opened(how) as first, stage.opened(how) as second:
                    assert await first.value("SELECT 1") == await second.value("SELECT 1") == 1
            except DatabaseError as error:
                assert error.error_class is ErrorClass.CONNECTION_LOST  # noqa: PT017 - it need not happen at all
        async with stage.opened(how) as first, stage.opened(how) as second:
            assert await first.value("SELECT 1") == await second.value("SELECT 1") == 1

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_abort_ends_a_statement_that_hangs(self, stage: Stage, how: str) -> None:
        name, sessions, pids = stage.name(), list[Session](), list[int]()

        async def hang() -> None:
            async with stage.opened(how) as session:
                sessions.append(session)
                pids.append(await session.pid())
                if how == "transaction":
                    await session.run(stage.noting(name))
                await session.run(hanging(name))

        hung = stage.player.start(hang())
        await stage.until_it_runs(f"/* {name} */")
        sessions[0].abort()
        with pytest.raises(DatabaseError) as ended:
            await hung.result()
        # The server does not notice before it has an answer to send.
        await stage.terminate(pids[0])
        assert ended.value.error_class is ErrorClass.CONNECTION_LOST
        assert await stage.notes(name) == []
        assert await stage.value("SELECT 1", how) == 1

    @claim
    async def test_abort_ends_one_call_and_no_other(self, stage: Stage) -> None:
        name = stage.name()
        async with stage.transaction() as session:
            with pytest.raises(DatabaseError):
                async with stage.transaction() as aborted:
                    await aborted.run(stage.noting(name))
                    aborted.abort()
                    aborted.abort()
                    await aborted.ask("SELECT 1")
            await session.run(stage.noting(name))
        assert await stage.notes(name) == [name]

    async def _is_lost_and_replaced(self, stage: Stage, error: DatabaseError, how: str) -> None:
        assert error.error_class is ErrorClass.CONNECTION_LOST
        assert str(error)
        assert await stage.value("SELECT 1", how) == 1


class CancellationClaims:
    """What a cancelled task leaves behind; asyncio."""

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_a_task_that_is_cancelled_in_a_statement_writes_nothing(self, stage: Stage, how: str) -> None:
        name, pids = stage.name(), list[int]()

        async def hang() -> None:
            async with stage.opened(how) as session:
                pids.append(await session.pid())
                if how == "transaction":
                    await session.run(stage.noting(name))
                await session.run(hanging(name))

        async with stage.autocommit() as watcher:
            hung = stage.player.start(hang())
            await stage.until_it_runs(f"/* {name} */")
            hung.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hung.result()
            await stage.until_free(watcher, pids[0])
        assert await stage.notes(name) == []
        assert await stage.value("SELECT 1", how) == 1

    @claim
    async def test_a_task_that_is_cancelled_between_statements_writes_nothing(self, stage: Stage) -> None:
        name, pids, waiting = stage.name(), list[int](), asyncio.Event()

        async def wait() -> None:
            async with stage.transaction() as session:
                pids.append(await session.pid())
                await session.run(stage.noting(name))
                waiting.set()
                await asyncio.Event().wait()

        async with stage.autocommit() as watcher:
            started = stage.player.start(wait())
            await waiting.wait()
            started.cancel()
            with pytest.raises(asyncio.CancelledError):
                await started.result()
            await stage.until_free(watcher, pids[0])
        assert await stage.notes(name) == []

    @claim
    async def test_a_driver_whose_tasks_are_cancelled_all_the_time_goes_on(self, stage: Stage) -> None:
        async def use() -> None:
            async with stage.transaction() as session:
                await session.ask("SELECT count(*) FROM pg_sleep(0.001)")

        for steps in range(24):
            started = stage.player.start(use())
            for _ in range(steps):
                await asyncio.sleep(0)
            started.cancel()
            with suppress(asyncio.CancelledError):  # one that had ended already has done its work
                await started.result()
        for _ in range(3):
            assert await stage.value("SELECT 1", "transaction") == 1


def hanging(tag: str) -> Query[Rows]:
    """A statement that would write if it came to an end, which takes a minute."""
    return question(f"SELECT count(*) FROM pg_sleep(60) /* {tag} */")
