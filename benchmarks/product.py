"""River doing what `benchmarks.floor` does, through the API that applications use.

Measured the same way: a drain from the start of its first job to the commit of its last completion, inserts
from the first call to the return of the last. Starting and stopping clients is not measured.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import ClassVar, Final

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import river
from benchmarks.database import KIND
from benchmarks.result import Result

ASK_AGAIN_SECONDS: Final = 0.002
POOL_CONNECTIONS: Final = 5
DRAIN_AT_MOST_SECONDS: Final = 300.0

_UNFINISHED: Final = """\
SELECT EXISTS (SELECT FROM "{schema}".river_job WHERE state IN ('available', 'running'))
"""


@dataclass
class Noop:
    """The args of a job that does nothing."""

    kind: ClassVar[str] = KIND
    n: int


def drain(url: str, schema: str, jobs: int, slots: int) -> Result:
    """Work *jobs* available no-op jobs in *slots* slots, by an asyncio client and an ``async def`` worker."""
    return asyncio.run(_drain(url, schema, jobs, slots))


def insert_one_by_one(url: str, schema: str, jobs: int) -> Result:
    """Insert and commit *jobs* jobs, one blocking call each; listeners are told, as always."""
    with ConnectionPool(url, min_size=1, max_size=POOL_CONNECTIONS) as pool:
        pool.wait()
        client = river.Client(pool, schema=schema)
        started = time.perf_counter()
        for n in range(jobs):
            client.insert(Noop(n))
        return Result(jobs, time.perf_counter() - started)


async def _drain(url: str, schema: str, jobs: int, slots: int) -> Result:
    worked = _Count(jobs)
    workers = river.Workers()

    @workers.work()
    async def noop(_job: river.Job[Noop], _ctx: river.WorkContext) -> None:
        worked.add()

    async with (
        AsyncConnectionPool(url, min_size=POOL_CONNECTIONS, max_size=POOL_CONNECTIONS, open=False) as pool,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as observer,
    ):
        client = river.AsyncClient(pool, schema=schema, workers=workers, queues={"default": slots})
        async with client:
            async with asyncio.timeout(DRAIN_AT_MOST_SECONDS):
                await worked.all.wait()
                await _wait_until_completed(observer, schema)
            seconds = time.perf_counter() - worked.started
    return Result(jobs, seconds)


class _Count:
    """Counts jobs as they are worked, and says when that was all of them."""

    def __init__(self, jobs: int) -> None:
        self.started = 0.0
        self.all = asyncio.Event()
        self._left = jobs

    def add(self) -> None:
        self.started = self.started or time.perf_counter()
        self._left -= 1
        if not self._left:
            self.all.set()


async def _wait_until_completed(observer: psycopg.AsyncConnection, schema: str) -> None:
    """Return when the last completion is committed, which is after the last job's work; asks the table."""
    while True:
        cursor = await observer.execute(_UNFINISHED.format(schema=schema))
        row = await cursor.fetchone()
        if row == (False,):
            return
        await asyncio.sleep(ASK_AGAIN_SECONDS)
