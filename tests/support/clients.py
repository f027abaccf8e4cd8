"""Every way to run a client, behind one asyncio interface, and the table that it works on.

A `Way` is a client class and what it was made of; `working` opens that source, starts the client, and closes both.
Blocking clients are called in threads, so that one test, always an ``async def``, serves both colours. `Jobs` reads
and changes rows with SQL of the tests' own, on a connection of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool, Pool
from typing_extensions import Unpack

from river import Args, AsyncClient, Client, InsertOpts, InsertResult, Job, JobRow, WorkContext, Worker, Workers
from river.config import ConfigOptions
from tests.support.urls import with_driver

T = TypeVar("T")

Row = dict[str, Any]
Style = Literal["def", "async def", "class"]
STYLES: tuple[Style, ...] = ("def", "async def", "class")

DEADLINE_SECONDS = 45.0
"""How long a test waits for what must come; only a failing test waits that long."""


@dataclass
class Note:
    """The args of most tests' jobs."""

    kind: ClassVar[str] = "note"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a client: its class, and the name of a `source`."""

    client: Literal["Client", "AsyncClient"]
    source: str

    def __str__(self) -> str:
        return f"{self.client}-{self.source}"

    @property
    def listens(self) -> bool:
        """Whether it hears notifications."""
        return "pg8000" not in self.source


BLOCKING_SOURCES = ("ConnectionPool", "Engine-psycopg", "Engine-psycopg2", "Engine-pg8000")
ASYNC_SOURCES = ("AsyncConnectionPool", "AsyncEngine-psycopg", "AsyncEngine-asyncpg")

WAYS = (
    *(Way("Client", source) for source in (*BLOCKING_SOURCES, "url", "url-asyncpg", "AsyncEngine-asyncpg-NullPool")),
    *(Way("AsyncClient", source) for source in (*ASYNC_SOURCES, "url", "url-psycopg2", *BLOCKING_SOURCES)),
)
"""All of them; an AsyncEngine under a blocking client must not pool, because the client's event loop ends with it."""

NATURAL_WAYS = (
    *(Way("Client", source) for source in BLOCKING_SOURCES),
    *(Way("AsyncClient", source) for source in ASYNC_SOURCES),
)
"""Each driver under the client of its colour."""

BLOCKING = Way("Client", "ConnectionPool")
ASYNCIO = Way("AsyncClient", "AsyncConnectionPool")


@asynccontextmanager
async def source(name: str, url: str) -> AsyncGenerator[Any]:
    """What a host makes a client of; opened, and closed as the host would."""
    kind, _, rest = name.partition("-")
    library, _, pooling = rest.partition("-")
    poolclass: dict[str, type[Pool]] = {"poolclass": NullPool} if pooling == "NullPool" else {}
    match kind:
        case "ConnectionPool":
            with ConnectionPool(url, min_size=1, max_size=8) as pool:
                yield pool
        case "AsyncConnectionPool":
            async with AsyncConnectionPool(url, min_size=1, max_size=8, open=False) as async_pool:
                yield async_pool
        case "Engine":
            engine = create_engine(with_driver(url, f"postgresql+{library}"), **poolclass)
            try:
                yield engine
            finally:
                engine.dispose()
        case "AsyncEngine":
            async_engine = create_async_engine(with_driver(url, f"postgresql+{library}"), **poolclass)
            try:
                yield async_engine
            finally:
                await async_engine.dispose()
        case "url":
            if library:
                yield with_driver(url, f"postgresql+{library}").render_as_string(hide_password=False)
            else:
                yield url
        case _:
            raise ValueError(f"no source {name!r}")


async def eventually(probe: Callable[[], T | None], what: str, *, seconds: float = DEADLINE_SECONDS) -> T:
    """The first true answer of *probe*."""
    deadline = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}; last answer: {answer!r}")
        await asyncio.sleep(0.01)


class Jobs:
    """``river_job``, in SQL of the tests' own."""

    def __init__(self, connection: psycopg.Connection[Row], schema: str) -> None:
        self.connection = connection
        self.schema = schema

    def execute(self, text: str, *parameters: object) -> list[Row]:
        """Run SQL in which ``{job}`` is the table and ``{schema}`` its schema; its rows."""
        query = sql.SQL(text).format(job=sql.Identifier(self.schema, "river_job"), schema=sql.Identifier(self.schema))
        cursor = self.connection.execute(query, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def row(self, job_id: int) -> Row:
        """One row."""
        return self.execute("SELECT * FROM {job} WHERE id = %s", job_id)[0]

    def rows(self) -> list[Row]:
        """All rows, by id."""
        return self.execute("SELECT * FROM {job} ORDER BY id")

    def states(self) -> Counter[str]:
        """How many rows are in which state."""
        return Counter({row["state"]: row["n"] for row in self.execute(_STATES)})

    def sessions(self, name: str, condition: str = "true") -> list[int]:
        """The process ids of the sessions under a name, if a condition on ``pg_stat_activity`` holds."""
        text = f"SELECT pid FROM pg_stat_activity WHERE application_name = %s AND {condition} ORDER BY pid"
        return [row["pid"] for row in self.execute(text, name)]

    def terminate(self, pids: Iterable[int]) -> None:
        """End sessions, as an administrator would."""
        for pid in pids:
            self.execute("SELECT pg_terminate_backend(%s)", pid)

    def add(self, **columns: object) -> int:
        """Insert a row as it is, without any notification; its id."""
        values: Row = {"kind": "note", "args": "{}", "max_attempts": 25, "state": "available", **columns}
        query = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING id").format(
            sql.Identifier(self.schema, "river_job"),
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join([sql.Placeholder()] * len(values)),
        )
        row = self.connection.execute(query, list(values.values())).fetchone()
        assert row is not None
        return int(row["id"])

    def add_many(self, count: int, *, state: str = "available", queue: str = "default") -> None:
        """Insert rows by the thousand, without any notification."""
        self.execute(_ADD_MANY, state, queue, count)

    async def until(self, job_id: int, *states: str) -> Row:
        """The row, once it is in one of *states*."""

        def probe() -> Row | None:
            row = self.row(job_id)
            return row if row["state"] in states else None

        return await eventually(probe, f"job {job_id} is {' or '.join(states)}")

    async def until_all(self, *states: str) -> None:
        """Wait until every row is in one of *states*."""
        await eventually(lambda: set(self.states()) <= set(states), f"all jobs are {' or '.join(states)}")


