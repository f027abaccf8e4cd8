"""Looking at jobs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typing_extensions import Unpack

from ...errors import JobNotFoundError
from ...job import JobState
from ...listing import FoundJobs, JobListing, JobListOptions
from ...operations import jobs
from .playing import claim
from .rows import STATES, Table, instant, key_text

FILTERS: dict[str, tuple[JobListOptions, list[int]]] = {
    "kinds": ({"kinds": ["a", "b"]}, [0, 1, 2]),
    "queues": ({"queues": ["other", "nobody's"]}, [3]),
    "priorities": ({"priorities": [2, 3]}, [1, 2]),
    "states": ({"states": ["completed", JobState.PENDING]}, [2, 3]),
    "all tags": ({"tags_all": ["alpha", "beta"]}, [0]),
    "any tag": ({"tags_any": ["beta", "gamma"]}, [0, 2]),
    "a tag in another case": ({"tags_any": ["ALPHA"]}, [3]),
    "both kinds of tags": ({"tags_all": ["shared"], "tags_any": ["alpha", "gamma"]}, [1, 2]),
    "metadata": ({"metadata": {"customer": {"id": 7}}}, [1]),
    "a condition": (
        {"where": "kind = :kind OR args ->> 'n' = :n", "where_parameters": {"kind": "c", "n": "0"}},
        [0, 3],
    ),
    "a condition with a list": (
        {"where": "kind = ANY(:kinds) AND priority > :least", "where_parameters": {"kinds": ["a", "b"], "least": 1}},
        [1, 2],
    ),
    "a condition with a cast": ({"where": "args @> '{\"n\": 2}'::jsonb AND '12:30' <> '100%'"}, [2]),
    "all of them": (
        {"kinds": ["b"], "queues": ["default"], "priorities": [3], "states": ["completed"], "tags_any": ["gamma"]},
        [2],
    ),
    "none": ({}, [0, 1, 2, 3]),
    "no ids at all": ({"ids": []}, []),
}


class ReadClaims:
    """Jobs, one by one and in lists."""

    @claim
    async def test_a_job_is_read_with_every_column(self, table: Table) -> None:
        now = datetime(2026, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)
        errors = [{"at": "2026-01-01T00:00:00Z", "attempt": n, "error": f"e{n}", "trace": "a\nb"} for n in (1, 2)]
        job_id = await table.add(
            kind="every",
            args={"text": "ü😀"},
            attempt=3,
            attempted_at=now,
            attempted_by=["one", "two"],
            created_at=now - timedelta(days=1),
            errors=errors,
            finalized_at=now + timedelta(microseconds=1),
            max_attempts=6,
            metadata={"a": [1]},
            priority=2,
            queue="queue_name",
            scheduled_at=now - timedelta(hours=1),
            state="completed",
            tags=["one", "two"],
            unique_key=key_text(b"\x00\xff"),
            unique_states="11111111",
        )
        job = await table.run(jobs.get(table.sql, job_id))
        assert (job.id, job.kind, job.attempt, job.max_attempts, job.priority) == (job_id, "every", 3, 6, 2)
        assert json.loads(job.encoded_args) == {"text": "ü😀"}
        assert (job.attempted_at, job.finalized_at) == (now, now + timedelta(microseconds=1))
        assert (job.created_at, job.scheduled_at) == (now - timedelta(days=1), now - timedelta(hours=1))
        assert (job.attempted_by, job.queue, job.state) == (["one", "two"], "queue_name", JobState.COMPLETED)
        assert (job.metadata, job.tags) == ({"a": [1]}, ["one", "two"])
        assert [(error.attempt, error.error, error.trace) for error in job.errors] == [
            (1, "e1", "a\nb"),
            (2, "e2", "a\nb"),
        ]
        assert (job.unique_key, job.unique_states_text) == (b"\x00\xff", "11111111")

    @claim
    async def test_a_job_that_is_not_there_is_not_found(self, table: Table) -> None:
        await table.add()
        with pytest.raises(JobNotFoundError):
            await table.run(jobs.get(table.sql, 0))

    @claim
    async def test_of_several_ids_those_that_are_there_are_listed_by_id(self, table: Table) -> None:
        ids = [await table.add() for _ in range(4)]
        found = await self._list(table, ids=[ids[3], ids[1], 0, ids[1]])
        assert [job.id for job in found.jobs] == [ids[1], ids[3]]

    @pytest.mark.parametrize("name", FILTERS)
    @claim
    async def test_a_list_holds_what_all_its_filters_let_through(self, table: Table, name: str) -> None:
        rows: list[dict[str, Any]] = [
            {"kind": "a", "tags": ["alpha", "beta"]},
            {"kind": "a", "priority": 2, "tags": ["alpha", "shared"], "metadata": {"customer": {"id": 7, "x": 1}}},
            {"kind": "b", "priority": 3, "state": "completed", "tags": ["gamma", "shared"]},
            {"kind": "c", "queue": "other", "state": "pending", "tags": ["ALPHA"]},
        ]
        ids = [await table.add(args={"n": number}, **row) for number, row in enumerate(rows)]
        options, expected = FILTERS[name]
        found = await self._list(table, **options)
        assert [ids.index(job.id) for job in found.jobs] == expected

    @pytest.mark.parametrize("descending", [False, True])
    @claim
    async def test_a_list_goes_on_where_a_page_has_ended(self, table: Table, descending: bool) -> None:
        now = await table.now()
        ids = [await table.add(scheduled_at=now + timedelta(minutes=number // 2)) for number in range(5)]
        options: JobListOptions = {"order_by": "scheduled_at", "descending": descending, "first": 2}
        listing = JobListing.of(options)
        seen: list[int] = []
        for _ in range(4):
            found = await table.run(jobs.page(table.sql, listing))
            seen += [job.id for job in found.jobs]
            if found.jobs:
                listing = listing.going_on(str(listing.cursor_of(found.jobs[-1])))
        assert seen == (ids[::-1] if descending else ids)

    @claim
    async def test_a_list_by_time_takes_the_time_of_its_first_state(self, table: Table) -> None:
        now = await table.now()
        late = await table.add(state="completed", finalized_at=now)
        early = await table.add(state="completed", finalized_at=now - timedelta(hours=1))
        found = await self._list(table, states=["completed"], order_by="time")
        assert [job.id for job in found.jobs] == [early, late]

    @claim
    async def test_a_job_of_every_state_is_read(self, table: Table) -> None:
        ids = {state: await table.add(state=state) for state in STATES}
        for state, job_id in ids.items():
            assert (await table.run(jobs.get(table.sql, job_id))).state.value == state
        found = await self._list(table)
        assert [job.state.value for job in found.jobs] == STATES

    @claim
    async def test_times_are_read_to_the_microsecond_and_in_utc(self, table: Table) -> None:
        at = datetime(2026, 7, 1, 12, 0, 0, 123_457, tzinfo=UTC)
        job_id = await table.add(scheduled_at=at)
        job = await table.run(jobs.get(table.sql, job_id))
        assert (job.scheduled_at, job.scheduled_at.tzinfo) == (at, UTC)
        assert instant((await table.job(job_id))["scheduled_at"]) == at

    @claim
    async def test_a_value_that_cannot_be_read_spoils_its_own_job_only(self, table: Table) -> None:
        good, bad = await table.add(), await table.add(metadata=[1])
        found = await self._list(table)
        assert [job.id for job in found.jobs] == [good, bad]
        assert list(found.undecodable) == [bad]

    async def _list(self, table: Table, **options: Unpack[JobListOptions]) -> FoundJobs:
        return await table.run(jobs.page(table.sql, JobListing.of(options)))
