"""What an adopter promises: River's statements are part of the host's transaction, and the handle stays the host's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest

from ... import driver as seam
from ...errors import DatabaseError, HandleClosedError, HandleError, RiverError, TransactionRequiredError, sqlstate_of
from ...operation import AsyncExecutor, Executor
from ...operations import insert, jobs
from ...sql import dialect_for
from .hosts import AsyncHost, Host
from .playing import claim, settled
from .rows import new_job
from .seam import INTEGERS, TEXTS, exact, rows_of
from .stage import Session, Stage, gathered, notifying

# What a session of the host's may be set to, and what is read of it afterwards.
SETTINGS = {
    "TimeZone": "Asia/Kathmandu",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-2",
    "lock_timeout": "4321ms",
}

SHOWN = "SELECT " + ", ".join(f"current_setting('{name}') AS {name}" for name in SETTINGS)
SHAPE = "SELECT 1 AS one, 'two' AS two, NULL AS nothing"


class Handle:
    """A host of either colour, as coroutines."""

    def __init__(self, host: Host | AsyncHost) -> None:
        self._host = host

    @property
    def handle(self) -> Any:
        """What is handed to River."""
        return self._host.handle

    async def begin(self) -> None:
        """Begin a transaction, if the library wants to be told."""
        await settled(self._host.begin())

    async def execute(self, sql: str) -> Sequence[Any]:
        """Run a statement of the host's own."""
        rows: Sequence[Any] = await settled(self._host.execute(sql))
        return rows

    async def commit(self) -> None:
        """Commit."""
        await settled(self._host.commit())

    async def rollback(self) -> None:
        """Roll back."""
        await settled(self._host.rollback())

    async def close(self) -> None:
        """Close the handle."""
        await settled(self._host.close())


