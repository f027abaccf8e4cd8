"""Changing jobs that nobody works: cancel, retry, update."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from ...errors import ErrorClass, JobNotFoundError, UniqueConflictError
from ...job import JobState
from ...listing import rfc3339
from ...operations import jobs
from .playing import claim
from .rows import FINAL, LIVING, STATES, Table, changed, instant, key_text
from .stage import gathered

NOW = datetime(2026, 3, 4, 5, 6, 7, 120_000, tzinfo=UTC)
SOON = timedelta(seconds=5)


class ManageClaims:
    """Cancel, retry, update."""

    @pytest.mark.parametrize("state", [state for state in LIVING if state != "running"])
    @claim
    async def test_a_job_that_waits_is_cancelled_at_once(self, table: Table, state: str) -> None:
        job_id = await table.add(state=state, metadata={"kept": 1})
        before = await table.job(job_id)
        job = await table.run(jobs.cancel(table.sql, job_id, NOW))
        after = changed(before, await table.job(job_id))
        assert job.state is JobState.CANCELLED
        assert abs(instant(after.pop("finalized_at")) - await table.now()) < SOON
        assert after == {"state": "cancelled", "metadata": {"kept": 1, "cancel_attempted_at": rfc3339(NOW)}}

    @claim
    async def test_a_job_that_runs_is_asked_to_end(self, table: Table) -> None:
        job_id = await table.add(state="running", unique_key=key_text(b"k"), unique_states="11111111")
        before = await table.job(job_id)
        job = await table.run(jobs.cancel(table.sql, job_id, NOW))
        assert (job.state, job.finalized_at) == (JobState.RUNNING, None)
        assert changed(before, await table.job(job_id)) == {"metadata": {"cancel_attempted_at": rfc3339(NOW)}}

    @pytest.mark.parametrize("state", FINAL)
    @claim
    async def test_a_job_that_has_ended_is_not_cancelled(self, table: Table, state: str) -> None:
        job_id = await table.add(state=state)
        before = await table.job(job_id)
        assert (await table.run(jobs.cancel(table.sql, job_id, NOW))).state.value == state
        assert await table.job(job_id) == before

    @claim
    async def test_clients_are_told_of_a_cancellation(self, table: Table) -> None:
        channel = f"{table.stage.schema}.river_control"
        async with table.stage.listening(channel) as ears:
            job_id, ended = await table.add(state="running", queue="q"), await table.add(state="completed")
            await table.run(jobs.cancel(table.sql, ended, NOW))
            await table.run(jobs.cancel(table.sql, job_id, NOW))
            (heard,) = await gathered(ears, lambda heard: len(heard) >= 1)
        assert json.loads(heard.payload) == {"action": "cancel", "job_id": job_id, "queue": "q"}

    @claim
    async def test_a_job_that_is_not_there_is_neither_cancelled_nor_retried_nor_updated(self, table: Table) -> None:
        for operation in (
            jobs.cancel(table.sql, 0, NOW),
            jobs.retry(table.sql, 0),
            jobs.update(table.sql, 0, "{}"),
            jobs.update(table.sql, 0, None),
        ):
            with pytest.raises(JobNotFoundError):
                await table.run(operation)

    @pytest.mark.parametrize("state", [state for state in STATES if state != "running"])
    @claim
    async def test_a_job_is_made_available_now(self, table: Table, state: str) -> None:
        job_id = await table.add(state=state, scheduled_at=await table.now() + timedelta(hours=1), attempt=1)
        before = await table.job(job_id)
        job = await table.run(jobs.retry(table.sql, job_id))
        after = await table.job(job_id)
        assert (job.state, job.finalized_at) == (JobState.AVAILABLE, None)
        assert abs(instant(after["scheduled_at"]) - await table.now()) < SOON
        assert set(changed(before, after)) <= {"state", "scheduled_at", "finalized_at"}
        assert (after["state"], after["finalized_at"]) == ("available", None)

    @claim
    async def test_a_job_that_ended_long_ago_does_not_jump_the_queue(self, table: Table) -> None:
        job_id = await table.add(state="completed", scheduled_at=await table.now() - timedelta(hours=1))
        await table.run(jobs.retry(table.sql, job_id))
        assert abs(instant((await table.job(job_id))["scheduled_at"]) - await table.now()) < SOON

    @claim
    async def test_a_job_that_runs_or_is_due_already_is_left_as_it_is(self, table: Table) -> None:
        long_ago = await table.now() - timedelta(hours=1)
        for state in ("running", "available"):
            job_id = await table.add(state=state, scheduled_at=long_ago)
            before = await table.job(job_id)
            assert (await table.run(jobs.retry(table.sql, job_id))).state.value == state
            assert await table.job(job_id) == before

    @claim
    async def test_a_job_that_has_used_its_attempts_gets_another_one(self, table: Table) -> None:
        job_id = await table.add(state="discarded", attempt=3, max_attempts=3)
        job = await table.run(jobs.retry(table.sql, job_id))
        assert (job.attempt, job.max_attempts) == (3, 4)

    @claim
    async def test_a_job_that_was_cancelled_is_worked_again_after_a_retry(self, table: Table) -> None:
        job_id = await table.add(metadata={"kept": 1})
        await table.run(jobs.cancel(table.sql, job_id, NOW))
        # What asked for its end must not end the next attempt.
        assert (await table.run(jobs.retry(table.sql, job_id))).metadata == {"kept": 1}

    @claim
    async def test_a_job_whose_unique_key_was_taken_is_not_retried_and_the_error_names_it(self, table: Table) -> None:
        job_id = await table.add(state="discarded", unique_key=key_text(b"k"), unique_states="00000001")
        await table.add(unique_key=key_text(b"k"), unique_states="00000001")
        before = await table.job(job_id)
        with pytest.raises(UniqueConflictError) as refused:
            await table.run(jobs.retry(table.sql, job_id))
        error = refused.value
        assert (error.job_id, error.error_class) == (job_id, ErrorClass.UNIQUE_VIOLATION)
        assert error.constraint == "river_job_unique_idx"
        assert await table.job(job_id) == before

    @claim
    async def test_metadata_is_merged_into_a_jobs(self, table: Table) -> None:
        job_id = await table.add(state="running", metadata={"kept": 1, "changed": 1})
        before = await table.job(job_id)
        job = await table.run(jobs.update(table.sql, job_id, '{"changed": "ü :x", "new": [1]}'))
        merged = {"kept": 1, "changed": "ü :x", "new": [1]}
        assert job.metadata == merged
        assert changed(before, await table.job(job_id)) == {"metadata": merged}

    @claim
    async def test_an_update_of_nothing_returns_the_job_and_changes_nothing(self, table: Table) -> None:
        job_id = await table.add(metadata={"kept": 1})
        before = await table.job(job_id)
        assert (await table.run(jobs.update(table.sql, job_id, None))).id == job_id
        assert await table.job(job_id) == before
