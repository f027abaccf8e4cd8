"""Taking jobs in order to work them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

import pytest

from ...job import JobRow, UndecodableJob
from ...operations import work
from .playing import claim
from .rows import CLIENT, STATES, Table, instant
from .stage import Session


class ClaimClaims:
    """Claims."""

    @claim
    async def test_a_due_job_is_claimed_and_its_row_says_by_whom(self, table: Table) -> None:
        job_id = await table.add(args={"n": 1})
        (job,) = await self._claim(table)
        assert isinstance(job, JobRow)
        row = await table.job(job_id)
        assert (job.id, job.attempt, job.attempted_by, job.state.value) == (job_id, 1, [CLIENT], "running")
        assert (row["attempt"], row["attempted_by"], row["state"]) == (1, [CLIENT], "running")
        assert job.attempted_at == instant(row["attempted_at"])
        assert abs(instant(row["attempted_at"]) - await table.now()) < timedelta(seconds=5)
        assert await self._claim(table) == []

    @claim
    async def test_no_more_are_claimed_than_were_asked_for(self, table: Table) -> None:
        for _ in range(5):
            await table.add()
        assert [len(await self._claim(table, limit=limit)) for limit in (1, 2, 10, 1)] == [1, 2, 2, 0]

    @claim
    async def test_jobs_of_other_queues_stay_where_they_are(self, table: Table) -> None:
        other = await table.add(queue="other")
        assert await self._claim(table) == []
        assert await table.states() == {other: "available"}
        assert [self._id(job) for job in await self._claim(table, queue="other")] == [other]

    @pytest.mark.parametrize("state", [state for state in STATES if state != "available"])
    @claim
    async def test_jobs_in_other_states_stay_where_they_are(self, table: Table, state: str) -> None:
        job_id = await table.add(state=state)
        before = await table.job(job_id)
        assert await self._claim(table) == []
        assert await table.job(job_id) == before

    @claim
    async def test_a_job_is_not_claimed_before_its_time(self, table: Table) -> None:
        now = await table.now()
        future = await table.add(scheduled_at=now + timedelta(minutes=1))
        past = await table.add(scheduled_at=now - timedelta(microseconds=1))
        assert [self._id(job) for job in await self._claim(table)] == [past]
        assert (await table.states())[future] == "available"
        due_in = await table.run(table.sql.job_due_in("default"))
        assert due_in is not None
        assert 50_000 < due_in <= 60_000

    @claim
    async def test_claims_go_by_priority_then_by_time_then_by_id(self, table: Table) -> None:
        now = await table.now()
        third = await table.add(priority=3, scheduled_at=now - timedelta(hours=9))
        late = await table.add(priority=2, scheduled_at=now - timedelta(hours=1))
        early, early_too = [await table.add(priority=2, scheduled_at=now - timedelta(hours=2)) for _ in range(2)]
        first = await table.add(priority=1, scheduled_at=now)
        claimed = [self._id(job) for _ in range(3) for job in await self._claim(table, limit=2)]
        assert claimed == [first, early, early_too, late, third]

    @claim
    async def test_only_known_kinds_are_claimed_if_that_is_asked_for(self, table: Table) -> None:
        ids = {kind: await table.add(kind=kind) for kind in ("known", "unknown", "it's :odd %s")}
        claimed = await self._claim(table, kinds=["known", "it's :odd %s", "nobody's"])
        assert {self._id(job) for job in claimed} == {ids["known"], ids["it's :odd %s"]}
        row = await table.job(ids["unknown"])
        assert (row["state"], row["attempt"]) == ("available", 0)
        assert await self._claim(table, kinds=[]) == []

    @pytest.mark.parametrize("before", [0, 1, 99, 100, 101])
    @claim
    async def test_of_those_who_have_tried_the_last_hundred_are_kept(self, table: Table, before: int) -> None:
        clients = [f"client {number}" for number in range(before)]
        job_id = await table.add(attempt=1, attempted_by=clients)
        await self._claim(table)
        assert (await table.job(job_id))["attempted_by"] == [*clients, CLIENT][-100:]

    @claim
    async def test_two_that_claim_at_the_same_time_get_different_jobs_and_do_not_wait(self, table: Table) -> None:
        ids = [await table.add() for _ in range(4)]
        async with table.stage.transaction() as first, table.stage.transaction() as second:
            of_first = await self._claim_on(first, table, limit=2)
            of_second = await self._claim_on(second, table, limit=5)
        assert [self._id(job) for job in (*of_first, *of_second)] == ids

    @claim
    async def test_a_claim_is_undone_by_a_rollback(self, table: Table) -> None:
        job_id = await table.add()
        before = await table.job(job_id)
        with pytest.raises(ZeroDivisionError):
            async with table.stage.transaction() as session:
                await self._claim_on(session, table)
                raise ZeroDivisionError
        assert await table.job(job_id) == before

    @claim
    async def test_a_row_that_cannot_be_read_does_not_strand_those_that_are_claimed_with_it(self, table: Table) -> None:
        good, bad = await table.add(), await table.add(metadata=[1])
        claimed = await self._claim(table)
        assert [self._id(job) for job in claimed] == [good, bad]
        assert isinstance(claimed[1], UndecodableJob)
        assert "metadata" in claimed[1].reason

    @claim
    async def test_what_was_claimed_without_knowing_is_given_back(self, table: Table) -> None:
        since = (await table.run(table.sql.greeting())).now
        ids = [await table.add() for _ in range(3)]
        await self._claim(table)
        elsewhere = await table.add(state="running", attempted_by=["another-client"])
        given = await table.run(work.give_back(table.sql, "default", client_id=CLIENT, since=since, in_hand=[ids[0]]))
        assert sorted(given) == ids[1:]
        assert await table.states() == {
            ids[0]: "running",
            ids[1]: "available",
            ids[2]: "available",
            elsewhere: "running",
        }
        assert (await table.job(ids[1]))["attempt"] == 0

    @claim
    async def test_running_claims_are_asked_whether_they_are_to_be_cancelled(self, table: Table) -> None:
        asked = await table.add(state="running", metadata={"cancel_attempted_at": "2026-01-01T00:00:00Z"})
        quiet = await table.add(state="running")
        claims = [(job_id, (await table.job(job_id))["attempted_at"]) for job_id in (asked, quiet)]
        assert await table.run(table.sql.job_cancellations(claims)) == {asked: "2026-01-01T00:00:00Z"}
        assert await table.run(table.sql.job_cancellations([(asked, "2020-01-01T00:00:00Z")])) == {}

    async def _claim(
        self, table: Table, *, queue: str = "default", limit: int = 10, kinds: Collection[str] | None = None
    ) -> list[JobRow | UndecodableJob]:
        return await table.run(work.claim(table.sql, queue, client_id=CLIENT, limit=limit, kinds=kinds))

    async def _claim_on(self, session: Session, table: Table, limit: int = 10) -> list[JobRow | UndecodableJob]:
        return await session.run(work.claim(table.sql, "default", client_id=CLIENT, limit=limit))

    def _id(self, job: JobRow | UndecodableJob) -> int:
        return job.id if isinstance(job, JobRow) else job.row.id
