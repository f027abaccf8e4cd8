"""Notifications, from a commit to whoever listens."""

from __future__ import annotations

import pytest

from ...driver import Notification
from ...errors import DatabaseError, ErrorClass
from .playing import claim
from .stage import Ears, Stage, gathered, notifying, whole
from .transactions import Undone

CHANNELS = {
    "with a schema": "public.river_insert",
    "in mixed case": "River_App.River_Insert",
    "with blanks and marks": "a b-c \"d\" 'e' %s :x $1 {y}",
    "beyond ASCII": "größe.東京",
    "of 63 bytes": "R" + "x" * 62,
}

PAYLOADS = {
    "empty": "",
    "JSON": '{"queue": "default"}',
    "odd characters": "'\" \\ %s :x ü 😀 \n\t",
    "beginning and ending in blanks": "  x  ",
    "of 7999 bytes": "y" * 7_999,
}


class ListeningClaims:
    """LISTEN; a driver that says that it cannot has these skipped."""

    @claim
    async def test_notifications_are_heard_in_the_order_in_which_they_were_sent(self, stage: Stage) -> None:
        channel = stage.name()
        async with stage.listening(channel) as ears:
            async with stage.transaction() as session:
                for number in range(20):
                    await session.run(notifying(channel, f"{number}"))
            for number in range(20, 30):
                await stage.notify(channel, f"{number}")
            heard = await gathered(ears, lambda heard: len(heard) >= 30)
        assert heard == [Notification(channel, f"{number}") for number in range(30)]

    @pytest.mark.parametrize("name", PAYLOADS)
    @claim
    async def test_a_payload_of_any_text_is_heard_unchanged(self, stage: Stage, name: str) -> None:
        channel = stage.name()
        async with stage.listening(channel) as ears:
            await stage.notify(channel, PAYLOADS[name])
            assert await ears.hear() == [Notification(channel, PAYLOADS[name])]

    @pytest.mark.parametrize("name", CHANNELS)
    @claim
    async def test_a_channel_of_any_name_is_listened_to(self, stage: Stage, name: str) -> None:
        channel = CHANNELS[name]
        async with stage.listening(channel) as ears:
            await stage.notify(channel, stage.name())
            (heard,) = await ears.hear()
        assert heard.channel == channel

    @claim
    async def test_a_notification_is_heard_after_its_commit_and_not_before(self, stage: Stage) -> None:
        channel = stage.name()
        async with stage.listening(channel) as ears:
            async with stage.transaction() as session:
                await session.run(notifying(channel, "late"))
                await stage.notify(channel, "early")
                assert await self._until(ears, "early") == ["early"]
            assert await self._until(ears, "late") == ["late"]

    @claim
    async def test_a_notification_of_a_transaction_that_was_rolled_back_is_never_heard(self, stage: Stage) -> None:
        channel = stage.name()
        async with stage.listening(channel) as ears:
            with pytest.raises(Undone):
                async with stage.transaction() as session:
                    await session.run(notifying(channel, "never"))
                    raise Undone
            await stage.notify(channel, "last")
            assert await self._until(ears, "last") == ["last"]

    @claim
    async def test_one_listener_hears_all_its_channels_and_no_others(self, stage: Stage) -> None:
        first, second, other = stage.name(), stage.name(), stage.name()
        async with stage.listening(first, second) as ears:
            await stage.notify(first, "1")
            await stage.notify(other, "2")
            await stage.notify(second, "3")
            heard = await gathered(ears, lambda heard: len(heard) >= 2)
        assert heard == [Notification(first, "1"), Notification(second, "3")]

    @claim
    async def test_a_notification_is_heard_by_every_listener_and_once(self, stage: Stage) -> None:
        channel = stage.name()
        async with stage.listening(channel) as first, stage.listening(channel) as second:
            await stage.notify(channel, "x")
            await stage.notify(channel, "last")
            for ears in (first, second):
                assert await self._until(ears, "last") == ["x", "last"]

    @claim
    async def test_what_comes_while_nobody_waits_is_heard_by_the_next_wait(self, stage: Stage) -> None:
        channel = stage.name()
        async with stage.listening(channel) as ears:
            await stage.notify(channel, "1")
            await stage.notify(channel, "2")
            await ears.check()
            await stage.notify(channel, "3")
            await ears.check()
            assert await self._until(ears, "3") == ["1", "2", "3"]

    @claim
    async def test_a_wait_without_anything_to_hear_ends_empty_and_the_next_one_hears(self, stage: Stage) -> None:
        channel = stage.name()
        async with stage.listening(channel) as ears:
            assert await ears.wait(0.02) == []
            assert await ears.wait(0.02) == []
            await stage.notify(channel, "x")
            assert await self._until(ears, "x") == ["x"]
            assert await ears.wait(0.02) == []

    @claim
    async def test_abort_ends_a_wait(self, stage: Stage) -> None:
        async with stage.listening(stage.name()) as ears:
            waiting = stage.player.start(self._lost(ears))
            assert await stage.value("SELECT 1") == 1
            ears.abort()
            await waiting.result()
            await self._lost(ears)
        assert await stage.value("SELECT 1") == 1

    @claim
    async def test_a_lost_connection_ends_a_wait_with_an_error(self, stage: Stage) -> None:
        channel = stage.name()
        with pytest.raises(DatabaseError) as lost:
            async with stage.listening(channel) as ears:
                waiting = stage.player.start(ears.hear())
                await stage.terminate(await self._pid(stage, channel))
                await waiting.result()
        assert lost.value.error_class is ErrorClass.CONNECTION_LOST

    @claim
    async def test_a_check_finds_out_whether_the_connection_lives(self, stage: Stage) -> None:
        channel = stage.name()
        with pytest.raises(DatabaseError) as lost:
            async with stage.listening(channel) as ears:
                pid = await self._pid(stage, channel)
                await ears.check()
                await stage.terminate(pid)
                await ears.check()
        assert lost.value.error_class is ErrorClass.CONNECTION_LOST

    @claim
    async def test_a_listener_has_a_connection_of_its_own_which_ends_with_it(self, stage: Stage) -> None:
        channel = stage.name()
        async with stage.listening(channel):
            pid = await self._pid(stage, channel)
            async with stage.transaction() as session:
                assert await session.pid() != pid

        await stage.until_gone(pid)

    @claim
    async def test_an_exception_of_the_caller_passes_a_listener_as_it_is(self, stage: Stage) -> None:
        error = Undone("on purpose")
        with pytest.raises(Undone) as passed:
            async with stage.listening(stage.name()):
                raise error
        assert passed.value is error

    async def _until(self, ears: Ears, last: str) -> list[str]:
        """The payloads that are heard, up to one."""
        heard = await gathered(ears, lambda heard: bool(heard) and heard[-1].payload == last)
        return [each.payload for each in heard]

    async def _lost(self, ears: Ears) -> None:
        with pytest.raises(DatabaseError) as lost:
            await ears.hear()
        assert lost.value.error_class is ErrorClass.CONNECTION_LOST

    async def _pid(self, stage: Stage, channel: str) -> int:
        """The process that serves the connection whose last statement was to listen to a channel."""
        sql = """
            SELECT pid FROM pg_stat_activity
            WHERE pid <> pg_backend_pid() AND query LIKE 'LISTEN%' AND strpos(query, CAST(:channel AS text)) > 0
        """
        return whole(await stage.value(sql, channel=channel))
