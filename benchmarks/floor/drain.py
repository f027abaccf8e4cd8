"""The fastest drain that raw psycopg reaches on River's schema: what a client's drain is measured against.

    claims ──> ready ──> `slots` long-lived workers ──> finished ──> completions
    (one connection)      (a job is a no-op)                         (another connection)

It does to the table what a River client does, and nothing else: no events, hooks, timeouts, notifications,
logging, arguments, retries or shutdown. Jobs are claimed by one statement and completed by another, which is
fenced on the claim, so that a job that was rescued and claimed again is never completed by its first run. All
the jobs must be there when it starts, and nobody else may work the schema; else it fails.

Why it is fast:

- A claim takes as many jobs as slots are free, waiting until that is half of them.
- Completions have a connection of their own, so claims and completions overlap. A batch is whatever finished
  while the batch before it was under way: no timer, no minimum.
- PostgreSQL is the bottleneck, at 30 to 60 µs a job: the shape of the two statements is nearly everything.
"""

import asyncio
import time
from collections import deque
from typing import Final, NamedTuple

import psycopg

from benchmarks.result import Result

CLIENT_ID: Final = "floor"
COMPLETE_AT_MOST: Final = 1_000

# More unsaved work than this and claims wait: a client that claims without bound loses it all in a crash.
FINISHED_AT_MOST: Final = 2 * COMPLETE_AT_MOST

# A LIMIT that is a parameter is planned for a tenth of the table: these are literals, each its own statement.
CLAIM_SIZES: Final = (500, 200, 100, 50, 20, 10, 5, 2, 1)

# Microseconds since 1970 are exact and, unlike a timestamp's text, depend on no DateStyle or TimeZone.
CLAIM: Final = """\
UPDATE "{schema}".river_job
SET state = 'running',
    attempt = attempt + 1,
    attempted_at = now(),
    attempted_by = array_append(
        attempted_by[greatest(coalesce(cardinality(attempted_by), 0) - 98, 1):], CAST($1 AS text)
    )
WHERE id = ANY(ARRAY(
    SELECT id
    FROM "{schema}".river_job
    WHERE state = 'available'
        AND queue = 'default'
        AND scheduled_at <= now()
    ORDER BY priority, scheduled_at, id
    LIMIT {limit}
    FOR UPDATE SKIP LOCKED
))
RETURNING id, CAST(EXTRACT(EPOCH FROM attempted_at) * 1000000 AS bigint)
"""

COMPLETE: Final = """\
UPDATE "{schema}".river_job
SET state = 'completed',
    finalized_at = now()
WHERE id = ANY(ARRAY(
    SELECT job.id
    FROM "{schema}".river_job AS job
    -- SELECT: else a sequential scan, the plan while the table is small, parses the text again for each row.
    WHERE job.id = ANY(CAST((SELECT CAST(CAST($1 AS text) AS bigint[])) AS bigint[]))
        -- IS TRUE: else it becomes a join, and a nested loop over the batch: 75 against 14 µs a job at 1,000.
        AND ((job.id, job.attempted_at) IN (
            SELECT id, TIMESTAMPTZ 'epoch' + attempted_at_us * INTERVAL '1 microsecond'
            FROM unnest(CAST(CAST($1 AS text) AS bigint[]), CAST(CAST($2 AS text) AS bigint[]))
                AS claim (id, attempted_at_us)
        )) IS TRUE
        -- Not "=": statistics say that no row is running, and the planner would walk all of those that are.
        AND job.state IS NOT DISTINCT FROM 'running'
    -- SKIP LOCKED: a transaction elsewhere that holds one of the rows must not hold up the others.
    FOR UPDATE SKIP LOCKED
))
RETURNING id
"""


class Claim(NamedTuple):
    """A running job of ours: its id, and the fence of its completion."""

    job_id: int
    attempted_at_us: int


class LostJobError(RuntimeError):
    """A completion missed jobs, or there were fewer than expected: somebody else worked the schema."""


def drain(url: str, schema: str, jobs: int, slots: int) -> Result:
    """Work *jobs* available no-op jobs in *slots* slots.

    Returns:
        The time from the start of the first job to the commit of the last completion.

    Raises:
        LostJobError: There were fewer jobs, or somebody else touched them.
    """
    return asyncio.run(_drain(url, schema, jobs, slots))


