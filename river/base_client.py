"""What both clients are made of: configuration, and everything that runs in a transaction of the host's.

A handle decides the colour, not the client: with a blocking connection or session the methods ending in ``_tx``
return a value, with an asyncio one an awaitable of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, overload

from typing_extensions import Unpack

from .args import Args, any_json
from .config import Config, ConfigOptions
from .driver import AnyDriver, AsyncDriver, AsyncHandle, BlockingHandle, Colour, Driver, adopt, driver_for
from .errors import (
    ClientStateError,
    DatabaseError,
    ErrorClass,
    InvalidJobError,
    SwallowedError,
    UnknownJobKindError,
)
from .hook import Extensions
from .insert import InsertManyParams, InsertOptions, InsertOpts, InsertParams, merge_options, prepare
from .job import InsertResult, Job, JobRow
from .operation import AsyncExecutor, Database, Executor, Operation, run, run_async
from .operations import jobs
from .sql import Dialect, dialect_for

A = TypeVar("A", bound=Args)
T = TypeVar("T")


class BaseClient:
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

    @overload
    def insert_tx(
        self,
        handle: BlockingHandle,
        args: A,
        opts: InsertOpts | None = None,
        **options: Unpack[InsertOptions],
    ) -> InsertResult[A]: ...
    @overload
    def insert_tx(
        self, handle: AsyncHandle, args: A, opts: InsertOpts | None = None, **options: Unpack[InsertOptions]
    ) -> Coroutine[Any, Any, InsertResult[A]]: ...
    def insert_tx(
        self, handle: object, args: A, opts: InsertOpts | None = None, **options: Unpack[InsertOptions]
    ) -> InsertResult[A] | Coroutine[Any, Any, InsertResult[A]]:
        """Insert a job inside the host's transaction: it exists if and only if that transaction commits.

        Args:
            handle: The connection, cursor or session whose transaction it is. It is neither committed nor rolled
                back here, and no savepoint is made: after a database error the transaction has failed as a whole.
            args: The job's args; its class decides the kind.
            opts: How to insert it.
            options: The same, as keywords.

        Returns:
            The job; of an asyncio handle, an awaitable of it, and nothing happens before it is awaited.

        Raises:
            InvalidJobError: The job breaks a rule; nothing was written.
            UnknownJobKindError: The client has workers, but none for this kind; nothing was written.
            HandleError: The handle cannot be used; nothing was written.
        """
        batch = [self._prepare(args, merge_options(opts, options))]
        return self._write_tx(handle, batch, lambda rows: self._inserted(args, rows[0]))

    @overload
    def insert_many_tx(
        self, handle: BlockingHandle, batch: Iterable[Args | InsertManyParams]
    ) -> list[InsertResult[Any]]: ...
    @overload
    def insert_many_tx(
        self, handle: AsyncHandle, batch: Iterable[Args | InsertManyParams]
    ) -> Coroutine[Any, Any, list[InsertResult[Any]]]: ...
    def insert_many_tx(
        self, handle: object, batch: Iterable[Args | InsertManyParams]
    ) -> list[InsertResult[Any]] | Coroutine[Any, Any, list[InsertResult[Any]]]:
        """Insert many jobs in one statement, inside the host's transaction; otherwise as `insert_tx`.

        Args:
            handle: The connection, cursor or session whose transaction it is.
            batch: Args, or `InsertManyParams` where a job has options of its own; at least one.

        Returns:
            The jobs in the order of *batch*; of an asyncio handle, an awaitable of them.
        """
        prepared = self._prepare_many(batch)
        return self._write_tx(handle, prepared, lambda rows: self._inserted_many(prepared, rows))

    @overload
    def job_get_tx(self, handle: BlockingHandle, job_id: int) -> JobRow: ...
    @overload
    def job_get_tx(self, handle: AsyncHandle, job_id: int) -> Coroutine[Any, Any, JobRow]: ...
    def job_get_tx(self, handle: object, job_id: int) -> JobRow | Coroutine[Any, Any, JobRow]:
        """One job, as the host's transaction sees it.

        Raises:
            JobNotFoundError: There is none with this id.
            HandleError: The handle cannot be used.
        """
        executor = adopt(handle)
        operation = jobs.get(self.sql(executor.database), job_id)
        return run(executor, operation) if isinstance(executor, Executor) else run_async(executor, operation)

    def typed(self, row: JobRow) -> Job[Any]:
        """A row as the job of its kind: with args of its worker's class, or plain JSON where there is no worker."""
        registration = self.config.workers.get(row.kind) if self.config.workers else None
        decode = registration.codec.decode if registration else any_json
        return Job.of(row, decode(bytes(row.encoded_args).decode()))

    def _prepare(self, args: Args, opts: InsertOpts) -> InsertParams:
        params = prepare(args, opts, max_attempts=self.config.max_attempts)
        workers = self.config.workers
        if workers is not None and params.kind not in workers and not self.config.skip_unknown_job_check:
            raise UnknownJobKindError(params.kind, known=workers)
        return params

    def _prepare_many(self, batch: Iterable[Args | InsertManyParams]) -> list[InsertParams]:
        if not hasattr(batch, "__iter__"):
            raise InvalidJobError(f"insert_many takes a list of args, not one {type(batch).__qualname__}; see insert")
        prepared = [
            self._prepare(each.args, each.opts or InsertOpts())
            if isinstance(each, InsertManyParams)
            else self._prepare(each, InsertOpts())
            for each in batch
        ]
        if not prepared:
            raise InvalidJobError("no jobs to insert: the batch is empty")
        return prepared

    def _write_tx(
        self, handle: object, batch: Sequence[InsertParams], result: Callable[[list[JobRow]], T]
    ) -> T | Coroutine[Any, Any, T]:
        executor = adopt(handle)
        if isinstance(executor, Executor):
            return result(self._write(executor, batch))
        return self._write_tx_async(executor, batch, result)

    async def _write_tx_async(
        self, executor: AsyncExecutor, batch: Sequence[InsertParams], result: Callable[[list[JobRow]], T]
    ) -> T:
        return result(await self._write_async(executor, batch))

    def _write(self, executor: Executor, batch: Sequence[InsertParams]) -> list[JobRow]:
        with self.extensions.inserting(batch):
            return run(executor, self._insertion(executor.database, batch))
        raise SwallowedError("an insert")

    async def _write_async(self, executor: AsyncExecutor, batch: Sequence[InsertParams]) -> list[JobRow]:
        with self.extensions.inserting(batch):
            return await run_async(executor, self._insertion(executor.database, batch))
        raise SwallowedError("an insert")

    def _insert_blocking(self, driver: Driver, batch: Sequence[InsertParams]) -> list[JobRow]:
        # One statement commits by itself in one round trip; a transaction takes three.
        guarded = self.extensions.runs_host_code_at_insert
        with self._explained(), driver.transaction() if guarded else driver.autocommit() as executor:
            return self._write(executor, batch)

    async def _insert_async(self, driver: AsyncDriver, batch: Sequence[InsertParams]) -> list[JobRow]:
        guarded = self.extensions.runs_host_code_at_insert
        with self._explained():
            async with driver.transaction() if guarded else driver.autocommit() as executor:
                return await self._write_async(executor, batch)
        raise SwallowedError("an insert")

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

    def _insertion(self, database: Database, batch: Sequence[InsertParams]) -> Operation[list[JobRow]]:
        return jobs.insert_many(self.sql(database), batch)

    def _inserted(self, args: A, row: JobRow) -> InsertResult[A]:
        return InsertResult(Job.of(row, args))

    def _inserted_many(self, batch: Sequence[InsertParams], rows: Sequence[JobRow]) -> list[InsertResult[Any]]:
        return [self._inserted(params.args, row) for params, row in zip(batch, rows, strict=True)]
