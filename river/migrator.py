"""Creating, upgrading and removing River's tables, from a program of the host's.

    applied versions -> plan (pure) -> for each version: one transaction that waits for its turn, looks again,
    runs the version's statements and records it

A version that fails is rolled back alone: the schema stays at the one before it, and the next call goes on from
there. Several processes may migrate at the same time: one does the work, the others wait and find it done.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypedDict

from typing_extensions import Unpack

from .config import seconds
from .driver import AsyncDriver, Colour, Driver, driver_for, is_asyncio
from .engine.migration import plan_down, plan_up, unapplied
from .errors import ConfigurationError, DatabaseError, ErrorClass, MigrationError
from .operation import AsyncExecutor, Executor, Operation, run, run_async
from .operations import migrate
from .sql.migration import MAIN, Direction, Migration, migrations
from .sql.migration.postgres import Timeouts, read_committed, set_timeouts
from .sql.names import check_schema

DEFAULT_STATEMENT_TIMEOUT = timedelta(seconds=10)
"""As the command line of River's other languages has it: a lock on a busy table must not be held for long."""

DEFAULT_LOCK_TIMEOUT = timedelta(seconds=60)
"""Six statements of other processes that take as long as they may."""

_ANSWER_SECONDS = 10.0
"""How long a server may take to answer what takes it no time."""

_ACTIVE_TRANSACTION = "25001"
_LOCK_NOT_AVAILABLE = "55P03"
_QUERY_CANCELLED = "57014"
_DUPLICATE_TABLE = "42P07"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationStep:
    """One version that is to be applied or reverted, or has been.

    Attributes:
        migration: The version.
        direction: ``up`` or ``down``.
        schema: Where; None is where the session's search path leads.
        duration: How long it took, its transaction included; None if it was not run.
    """

    migration: Migration
    direction: Direction
    schema: str | None
    duration: timedelta | None = None

    @property
    def version(self) -> int:
        """The version's number."""
        return self.migration.version

    @property
    def name(self) -> str:
        """What the version is about."""
        return self.migration.name

    @property
    def sql(self) -> str:
        """What is run, comments included, without the statement that records the version."""
        return self.migration.script(self.direction, self.schema)


class Extent(TypedDict, total=False):
    """How far to migrate; each option may be left out.

    Attributes:
        target_version: The last version that is applied afterwards. Downwards it has to be applied, or 0, which
            removes everything.
        max_steps: How many versions to go at most, from 1. Of both limits, the one that comes first counts.
        dry_run: Only return what would be done.
        on_step: Called after each version that this call has done, with its transaction committed.
    """

    target_version: int | None
    max_steps: int | None
    dry_run: bool
    on_step: Callable[[MigrationStep], object] | None


class _BaseMigrator:
    def __init__(
        self,
        source: object,
        colour: Colour,
        line: str,
        schema: str | None,
        statement_timeout: float | timedelta | None,
        lock_timeout: float | timedelta,
    ) -> None:
        check_schema(schema)
        driver = driver_for(source, colour)
        self._owns_driver = driver is not source
        self._any_driver = driver
        self._schema = schema
        self._line = line
        self._migrations = {each.version: each for each in migrations(driver.database, line)}
        self._lock_ms = _milliseconds("lock_timeout", lock_timeout)
        self._statement_ms = 0 if statement_timeout is None else _milliseconds("statement_timeout", statement_timeout)

    @property
    def migrations(self) -> tuple[Migration, ...]:
        """All versions of the line that this library knows, ascending."""
        return tuple(self._migrations.values())

    def _plan(
        self, direction: Direction, applied: tuple[int, ...], target: int | None, max_steps: int | None
    ) -> list[MigrationStep]:
        known = list(self._migrations)
        if direction == "up":
            versions = plan_up(known, applied, target=target, max_steps=max_steps)
        else:
            versions = plan_down(self._line, known, applied, target=target, max_steps=max_steps)
        return [
            MigrationStep(migration=self._migrations[version], direction=direction, schema=self._schema)
            for version in versions
        ]

    def _applied(self) -> Operation[tuple[int, ...]]:
        # Who rebuilds the table of versions keeps others from reading it.
        yield from set_timeouts(Timeouts(lock=f"{self._lock_ms}ms", statement="0"))
        with self._waiting(None):
            return (yield from migrate.applied(self._schema, self._line))

    def _unapplied(self, applied: tuple[int, ...], target: int | None) -> list[int]:
        return unapplied(self._line, list(self._migrations), applied, target=target)

    def _run(self, step: MigrationStep) -> Operation[bool]:
        yield from read_committed()
        with self._waiting(step.version):
            yield from migrate.exclusive(self._schema, wait_ms=self._lock_ms)
        yield from set_timeouts(Timeouts(lock="0", statement=f"{self._statement_ms}ms"))
        return (yield from migrate.step(self._schema, step.migration, step.direction))

    def _seconds(self, step: MigrationStep | None = None) -> float | None:
        """A time in which the server has long answered, or ended the step itself: it is out of reach by then."""
        if step is None:
            return self._lock_ms / 1000 + _ANSWER_SECONDS
        if not self._statement_ms:
            return None
        statements = len(step.migration.sql(step.direction)) + 1
        return (self._lock_ms + self._statement_ms * statements) / 1000 + _ANSWER_SECONDS

    @contextmanager
    def _waiting(self, version: int | None) -> Generator[None]:
        try:
            yield
        except DatabaseError as error:
            if error.sqlstate != _LOCK_NOT_AVAILABLE:
                raise
            raise MigrationError(
                f"another process has been migrating this schema for {self._lock_ms / 1000:g} s, and nothing was "
                "changed here: try again when it is done, or give a longer lock timeout",
                version=version,
            ) from error

    @contextmanager
    def _failing(self, step: MigrationStep) -> Generator[None]:
        try:
            yield
        except DatabaseError as error:
            lost = error.error_class is ErrorClass.CONNECTION_LOST
            outcome = "was interrupted" if lost else "failed and was rolled back"
            # The first line: the others show where in River's own SQL it happened. The cause has them.
            reason = str(error).partition("\n")[0]
            raise MigrationError(
                f"version {step.version:03} [{step.direction}] {step.name} {outcome}: {reason}{self._hint(error)}",
                version=step.version,
            ) from error

    def _hint(self, error: DatabaseError) -> str:
        if error.error_class is ErrorClass.CONNECTION_LOST:
            return "; it is done as a whole or not at all: try again, and what is done is left alone"
        if error.sqlstate == _QUERY_CANCELLED and self._statement_ms:
            return f"; a statement may take {self._statement_ms / 1000:g} s: give a longer statement timeout"
        if error.sqlstate == _DUPLICATE_TABLE:
            return "; if River's tables were made without recording their versions, insert those into river_migration"
        if error.sqlstate == _ACTIVE_TRANSACTION:
            return "; the engine asks something at the begin of each transaction: give one in READ COMMITTED"
        return ""


