"""Inserting jobs: what is asked for becomes rows, in a transaction of the host's or of River's own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar, overload

from typing_extensions import Unpack

from ..args import Args
from ..driver import AsyncDriver, AsyncHandle, BlockingHandle, Driver, adopt
from ..errors import InvalidJobError, SwallowedError, UnknownJobKindError
from ..insert import InsertManyParams, InsertOptions, InsertOpts, InsertParams, merge_options, prepare
from ..job import InsertResult, Job, JobRow
from ..operation import AsyncExecutor, Database, Executor, Operation, run, run_async
from ..operations import jobs
from .core import ClientCore

A = TypeVar("A", bound=Args)
T = TypeVar("T")


class Inserts(ClientCore):
    """The part of a client that inserts."""

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

    def _insertion(self, database: Database, batch: Sequence[InsertParams]) -> Operation[list[JobRow]]:
        return jobs.insert_many(self.sql(database), batch)

    def _inserted(self, args: A, row: JobRow) -> InsertResult[A]:
        return InsertResult(Job.of(row, args))

    def _inserted_many(self, batch: Sequence[InsertParams], rows: Sequence[JobRow]) -> list[InsertResult[Any]]:
        return [self._inserted(params.args, row) for params, row in zip(batch, rows, strict=True)]
