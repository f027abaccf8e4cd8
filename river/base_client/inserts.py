"""Inserting jobs: what is asked for becomes rows, in a transaction of the host's or of River's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar, overload

from typing_extensions import Unpack

from ..args import Args, any_json, codec_of
from ..config import ConfigOptions, seconds
from ..driver import AsyncDriver, AsyncHandle, BlockingHandle, Colour, Driver, adopt
from ..engine.limiter import NotifyLimiter
from ..errors import InvalidJobError, SwallowedError, UnknownJobKindError
from ..insert import InsertManyParams, InsertOptions, InsertOpts, InsertParams, merge_options, options_of, prepare
from ..job import InsertedRow, InsertResult, Job, JobRow, JobState
from ..operation import AsyncExecutor, Executor, Operation, run, run_async
from ..operations import insert
from ..sql import InsertStatements
from .core import ClientCore, noted

A = TypeVar("A", bound=Args)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")


class Write(Protocol[T_co]):
    """An operation that writes a batch of jobs."""

    def __call__(
        self, sql: InsertStatements, jobs: Sequence[InsertParams], *, muted: Collection[str]
    ) -> Operation[T_co]: ...


class Inserts(ClientCore):
    """The part of a client that inserts."""

    def __init__(self, source: object, colour: Colour, options: ConfigOptions) -> None:
        super().__init__(source, colour, options)
        self._limiter = NotifyLimiter(seconds("fetch_cooldown", self.config.fetch_cooldown))

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
        batch = [self._prepare(args, merge_options(opts, options), datetime.now(UTC))]
        return self._write_tx(handle, batch, insert.insert_many, lambda rows: result(args, rows[0]))

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
        return self._write_tx(handle, prepared, insert.insert_many, lambda rows: results(prepared, rows))

    @overload
    def insert_many_fast_tx(self, handle: BlockingHandle, batch: Iterable[Args | InsertManyParams]) -> int: ...
    @overload
    def insert_many_fast_tx(
        self, handle: AsyncHandle, batch: Iterable[Args | InsertManyParams]
    ) -> Coroutine[Any, Any, int]: ...
    def insert_many_fast_tx(
        self, handle: object, batch: Iterable[Args | InsertManyParams]
    ) -> int | Coroutine[Any, Any, int]:
        """Insert many jobs and return no rows, which is quicker; otherwise as `insert_many_tx`.

        Returns:
            How many jobs were inserted: those whose unique key was there already are left out, and not counted. Of an
            asyncio handle, an awaitable of it.
        """
        return self._write_tx(handle, self._prepare_many(batch), insert.insert_many_fast, int)

    def _prepare(self, args: Args, opts: InsertOpts, now: datetime) -> InsertParams:
        params = prepare(args, opts, max_attempts=self.config.max_attempts, now=now)
        workers = self.config.workers
        if workers is not None and params.kind not in workers and not self.config.skip_unknown_job_check:
            raise UnknownJobKindError(params.kind, known=workers)
        return params

    def _prepare_many(self, batch: Iterable[Args | InsertManyParams]) -> list[InsertParams]:
        if not hasattr(batch, "__iter__") or hasattr(batch, "kind"):  # pydantic models can be iterated
            raise InvalidJobError(f"insert_many takes a list of args, not one {type(batch).__qualname__}; see insert")
        now = datetime.now(UTC)
        prepared = [self._prepare_one(index, each, now) for index, each in enumerate(batch)]
        if not prepared:
            raise InvalidJobError("no jobs to insert: the batch is empty")
        return prepared

    def _prepare_one(self, index: int, job: Args | InsertManyParams, now: datetime) -> InsertParams:
        try:
            if isinstance(job, InsertManyParams):
                return self._prepare(job.args, options_of(job.opts), now)
            return self._prepare(job, options_of(None), now)
        except (InvalidJobError, UnknownJobKindError) as error:
            error.add_note(f"It is job {index} of the batch, counted from 0.")
            raise

    def _write_tx(
        self, handle: object, batch: Sequence[InsertParams], write: Write[T], read: Callable[[T], R]
    ) -> R | Coroutine[Any, Any, R]:
        executor = adopt(handle)
        # An insert in the host's transaction always notifies: nobody knows when, or if, it will be committed.
        muted = frozenset[str]() if self.config.notify else _queues(batch)
        if isinstance(executor, Executor):
            with noted():
                return read(self._write(executor, batch, write, muted))
        return self._write_tx_async(executor, batch, write, read, muted)

    async def _write_tx_async(
        self,
        executor: AsyncExecutor,
        batch: Sequence[InsertParams],
        write: Write[T],
        read: Callable[[T], R],
        muted: Collection[str],
    ) -> R:
        with noted():
            return read(await self._write_async(executor, batch, write, muted))
        raise SwallowedError("an insert")

    def _write(self, executor: Executor, batch: Sequence[InsertParams], write: Write[T], muted: Collection[str]) -> T:
        with self.extensions.inserting(batch):
            return run(executor, write(self.sql(executor.database), batch, muted=muted))
        raise SwallowedError("an insert")

    async def _write_async(
        self, executor: AsyncExecutor, batch: Sequence[InsertParams], write: Write[T], muted: Collection[str]
    ) -> T:
        with self.extensions.inserting(batch):
            return await run_async(executor, write(self.sql(executor.database), batch, muted=muted))
        raise SwallowedError("an insert")

    def _insert_blocking(self, driver: Driver, batch: Sequence[InsertParams], write: Write[T]) -> T:
        muted = self._muted(batch)
        with (
            self._explained(),
            driver.transaction() if self._takes_a_transaction(batch) else driver.autocommit() as executor,
        ):
            written = self._write(executor, batch, write, muted)
        self._limiter.told(_queues(batch) - muted, time.monotonic())
        return written

    async def _insert_async(self, driver: AsyncDriver, batch: Sequence[InsertParams], write: Write[T]) -> T:
        muted = self._muted(batch)
        with self._explained():
            async with driver.transaction() if self._takes_a_transaction(batch) else driver.autocommit() as executor:
                written = await self._write_async(executor, batch, write, muted)
            self._limiter.told(_queues(batch) - muted, time.monotonic())
            return written
        raise SwallowedError("an insert")

    def _muted(self, batch: Sequence[InsertParams]) -> frozenset[str]:
        """The queues that an insert in a transaction of River's own need not tell of."""
        queues = _queues(batch)
        return self._limiter.muted(queues, time.monotonic()) if self.config.notify else queues

    def _takes_a_transaction(self, batch: Sequence[InsertParams]) -> bool:
        """Whether an insert can still fail after its first statement; if not, that one commits in one round trip."""
        if self.extensions.runs_host_code_at_insert:
            return True
        return len(batch) > 1 and len(next(insert.chunks(batch))) < len(batch)


def result(args: A, inserted: InsertedRow) -> InsertResult[A]:
    """What an insert of *args* did.

    The args of a job that was there already are its own. Where they cannot be read as the class of *args*, because the
    job is of another kind or of another version of the class, they are plain JSON.
    """
    row, duplicate = inserted
    return InsertResult(Job.of(row, _stored_args(args, row) if duplicate else args), duplicate)


def results(batch: Sequence[InsertParams], inserted: Sequence[InsertedRow]) -> list[InsertResult[Any]]:
    """What an insert of many jobs did, in their order."""
    return [result(params.args, each) for params, each in zip(batch, inserted, strict=True)]


def _stored_args(args: Args, row: JobRow) -> Any:
    if row.kind == args.kind:
        with suppress(
            Exception
        ):  # of a class that cannot read what another version of it, or a Go program, has written
            return codec_of(type(args)).decode(row.encoded_args)
    return any_json(row.encoded_args)


def _queues(batch: Sequence[InsertParams]) -> frozenset[str]:
    """Of which queues listeners have something to hear."""
    return frozenset(job.queue for job in batch if job.state is JobState.AVAILABLE)