class Migrator(_BaseMigrator):
    """Migrates one line of River's schema; blocking.

    Args:
        source: A SQLAlchemy `Engine`, a psycopg `ConnectionPool`, a URL, or a driver. What the host made, the host
            closes; of a URL a connection is made for each call, and closed after it.
        line: Which line of versions; ``main`` is the one of all clients.
        schema: Where River's tables are, or are to be; it has to exist. None leaves it to the session's search_path.
        statement_timeout: How long one statement may take, waiting for locks included, in seconds or as a timedelta;
            None sets no limit. Building an index on a table of millions of jobs takes minutes.
        lock_timeout: How long to wait for another process that migrates the same schema.

    Raises:
        ConfigurationError: An argument breaks a rule; the message names both.
    """

    def __init__(
        self,
        source: object,
        *,
        line: str = MAIN,
        schema: str | None = None,
        statement_timeout: float | timedelta | None = DEFAULT_STATEMENT_TIMEOUT,
        lock_timeout: float | timedelta = DEFAULT_LOCK_TIMEOUT,
    ) -> None:
        super().__init__(source, "blocking", line, schema, statement_timeout, lock_timeout)
        if is_asyncio(self._any_driver):
            raise ConfigurationError(f"a Migrator blocks, and {_shown(source)} is for asyncio: use river.AsyncMigrator")
        self._driver: Driver = self._any_driver

    def up(self, **extent: Unpack[Extent]) -> list[MigrationStep]:
        """Apply what is missing, each version in a transaction of its own, and return what this call has applied.

        Args:
            extent: How far to go; see `Extent`.

        Raises:
            ConfigurationError: There is no such version or schema; nothing was changed.
            MigrationError: A version failed, and was rolled back. Those before it stay applied.
            DatabaseError: The database could not be asked what is applied; nothing was changed.
        """
        return self._migrate("up", **extent)

    def down(self, **extent: Unpack[Extent]) -> list[MigrationStep]:
        """Revert the last version, or all above a target; otherwise as `up`. Data of what is dropped is lost.

        Args:
            extent: How far to go; see `Extent`. One version, if it says neither a target nor a number of steps.

        Raises:
            NewerSchemaError: The database is at a version that is not known here; nothing was changed.
        """
        return self._migrate("down", **extent)

    def applied(self) -> list[int]:
        """The versions that are applied, ascending, whoever applied them; empty where there are no tables yet.

        Raises:
            ConfigurationError: There is no such schema.
            MigrationError: Another process migrates this schema, and was not done in time.
            DatabaseError: The database failed.
        """
        with self._closing():
            return list(self._read())

    def validate(self, *, target_version: int | None = None) -> list[int]:
        """The versions that are missing, up to a target; empty if the schema is as this library needs it.

        Raises:
            ConfigurationError: There is no such version or schema.
            NewerSchemaError: The database is at a version that is not known here.
            DatabaseError: The database failed.
        """
        with self._closing():
            return self._unapplied(self._read(), target_version)

    def _read(self) -> tuple[int, ...]:
        with self._driver.transaction() as executor, _aborting(executor, self._seconds()):
            return run(executor, self._applied())

    def _migrate(
        self,
        direction: Direction,
        *,
        target_version: int | None = None,
        max_steps: int | None = None,
        dry_run: bool = False,
        on_step: Callable[[MigrationStep], object] | None = None,
    ) -> list[MigrationStep]:
        with self._closing():
            plan = self._plan(direction, self._read(), target_version, max_steps)
            if dry_run:
                return plan
            done: list[MigrationStep] = []
            for step in plan:
                started = time.monotonic()
                if self._do(step):
                    done.append(replace(step, duration=timedelta(seconds=time.monotonic() - started)))
                    if on_step is not None:
                        on_step(done[-1])
            return done

    def _do(self, step: MigrationStep) -> bool:
        with self._failing(step), self._driver.transaction() as executor:
            with _aborting(executor, self._seconds(step)):
                return run(executor, self._run(step))

    @contextmanager
    def _closing(self) -> Generator[None]:
        try:
            yield
        finally:
            if self._owns_driver:
                self._driver.close()


