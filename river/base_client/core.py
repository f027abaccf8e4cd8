"""What every part of a client rests on: its configuration, its driver, and the way into a handle's transaction."""

from __future__ import annotations

import os
import re
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
from ..shapes import is_mapping
from ..sql import Dialect, dialect_for

T = TypeVar("T")

_ANY_SCHEMA = "*"
"""In the place of a schema's name, which it cannot be."""

_OWN_TABLES = "river_(?:job|queue|client|client_queue|leader|migration|notification|python_[a-z_]+)"


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
        """Raise a better error than *error*, if it says that one of River's own tables is not there."""
        if _lacks_own_table(error, self.config.schema):
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
        return Job.of(row, decode(row.encoded_args))

    def _tx(self, handle: object, operation: Callable[[Dialect], Operation[T]]) -> T | Coroutine[Any, Any, T]:
        """Run an operation in the transaction of a host's handle, in the colour of the handle."""
        executor = adopt(handle)
        made = operation(self.sql(executor.database))
        if isinstance(executor, Executor):
            with noted(self.config.schema):
                return run(executor, made)
        return self._tx_async(executor, made)

    async def _tx_async(self, executor: AsyncExecutor, operation: Operation[T]) -> T:
        with noted(self.config.schema):
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
def noted(schema: str | None = _ANY_SCHEMA) -> Generator[None]:
    """Add to an error of the database in a host's transaction what that means; the error itself passes as it is.

    Args:
        schema: Where River's tables are; None if the search_path says. Without it, a table of River's name in any
            schema counts as River's, which is right where no SQL of the host's is part of the statement.
    """
    try:
        yield
    except Exception as error:
        state = sqlstate_of(error)
        if state is not None:
            error.add_note("River ran this in your transaction, which has failed with it as a whole: roll it back")
        if _lacks_own_table(error, schema):
            error.add_note(
                "River's tables are not where this connection looks for them: make them with `river migrate-up` or "
                "river.Migrator(...).up(), or correct the client's schema option"
            )
        raise


def _lacks_own_table(error: Exception, schema: str | None) -> bool:
    """Whether an error says that a table of River's is not there, rather than one that a condition of the host's names.

    PostgreSQL has one SQLSTATE for a table that is missing and for a name that stands for none of the statement's. Its
    message, in any language, has the name as the statement has it, and for the latter the keyword FROM.
    """
    if ErrorClass.of(sqlstate_of(error) or "") is not ErrorClass.UNDEFINED_TABLE:
        return False
    qualifier = {None: "", _ANY_SCHEMA: r"(?:[^\W\d]\w*\.)?"}.get(schema, rf"{schema}\.")
    return re.search(rf"(?<![\w.]){qualifier}{_OWN_TABLES}(?![\w.])", _message_of(error)) is not None


def _message_of(error: Exception) -> str:
    """What the server said, without the lines after it, which quote the statement; empty where that is about a name."""
    original: BaseException = getattr(error, "orig", None) or error
    fields: object = next(iter(original.args), None)
    whole = fields.get("M") if is_mapping(fields) else original  # pg8000 has the fields of the server's answer
    message = str(whole).partition("\n")[0]
    return "" if "FROM" in message else message
