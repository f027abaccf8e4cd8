"""asyncpg used directly: its pools are drivers, and its connections are handles.

First the suite that every driver must pass, then what is particular to asyncpg: what a host sets on its pools and
connections, who sees which error, what a cancelled call leaves behind, and a client that works on it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, ClassVar, TypeVar

import asyncpg
import pytest

import river
from river.driver import AsyncDriver, driver_for
from river.errors import DatabaseError, ErrorClass, HandleClosedError, HandleError, TransactionRequiredError
from river.operation import Statement
from river.testing import conformance
from river_asyncpg import AsyncpgDriver
from river_asyncpg.handles import adopt
from tests.support.clients import DEADLINE_SECONDS, LISTENING, Jobs, Note, eventually, jobs_of, named
from tests.support.proxy import proxy_to

T = TypeVar("T")

NEVER_SECONDS = 600.0
SECRET = "s3cr3t"

AT_ONCE = 8


class OverAsyncpg:
    @pytest.fixture
    def conformance_url(self, database_url: str) -> str:
        return database_url

    @asynccontextmanager
    async def driver(self, url: str) -> AsyncGenerator[AsyncDriver]:
        async with asyncpg.create_pool(url, min_size=1, max_size=AT_ONCE) as pool:
            yield AsyncpgDriver(pool)


class TestDriver(OverAsyncpg, conformance.AsyncDriverSuite):
    def own_driver(self, url: str) -> AsyncDriver:
        return AsyncpgDriver.connect(url)


class Host:
    """What a host does with its connection, in asyncpg's own words."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.transaction: Any = None

    async def begin(self) -> None:
        self.transaction = self.handle.transaction()
        await self.transaction.start()

    async def execute(self, sql: str) -> Sequence[Any]:
        return [tuple(record) for record in await self.handle.fetch(sql)]

    async def commit(self) -> None:
        await self.transaction.commit()

    async def rollback(self) -> None:
        await self.transaction.rollback()

    async def close(self) -> None:
        await self.handle.close()


class TestHandles(OverAsyncpg, conformance.AsyncHandleSuite):
    knows_failure = False  # asyncpg says only that there is a transaction
    kind: str

    @pytest.fixture(autouse=True, params=["connection", "connection of a pool"])
    def each_kind(self, request: pytest.FixtureRequest) -> None:
        self.kind = request.param

    @asynccontextmanager
    async def host(self, url: str, *, autocommit: bool) -> AsyncGenerator[Host]:
        # asyncpg has no setting for it: a connection is in autocommit until somebody says BEGIN.
        if self.kind == "connection":
            connection = await asyncpg.connect(url)
            try:
                yield Host(connection)
            finally:
                await connection.close()
        else:
            async with asyncpg.create_pool(url, min_size=0, max_size=1) as pool, pool.acquire() as borrowed:
                yield Host(borrowed)


# Particular to asyncpg.


@pytest.fixture
def jobs(database_url: str, schema: str) -> Generator[Jobs]:
    with jobs_of(database_url, schema) as made:
        yield made


@pytest.fixture
def client(schema: str) -> river.AsyncClient:
    """A client that has no connections of its own."""
    return river.AsyncClient(None, schema=schema)


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(url, **options)
    try:
        yield connection
    finally:
        await connection.close()


@contextmanager
def complaints() -> Generator[list[dict[str, Any]]]:
    """What goes to the loop's exception handler meanwhile."""
    heard: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: heard.append(context))
    yield heard
    loop.set_exception_handler(None)