class AsyncMigrator(_BaseMigrator):
    """Migrates one line of River's schema; asyncio. Otherwise as a `Migrator`.

    Args:
        source: A SQLAlchemy `AsyncEngine`, a psycopg `AsyncConnectionPool`, a URL, or a driver.
        line: As of a `Migrator`, like everything that follows.
    """

    def __init__(
        self,
        source: object,
        *,
        line: str = MAIN,
        schema: str | None = None,
        statement_timeout: float | timedelta | None = DEFAULT_STATEMENT_TIMEOUT,
        lock_timeout: float | timedelta = DEFAULT_LOCK_TIMEOUT,
    ) -> None:
        super().__init__(source, "asyncio", line, schema, statement_timeout, lock_timeout)
        if not is_asyncio(self._any_driver):
            raise ConfigurationError(
                f"an AsyncMigrator is for asyncio, and {_shown(source)} blocks: use river.Migrator"
            )
        self._driver: AsyncDriver = self._any_driver

    async def up(self, **extent: Unpack[Extent]) -> list[MigrationStep]:
        """Apply what is missing, as `Migrator.up`. A cancelled call may have applied some versions, each as a whole."""
        return await self._migrate("up", **extent)

    async def down(self, **extent: Unpack[Extent]) -> list[MigrationStep]:
        """Revert versions, as `Migrator.down`. A cancelled call may have reverted some, each as a whole."""
        return await self._migrate("down", **extent)

    async def applied(self) -> list[int]:
        """The versions that are applied, as `Migrator.applied`."""
        async with self._closing():
            return list(await self._read())

    async def validate(self, *, target_version: int | None = None) -> list[int]:
        """The versions that are missing, as `Migrator.validate`."""
        async with self._closing():
            return self._unapplied(await self._read(), target_version)

    async def _read(self) -> tuple[int, ...]:
        async with self._driver.transaction() as executor:
            with _aborting_async(executor, self._seconds()):
                return await run_async(executor, self._applied())

    async def _migrate(
        self,
        direction: Direction,
        *,
        target_version: int | None = None,
        max_steps: int | None = None,
        dry_run: bool = False,
        on_step: Callable[[MigrationStep], object] | None = None,
    ) -> list[MigrationStep]:
        async with self._closing():
            plan = self._plan(direction, await self._read(), target_version, max_steps)
            if dry_run:
                return plan
            done: list[MigrationStep] = []
            for step in plan:
                started = time.monotonic()
                if await self._do(step):
                    done.append(replace(step, duration=timedelta(seconds=time.monotonic() - started)))
                    if on_step is not None:
                        on_step(done[-1])
            return done

    async def _do(self, step: MigrationStep) -> bool:
        with self._failing(step):
            async with self._driver.transaction() as executor:
                with _aborting_async(executor, self._seconds(step)):
                    return await run_async(executor, self._run(step))

    @asynccontextmanager
    async def _closing(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if self._owns_driver:
                await self._driver.close()


@contextmanager
def _aborting(executor: Executor, seconds: float | None) -> Generator[None]:
    """Give the connection up after so many seconds, for a server that cannot be reached any more."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, executor.abort)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _aborting_async(executor: AsyncExecutor, seconds: float | None) -> Generator[None]:
    if seconds is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(seconds, executor.abort)
    try:
        yield
    finally:
        timer.cancel()


def _shown(source: object) -> str:
    """Of a URL only the scheme: the rest may hold a password."""
    return f"{source.partition('://')[0]}://..." if isinstance(source, str) else repr(type(source))


def _milliseconds(option: str, value: float | timedelta) -> int:
    # PostgreSQL's settings are 32 bits wide: 25 days.
    return min(int(seconds(option, value) * 1000), 2**31 - 1)
