"""What every part of a client rests on: its configuration, its driver, and the way into a handle's transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..args import any_json
from ..config import Config, ConfigOptions
from ..driver import AnyDriver, AsyncDriver, Colour, Driver, adopt, driver_for
from ..errors import ClientStateError, DatabaseError, ErrorClass, sqlstate_of
from ..hook import Extensions
from ..job import Job, JobRow
from ..operation import AsyncExecutor, Database, Executor, Operation, run, run_async
from ..sql import Dialect, dialect_for

T = TypeVar("T")


class ClientCore:
    """The part of a client that needs no connection of its own.

    Args:
        source: What the client's own connections come from; None for a client that only works in transactions of
            the host's.
        colour: Which driver to make of a URL.
        options: See `Config`.
    """

    def __init__(self, source: object, colour: Colour, options: ConfigOptions) -> None:
        self.config = Config.of(options)
        self.made_in_process = os.getpid()
        self.extensions = Extensions(self.config.hooks, self.config.middleware)
        self._driver: AnyDriver | None = None if source is None else driver_for(source, colour)
        self._dialects: dict[Database, Dialect] = {}
        if self._driver is not None:
            self.sql(self._driver.database)  # refuses a database that River does not know

    @property
    def id(self) -> str:
        """The name of this client in ``attempted_by``."""
        return self.config.id

    def sql(self, database: Database) -> Dialect:
        """River's statements for a database, in this client's schema."""
        dialect = self._dialects.get(database)
        if dialect is None:
            dialect = self._dialects[database] = dialect_for(database, self.config.schema)
        return dialect

    def explain(self, error: DatabaseError) -> None:
        """Raise a better error than *error*, if it says that River's tables are not there."""
        if error.error_class is ErrorClass.UNDEFINED_TABLE:
            where = f"the schema {self.config.schema!r}" if self.config.schema else "the search_path"
            raise DatabaseError(
                f"River's tables are not in {where} of this database: make them with `river migrate-up` or "
                f"river.Migrator(...).up(), or correct the client's schema option ({error})",
                sqlstate=error.sqlstate,
                error_class=error.error_class,
            ) from error

    @property
    def driver(self) -> AnyDriver:
        """Where the client's own connections come from.

        Raises:
            ClientStateError: It was made without any.
        """
        if self._driver is None:
            raise ClientStateError(
                "this client was made without a database (source=None), so it can only work in your transactions: "
                "use the method ending in _tx, or make the client with an engine, pool or URL"
            )
        return self._driver

    def typed(self, row: JobRow) -> Job[Any]:
        """A row as the job of its kind: with args of its worker's class, or plain JSON where there is no worker."""
        registration = self.config.workers.get(row.kind) if self.config.workers else None
        decode = registration.codec.decode if registration else any_json
        return Job.of(row, decode(bytes(row.encoded_args).decode()))

    def _tx(self, handle: object, operation: Callable[[Dialect], Operation[T]]) -> T | Coroutine[Any, Any, T]:
        """Run an operation in the transaction of a host's handle, in the colour of the handle."""
        executor = adopt(handle)
        made = operation(self.sql(executor.database))
        if isinstance(executor, Executor):
            with noted():
                return run(executor, made)
        return self._tx_async(executor, made)

    async def _tx_async(self, executor: AsyncExecutor, operation: Operation[T]) -> T:
        with noted():
            return await run_async(executor, operation)
        raise AssertionError  # for the checker, to which a context manager might swallow an error

    def _query_blocking(self, driver: Driver, operation: Callable[[Dialect], Operation[T]]) -> T:
        with self._explained(), driver.autocommit() as executor:
            return run(executor, operation(self.sql(executor.database)))

    async def _query_async(self, driver: AsyncDriver, operation: Callable[[Dialect], Operation[T]]) -> T:
        with self._explained():
            async with driver.autocommit() as executor:
                return await run_async(executor, operation(self.sql(executor.database)))

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except DatabaseError as error:
            self.explain(error)
            raise


@contextmanager
def noted() -> Generator[None]:
    """Add to an error of the database in a host's transaction what that means; the error itself passes as it is."""
    try:
        yield
    except Exception as error:
        state = sqlstate_of(error)
        if state is not None:
            error.add_note("River ran this in your transaction, which has failed with it as a whole: roll it back")
        if state is not None and ErrorClass.of(state) is ErrorClass.UNDEFINED_TABLE:
            error.add_note(
                "River's tables are not where this connection looks for them: make them with `river migrate-up` or "
                "river.Migrator(...).up(), or correct the client's schema option"
            )
        raise