_STATES = "SELECT CAST(state AS text) AS state, count(*) AS n FROM {job} GROUP BY 1"

_ADD_MANY = """\
INSERT INTO {job} (kind, args, max_attempts, state, queue)
SELECT 'note', '{{}}', 25, CAST(%s AS text)::{schema}.river_job_state, %s FROM generate_series(1, %s)
"""


def named(url: str, name: str) -> str:
    """The URL of the same database, for sessions that the server lists under *name*."""
    return url + "%20-capplication_name%3D" + name


@contextmanager
def jobs_of(url: str, schema: str) -> Generator[Jobs]:
    """The table of a test's schema."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        yield Jobs(connection, schema)


class Bench:
    """A client of either colour, called alike."""

    def __init__(self, client: Client | AsyncClient, jobs: Jobs, host: Any) -> None:
        self.client = client
        self.jobs = jobs
        self.host = host

    async def start(self) -> None:
        """Start it."""
        await call(self.client.start)

    async def stop(self, timeout: float | None = None) -> None:
        """Stop it."""
        await call(self.client.stop, timeout=timeout)

    async def insert(self, args: Args, opts: InsertOpts | None = None) -> int:
        """Insert one job; its id."""
        result: InsertResult[Any] = await call(self.client.insert, args, opts)
        return result.job.id

    async def insert_many(self, batch: Iterable[Args]) -> list[int]:
        """Insert many jobs; their ids."""
        results: list[InsertResult[Any]] = await call(self.client.insert_many, batch)
        return [result.job.id for result in results]

    async def get(self, job_id: int) -> JobRow:
        """Read a job through the client."""
        row: JobRow = await call(self.client.job_get, job_id)
        return row


async def call(method: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a method of a client of either colour, and wait for it without blocking the event loop."""
    if asyncio.iscoroutinefunction(method):
        return await method(*args, **options)
    return await asyncio.to_thread(method, *args, **options)


@asynccontextmanager
async def made(
    way: Way, url: str, schema: str, /, *, through: str | None = None, **options: Unpack[ConfigOptions]
) -> AsyncGenerator[Bench]:
    """A client that is not started yet, and is closed at the end.

    Args:
        through: The URL for the client, where it is to go another way to the database than the test does.
    """
    options.setdefault("queues", {"default": 4})
    options.setdefault("fetch_cooldown", 0.02)
    options.setdefault("fetch_poll_interval", 0.1)
    cls = Client if way.client == "Client" else AsyncClient
    with jobs_of(url, schema) as jobs:
        async with source(way.source, through or url) as host:
            options["schema"] = schema
            bench = Bench(cls(host, **options), jobs, host)
            try:
                yield bench
            finally:
                await bench.stop(timeout=DEADLINE_SECONDS)


@asynccontextmanager
async def working(
    way: Way, url: str, schema: str, /, *, through: str | None = None, **options: Unpack[ConfigOptions]
) -> AsyncGenerator[Bench]:
    """A client that is started; otherwise as `made`."""
    async with made(way, url, schema, through=through, **options) as bench:
        await bench.start()
        yield bench


Body = Callable[[Job[Note], WorkContext], object]


def workers_of(style: Style, body: Body) -> Workers:
    """Workers whose one worker, of the kind "note", calls *body*."""
    workers = Workers()
    match style:
        case "def":

            @workers.work()
            def work(job: Job[Note], ctx: WorkContext) -> None:
                body(job, ctx)

        case "async def":

            @workers.work()
            async def work_async(job: Job[Note], ctx: WorkContext) -> None:
                await asyncio.sleep(0)
                body(job, ctx)

        case "class":
            workers.add(_NoteWorker(body))
    return workers


class _NoteWorker(Worker[Note]):
    def __init__(self, body: Body) -> None:
        self.body = body

    def work(self, job: Job[Note], ctx: WorkContext) -> None:
        self.body(job, ctx)


LISTENING = "query LIKE 'LISTEN %%' AND state = 'idle'"
"""The condition of a session that listens: it does nothing else."""
