"""A whole client over the driver: it works what it inserts, waits while it is paused, and stops."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from ...args import JobArgs
from ...async_client import AsyncClient
from ...client import Client
from ...context import WorkContext
from ...driver import is_asyncio
from ...job import Job
from ...worker import Workers
from .playing import claim, settled
from .rows import Table


class ClientClaims:
    """Clients."""

    @claim
    async def test_a_client_works_what_it_inserts(self, table: Table) -> None:
        worked: list[int] = []
        client = self._client(table, worked)
        async with AsyncExitStack() as stack:
            await self._start(client, stack)
            inserted = await settled(client.insert(JobArgs("note", {"n": 1})))
            many = await settled(client.insert_many([JobArgs("note", {"n": n}) for n in (2, 3)]))

            async def are_done() -> bool:
                return set((await table.states()).values()) == {"completed"}

            await table.player.until(are_done, "all jobs are completed")
        assert sorted(worked) == [1, 2, 3]
        assert sorted(await table.states()) == [inserted.job.id, *(each.job.id for each in many)]

    @claim
    async def test_a_client_works_no_job_of_a_queue_that_is_paused(self, table: Table) -> None:
        worked: list[int] = []
        client = self._client(table, worked)
        async with AsyncExitStack() as stack:
            await self._start(client, stack)
            await settled(client.queue_pause("default"))
            paused = await settled(client.insert(JobArgs("note", {"n": 1})))
            assert (await settled(client.queue_get("default"))).paused
            await settled(client.queue_resume("default"))

            async def is_done() -> bool:
                return (await table.states())[paused.job.id] == "completed"

            await table.player.until(is_done, "the job of a resumed queue is completed")
        assert worked == [1]

    @claim
    async def test_a_client_finds_lists_changes_and_deletes_jobs(self, table: Table) -> None:
        client = self._client(table, [])
        first, second = await settled(client.insert_many([JobArgs("note", {}), JobArgs("note", {})]))
        assert (await settled(client.job_get(first.job.id))).id == first.job.id
        page = await settled(client.job_list(kinds=["note"]))
        assert [job.id for job in page.jobs] == [first.job.id, second.job.id]
        assert (await settled(client.job_cancel(first.job.id))).state.value == "cancelled"
        assert (await settled(client.job_retry(first.job.id))).state.value == "available"
        assert (await settled(client.job_update(first.job.id, metadata={"a": 1}))).metadata["a"] == 1
        assert (await settled(client.job_delete(first.job.id))).id == first.job.id
        assert [job.id for job in await settled(client.job_delete_many(all_jobs=True))] == [second.job.id]

    def _client(self, table: Table, worked: list[int]) -> Any:
        workers = Workers()

        @workers.work(kind="note")
        def note(job: Job[dict[str, Any]], _: WorkContext) -> None:
            worked.append(job.args["n"])

        stage = table.stage
        client_type: Any = AsyncClient if is_asyncio(stage.driver) else Client
        return client_type(stage.driver, schema=stage.schema, queues={"default": 2}, workers=workers)

    async def _start(self, client: Any, stack: AsyncExitStack) -> None:
        await settled(client.start())

        async def stop() -> None:
            await settled(client.stop())

        stack.push_async_callback(stop)