async def soon(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await awaitable


VALUES = Statement(
    sql="""\
SELECT CAST(:text AS text), CAST(:number AS bigint), CAST(:flag AS boolean), CAST(:none AS text),
       CAST(:document AS jsonb), CAST(:document AS json), CAST(:number AS integer)
""",
    parameters={"text": "ä", "number": 7, "flag": True, "none": None, "document": '{"a": 1}'},
)
AS_SENT = ("ä", 7, True, None, '{"a": 1}', '{"a": 1}', 7)
OVERLAID = ("text", "int8", "int4", "bool", "json", "jsonb")


class Shouting(asyncpg.Record):
    """A record class that is no plain sequence of its values."""

    def __iter__(self) -> Any:
        return iter([f"{value}!" for value in super().__iter__()])


async def set_codecs(connection: Any) -> None:
    """Codecs of a host's for every type that River reads, and for the usual ones, JSON."""
    for name in OVERLAID:
        await connection.set_type_codec(
            name, schema="pg_catalog", encoder=lambda value: json.dumps([value]), decoder=lambda text: {"host's": text}
        )


def unprepared(statement: Statement) -> Statement:
    return Statement(statement.sql, statement.parameters, prepared=False)


class TestWhatTheHostSets:
    async def test_codecs_and_record_class_of_the_hosts_connection_do_not_reach_river_and_stay(
        self, database_url: str, client: river.AsyncClient, jobs: Jobs
    ) -> None:
        async with connected(database_url, record_class=Shouting) as connection:
            await set_codecs(connection)
            async with connection.transaction():
                inserted = await client.insert_tx(connection, Note("with codecs"), metadata={"of": "mine"})
                again = await client.job_get_tx(connection, inserted.job.id)
            assert (again.kind, again.metadata, again.attempt) == ("note", {"of": "mine"}, 0)
            assert jobs.row(inserted.job.id)["args"] == {"text": "with codecs"}
            record = await connection.fetchrow("SELECT 'x'::text, '{}'::jsonb AS b")
            assert type(record) is Shouting
            assert record["b"] == {"host's": "{}"}

    @pytest.mark.parametrize("cache", [100, 0])
    async def test_those_of_the_hosts_pool_do_not_reach_any_statement_of_the_drivers(
        self, database_url: str, cache: int
    ) -> None:
        async with asyncpg.create_pool(
            database_url, min_size=0, init=set_codecs, record_class=Shouting, statement_cache_size=cache
        ) as pool:
            async with AsyncpgDriver(pool).transaction() as executor:
                for statement in (VALUES, VALUES, unprepared(VALUES), unprepared(VALUES)):
                    (row,) = await executor.execute(statement)
                    assert row == AS_SENT
                    assert type(row) is tuple

    async def test_a_statement_is_prepared_once_if_it_may_be_kept_and_never_if_it_may_not(
        self, database_url: str
    ) -> None:
        kept = Statement("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT CAST($1%'", {})
        async with asyncpg.create_pool(database_url, min_size=0, max_size=1) as pool:
            async with AsyncpgDriver(pool).autocommit() as executor:
                for statement, count in ((unprepared(VALUES), 0), (VALUES, 1), (VALUES, 1)):
                    await executor.execute(statement)
                    assert await executor.execute(unprepared(kept)) == [(count,)]

    async def test_without_a_statement_cache_nothing_is_left_prepared(self, database_url: str, schema: str) -> None:
        async with asyncpg.create_pool(database_url, min_size=0, max_size=1, statement_cache_size=0) as pool:
            await river.AsyncClient(pool, schema=schema).insert_many([Note("a"), Note("b")])
            assert await pool.fetchval("SELECT count(*) FROM pg_prepared_statements") == 0

    async def test_settings_and_callbacks_of_the_pool_apply_to_connections_and_to_the_listener(
        self, database_url: str, jobs: Jobs, schema: str
    ) -> None:
        seen: list[str] = []

        async def init(connection: Any) -> None:
            seen.append("init")

        async def setup(connection: Any) -> None:
            seen.append("setup")

        settings = {"application_name": schema}
        asked = Statement("SELECT current_setting('application_name')", {})
        async with asyncpg.create_pool(
            database_url, min_size=0, max_size=1, server_settings=settings, init=init, setup=setup
        ) as pool:
            driver = AsyncpgDriver(pool)
            async with driver.autocommit() as executor:
                assert await executor.execute(asked) == [(schema,)]
                assert seen == ["init", "setup"]
                # The pool has no connection to spare: the listener's comes on top.
                async with driver.listen(["a"]):
                    assert seen == ["init", "setup"] * 2
                    assert len(jobs.sessions(schema)) == 2
            assert pool.get_size() == 1

    async def test_a_callback_that_fails_leaves_no_connection_behind(
        self, database_url: str, jobs: Jobs, schema: str
    ) -> None:
        async def setup(connection: Any) -> None:
            raise RuntimeError("no setup today")

        async with asyncpg.create_pool(named(database_url, schema), min_size=0, setup=setup) as pool:
            driver = AsyncpgDriver(pool)
            for entered in (driver.transaction(), driver.listen(["a"])):
                with pytest.raises(DatabaseError, match="no setup today") as raised:
                    async with entered:
                        pass
                assert raised.value.error_class is ErrorClass.CONNECTION_LOST
            await eventually(lambda: not jobs.sessions(schema), "no session is left")

    async def test_a_reset_that_fails_does_not_undo_a_commit_and_is_logged(
        self, database_url: str, schema: str, jobs: Jobs, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def reset(connection: Any) -> None:
            raise RuntimeError("no reset today")

        async with asyncpg.create_pool(database_url, min_size=0, max_size=1, reset=reset) as pool:
            for _ in range(2):
                await river.AsyncClient(pool, schema=schema).insert(Note())
        assert len(jobs.rows()) == 2
        assert [record.name for record in caplog.records] == ["river_asyncpg.driver"] * 2
        assert "no reset today" in caplog.text

    async def test_the_hosts_command_timeout_cancels_a_statement_and_not_the_connection(
        self, database_url: str
    ) -> None:
        async with asyncpg.create_pool(database_url, min_size=0, max_size=1, command_timeout=0.2) as pool:
            async with AsyncpgDriver(pool).autocommit() as executor:
                with pytest.raises(DatabaseError) as raised:
                    await executor.execute(Statement("SELECT 1 FROM pg_sleep(60)", {}))
                assert raised.value.error_class is ErrorClass.CANCELLED
                assert str(raised.value)
                assert await executor.execute(Statement("SELECT 1", {})) == [(1,)]

    async def test_a_connection_class_of_the_hosts_is_a_handle(
        self, database_url: str, client: river.AsyncClient, jobs: Jobs
    ) -> None:
        class Own(asyncpg.Connection):
            """A host's own."""

        async with connected(database_url, connection_class=Own) as connection:
            assert type(connection) is Own
            async with connection.transaction():
                inserted = await client.insert_tx(connection, Note())
        assert jobs.row(inserted.job.id)["state"] == "available"


class TestTheHostsTransaction:
    async def test_an_inner_transaction_that_is_rolled_back_takes_its_job_along_and_no_other(
        self, database_url: str, client: river.AsyncClient, jobs: Jobs
    ) -> None:
        async with connected(database_url) as connection:
            async with connection.transaction():
                outer = await client.insert_tx(connection, Note("outer"))
                undone = connection.transaction()
                await undone.start()
                await client.insert_tx(connection, Note("undone"))
                await undone.rollback()
                async with connection.transaction():
                    inner = await client.insert_tx(connection, Note("inner"))
                assert jobs.rows() == []
        assert [row["id"] for row in jobs.rows()] == [outer.job.id, inner.job.id]

    async def test_a_transaction_begun_in_sql_is_one(
        self, database_url: str, client: river.AsyncClient, jobs: Jobs
    ) -> None:
        async with connected(database_url) as connection:
            await connection.execute("BEGIN")
            await client.insert_tx(connection, Note())
            assert jobs.rows() == []
            await connection.execute("COMMIT")
        assert len(jobs.rows()) == 1

    async def test_a_connection_without_a_transaction_is_refused_with_the_remedy(
        self, database_url: str, client: river.AsyncClient, jobs: Jobs
    ) -> None:
        async with asyncpg.create_pool(database_url, min_size=0) as pool, pool.acquire() as connection:
            with pytest.raises(TransactionRequiredError, match=r"async with connection\.transaction\(\):"):
                await client.insert_tx(connection, Note())
            async with connection.transaction():
                pass
            with pytest.raises(TransactionRequiredError):
                await client.insert_tx(connection, Note())
        assert jobs.rows() == []

    async def test_a_connection_that_its_pool_has_back_is_refused(
        self, database_url: str, client: river.AsyncClient
    ) -> None:
        async with asyncpg.create_pool(database_url, min_size=0) as pool:
            async with pool.acquire() as connection:
                pass
            with pytest.raises(HandleClosedError, match="its pool has it back"):
                await client.insert_tx(connection, Note())

    async def test_a_pool_is_refused_and_told_what_to_hand_over(
        self, database_url: str, client: river.AsyncClient
    ) -> None:
        async with asyncpg.create_pool(database_url, min_size=0) as pool:
            with pytest.raises(HandleError, match=r"async with pool\.acquire\(\) as connection"):
                await client.insert_tx(pool, Note())
            assert pool.get_size() == 0

    async def test_asyncpgs_own_error_passes_on_the_hosts_connection(self, database_url: str) -> None:
        client = river.AsyncClient(None, schema="no_such_schema")
        async with connected(database_url) as connection:
            with pytest.raises(asyncpg.UndefinedTableError):
                async with connection.transaction():
                    await client.insert_tx(connection, Note())

    async def test_a_transaction_that_has_failed_gives_asyncpgs_own_error(
        self, database_url: str, client: river.AsyncClient
    ) -> None:
        async with connected(database_url) as connection:
            transaction = connection.transaction()
            await transaction.start()
            with pytest.raises(asyncpg.DivisionByZeroError):
                await connection.execute("SELECT 1/0")
            with pytest.raises(asyncpg.InFailedSQLTransactionError):
                await client.insert_tx(connection, Note())
            await transaction.rollback()

    async def test_a_second_call_on_a_connection_in_use_is_asyncpgs_own_error_and_harms_nothing(
        self, database_url: str, client: river.AsyncClient, jobs: Jobs
    ) -> None:
        async with connected(database_url) as connection, connection.transaction():
            async with asyncio.TaskGroup() as group:
                slow = group.create_task(connection.fetchval("SELECT 1 FROM pg_sleep(0.1)"))
                await asyncio.sleep(0)  # it has begun
                with pytest.raises(asyncpg.InterfaceError, match="another operation"):
                    await client.insert_tx(connection, Note())
            assert slow.result() == 1
            await client.insert_tx(connection, Note())
        assert len(jobs.rows()) == 1

    async def test_nobody_comes_between_a_statement_that_is_not_kept_and_its_use(self, database_url: str) -> None:
        async with connected(database_url) as connection, connection.transaction():
            executor = adopt(connection)
            assert executor is not None
            first = asyncio.create_task(executor.execute(Statement("SELECT 1", {}, prepared=False)))
            await asyncio.sleep(0)  # it has begun
            refused = 0
            while not first.done():
                try:
                    await executor.execute(Statement("SELECT 2", {}, prepared=False))
                except asyncpg.InterfaceError:
                    refused += 1
                    await asyncio.sleep(0)
            assert await first == [(1,)]
            assert refused > 1


class TestErrorsOfOurOwnConnections:
    async def test_a_servers_error_is_rivers_with_asyncpgs_as_its_cause(self, database_url: str) -> None:
        async with asyncpg.create_pool(database_url, min_size=0) as pool:
            with pytest.raises(DatabaseError) as raised:
                await river.AsyncClient(pool, schema="no_such_schema").insert(Note())
        assert (raised.value.sqlstate, raised.value.error_class) == ("42P01", ErrorClass.UNDEFINED_TABLE)
        causes = [raised.value.__cause__, getattr(raised.value.__cause__, "__cause__", None)]
        assert any(isinstance(cause, asyncpg.UndefinedTableError) for cause in causes)

    async def test_a_commit_that_the_server_turns_into_a_rollback_is_an_error(
        self, database_url: str, schema: str, jobs: Jobs
    ) -> None:
        async with asyncpg.create_pool(database_url, min_size=0, max_size=1) as pool:

            async def swallows() -> None:
                async with AsyncpgDriver(pool).transaction() as executor:
                    with suppress(DatabaseError):
                        await executor.execute(Statement("SELECT 1/0", {}))

            with pytest.raises(DatabaseError, match="was rolled back") as raised:
                await swallows()
            assert raised.value.sqlstate == "25P02"
            await river.AsyncClient(pool, schema=schema).insert(Note())
        assert len(jobs.rows()) == 1

    async def test_a_connection_that_is_lost_in_a_statement_is_replaced(
        self, database_url: str, schema: str, jobs: Jobs
    ) -> None:
        url = named(database_url, schema)
        async with asyncpg.create_pool(url, min_size=0, max_size=1) as pool:
            driver = AsyncpgDriver(pool)

            async def sleeps() -> None:
                async with driver.transaction() as executor:
                    await executor.execute(Statement("SELECT 1 FROM pg_sleep(600)", {}))

            task = asyncio.create_task(sleeps())
            await eventually(lambda: jobs.sessions(schema, "wait_event = 'PgSleep'"), "it sleeps")
            jobs.terminate(jobs.sessions(schema))
            with pytest.raises(DatabaseError) as raised:
                await soon(task)
            assert raised.value.error_class is ErrorClass.CONNECTION_LOST
            async with driver.autocommit() as executor:
                assert await executor.execute(Statement("SELECT 1", {})) == [(1,)]

    async def test_abort_from_another_thread_ends_a_call_where_the_network_is_gone(self, database_url: str) -> None:
        with proxy_to(database_url) as network:
            async with asyncpg.create_pool(network.url, min_size=0, max_size=1) as pool:
                driver = AsyncpgDriver(pool)

                async def asks(entered: asyncio.Future[Any]) -> None:
                    async with driver.transaction() as executor:
                        network.blackhole()
                        entered.set_result(executor)
                        await executor.execute(Statement("SELECT 1", {}))

                entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                task = asyncio.create_task(asks(entered))
                thread = threading.Thread(target=(await soon(entered)).abort)
                thread.start()
                with pytest.raises(DatabaseError) as raised:
                    await soon(task)
                thread.join()
                assert raised.value.error_class is ErrorClass.CONNECTION_LOST
                network.heal()
                async with driver.autocommit() as executor:
                    assert await executor.execute(Statement("SELECT 1", {})) == [(1,)]

    async def test_abort_frees_a_cancelled_call_that_waits_for_a_network_that_is_gone(
        self, database_url: str, schema: str, jobs: Jobs
    ) -> None:
        with proxy_to(named(database_url, schema)) as network:
            async with asyncpg.create_pool(network.url, min_size=0, max_size=1) as pool:
                executors: list[Any] = []

                async def sleeps() -> None:
                    async with AsyncpgDriver(pool).transaction() as executor:
                        executors.append(executor)
                        await executor.execute(Statement("SELECT 1 FROM pg_sleep(600)", {}))

                task = asyncio.create_task(sleeps())
                await eventually(lambda: jobs.sessions(schema, "wait_event = 'PgSleep'"), "it sleeps")
                network.blackhole()
                task.cancel()
                await asyncio.wait([task], timeout=0)
                assert not task.done()  # asyncpg waits for the answer to its cancel request
                executors[0].abort()
                with pytest.raises(asyncio.CancelledError):
                    await soon(task)
                jobs.terminate(jobs.sessions(schema))
                network.heal()
                assert await soon(pool.fetchval("SELECT 1")) == 1

    async def test_a_closed_pool_says_that_it_is(self, database_url: str, schema: str) -> None:
        async with asyncpg.create_pool(database_url, min_size=0) as pool:
            pass
        with pytest.raises(DatabaseError, match="keep it open") as raised:
            await river.AsyncClient(pool, schema=schema).insert(Note())
        assert raised.value.error_class is ErrorClass.CONNECTION_LOST

    async def test_a_pool_that_was_not_opened_says_that_it_is_not(self, database_url: str, schema: str) -> None:
        pool: Any = asyncpg.create_pool(database_url, min_size=0)
        with pytest.raises(DatabaseError, match="not initialized"):
            await river.AsyncClient(pool, schema=schema).insert(Note())

    async def test_a_login_that_the_server_refuses_is_no_connection_and_keeps_its_code(self, database_url: str) -> None:
        async with asyncpg.create_pool(database_url, min_size=0, user="no_such_role") as pool:
            with pytest.raises(DatabaseError, match="no_such_role") as raised:
                async with AsyncpgDriver(pool).transaction():
                    pass
        assert str(raised.value.sqlstate).startswith("28")
        assert raised.value.error_class is ErrorClass.CONNECTION_LOST

    async def test_a_pool_of_another_loop_says_that_it_is(self, database_url: str, schema: str) -> None:
        async with asyncpg.create_pool(database_url, min_size=0) as pool:

            def elsewhere() -> None:
                asyncio.run(inserted())

            async def inserted() -> None:
                await river.AsyncClient(pool, schema=schema).insert(Note())

            with pytest.raises(DatabaseError, match="another event loop"):
                await asyncio.to_thread(elsewhere)


class Held(asyncpg.Connection):
    """A connection that says when it comes to one command, which the server answers only when somebody cancels."""

    before: ClassVar[str] = ""
    reached: ClassVar[asyncio.Event]

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        if query == Held.before:
            Held.before = ""
            Held.reached.set()
            if query != "ROLLBACK":
                await super().execute("SELECT pg_sleep(600)")
        return await super().execute(query, *args, timeout=timeout)


@contextmanager
def held(command: str) -> Generator[None]:
    Held.before, Held.reached = command, asyncio.Event()
    yield
    Held.before = ""


async def until_held(task: asyncio.Task[None]) -> None:
    reached = asyncio.create_task(Held.reached.wait())
    await soon(asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED))
    assert reached.done()


class TestCancellation:
    @pytest.mark.parametrize("command", ["BEGIN", "COMMIT"])
    async def test_a_cancelled_begin_or_commit_writes_nothing_and_costs_no_connection_and_no_complaint(
        self, database_url: str, schema: str, jobs: Jobs, command: str
    ) -> None:
        insert = (
            f"INSERT INTO \"{schema}\".river_job (kind, args, max_attempts) VALUES ('note', CAST(:args AS jsonb), 1)"
        )
        with complaints() as heard, held(command):
            url = named(database_url, schema)
            async with asyncpg.create_pool(url, min_size=0, max_size=1, connection_class=Held) as pool:
                pid = await pool.fetchval("SELECT pg_backend_pid()")

                async def inserts() -> None:
                    async with AsyncpgDriver(pool).transaction() as executor:
                        await executor.execute(Statement(insert, {"args": "{}"}))

                task = asyncio.create_task(inserts())
                await until_held(task)
                await eventually(lambda: jobs.sessions(schema, "wait_event = 'PgSleep'"), "it sleeps")
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await soon(task)
                assert await soon(pool.fetchval("SELECT pg_backend_pid()")) == pid
        assert jobs.rows() == []
        assert heard == []

    async def test_a_second_cancellation_ends_the_wait_and_the_rollback_goes_on(
        self, database_url: str, schema: str, jobs: Jobs
    ) -> None:
        with complaints() as heard, held("ROLLBACK"):
            async with asyncpg.create_pool(
                named(database_url, schema), min_size=0, max_size=1, connection_class=Held
            ) as pool:

                async def sleeps() -> None:
                    async with AsyncpgDriver(pool).transaction() as executor:
                        await executor.execute(Statement("SELECT 1 FROM pg_sleep(600)", {}))

                task = asyncio.create_task(sleeps())
                (pid,) = await eventually(lambda: jobs.sessions(schema, "wait_event = 'PgSleep'"), "it sleeps")
                task.cancel()
                await until_held(task)
                task.cancel()
                await soon(asyncio.wait([task]))
                assert task.cancelled()
                assert await soon(pool.fetchval("SELECT pg_backend_pid()")) == pid
        assert heard == []

    async def test_a_cancelled_statement_gives_its_connection_back_as_it_was(
        self, database_url: str, schema: str, jobs: Jobs
    ) -> None:
        with complaints() as heard:
            async with asyncpg.create_pool(named(database_url, schema), min_size=0, max_size=1) as pool:

                async def sleeps() -> None:
                    async with AsyncpgDriver(pool).transaction() as executor:
                        await executor.execute(Statement("SELECT 1 FROM pg_sleep(600)", {}))

                task = asyncio.create_task(sleeps())
                (pid,) = await eventually(lambda: jobs.sessions(schema, "wait_event = 'PgSleep'"), "it sleeps")
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await soon(task)
                assert await pool.fetchval("SELECT pg_backend_pid()") == pid
        assert heard == []


class TestAClient:
    @pytest.mark.parametrize("cache", [100, 0])
    async def test_it_is_woken_by_a_commit_and_completes_a_job_in_its_workers_transaction(
        self, database_url: str, schema: str, jobs: Jobs, cache: int
    ) -> None:
        jobs.execute("CREATE TABLE {schema}.work (job_id bigint)")
        workers = river.Workers()
        first = True

        @workers.work()
        async def work(job: river.Job[Note], ctx: river.WorkContext) -> None:
            nonlocal first
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(f'INSERT INTO "{schema}".work VALUES ($1)', job.id)
                completed = await ctx.complete_tx(connection)
                assert completed.state is river.JobState.COMPLETED
                if first:  # and its work is undone with the completion
                    first = False
                    raise ZeroDivisionError

        async with asyncpg.create_pool(
            named(database_url, schema), min_size=0, max_size=8, statement_cache_size=cache
        ) as pool:
            client = river.AsyncClient(
                pool,
                schema=schema,
                workers=workers,
                queues={"default": 2},
                fetch_poll_interval=NEVER_SECONDS,
                retry_policy=AtOnce(),
            )
            async with client:
                await eventually(lambda: jobs.sessions(schema, LISTENING), "the client listens")
                done: list[int] = []
                for _ in range(3):
                    async with pool.acquire() as connection, connection.transaction():
                        inserted = await client.insert_tx(connection, Note())
                    await jobs.until(inserted.job.id, "completed")
                    done.append(inserted.job.id)
        assert [row["job_id"] for row in jobs.execute("SELECT * FROM {schema}.work ORDER BY 1")] == done
        assert [row["attempt"] for row in jobs.rows()] == [2, 1, 1]

    async def test_it_lives_through_the_loss_of_all_its_connections(
        self, database_url: str, schema: str, jobs: Jobs
    ) -> None:
        workers = river.Workers()

        @workers.work()
        async def work(job: river.Job[Note], ctx: river.WorkContext) -> None:
            """Nothing to do."""

        async with asyncpg.create_pool(named(database_url, schema), min_size=0, max_size=8) as pool:
            client = river.AsyncClient(pool, schema=schema, workers=workers, queues={"default": 2})
            async with client:
                before = await eventually(lambda: jobs.sessions(schema, LISTENING), "the client listens")
                jobs.terminate(jobs.sessions(schema))
                await jobs.until(jobs.add(), "completed")
                after = await eventually(lambda: jobs.sessions(schema, LISTENING), "the client listens again")
        assert set(before).isdisjoint(after)


def for_asyncpg(url: str) -> str:
    return url.replace("postgresql://", "asyncpg://", 1)


class AtOnce:
    def next_retry(self, job: river.JobRow, now: Any) -> Any:
        return now


class TestPoolsOfTheDriversOwn:
    async def test_an_asyncpg_url_makes_one(self, database_url: str, schema: str, jobs: Jobs) -> None:
        client = river.AsyncClient(for_asyncpg(database_url), schema=schema)
        inserted = await client.insert(Note())
        assert jobs.row(inserted.job.id)["kind"] == "note"
        await client.stop()

    async def test_a_blocking_client_works_on_one_and_leaves_no_session(
        self, database_url: str, schema: str, jobs: Jobs
    ) -> None:
        workers = river.Workers()

        @workers.work()
        def work(job: river.Job[Note], ctx: river.WorkContext) -> None:
            """Nothing to do."""

        url = for_asyncpg(named(database_url, schema))
        client = river.Client(url, schema=schema, workers=workers, queues={"default": 2})
        for _ in range(2):
            await asyncio.to_thread(client.start)
            inserted = await asyncio.to_thread(client.insert, Note())
            await jobs.until(inserted.job.id, "completed")
            await asyncio.to_thread(client.stop)
            await eventually(lambda: not jobs.sessions(schema), "no session is left")

    def test_each_event_loop_has_its_own(self, database_url: str) -> None:
        driver = AsyncpgDriver.connect(database_url, max_size=1)
        pids: list[Any] = []

        async def asks(*, closes: bool) -> None:
            async with driver.autocommit() as executor:
                pids.extend(await executor.execute(Statement("SELECT pg_backend_pid()", {})))
            if closes:
                await driver.close()

        with warnings.catch_warnings():
            # The first loop ends without a close: what it has left open is Python's to collect, and to complain of.
            warnings.simplefilter("ignore", ResourceWarning)
            asyncio.run(asks(closes=False))
            asyncio.run(asks(closes=True))
            gc.collect()
        asyncio.run(asks(closes=True))
        assert len(set(pids)) == 3

    async def test_tasks_that_come_at_once_share_one(self, database_url: str, schema: str, jobs: Jobs) -> None:
        driver = AsyncpgDriver.connect(named(database_url, schema), max_size=2)

        async def asks() -> None:
            async with driver.autocommit() as executor:
                await executor.execute(Statement("SELECT 1 FROM pg_sleep(0.01)", {}))

        await asyncio.gather(*(asks() for _ in range(10)))
        assert len(jobs.sessions(schema)) == 2
        await driver.close()
        await eventually(lambda: not jobs.sessions(schema), "all are closed")

    @pytest.mark.parametrize("rest", [f"me:1{SECRET}/x@host/db", f"me@host:{SECRET}/db"])
    async def test_a_url_that_cannot_be_read_is_told_how_to_write_one_without_its_password(self, rest: str) -> None:
        with pytest.raises(DatabaseError, match="write postgresql://user:password@host") as raised:
            async with AsyncpgDriver.connect(f"postgresql://{rest}").transaction():
                pass
        assert raised.value.error_class is ErrorClass.OTHER
        shown: list[str] = []
        error: BaseException | None = raised.value
        while error is not None:
            shown.append(str(error))
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        assert SECRET not in "".join(shown)

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            (lambda: AsyncpgDriver.connect(f"mysql://me:{SECRET}@host/db"), "mysql://"),
            (lambda: AsyncpgDriver.connect(f"host=host password={SECRET}"), "postgresql://user:password@host"),
            (lambda: AsyncpgDriver.connect("postgresql://", max_size=0), "max_size=0"),
            (lambda: AsyncpgDriver("postgresql://"), r"AsyncpgDriver\.connect\(url\)"),  # type: ignore[arg-type]
        ],
    )
    def test_what_makes_no_driver_is_refused_at_once(self, make: Callable[[], object], said: str) -> None:
        with pytest.raises(river.ConfigurationError, match=said) as raised:
            make()
        assert SECRET not in str(raised.value)

    async def test_a_blocking_client_over_a_pool_is_refused_and_told_what_to_take(self, database_url: str) -> None:
        async with asyncpg.create_pool(database_url, min_size=0) as pool:
            assert type(driver_for(pool, "asyncio")) is AsyncpgDriver
            for blocking in (river.Client, river.Migrator):
                with pytest.raises(river.ConfigurationError, match="AsyncClient"):
                    blocking(pool)

    def test_an_asyncpg_url_of_sqlalchemys_stays_sqlalchemys(self) -> None:
        assert type(driver_for("postgresql+asyncpg://me@host/db", "asyncio")).__module__.startswith("river_sqlalchemy")
