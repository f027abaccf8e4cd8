"""Deleting jobs."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import Unpack

from ...errors import JobNotFoundError, JobRunningError
from ...listing import JobDeleteOptions, JobDeletion
from ...operations import jobs
from .playing import claim
from .rows import STATES, Table


class DeleteClaims:
    """One job, and many."""

    @pytest.mark.parametrize("state", [state for state in STATES if state != "running"])
    @claim
    async def test_a_job_that_does_not_run_is_deleted_and_returned_as_it_was(self, table: Table, state: str) -> None:
        job_id, other = await table.add(state=state, args={"n": 1}), await table.add()
        job = await table.run(jobs.delete(table.sql, job_id))
        assert (job.id, job.state.value, job.encoded_args) == (job_id, state, '{"n": 1}')
        assert list(await table.states()) == [other]
        with pytest.raises(JobNotFoundError):
            await table.run(jobs.delete(table.sql, job_id))

    @claim
    async def test_a_job_that_runs_is_not_deleted(self, table: Table) -> None:
        job_id = await table.add(state="running")
        before = await table.job(job_id)
        with pytest.raises(JobRunningError):
            await table.run(jobs.delete(table.sql, job_id))
        assert await table.job(job_id) == before

    @claim
    async def test_many_jobs_are_deleted_by_id_and_as_many_as_were_asked_for(self, table: Table) -> None:
        ids = [await table.add() for _ in range(5)]
        assert await self._deleted(table, all_jobs=True, first=2) == ids[:2]
        assert await self._deleted(table, all_jobs=True) == ids[2:]
        assert await self._deleted(table, all_jobs=True) == []

    @claim
    async def test_what_is_deleted_passes_all_filters(self, table: Table) -> None:
        rows: list[dict[str, Any]] = [
            {"kind": "a"},
            {"kind": "b", "queue": "other"},
            {"kind": "b", "priority": 3},
            {"kind": "b", "state": "completed", "priority": 3},
        ]
        ids = [await table.add(**row) for row in rows]
        assert await self._deleted(table, kinds=["b"], priorities=[3], states=["completed"]) == [ids[3]]
        assert await self._deleted(table, queues=["other"], ids=ids) == [ids[1]]
        assert await self._deleted(table, ids=[ids[0], 0]) == [ids[0]]
        assert list(await table.states()) == [ids[2]]

    @claim
    async def test_jobs_that_run_or_that_somebody_holds_are_passed_over(self, table: Table) -> None:
        running, held, free = await table.add(state="running"), await table.add(), await table.add()
        async with table.stage.transaction() as session:
            locking = f"SELECT id FROM {table.stage.at('river_job')} WHERE id = CAST(:id AS bigint) FOR UPDATE"
            await session.ask(locking, id=held)
            assert await self._deleted(table, all_jobs=True) == [free]
        assert list(await table.states()) == [running, held]

    async def _deleted(self, table: Table, **options: Unpack[JobDeleteOptions]) -> list[int]:
        return [job.id for job in await table.run(jobs.delete_many(table.sql, JobDeletion.of(options)))]
