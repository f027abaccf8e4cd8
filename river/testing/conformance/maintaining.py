"""Keeping the queue healthy: what is due becomes available, what was left behind is tried again."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from ...driver import Notification
from ...job import JobRow
from ...operations import maintain
from .playing import claim
from .rows import STATES, Table, changed, instant, key_text
from .stage import gathered

NO_TIME = timedelta()
SOON = timedelta(seconds=5)


class MaintenanceClaims:
    """Schedule and rescue."""

    @claim
    async def test_due_jobs_become_available_as_many_as_were_asked_for(self, table: Table) -> None:
        now = await table.now()
        due = [
            await table.add(state=state, scheduled_at=now - timedelta(hours=3 - number))
            for number, state in enumerate(("retryable", "scheduled", "retryable"))
        ]
        future = await table.add(state="scheduled", scheduled_at=now + timedelta(hours=1))
        others = {state: await table.add(state=state) for state in STATES if state not in ("retryable", "scheduled")}
        before = {row["id"]: row for row in await table.jobs()}
        assert await self._schedule(table, 2) == 2
        assert await self._schedule(table, 2) == 1
        assert await self._schedule(table, 2) == 0
        for row in await table.jobs():
            expected = {"state": "available"} if row["id"] in due else {}
            assert changed(before[row["id"]], row) == expected
        assert (await table.job(future))["state"] == "scheduled"
        assert [(await table.job(job_id))["state"] for job_id in others.values()] == list(others)

    @claim
    async def test_jobs_that_are_due_within_the_horizon_become_available_ahead_of_it(self, table: Table) -> None:
        now = await table.now()
        soon = await table.add(state="scheduled", scheduled_at=now + timedelta(seconds=50))
        later = await table.add(state="scheduled", scheduled_at=now + timedelta(seconds=90))
        assert await self._schedule(table, 10, horizon=timedelta(seconds=60)) == 1
        assert await table.states() == {soon: "available", later: "scheduled"}

    @claim
    async def test_listeners_are_told_of_queues_in_which_a_job_is_due_by_now(self, table: Table) -> None:
        channel = f"{table.stage.schema}.river_insert"
        now = await table.now()
        await table.add(state="scheduled", queue="now", scheduled_at=now - timedelta(hours=1))
        await table.add(state="scheduled", queue="later", scheduled_at=now + timedelta(seconds=50))
        async with table.stage.listening(channel) as ears:
            assert await self._schedule(table, 10, horizon=timedelta(seconds=60)) == 2
            await table.stage.notify(channel, "last")
            heard = await gathered(ears, lambda heard: bool(heard) and heard[-1].payload == "last")
        assert heard == [Notification(channel, '{"queue": "now"}'), Notification(channel, "last")]

    @claim
    async def test_a_job_whose_unique_key_somebody_has_is_discarded_when_it_is_due(self, table: Table) -> None:
        long_ago = await table.now() - timedelta(hours=1)
        # It holds its key while it is available or runs, and lets go of it when it fails.
        holding = {"unique_states": "01000001", "scheduled_at": long_ago}
        taken = await table.add(state="retryable", unique_key=key_text(b"taken"), **holding)
        await table.add(state="running", unique_key=key_text(b"taken"), unique_states="01000001")
        free = await table.add(state="retryable", unique_key=key_text(b"free"), **holding)
        await table.add(state="completed", unique_key=key_text(b"free"), unique_states="01000001")
        alone = await table.add(state="retryable", unique_key=key_text(b"alone"), **holding)
        assert await self._schedule(table, 10) == 0
        due = await table.run(maintain.due_unique(table.sql, horizon=NO_TIME, limit=10))
        assert sorted(due) == [taken, free, alone]
        assert await table.run(maintain.schedule_unique(table.sql, due)) == [taken]
        rows = {row["id"]: row for row in await table.jobs()}
        assert [rows[job_id]["state"] for job_id in (taken, free, alone)] == ["discarded", "available", "available"]
        assert rows[taken]["metadata"] == {"unique_key_conflict": "scheduler_discarded"}
        assert abs(instant(rows[taken]["finalized_at"]) - await table.now()) < SOON

    @claim
    async def test_of_two_due_jobs_with_one_unique_key_the_first_becomes_available(self, table: Table) -> None:
        long_ago = await table.now() - timedelta(hours=1)
        ids = [
            await table.add(
                state="retryable",
                unique_key=key_text(b"k"),
                unique_states="00001001",  # it would hold the key when it is discarded, too
                scheduled_at=long_ago + timedelta(seconds=number),
            )
            for number in range(2)
        ]
        due = await table.run(maintain.due_unique(table.sql, horizon=NO_TIME, limit=10))
        assert due == ids
        assert await table.run(maintain.schedule_unique(table.sql, due)) == [ids[1]]
        assert await table.states() == {ids[0]: "available", ids[1]: "discarded"}

    @claim
    async def test_jobs_that_have_been_running_for_too_long_are_rescued(self, table: Table) -> None:
        now = await table.now()
        stale = {"state": "running", "attempted_at": now - timedelta(hours=2)}
        again = await table.add(attempt=1, metadata={"river:rescue_count": 5, "kept": True}, **stale)
        last = await table.add(attempt=25, **stale)
        cancelled = await table.add(attempt=1, metadata={"cancel_attempted_at": "2026-01-01T00:00:00Z"}, **stale)
        fresh = await table.add(state="running")
        assert await self._rescue(table, now) == [again, last, cancelled]
        rows = {row["id"]: row for row in await table.jobs()}
        states = {job_id: row["state"] for job_id, row in rows.items()}
        assert states == {again: "retryable", last: "discarded", cancelled: "cancelled", fresh: "running"}
        assert rows[again]["metadata"] == {"river:rescue_count": 6, "kept": True}
        assert rows[last]["metadata"] == {"river:rescue_count": 1}
        assert [error["error"] for error in rows[again]["errors"]] == [maintain.RESCUE_ERROR]
        assert rows[again]["finalized_at"] is None
        assert instant(rows[last]["finalized_at"]) > now

    @claim
    async def test_stuck_jobs_are_looked_for_page_by_page(self, table: Table) -> None:
        now = await table.now()
        ids = [await table.add(state="running", attempted_at=now - timedelta(hours=2)) for _ in range(3)]
        await table.add(state="running", attempted_at=now)
        await table.add(state="retryable", attempted_at=now - timedelta(hours=2))
        assert await self._rescue(table, now, after_id=ids[0], limit=1) == [ids[1]]
        assert await self._rescue(table, now, limit=10) == [ids[0], ids[2]]
        assert await self._rescue(table, now) == []

    @claim
    async def test_an_error_of_a_rescue_is_appended_to_those_that_are_there(self, table: Table) -> None:
        now = await table.now()
        odd = ["a text", {"error": 5}]
        job_id = await table.add(state="running", attempted_at=now - timedelta(hours=2), errors=odd)
        assert await self._rescue(table, now) == [job_id]
        errors = (await table.job(job_id))["errors"]
        assert json.loads(json.dumps(errors[:2])) == odd
        assert errors[2]["error"] == maintain.RESCUE_ERROR

    async def _schedule(self, table: Table, limit: int, horizon: timedelta = NO_TIME) -> int:
        return await table.run(maintain.schedule(table.sql, horizon=horizon, limit=limit))

    async def _rescue(self, table: Table, now: datetime, *, after_id: int = 0, limit: int = 100) -> list[int]:
        def retry_at(job: JobRow) -> datetime:
            return now + timedelta(seconds=job.attempt)

        async with table.stage.transaction() as session:
            stuck = await session.run(
                maintain.rescue(
                    table.sql,
                    older_than=timedelta(hours=1),
                    now=now,
                    retry_at=retry_at,
                    after_id=after_id,
                    limit=limit,
                )
            )
        return [job.id for job in stuck]
