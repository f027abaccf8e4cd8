"""A driver of either colour behind one face, and the schema that its tests have.

The methods of a `Stage` and of a `Session` are coroutines; over a blocking driver they never suspend. What a test sets
up, and what it looks at, goes through the driver as well, on other connections of its: no second library is needed.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from ...driver import AnyDriver, AsyncListener, Listener, Notification, is_asyncio
from ...errors import DatabaseError
from ...migrator import AsyncMigrator, Migrator
from ...operation import AsyncExecutor, Executor, Operation, Query, Rows, Statement, Value, run, run_async
from .playing import Playable, Player, settled

T = TypeVar("T")

_numbers = itertools.count(1)


class Session:
    """An executor of either colour.

    Attributes:
        executor: The driver's, or an adopter's.
    """

    def __init__(self, executor: Executor | AsyncExecutor) -> None:
        self.executor = executor

    async def run(self, operation: Operation[T] | Query[T]) -> T:
        """Run an operation to its end."""
        if isinstance(self.executor, Executor):
            return run(self.executor, operation)
        return await run_async(self.executor, operation)

    async def ask(self, sql: str, **parameters: Value) -> Rows:
        """Run a statement; its rows exactly as the executor gives them."""
        return await self.run(question(sql, **parameters))

    async def value(self, sql: str, **parameters: Value) -> Value:
        """The one value of the one row of a statement."""
        ((value,),) = await self.ask(sql, **parameters)
        return value

    async def pid(self) -> int:
        """The process that serves this connection."""
        return whole(await self.value("SELECT pg_backend_pid()"))

    async def state_of(self, pid: int) -> Value:
        """What the server says that another session does; None if it has ended."""
        sql = "SELECT coalesce(state, '') FROM pg_stat_activity WHERE pid = CAST(:pid AS integer)"
        rows = await self.ask(sql, pid=pid)
        return rows[0][0] if rows else None

    def abort(self) -> None:
        """End a call in progress; the connection is lost."""
        self.executor.abort()


class Ears:
    """A listener of either colour.

    Args:
        listener: The driver's.
        seconds: How long to wait for what must be heard.
    """

    def __init__(self, listener: Listener | AsyncListener, seconds: float) -> None:
        self._listener = listener
        self._seconds = seconds

    async def hear(self) -> list[Notification]:
        """What is heard next."""
        return await self.wait(self._seconds)

    async def wait(self, seconds: float) -> list[Notification]:
        """What was heard."""
        heard: list[Notification] = await settled(self._listener.wait(seconds))
        return heard

    async def check(self) -> None:
        """Ask for a sign of life."""
        await settled(self._listener.check())

    def abort(self) -> None:
        """End a wait."""
        self._listener.abort()


class Stage(Playable):
    """A driver, and a schema that is made for it with River's tables and one of the tests' own, ``note``.

    Attributes:
        driver: What is tested.
        schema: Its schema's name, in mixed case, where a forgotten quotation mark shows.
        url: Where the database is.
    """

    def __init__(self, player: Player, driver: AnyDriver, schema: str, url: str) -> None:
        super().__init__(player)
        self.driver = driver
        self.schema = schema
        self.url = url

    def at(self, table: str) -> str:
        """The name of a table of the schema, as it stands in SQL."""
        return f'"{self.schema}".{table}'

    @property
    def note(self) -> str:
        """The tests' own table: a unique ``name``, and a ``number``."""
        return self.at("note")

    def name(self) -> str:
        """A text that nothing else on the server has, whoever else runs the suite there."""
        return f"name {secrets.token_hex(8)}"

    def table(self) -> str:
        """The name of a table that is not there yet."""
        return self.at(f"table_{next(_numbers)}")

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Session]:
        """The driver's `transaction`."""
        if is_asyncio(self.driver):
            async with self.driver.transaction() as async_executor:
                yield Session(async_executor)
        else:
            with self.driver.transaction() as executor:
                yield Session(executor)

    @asynccontextmanager
    async def autocommit(self) -> AsyncGenerator[Session]:
        """The driver's `autocommit`."""
        if is_asyncio(self.driver):
            async with self.driver.autocommit() as async_executor:
                yield Session(async_executor)
        else:
            with self.driver.autocommit() as executor:
                yield Session(executor)

    @asynccontextmanager
    async def opened(self, how: str) -> AsyncGenerator[Session]:
        """The driver's ``transaction`` or ``autocommit``."""
        async with self.transaction() if how == "transaction" else self.autocommit() as session:
            yield session

    @asynccontextmanager
    async def listening(self, *channels: str) -> AsyncGenerator[Ears]:
        """The driver's `listen`; a driver that says that it cannot has the test skipped."""
        self.needs_to_listen()
        if is_asyncio(self.driver):
            async with self.driver.listen(channels) as async_listener:
                yield Ears(async_listener, self.player.event_seconds)
        else:
            with self.driver.listen(channels) as listener:
                yield Ears(listener, self.player.event_seconds)

    def needs_to_listen(self) -> None:
        """Skip the test if the driver cannot listen."""
        if not self.driver.supports_listen:
            pytest.skip("supports_listen is False: this driver cannot listen")

    async def ask(self, sql: str, how: str = "autocommit", **parameters: Value) -> Rows:
        """Run a statement on a connection for itself."""
        async with self.opened(how) as session:
            return await session.ask(sql, **parameters)
        raise AssertionError("the driver has swallowed what ended a statement")

    async def value(self, sql: str, how: str = "autocommit", **parameters: Value) -> Value:
        """The one value of the one row of a statement."""
        ((value,),) = await self.ask(sql, how, **parameters)
        return value

    async def run(self, operation: Operation[T] | Query[T]) -> T:
        """Run an operation on a connection for itself, as a client does."""
        async with self.autocommit() as session:
            return await session.run(operation)
        raise AssertionError("the driver has swallowed what ended an operation")

    async def failure(self, sql: str, how: str = "autocommit", **parameters: Value) -> DatabaseError:
        """The error with which a statement fails."""
        with pytest.raises(DatabaseError) as failed:
            await self.ask(sql, how, **parameters)
        return failed.value

    async def notes(self, *names: str) -> list[str]:
        """Which of these names are committed in the tests' own table."""
        sql = f"SELECT 1 FROM {self.note} WHERE name = CAST(:name AS text)"
        return [name for name in names if await self.ask(sql, name=name)]

    def noting(self, name: str) -> Query[Rows]:
        """Writes a name into the tests' own table."""
        return question(f"INSERT INTO {self.note} (name) VALUES (CAST(:name AS text))", name=name)

    async def notify(self, channel: str, payload: str) -> None:
        """Send a notification in a transaction of its own."""
        await self.run(notifying(channel, payload))

    async def terminate(self, pid: int) -> None:
        """End the session of a process as an administrator would; return when it is gone."""
        await self.ask("SELECT pg_terminate_backend(CAST(:pid AS integer))", pid=pid)
        await self.until_gone(pid)

    async def until_gone(self, pid: int) -> None:
        """Return when a session has ended."""

        async def is_gone() -> bool:
            return not await self.ask("SELECT 1 FROM pg_stat_activity WHERE pid = CAST(:pid AS integer)", pid=pid)

        await self.player.until(is_gone, "a session has ended")

    async def until_free(self, watcher: Session, pid: int) -> None:
        """Return when a session has no transaction, or has ended, as another one sees it."""

        async def is_free() -> bool:
            return await watcher.state_of(pid) in ("idle", None)

        await self.player.until(is_free, "a connection that was left has no transaction, or is closed")

    async def until_it_runs(self, tag: str) -> None:
        """Return when a statement that holds *tag* runs."""
        text = """
            SELECT count(*) FROM pg_stat_activity
            WHERE state = 'active' AND pid <> pg_backend_pid() AND strpos(query, CAST(:tag AS text)) > 0
        """

        async def runs() -> bool:
            return await self.value(text, tag=tag) != 0

        await self.player.until(runs, f"a statement with {tag} runs")


