"""Who begins, commits and rolls back, and what is left behind on a connection."""

from __future__ import annotations

from contextlib import AsyncExitStack, nullcontext, suppress

import pytest

from ...driver import AsyncDriver, Driver, is_asyncio
from ...errors import DatabaseError, ErrorClass
from ...operation import Value
from .playing import claim, settled
from .seam import rows_of
from .stage import Session, Stage, whole

# "transaction" is what the driver calls a transaction, "autocommit" a connection without one.
HOW = ("transaction", "autocommit")


class Undone(Exception):  # noqa: N818 - it reports no error
    """Ends a transaction that is to be rolled back."""


class Ended(BaseException):
    """Ends it as well, past all that is written for an `Exception`, as a cancellation does."""


class TransactionClaims:
    """Transactions, statements on their own, and connections."""

    @claim
    async def test_a_transaction_is_committed_when_it_is_left_and_not_before(self, stage: Stage) -> None:
        first, second = stage.name(), stage.name()
        async with stage.transaction() as session:
            await session.run(stage.noting(first))
            await session.run(stage.noting(second))
            assert await stage.notes(first, second) == []
        assert await stage.notes(first, second) == [first, second]

    @pytest.mark.parametrize("error_type", [Undone, Ended])
    @claim
    async def test_a_transaction_is_rolled_back_by_any_exception_which_passes_as_it_is(
        self, stage: Stage, error_type: type[BaseException]
    ) -> None:
        name, error = stage.name(), error_type("on purpose")
        with pytest.raises(error_type) as passed:
            async with stage.transaction() as session:
                await session.run(stage.noting(name))
                raise error
        assert passed.value is error
        assert await stage.notes(name) == []

    @claim
    async def test_a_transaction_is_rolled_back_as_a_whole_by_an_error_of_the_database(self, stage: Stage) -> None:
        name = stage.name()
        with pytest.raises(DatabaseError):
            async with stage.transaction() as session:
                await session.run(stage.noting(name))
                await session.ask("SELECT 1 / 0")
        assert await stage.notes(name) == []

    @claim
    async def test_all_statements_of_a_transaction_are_of_one_and_the_next_is_another(self, stage: Stage) -> None:
        sql = "SELECT pg_backend_pid(), CAST(pg_current_xact_id() AS text), CAST(now() AS text)"
        async with stage.transaction() as session:
            first = rows_of(await session.ask(sql))
            assert rows_of(await session.ask(sql)) == first
        assert rows_of(await stage.ask(sql, "transaction"))[0][1] != first[0][1]

    @claim
    async def test_a_setting_of_a_transaction_ends_with_it(self, stage: Stage) -> None:
        for undone in (False, True):
            with pytest.raises(Undone) if undone else nullcontext():
                async with stage.transaction() as session:
                    await session.ask("SELECT set_config('lock_timeout', '1234ms', true)")
                    if undone:
                        raise Undone
            for how in HOW:
                assert await stage.value("SELECT current_setting('lock_timeout')", how) != "1234ms"

    @pytest.mark.parametrize("ending", ["left", "exception", "error"])
    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_nothing_is_left_open_on_a_connection_that_was_left(
        self, stage: Stage, how: str, ending: str
    ) -> None:
        pids: list[int] = []
        # Opened first, so that it has another connection.
        async with stage.autocommit() as watcher:
            with suppress(Undone, DatabaseError):
                async with stage.opened(how) as session:
                    pids.append(await session.pid())
                    await session.run(stage.noting(stage.name()))
                    if ending == "exception":
                        raise Undone
                    if ending == "error":
                        await session.ask("SELECT 1 / 0")
            await stage.until_free(watcher, pids[0])

    @claim
    async def test_a_statement_on_its_own_is_committed_at_once(self, stage: Stage) -> None:
        first, second = stage.name(), stage.name()
        async with stage.autocommit() as session:
            await session.run(stage.noting(first))
            assert await stage.notes(first) == [first]
            await session.run(stage.noting(second))
            assert await stage.notes(second) == [second]

    @claim
    async def test_a_statement_on_its_own_stays_done_whatever_follows(self, stage: Stage) -> None:
        kept, lost, later = stage.name(), stage.name(), stage.name()
        with pytest.raises(Undone):
            async with stage.autocommit() as session:
                await session.run(stage.noting(kept))
                with pytest.raises(DatabaseError):
                    await session.ask(
                        f"INSERT INTO {stage.note} (name, number) VALUES (CAST(:name AS text), 1 / 0)", name=lost
                    )
                # One that fails has failed alone.
                await session.run(stage.noting(later))
                raise Undone
        assert await stage.notes(kept, lost, later) == [kept, later]

    @claim
    async def test_statements_on_their_own_are_in_no_transaction(self, stage: Stage) -> None:
        async with stage.autocommit() as session:
            # It refuses to run in one.
            await session.ask(f"VACUUM {stage.note}")
            first = await session.value("SELECT CAST(pg_current_xact_id() AS text)")
            assert await session.value("SELECT CAST(pg_current_xact_id() AS text)") != first

    @claim
    async def test_a_connection_is_given_back_as_it_was_found(self, stage: Stage) -> None:
        # Whichever way it was used before, the next use is what it says.
        for _ in range(3):
            async with stage.autocommit() as session:
                await session.ask(f"VACUUM {stage.note}")
            name = stage.name()
            with pytest.raises(Undone):
                async with stage.transaction() as session:
                    await session.run(stage.noting(name))
                    raise Undone
            assert await stage.notes(name) == []
            with pytest.raises(DatabaseError):
                await stage.ask("SELECT 1 / 0")

    @claim
    async def test_the_settings_of_a_session_stay_as_they_are(self, stage: Stage) -> None:
        before: dict[int, list[list[Value]]] = {}
        for how in (*HOW, *HOW, *HOW):
            async with stage.opened(how) as session:
                pid, settings = await session.pid(), await settings_of(session)
            assert before.setdefault(pid, settings) == settings

    @claim
    async def test_several_transactions_are_open_at_once_and_each_is_its_own(self, stage: Stage) -> None:
        names = [stage.name() for _ in range(3)]
        async with AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(stage.transaction()) for _ in names]
            for session, name in zip(sessions, names, strict=True):
                await session.run(stage.noting(name))
            assert len({await session.pid() for session in sessions}) == len(sessions)
            for session, name in zip(sessions, names, strict=True):
                seen = await session.ask(f"SELECT name FROM {stage.note} WHERE name LIKE 'name %' ORDER BY name")
                assert [row[0] for row in seen if row[0] in names] == [name]
        assert await stage.notes(*names) == names

    @claim
    async def test_many_calls_at_once_do_not_get_into_each_others_way(self, stage: Stage) -> None:
        async def call(number: int) -> list[int]:
            answers: list[int] = []
            for turn in range(5):
                async with stage.opened(HOW[turn % 2]) as session:
                    answers.append(whole(await session.value("SELECT CAST(:n AS bigint)", n=number * 100 + turn)))
            return answers

        started = [stage.player.start(call(number)) for number in range(4)]
        for number, each in enumerate(started):
            assert await each.result() == [number * 100 + turn for turn in range(5)]

    @claim
    async def test_what_the_host_gave_works_on_after_close(self, stage: Stage) -> None:
        for _ in range(2):
            await settled(stage.driver.close())
            for how in HOW:
                assert await stage.value("SELECT 1", how) == 1


