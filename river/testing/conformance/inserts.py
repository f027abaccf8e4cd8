"""Inserting jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ...driver import Notification
from ...errors import DatabaseError, ErrorClass, InvalidJobError
from ...insert import InsertParams
from ...job import JobState
from ...operations import insert
from .playing import claim
from .rows import ALL_STATES, FINAL, STATES, Table, in_order, instant, key_text, new_job
from .stage import gathered

HOW = ("insert_many", "insert_many_fast")
SOON = timedelta(seconds=5)

ARGS: dict[str, Any] = {
    "everything": {
        "text": "Grüße 😀 ' \" \\ \n %s :x $1 {} \x01 \u2028",
        "number": 1.5,
        "large": 2**63,
        "nothing": None,
        "flags": [True, False],
        "nested": {"list": [[], {}, [{"a": [1]}]]},
        "": "no name",
    },
    "a list": [1, "two", None],
    "a text": "text",
}


class InsertClaims:
    """New jobs."""

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_jobs_are_inserted_as_they_are_in_the_order_of_the_batch(self, table: Table, how: str) -> None:
        now = datetime.now(UTC)
        batch = [
            new_job(
                kind=f"kind_{number}",
                args={"number": number},
                queue=f"queue_{number}",
                priority=1 + number % 4,
                max_attempts=number + 1,
                scheduled_at=now + timedelta(hours=number, microseconds=number),
                tags=[f"tag-{number}", "all"],
                metadata={"number": number},
                unique_key=bytes([number]) * 32,
                unique_states=ALL_STATES,
            )
            for number in range(10)
        ]
        assert await self._insert(table, how, batch) == 10
        rows = await table.jobs()
        assert in_order(rows, "kind") == [f"kind_{number}" for number in range(10)]
        for number, (row, job) in enumerate(zip(rows, batch, strict=True)):
            assert instant(row.pop("scheduled_at")) == job.scheduled_at
            assert abs(instant(row.pop("created_at")) - await table.now()) < SOON
            assert row.pop("id") > 0
            assert row == {
                "args": {"number": number},
                "attempt": 0,
                "attempted_at": None,
                "attempted_by": None,
                "errors": None,
                "finalized_at": None,
                "kind": f"kind_{number}",
                "max_attempts": number + 1,
                "metadata": {"number": number},
                "priority": 1 + number % 4,
                "queue": f"queue_{number}",
                "state": "scheduled",
                "tags": [f"tag-{number}", "all"],
                "unique_key": key_text(bytes([number]) * 32),
                "unique_states": "11111111",
            }

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_what_is_left_out_is_null_or_the_present_time(self, table: Table, how: str) -> None:
        assert await self._insert(table, how, [new_job()]) == 1
        (row,) = await table.jobs()
        nulls = ("attempted_at", "attempted_by", "errors", "finalized_at", "unique_key", "unique_states")
        assert [row[name] for name in nulls] == [None] * len(nulls)
        assert (row["attempt"], row["state"], row["tags"], row["metadata"]) == (0, "available", [], {})
        assert row["created_at"] == row["scheduled_at"]
        assert abs(instant(row["created_at"]) - await table.now()) < SOON

    @pytest.mark.parametrize("unique", [False, True])
    @claim
    async def test_the_rows_that_an_insert_returns_are_those_that_are_stored(self, table: Table, unique: bool) -> None:
        batch = [new_job(args={"n": number}) for number in range(3)]
        for number, params in enumerate(batch if unique else []):
            params.unique_key, params.unique_states = bytes([number]), 5
        inserted = await table.run(insert.insert_many(table.sql, batch))
        assert [duplicate for _, duplicate in inserted] == [False] * 3
        for (job, _), row in zip(inserted, await table.jobs(), strict=True):
            assert (job.id, job.state, job.kind) == (row["id"], JobState.AVAILABLE, row["kind"])
            assert json.loads(job.encoded_args) == row["args"]
            assert job.created_at == instant(row["created_at"])
            assert job.scheduled_at == instant(row["scheduled_at"])
            assert (None if job.unique_key is None else key_text(job.unique_key)) == row["unique_key"]

    @pytest.mark.parametrize("name", ARGS)
    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_args_and_metadata_of_any_json_are_stored_as_they_are(
        self, table: Table, how: str, name: str
    ) -> None:
        job = new_job(args=ARGS[name], metadata={"value": ARGS[name]})
        assert await self._insert(table, how, [job]) == 1
        (row,) = await table.jobs()
        assert (row["args"], row["metadata"]) == (ARGS[name], {"value": ARGS[name]})

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_many_jobs_go_in_at_once(self, table: Table, how: str) -> None:
        batch = [new_job(args={"n": number, "text": "x" * 500}) for number in range(1_500)]
        assert await self._insert(table, how, batch) == 1_500
        assert [row["args"]["n"] for row in await table.jobs()] == list(range(1_500))

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_a_large_job_goes_in(self, table: Table, how: str) -> None:
        text = "ü" * (1 << 20)
        assert await self._insert(table, how, [new_job(args={"text": text})]) == 1
        assert (await table.jobs())[0]["args"] == {"text": text}

    @claim
    async def test_a_delay_counts_from_now_by_the_servers_clock(self, table: Table) -> None:
        before = await table.now()
        ((job, _),) = await table.run(insert.insert_many(table.sql, [new_job(delay_seconds=3600.0)]))
        assert before + timedelta(hours=1) <= job.scheduled_at <= await table.now() + timedelta(hours=1)
        assert job.state is JobState.SCHEDULED

    @claim
    async def test_a_job_may_be_parked(self, table: Table) -> None:
        ((job, _),) = await table.run(insert.insert_many(table.sql, [new_job(pending=True)]))
        assert job.state is JobState.PENDING

    @claim
    async def test_of_a_unique_key_that_is_there_the_insert_returns_the_job_that_has_it(self, table: Table) -> None:
        first = new_job(unique_key=b"key", unique_states=ALL_STATES)
        second = new_job(kind="other", args={"n": 2}, unique_key=b"key", unique_states=ALL_STATES)
        ((job, duplicate),) = await table.run(insert.insert_many(table.sql, [first]))
        assert not duplicate
        before = await table.jobs()
        (again, new) = await table.run(insert.insert_many(table.sql, [second, new_job(kind="new")]))
        assert (again[0].id, again[1], again[0].kind) == (job.id, True, "note")
        assert (new[0].id != job.id, new[1], new[0].kind) == (True, False, "new")
        assert (await table.jobs())[:1] == before

    @claim
    async def test_a_fast_insert_leaves_out_what_is_there_and_says_how_many_are_new(self, table: Table) -> None:
        unique = new_job(unique_key=b"key", unique_states=ALL_STATES)
        assert await table.run(insert.insert_many_fast(table.sql, [unique])) == 1
        assert await table.run(insert.insert_many_fast(table.sql, [unique])) == 0
        assert await table.run(insert.insert_many_fast(table.sql, [unique, new_job(), new_job()])) == 2
        assert len(await table.jobs()) == 3

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_a_unique_key_is_any_bytes(self, table: Table, how: str) -> None:
        keys = [b"\x00\x01\x02", bytes(range(256))[224:], b"\xff\xfe%s:\\'" + bytes(20)]
        await self._insert(table, how, [new_job(unique_key=key, unique_states=ALL_STATES) for key in keys])
        assert in_order(await table.jobs(), "unique_key") == [key_text(key) for key in keys]

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_a_unique_key_holds_in_its_states_only(self, table: Table, how: str) -> None:
        # That of available is the lowest bit, that of completed the third.
        await table.add(state="completed", unique_key=key_text(b"k"), unique_states="00000001")
        job = new_job(unique_key=b"k", unique_states=0b101)
        assert await self._insert(table, how, [job]) == 1
        assert in_order(await table.jobs(), "unique_states") == ["00000001", "00000101"]
        assert await self._insert(table, how, [job]) == 0

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_one_key_twice_in_a_batch_is_refused_and_nothing_is_written(self, table: Table, how: str) -> None:
        job = new_job(unique_key=b"key", unique_states=ALL_STATES)
        with pytest.raises(InvalidJobError):
            await self._insert(table, how, [job, new_job(), job])
        assert await table.jobs() == []

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_an_insert_is_rolled_back_with_its_transaction(self, table: Table, how: str) -> None:
        with pytest.raises(ZeroDivisionError):
            async with table.stage.transaction() as session:
                if how == "insert_many":
                    await session.run(insert.insert_many(table.sql, [new_job()]))
                else:
                    await session.run(insert.insert_many_fast(table.sql, [new_job()]))
                raise ZeroDivisionError
        assert await table.jobs() == []

    @pytest.mark.parametrize("how", HOW)
    @claim
    async def test_listeners_are_told_once_of_each_queue_in_which_a_job_is_due(self, table: Table, how: str) -> None:
        channel = f"{table.stage.schema}.river_insert"
        async with table.stage.listening(channel) as ears:
            later = datetime.now(UTC) + timedelta(hours=1)
            batch = [new_job(queue="a"), new_job(queue="a"), new_job(queue="b", scheduled_at=later), new_job(queue="c")]
            await self._insert(table, how, batch, muted=["c"])
            await table.stage.notify(channel, "last")
            heard = await gathered(ears, lambda heard: bool(heard) and heard[-1].payload == "last")
        assert heard == [Notification(channel, '{"queue": "a"}'), Notification(channel, "last")]

    @pytest.mark.parametrize("state", STATES)
    @claim
    async def test_a_job_has_a_time_of_its_end_if_and_only_if_it_has_ended(self, table: Table, state: str) -> None:
        good, bad = ("now", None) if state in FINAL else (None, "now")
        job_id = await table.add(state=state, finalized_at=good)
        with pytest.raises(DatabaseError) as refused:
            await table.add(state=state, finalized_at=bad)
        error = refused.value
        assert (error.error_class, error.sqlstate, error.constraint) == (
            ErrorClass.OTHER,
            "23514",
            "finalized_or_finalized_at_null",
        )
        assert list(await table.states()) == [job_id]

    async def _insert(self, table: Table, how: str, batch: Sequence[InsertParams], muted: Sequence[str] = ()) -> int:
        """Insert jobs one way or the other; how many are new."""
        if how == "insert_many_fast":
            return await table.run(insert.insert_many_fast(table.sql, batch, muted=muted))
        rows = await table.run(insert.insert_many(table.sql, batch, muted=muted))
        return sum(not duplicate for _, duplicate in rows)
