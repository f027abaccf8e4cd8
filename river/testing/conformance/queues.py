"""Queues: that they are worked, paused, and what is said of them."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from ...errors import QueueNotFoundError
from ...operations import queues, work
from .playing import claim
from .rows import Table, changed, instant
from .stage import gathered

SOON = timedelta(seconds=5)


class QueueClaims:
    """The rows of queues."""

    @claim
    async def test_a_queue_that_is_worked_gets_a_row(self, table: Table) -> None:
        assert await table.run(work.open_queues(table.sql, ["new"])) == {"new": False}
        row = (await table.queues())["new"]
        assert (row["metadata"], row["paused_at"]) == ({}, None)
        assert row["created_at"] == row["updated_at"]
        assert abs(instant(row["updated_at"]) - await table.now()) < SOON

    @claim
    async def test_a_queue_that_is_there_says_that_it_is_worked_and_stays_as_it_is(self, table: Table) -> None:
        long_ago = await table.now() - timedelta(hours=1)
        await table.add_queue(
            "there", metadata={"kept": 1}, created_at=long_ago, updated_at=long_ago, paused_at=long_ago
        )
        before = (await table.queues())["there"]
        assert await table.run(work.open_queues(table.sql, ["there"])) == {"there": True}
        after = changed(before, (await table.queues())["there"])
        assert abs(instant(after.pop("updated_at")) - await table.now()) < SOON
        assert after == {}

    @claim
    async def test_a_queue_is_read(self, table: Table) -> None:
        now = await table.now()
        await table.add_queue("q", metadata={"a": "ü"}, created_at=now, updated_at=now, paused_at=now)
        queue = await table.run(queues.get(table.sql, "q"))
        assert (queue.name, queue.metadata, queue.paused) == ("q", {"a": "ü"}, True)
        assert (queue.created_at, queue.updated_at, queue.paused_at) == (now, now, now)

    @claim
    async def test_queues_are_listed_by_name_as_many_as_were_asked_for(self, table: Table) -> None:
        assert await table.run(queues.list_first(table.sql, 10)) == []
        for name in ("b", "c", "a"):
            await table.add_queue(name, **({"paused_at": "now"} if name == "b" else {}))
        first = await table.run(queues.list_first(table.sql, 2))
        assert [(queue.name, queue.paused) for queue in first] == [("a", False), ("b", True)]
        assert [queue.name for queue in await table.run(queues.list_first(table.sql, 3))] == ["a", "b", "c"]

    @claim
    async def test_whether_queues_are_paused_is_asked_of_many_at_once(self, table: Table) -> None:
        await table.add_queue("paused", paused_at="now")
        await table.add_queue("not")
        await table.add_queue("other")
        found = await table.run(table.sql.queues_paused(["not", "paused", "nowhere", "not"]))
        assert found == {"paused": True, "not": False}

    @claim
    async def test_a_queue_is_paused_and_resumed(self, table: Table) -> None:
        long_ago = await table.now() - timedelta(hours=1)
        await table.add_queue("q", updated_at=long_ago)
        await table.add_queue("other", updated_at=long_ago)
        other = (await table.queues())["other"]
        await table.run(queues.pause(table.sql, "q"))
        row = (await table.queues())["q"]
        assert abs(instant(row["paused_at"]) - await table.now()) < SOON
        assert instant(row["updated_at"]) > long_ago
        await table.run(queues.resume(table.sql, "q"))
        assert (await table.queues())["q"]["paused_at"] is None
        assert (await table.queues())["other"] == other

    @claim
    async def test_a_queue_that_is_so_already_stays_as_it_is(self, table: Table) -> None:
        long_ago = await table.now() - timedelta(hours=1)
        await table.add_queue("paused", updated_at=long_ago, paused_at=long_ago)
        await table.add_queue("not", updated_at=long_ago)
        before = await table.queues()
        await table.run(queues.pause(table.sql, "paused"))
        await table.run(queues.resume(table.sql, "not"))
        assert await table.queues() == before

    @claim
    async def test_all_queues_are_paused_and_resumed_also_if_there_are_none(self, table: Table) -> None:
        await table.run(queues.pause(table.sql, queues.ALL_QUEUES))
        await table.run(queues.resume(table.sql, queues.ALL_QUEUES))
        for name in ("a", "b"):
            await table.add_queue(name)
        await table.run(queues.pause(table.sql, queues.ALL_QUEUES))
        assert [row["paused_at"] is not None for row in (await table.queues()).values()] == [True, True]
        await table.run(queues.resume(table.sql, queues.ALL_QUEUES))
        assert [row["paused_at"] for row in (await table.queues()).values()] == [None, None]

    @claim
    async def test_metadata_is_replaced_as_a_whole(self, table: Table) -> None:
        await table.add_queue("q", metadata={"old": 1})
        queue = await table.run(queues.update(table.sql, "q", '{"new": "ü :x %s"}'))
        assert queue.metadata == (await table.queues())["q"]["metadata"] == {"new": "ü :x %s"}

    @claim
    async def test_an_update_without_metadata_keeps_it(self, table: Table) -> None:
        await table.add_queue("q", metadata={"old": 1})
        assert (await table.run(queues.update(table.sql, "q", None))).metadata == {"old": 1}
        assert (await table.queues())["q"]["metadata"] == {"old": 1}

    @claim
    async def test_a_queue_that_is_not_there_is_not_found(self, table: Table) -> None:
        await table.add_queue("there")
        before = await table.queues()
        for operation in (
            queues.get(table.sql, "nowhere"),
            queues.pause(table.sql, "nowhere"),
            queues.resume(table.sql, "nowhere"),
            queues.update(table.sql, "nowhere", "{}"),
        ):
            with pytest.raises(QueueNotFoundError):
                await table.run(operation)
        assert await table.queues() == before

    @claim
    async def test_clients_are_told_of_what_was_done_with_a_queue(self, table: Table) -> None:
        channel = f"{table.stage.schema}.river_control"
        await table.add_queue("q")
        async with table.stage.listening(channel) as ears:
            await table.run(queues.pause(table.sql, "q"))
            await table.run(queues.resume(table.sql, queues.ALL_QUEUES))
            await table.run(queues.update(table.sql, "q", '{"a":1}'))
            heard = await gathered(ears, lambda heard: len(heard) >= 3)
        assert [json.loads(each.payload) for each in heard] == [
            {"action": "pause", "queue": "q"},
            {"action": "resume", "queue": "*"},
            {"action": "metadata_changed", "metadata": {"a": 1}, "queue": "q"},
        ]