@asynccontextmanager
async def staged(player: Player, driver: AnyDriver, url: str) -> AsyncGenerator[Stage]:
    """A stage with a schema of its own, which is dropped afterwards."""
    stage = Stage(player, driver, f"River_Conformance_{secrets.token_hex(6)}", url)
    await stage.ask(f'CREATE SCHEMA "{stage.schema}"')
    try:
        await migrated(driver, stage.schema)
        await stage.ask(f"CREATE TABLE {stage.note} (name text CONSTRAINT note_once UNIQUE, number bigint DEFAULT 0)")
        yield stage
    finally:
        async with stage.transaction() as session:
            # A test that has left a transaction open must show, not hang the next ones.
            await session.ask("SELECT set_config('lock_timeout', '10s', true)")
            await session.ask(f'DROP SCHEMA "{stage.schema}" CASCADE')


async def migrated(driver: AnyDriver, schema: str) -> None:
    """Make River's tables in a schema, through the driver."""
    if is_asyncio(driver):
        await AsyncMigrator(driver, schema=schema).up()
    else:
        Migrator(driver, schema=schema).up()


def question(sql: str, **parameters: Value) -> Query[Rows]:
    """A statement of which the rows are wanted as they are."""
    return Query(Statement(sql, parameters), _as_it_is)


def notifying(channel: str, payload: str) -> Query[Rows]:
    """Sends a notification when it is committed."""
    # Counted, because the function's own result has a type that not every library can read.
    return question(
        "SELECT count(pg_notify(CAST(:channel AS text), CAST(:payload AS text)))", channel=channel, payload=payload
    )


def whole(value: Value) -> int:
    """A value that must be an integer."""
    assert type(value) is int, f"an integer came back as {type(value).__name__}: {value!r}"
    return value


async def gathered(ears: Ears, until: Callable[[Sequence[Notification]], bool]) -> list[Notification]:
    """What is heard until *until* says that it is enough."""
    heard: list[Notification] = []
    while not until(heard):
        more = await ears.hear()
        assert more, f"nothing more was heard than {heard!r}"
        heard += more
    return heard


def _as_it_is(rows: Rows) -> Rows:
    return rows