async def _drain(url: str, schema: str, jobs: int, slots: int) -> Result:
    async with await _connect(url) as claiming, await _connect(url) as completing:
        floor = _Floor(schema, jobs, slots)
        workers = [asyncio.create_task(floor.work()) for _ in range(slots)]
        try:
            await asyncio.gather(
                floor.claim_all(psycopg.AsyncRawCursor(claiming)),
                floor.complete_all(psycopg.AsyncRawCursor(completing)),
            )
        finally:
            for worker in workers:
                worker.cancel()
        return Result(jobs, time.perf_counter() - floor.started)


async def _connect(url: str) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(url, autocommit=True)


async def _noop(job_id: int) -> None:
    """The work of a job."""


class _Floor:
    """The state of one drain: where each job is between its claim and its completion."""

    def __init__(self, schema: str, jobs: int, slots: int) -> None:
        self.started = 0.0
        self._jobs = jobs
        self._slots = slots
        self._free = slots
        self._ready: deque[Claim] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._finished: list[Claim] = []
        self._room = asyncio.Event()
        self._work_done = asyncio.Event()
        self._claims = {n: CLAIM.format(schema=schema, limit=n) for n in CLAIM_SIZES}
        self._completion = COMPLETE.format(schema=schema)

    async def claim_all(self, cursor: psycopg.AsyncRawCursor[tuple[int, int]]) -> None:
        """Claim until every job has been claimed."""
        unclaimed = self._jobs
        while unclaimed:
            await self._wait_for_room()
            await cursor.execute(self._claims[claim_size(self._free)], (CLIENT_ID,), prepare=True)
            claims = [Claim(*row) for row in await cursor.fetchall()]
            if not claims:
                raise LostJobError(f"{unclaimed} of {self._jobs} jobs are not there to be claimed")
            unclaimed -= len(claims)
            self._start(claims)

    async def work(self) -> None:
        """One slot: work whatever is ready, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            while self._ready:
                claim = self._ready.popleft()
                await _noop(claim.job_id)
                self._finish(claim)
            turn = loop.create_future()
            self._idle.append(turn)
            await turn

    async def complete_all(self, cursor: psycopg.AsyncRawCursor[tuple[int]]) -> None:
        """Complete until every job has been completed."""
        uncompleted = self._jobs
        while uncompleted:
            await self._work_done.wait()
            batch = self._take_finished()
            await cursor.execute(self._completion, _columns(batch), prepare=True)
            done = await cursor.fetchall()
            if len(done) != len(batch):
                raise LostJobError(f"completed {len(done)} of {len(batch)} jobs")
            uncompleted -= len(batch)

    async def _wait_for_room(self) -> None:
        while not self._has_room():
            self._room.clear()
            await self._room.wait()

    def _has_room(self) -> bool:
        return self._free * 2 >= self._slots and len(self._finished) <= FINISHED_AT_MOST

    def _start(self, claims: list[Claim]) -> None:
        self.started = self.started or time.perf_counter()
        self._free -= len(claims)
        self._ready.extend(claims)
        for _ in range(min(len(claims), len(self._idle))):
            self._idle.popleft().set_result(None)

    def _finish(self, claim: Claim) -> None:
        self._free += 1
        self._finished.append(claim)
        self._work_done.set()
        if self._has_room():
            self._room.set()

    def _take_finished(self) -> list[Claim]:
        batch = self._finished[:COMPLETE_AT_MOST]
        del self._finished[:COMPLETE_AT_MOST]
        if not self._finished:
            self._work_done.clear()
        if self._has_room():
            self._room.set()
        return batch


def claim_size(free: int) -> int:
    """The largest claim that *free* slots, at least one, have room for."""
    return next(size for size in CLAIM_SIZES if size <= free)


def _columns(claims: list[Claim]) -> tuple[str, str]:
    """Ids and fences as array literals; psycopg's own dumper of lists costs tens of µs a row."""
    ids = ",".join([str(claim.job_id) for claim in claims])
    fences = ",".join([str(claim.attempted_at_us) for claim in claims])
    return f"{{{ids}}}", f"{{{fences}}}"