class AdoptionClaims(ABC):
    """A host's handle, adopted."""

    knows_failure: bool = True
    """Whether the library says without asking the server that a transaction has failed, so that it can be refused."""

    knows_closed: bool = True
    """Whether a closed handle can be told from a new one, so that it can be refused."""

    knows_autocommit: bool = True
    """Whether there is an autocommit mode, in which a handle without a transaction must be refused."""

    @abstractmethod
    def hosted(self, stage: Stage, *, autocommit: bool = False) -> AbstractAsyncContextManager[Handle]:
        """A new handle without a transaction."""

    def adopt(self, handle: object) -> Executor | AsyncExecutor:
        """What is tested; by default all that River does to find the adopter, entry points included."""
        return seam.adopt(handle)

    @asynccontextmanager
    async def begun(self, stage: Stage) -> AsyncGenerator[tuple[Handle, Session]]:
        """A host in a transaction, and River's executor in the same."""
        async with self.hosted(stage) as host:
            await host.begin()
            try:
                yield host, Session(self.adopt(host.handle))
            finally:
                with suppress(Exception):  # a test that has failed already must not hide why
                    await host.rollback()

    @claim
    async def test_the_executor_has_the_colour_of_the_handle(self, stage: Stage) -> None:
        async with self.begun(stage) as (_, session):
            expected = AsyncExecutor if seam.is_asyncio(stage.driver) else Executor
            assert isinstance(session.executor, expected)
            assert session.executor.database == stage.driver.database

    @claim
    async def test_statements_are_part_of_the_hosts_transaction(self, stage: Stage) -> None:
        name = stage.name()
        async with self.begun(stage) as (host, session):
            # The host writes down which transaction of which session it is in.
            xid = "CAST(CAST(pg_current_xact_id() AS text) AS bigint)"
            await host.execute(f"INSERT INTO {stage.note} VALUES ('{name} pid', pg_backend_pid()), ('{name} x', {xid})")
            sql = f"""
                SELECT pg_backend_pid() = pid.number, {xid} = x.number
                FROM {stage.note} AS pid, {stage.note} AS x
                WHERE pid.name = '{name} pid' AND x.name = '{name} x'
            """
            assert rows_of(await session.ask(sql)) == [[True, True]]

    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    @claim
    async def test_the_hosts_end_is_rivers_end(self, stage: Stage, ending: str) -> None:
        mine, rivers, later = stage.name(), stage.name(), stage.name()
        async with self.begun(stage) as (host, session):
            await host.execute(f"INSERT INTO {stage.note} (name) VALUES ('{mine}')")
            await session.run(stage.noting(rivers))
            assert await stage.notes(mine, rivers) == []
            # The host goes on in the transaction that it was in.
            await host.execute(f"INSERT INTO {stage.note} (name) VALUES ('{later}')")
            assert await stage.notes(mine, rivers, later) == []
            await (host.commit() if ending == "commit" else host.rollback())
            assert await stage.notes(mine, rivers, later) == ([mine, rivers, later] if ending == "commit" else [])

    @claim
    async def test_a_handle_is_adopted_again_for_the_next_transaction(self, stage: Stage) -> None:
        names = [stage.name() for _ in range(3)]
        async with self.hosted(stage) as host:
            for name in names:
                await host.begin()
                await Session(self.adopt(host.handle)).run(stage.noting(name))
                await Session(self.adopt(host.handle)).ask("SELECT 1")
                await host.commit()
        assert await stage.notes(*names) == names

    @claim
    async def test_a_savepoint_of_the_hosts_takes_along_what_was_written_in_it(self, stage: Stage) -> None:
        before, inside, after = stage.name(), stage.name(), stage.name()
        async with self.begun(stage) as (host, session):
            await session.run(stage.noting(before))
            await host.execute("SAVEPOINT hosts_own")
            await session.run(stage.noting(inside))
            await host.execute("ROLLBACK TO SAVEPOINT hosts_own")
            await session.run(stage.noting(after))
            await host.commit()
        assert await stage.notes(before, inside, after) == [before, after]

    @claim
    async def test_a_savepoint_of_the_hosts_saves_the_transaction_from_an_error(self, stage: Stage) -> None:
        name = stage.name()
        async with self.begun(stage) as (host, session):
            await session.run(stage.noting(name))
            await host.execute("SAVEPOINT hosts_own")
            with pytest.raises(Exception, match="zero"):
                await session.ask("SELECT 1 / 0")
            await host.execute("ROLLBACK TO SAVEPOINT hosts_own")
            await host.commit()
        assert await stage.notes(name) == [name]

    @claim
    async def test_the_librarys_own_errors_pass_untouched(self, stage: Stage) -> None:
        name = stage.name()
        async with self.begun(stage) as (host, session):
            with pytest.raises(Exception) as of_river:  # noqa: PT011 - which one is the library's business
                await session.ask("SELECT 1 FROM nowhere.river_job")
            assert not isinstance(of_river.value, RiverError)
            assert sqlstate_of(of_river.value) == "42P01"
            # There was no savepoint: the transaction has failed as a whole.
            with pytest.raises(Exception, match="aborted"):
                await host.execute("SELECT 1")
            await host.rollback()
            await host.begin()
            with pytest.raises(type(of_river.value)) as of_host:
                await host.execute("SELECT 1 FROM nowhere.river_job")
            assert type(of_host.value) is type(of_river.value)
            await host.rollback()
            await host.begin()
            await Session(self.adopt(host.handle)).run(stage.noting(name))
            await host.commit()
        assert await stage.notes(name) == [name]

    @claim
    async def test_a_handle_in_autocommit_is_refused_and_nothing_is_written(self, stage: Stage) -> None:
        if not self.knows_autocommit:
            pytest.skip("knows_autocommit is False: this handle always has a transaction")
        name = stage.name()
        async with self.hosted(stage, autocommit=True) as host:
            with pytest.raises(TransactionRequiredError):
                await Session(self.adopt(host.handle)).run(stage.noting(name))
            assert await stage.notes(name) == []
            # It is as it was: a statement of the host's is committed by itself.
            await host.execute(f"INSERT INTO {stage.note} (name) VALUES ('{name}')")
            assert await stage.notes(name) == [name]

    @claim
    async def test_a_failed_transaction_takes_nothing_until_it_is_rolled_back(self, stage: Stage) -> None:
        name = stage.name()
        async with self.begun(stage) as (host, _):
            with pytest.raises(Exception, match="zero"):
                await host.execute("SELECT 1 / 0")
            with pytest.raises(TransactionRequiredError if self.knows_failure else Exception) as refused:
                await Session(self.adopt(host.handle)).run(stage.noting(name))
            assert self.knows_failure or not isinstance(refused.value, DatabaseError)
            await host.rollback()
            assert await stage.notes(name) == []
            await host.begin()
            await Session(self.adopt(host.handle)).run(stage.noting(name))
            await host.commit()
        assert await stage.notes(name) == [name]

    @claim
    async def test_a_closed_handle_is_refused(self, stage: Stage) -> None:
        if not self.knows_closed:
            pytest.skip("knows_closed is False: a closed handle cannot be told from a new one")
        name = stage.name()
        async with self.hosted(stage) as host:
            await host.close()
            with pytest.raises(HandleError) as refused:
                await Session(self.adopt(host.handle)).run(stage.noting(name))
        assert isinstance(refused.value, HandleClosedError)
        assert await stage.notes(name) == []

    @claim
    async def test_values_cross_as_they_do_on_rivers_own_connections(self, stage: Stage) -> None:
        async with self.begun(stage) as (_, session):
            for number in INTEGERS:
                assert exact(await session.value("SELECT CAST(:n AS bigint)", n=number)) == (int, number)
            for text in TEXTS.values():
                assert exact(await session.value("SELECT CAST(:t AS text)", t=text)) == (str, text)
            for flag in (True, False, None):
                assert await session.value("SELECT CAST(:f AS boolean)", f=flag) is flag
            rows = await session.ask("SELECT 1 AS a, 2 AS a, 'x' AS b, NULL UNION ALL SELECT 3, 4, 'y', NULL")
            assert rows_of(rows) == [[1, 2, "x", None], [3, 4, "y", None]]
            assert list(await session.ask("SELECT 1 WHERE false")) == []

    @claim
    async def test_the_hosts_rows_and_settings_are_as_before(self, stage: Stage) -> None:
        async with self.begun(stage) as (host, session):
            for name, value in SETTINGS.items():
                await host.execute(f"SET LOCAL {name} = '{value}'")
            before = [await host.execute(sql) for sql in (SHAPE, SHOWN)]
            await session.ask("SELECT 1 AS other, CAST(:t AS text) AS text, CAST(:n AS bigint)", t="x", n=2**40)
            await session.run(stage.noting(stage.name()))
            after = [await host.execute(sql) for sql in (SHAPE, SHOWN)]
            assert [list(map(repr, rows)) for rows in after] == [list(map(repr, rows)) for rows in before]
            assert [list(map(type, rows)) for rows in after] == [list(map(type, rows)) for rows in before]

    @claim
    async def test_settings_of_the_hosts_session_change_nothing_that_river_reads(self, stage: Stage) -> None:
        sql = dialect_for(stage.driver.database, stage.schema)
        job = new_job(unique_key=bytes(range(32)), unique_states=0xFF)
        async with self.begun(stage) as (host, session):
            ((row, _),) = await session.run(insert.insert_many(sql, [job]))
            for name, value in SETTINGS.items():
                await host.execute(f"SET LOCAL {name} = '{value}'")
            again = await session.run(jobs.get(sql, row.id))
            assert again.unique_key == row.unique_key == bytes(range(32))
            for name in ("created_at", "scheduled_at", "metadata", "tags", "state", "priority"):
                assert getattr(again, name) == getattr(row, name)

    @claim
    async def test_a_job_exists_if_and_only_if_the_host_commits(self, stage: Stage) -> None:
        sql = dialect_for(stage.driver.database, stage.schema)
        counting = f"SELECT count(*) FROM {stage.at('river_job')} WHERE id = CAST(:id AS bigint)"
        async with self.hosted(stage) as host:
            for ending in ("rollback", "commit"):
                await host.begin()
                session = Session(self.adopt(host.handle))
                ((row, duplicate),) = await session.run(insert.insert_many(sql, [new_job()]))
                assert not duplicate
                assert (await session.run(jobs.get(sql, row.id))).id == row.id
                assert await stage.value(counting, id=row.id) == 0
                await (host.commit() if ending == "commit" else host.rollback())
                assert await stage.value(counting, id=row.id) == (1 if ending == "commit" else 0)

    @claim
    async def test_listeners_are_told_by_the_hosts_commit(self, stage: Stage) -> None:
        channel = stage.name()
        async with stage.listening(channel) as ears, self.hosted(stage) as host:
            for ending in ("rollback", "commit"):
                await host.begin()
                await Session(self.adopt(host.handle)).run(notifying(channel, ending))
                await stage.notify(channel, f"before the {ending}")
                await (host.commit() if ending == "commit" else host.rollback())
            heard = await gathered(ears, lambda heard: len(heard) >= 3)
        assert [each.payload for each in heard] == ["before the rollback", "before the commit", "commit"]

    @claim
    async def test_what_is_no_handle_is_left_to_other_adopters(self, stage: Stage) -> None:
        async with self.hosted(stage):
            with pytest.raises(HandleError):
                self.adopt(object())
