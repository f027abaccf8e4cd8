"""Ending attempts: completed, failed, snoozed, cancelled; and the fence that keeps a late end from doing harm."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ...engine.transition import Persisted, Transition
from ...errors import JobNotFoundError, JobNotRunningError
from ...job import JobState
from ...operations import work
from .playing import claim
from .rows import STATES, Table, changed, instant, key_text

SOON = timedelta(seconds=5)
ANOTHER_CLAIM = "2020-01-01T00:00:00+00:00"
ERROR = {"at": "2026-01-01T00:00:00.000001Z", "attempt": 1, "error": "went wrong", "trace": "line 1\nline 2"}


class EndClaims:
    """The ends of attempts."""

    @claim
    async def test_one_job_is_completed_by_its_claim(self, table: Table) -> None:
        job_id, fence = await self._running(table)
        before = await table.job(job_id)
        job = await table.run(work.complete(table.sql, job_id, fence))
        after = changed(before, await table.job(job_id))
        assert (job.state, job.finalized_at) == (JobState.COMPLETED, instant(after.pop("finalized_at")))
        assert after == {"state": "completed"}
        assert job.finalized_at is not None
        assert abs(job.finalized_at - await table.now()) < SOON

    @claim
    async def test_a_claim_that_is_over_completes_nothing(self, table: Table) -> None:
        job_id, fence = await self._running(table)
        before = await table.job(job_id)
        with pytest.raises(JobNotRunningError):
            await table.run(work.complete(table.sql, job_id, ANOTHER_CLAIM))
        claims = [(job_id, ANOTHER_CLAIM)]
        assert await table.run(table.sql.job_complete_many(claims)) == {job_id: Persisted.LOST}
        assert await table.job(job_id) == before
        await table.run(work.complete(table.sql, job_id, fence))
        with pytest.raises(JobNotRunningError):
            await table.run(work.complete(table.sql, job_id, fence))

    @pytest.mark.parametrize("state", [state for state in STATES if state != "running"])
    @claim
    async def test_a_job_that_does_not_run_stays_as_it_is(self, table: Table, state: str) -> None:
        job_id = await table.add(state=state, attempted_at="now", attempt=1)
        before = await table.job(job_id)
        fence = before["attempted_at"]
        with pytest.raises(JobNotRunningError, match=state):
            await table.run(work.complete(table.sql, job_id, fence))
        for transition in (
            self._end(job_id, fence, "completed"),
            self._end(job_id, fence, "completed", metadata={"a": 1}),
            self._end(job_id, fence, "retryable", error=ERROR, delay_seconds=1.0),
        ):
            assert await table.run(work.finish(table.sql, [transition])) == {job_id: Persisted.LOST}
        assert await table.job(job_id) == before

    @claim
    async def test_a_job_that_is_not_there_is_not_found_and_in_a_batch_left_out(self, table: Table) -> None:
        with pytest.raises(JobNotFoundError):
            await table.run(work.complete(table.sql, 0, ANOTHER_CLAIM))
        for transition in (self._end(0, ANOTHER_CLAIM, "completed"), self._end(0, ANOTHER_CLAIM, "discarded")):
            assert await table.run(work.finish(table.sql, [transition])) == {0: Persisted.LOST}

    @claim
    async def test_many_jobs_are_completed_at_once(self, table: Table) -> None:
        claims = [await self._running(table) for _ in range(20)]
        ends = [self._end(job_id, fence, "completed") for job_id, fence in claims]
        assert await table.run(work.finish(table.sql, ends)) == {}
        assert set((await table.states()).values()) == {"completed"}

    @claim
    async def test_metadata_of_an_end_is_merged_into_the_jobs(self, table: Table) -> None:
        job_id, fence = await self._running(table, metadata={"kept": 1, "changed": {"deep": 1}})
        end = self._end(job_id, fence, "completed", metadata={"changed": {"other": 2}, "new": "ü :x %s"})
        assert await table.run(work.finish(table.sql, [end])) == {}
        row = await table.job(job_id)
        assert row["metadata"] == {"kept": 1, "changed": {"other": 2}, "new": "ü :x %s"}
        assert row["state"] == "completed"

    @claim
    async def test_a_failed_attempt_is_recorded_and_due_again(self, table: Table) -> None:
        job_id, fence = await self._running(table, unique_key=key_text(b"k"), unique_states="11111111")
        for number in (1, 2):
            end = self._end(job_id, fence, "retryable", error=ERROR | {"attempt": number}, delay_seconds=3600.0)
            assert await table.run(work.finish(table.sql, [end])) == {}
            row = await table.job(job_id)
            assert (row["state"], row["attempt"], row["finalized_at"]) == ("retryable", 1, None)
            assert row["errors"] == [ERROR | {"attempt": each} for each in range(1, number + 1)]
            assert row["unique_key"] == key_text(b"k")
            assert abs(instant(row["scheduled_at"]) - await table.now() - timedelta(hours=1)) < SOON
            await table.stage.ask(f"UPDATE {table.stage.at('river_job')} SET state = 'running'")

    @claim
    async def test_an_interrupted_attempt_is_available_again_and_gives_its_number_back(self, table: Table) -> None:
        job_id, fence = await self._running(table, attempt=3, max_attempts=3)
        end = self._end(job_id, fence, "available", attempt=2, delay_seconds=0.0)
        assert await table.run(work.finish(table.sql, [end])) == {}
        row = await table.job(job_id)
        assert (row["state"], row["attempt"], row["max_attempts"], row["errors"]) == ("available", 2, 3, None)
        assert abs(instant(row["scheduled_at"]) - await table.now()) < SOON

    @claim
    async def test_a_snoozed_job_is_scheduled_and_gives_its_number_back(self, table: Table) -> None:
        job_id, fence = await self._running(table, attempt=5, metadata={"snoozes": 5, "kept": True})
        end = self._end(job_id, fence, "scheduled", attempt=4, delay_seconds=30.0, metadata={"snoozes": 6})
        assert await table.run(work.finish(table.sql, [end])) == {}
        row = await table.job(job_id)
        assert (row["state"], row["attempt"], row["metadata"]) == ("scheduled", 4, {"snoozes": 6, "kept": True})
        assert abs(instant(row["scheduled_at"]) - await table.now() - timedelta(seconds=30)) < SOON

    @pytest.mark.parametrize("state", ["cancelled", "discarded"])
    @claim
    async def test_a_job_may_be_given_up(self, table: Table, state: str) -> None:
        job_id, fence = await self._running(table, unique_key=key_text(b"k"), unique_states="11111111")
        before = await table.job(job_id)
        assert await table.run(work.finish(table.sql, [self._end(job_id, fence, state, error=ERROR)])) == {}
        after = changed(before, await table.job(job_id))
        assert abs(instant(after.pop("finalized_at")) - await table.now()) < SOON
        assert after == {"state": state, "errors": [ERROR]}

    @pytest.mark.parametrize("state", ["available", "retryable", "scheduled"])
    @claim
    async def test_a_job_whose_cancellation_was_asked_for_is_not_tried_again(self, table: Table, state: str) -> None:
        asked = {"cancel_attempted_at": "2026-01-01T00:00:00Z"}
        job_id, fence = await self._running(table, attempt=2, metadata=asked)
        before = await table.job(job_id)
        end = self._end(job_id, fence, state, error=ERROR, attempt=1, delay_seconds=60.0)
        assert await table.run(work.finish(table.sql, [end])) == {job_id: Persisted.CANCELLED}
        after = changed(before, await table.job(job_id))
        assert abs(instant(after.pop("finalized_at")) - await table.now()) < SOON
        assert after == {"state": "cancelled", "errors": [ERROR]}

    @claim
    async def test_ends_of_every_kind_go_in_one_batch(self, table: Table) -> None:
        claims = [await self._running(table) for _ in range(5)]
        (done, noted, failed, gone, late) = claims
        ends = [
            self._end(*late[:1], ANOTHER_CLAIM, "completed"),
            self._end(0, ANOTHER_CLAIM, "discarded"),
            self._end(*done, "completed"),
            self._end(*noted, "completed", metadata={"a": 1}),
            self._end(*failed, "retryable", error=ERROR, delay_seconds=9.0),
            self._end(*gone, "cancelled", error=ERROR),
        ]
        assert await table.run(work.finish(table.sql, ends)) == {late[0]: Persisted.LOST, 0: Persisted.LOST}
        assert list((await table.states()).values()) == ["completed", "completed", "retryable", "cancelled", "running"]

    @claim
    async def test_a_row_that_somebody_holds_is_skipped_and_does_not_stop_the_others(self, table: Table) -> None:
        held, free = [await self._running(table) for _ in range(2)]
        for plain in (True, False):
            metadata = None if plain else {"a": 1}
            ends = [self._end(*each, "completed", metadata=metadata) for each in (held, free)]
            async with table.stage.transaction() as session:
                locking = f"SELECT id FROM {table.stage.at('river_job')} WHERE id = CAST(:id AS bigint) FOR UPDATE"
                await session.ask(locking, id=held[0])
                persisted = await table.run(work.finish(table.sql, ends))
            assert persisted == {held[0]: Persisted.BUSY} | ({} if plain else {free[0]: Persisted.LOST})
        assert await table.states() == {held[0]: "running", free[0]: "completed"}
        assert await table.run(work.finish(table.sql, [self._end(*held, "completed")])) == {}

    async def _running(self, table: Table, **columns: Any) -> tuple[int, str]:
        """A running job, and its fence."""
        job_id = await table.add(state="running", **columns)
        return job_id, (await table.job(job_id))["attempted_at"]

    def _end(self, job_id: int, fence: str, state: str, **fields: Any) -> Transition:
        return Transition(job_id=job_id, attempted_at=fence, state=JobState(state), **fields)