class OwnClaims:
    """A driver that makes its own connections, out of a URL."""

    def own_driver(self, url: str) -> Driver | AsyncDriver | None:  # noqa: ARG002 - it is for overriding
        """A driver that makes its own pool out of a URL; None if there is no such thing."""
        return None

    @claim
    async def test_close_ends_the_connections_that_the_driver_has_made(self, stage: Stage) -> None:
        for options in ({}, {"loop_ends": True}):
            own = self._own(stage, stage.url)
            if options and not is_asyncio(own.driver):
                continue
            pids: list[int] = []
            for how in HOW:
                async with own.opened(how) as session:
                    pids.append(await session.pid())
            await settled(own.driver.close(**options))
            for pid in pids:
                await stage.until_gone(pid)

    @claim
    async def test_a_driver_may_be_closed_before_and_between_its_uses_and_twice(self, stage: Stage) -> None:
        own = self._own(stage, stage.url)
        for _ in range(2):
            await settled(own.driver.close())
            await settled(own.driver.close())
            for how in HOW:
                assert await own.value("SELECT 1", how) == 1
        await settled(own.driver.close())

    @pytest.mark.parametrize("how", [*HOW, "listen"])
    @claim
    async def test_a_server_that_cannot_be_reached_is_a_lost_connection(self, stage: Stage, how: str) -> None:
        own = self._own(stage, "postgresql://nobody@127.0.0.1:1/nothing")
        try:
            with pytest.raises(DatabaseError) as refused:
                async with own.listening("x") if how == "listen" else own.opened(how):
                    raise Undone
            assert refused.value.error_class is ErrorClass.CONNECTION_LOST
            assert str(refused.value)
        finally:
            await settled(own.driver.close())

    def _own(self, stage: Stage, url: str) -> Stage:
        driver = self.own_driver(url)
        if driver is None:
            pytest.skip("own_driver() is None: this driver makes no connections of its own")
        return Stage(stage.player, driver, stage.schema, url)


async def settings_of(session: Session) -> list[list[Value]]:
    """What is set in a session, and to what."""
    sql = """
        SELECT name, setting FROM pg_settings
        -- What a BEGIN may say of its own transaction is compared by its value.
        WHERE source = 'session' AND name NOT LIKE 'transaction%' OR name = 'transaction_isolation'
        ORDER BY name
    """
    return rows_of(await session.ask(sql))
