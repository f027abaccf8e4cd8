"""The clients: the official client's methods, and River's own client that does the work."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from ..async_client import AsyncClient as RiverAsyncClient
from ..client import Client as RiverClient
from ..config import Config
from ..driver import AsyncHandle, BlockingHandle
from ..errors import DatabaseError, RiverError
from ..insert import PRIORITY_DEFAULT, QUEUE_DEFAULT
from ..job import InsertResult as RiverInsertResult
from ..job import JobState
from .driver.driver_protocol import AsyncDriverProtocol, DriverProtocol, check_driver, check_handle
from .insert_opts import InsertOpts, UniqueOpts
from .job import Job
from .job_args import InsertManyParams, JobArgs, JobArgsWithInsertOpts, WrittenArgs, translate, translate_many

MAX_ATTEMPTS_DEFAULT: int = Config().max_attempts
"""How often a job is tried at most, if nobody says otherwise."""

UNIQUE_STATES_DEFAULT: list[JobState] = [
    JobState.AVAILABLE,
    JobState.COMPLETED,
    JobState.PENDING,
    JobState.RETRYABLE,
    JobState.RUNNING,
    JobState.SCHEDULED,
]
"""The states in which a job prevents others like it, if nobody says otherwise."""


@dataclass
class InsertResult:
    """What an insert did.

    Attributes:
        job: The inserted job; the one that was there already, if *unique_skipped_as_duplicated*.
        unique_skipped_as_duplicated: Whether such a job was there already, so that none was inserted.
    """

    job: Job
    unique_skipped_as_duplicated: bool = False


class Client:
    """Inserts jobs, for applications that block. It is safe to use from several threads.

    Args:
        driver: Over an engine, or over the one connection that `insert` and `insert_many` are to use.
        advisory_lock_prefix: Four bytes, checked and kept; River takes no advisory locks for unique jobs.

    Attributes:
        river: River's own client, for what this one does not have.

    Raises:
        OverflowError: *advisory_lock_prefix* has more than four bytes.
        ConfigurationError: *driver* is none, or of the other colour, or its database is none that River knows.
    """

    def __init__(self, driver: DriverProtocol, advisory_lock_prefix: int | None = None) -> None:
        check_driver(driver, "blocking", "Client")
        self.driver = driver
        self.advisory_lock_prefix = _checked_prefix(advisory_lock_prefix)
        self.river = RiverClient(driver.engine)

    def insert(self, args: JobArgs, insert_opts: InsertOpts | None = None) -> InsertResult:
        """Insert a job; committed already, if the driver has an engine.

        Raises:
            InvalidJobError: The job breaks a rule; a ValueError. Nothing was written.
            HandleError: The driver's connection cannot be used; nothing was written.
            Exception: The database failed: SQLAlchemy's own error. Nothing was written, unless the connection was
                lost, when that is unknown.
        """
        handle = self.driver.handle
        if handle is not None:
            return self.insert_tx(handle, args, insert_opts)
        job = translate(args, insert_opts)
        with _errors_of_the_library():
            return _result(self.river.insert(job.args, job.opts))

    def insert_tx(self, tx: BlockingHandle, args: JobArgs, insert_opts: InsertOpts | None = None) -> InsertResult:
        """Insert a job inside the host's transaction: it exists if and only if that transaction commits.

        Args:
            tx: The connection or session whose transaction it is; it is neither committed nor rolled back here.
            args: The job's args.
            insert_opts: How to insert it.

        Raises:
            InvalidJobError: The job breaks a rule; a ValueError. Nothing was written.
            HandleError: *tx* cannot be used; nothing was written.
        """
        job = translate(args, insert_opts)
        check_handle(tx, "blocking", "Client")
        return _result(self.river.insert_tx(tx, job.args, job.opts))

    def insert_many(self, args: Iterable[JobArgs | InsertManyParams]) -> int:
        """Insert many jobs in one statement; otherwise as `insert`.

        Returns:
            How many; 0 if there are none in *args*.

        Raises:
            InvalidJobError: A job breaks a rule, or is to be unique; a ValueError. None was written.
        """
        handle = self.driver.handle
        if handle is not None:
            return self.insert_many_tx(handle, args)
        batch = translate_many(args)
        with _errors_of_the_library():
            return self.river.insert_many_fast(batch) if batch else 0

    def insert_many_tx(self, tx: BlockingHandle, args: Iterable[JobArgs | InsertManyParams]) -> int:
        """Insert many jobs inside the host's transaction; otherwise as `insert_many` and `insert_tx`."""
        batch = translate_many(args)
        check_handle(tx, "blocking", "Client")
        return self.river.insert_many_fast_tx(tx, batch) if batch else 0


class AsyncClient:
    """Inserts jobs, for applications on asyncio; otherwise as `Client`.

    Args:
        driver: Over an asyncio engine, or over the one connection that `insert` and `insert_many` are to use.
        advisory_lock_prefix: Four bytes, checked and kept; River takes no advisory locks for unique jobs.

    Attributes:
        river: River's own client, for what this one does not have.
    """

    def __init__(self, driver: AsyncDriverProtocol, advisory_lock_prefix: int | None = None) -> None:
        check_driver(driver, "asyncio", "AsyncClient")
        self.driver = driver
        self.advisory_lock_prefix = _checked_prefix(advisory_lock_prefix)
        self.river = RiverAsyncClient(driver.engine)

    async def insert(self, args: JobArgs, insert_opts: InsertOpts | None = None) -> InsertResult:
        """Insert a job; otherwise as `Client.insert`.

        A cancelled call may have inserted the job all the same.
        """
        handle = self.driver.handle
        if handle is not None:
            return await self.insert_tx(handle, args, insert_opts)
        job = translate(args, insert_opts)
        with _errors_of_the_library():
            return _result(await self.river.insert(job.args, job.opts))

    async def insert_tx(self, tx: AsyncHandle, args: JobArgs, insert_opts: InsertOpts | None = None) -> InsertResult:
        """Insert a job inside the host's transaction; otherwise as `Client.insert_tx`.

        A cancelled call leaves the transaction to the host, who can but roll it back.
        """
        job = translate(args, insert_opts)
        check_handle(tx, "asyncio", "AsyncClient")
        return _result(await self.river.insert_tx(tx, job.args, job.opts))

    async def insert_many(self, args: Iterable[JobArgs | InsertManyParams]) -> int:
        """Insert many jobs in one statement; otherwise as `Client.insert_many`.

        A cancelled call may have inserted them all the same; all or none.
        """
        handle = self.driver.handle
        if handle is not None:
            return await self.insert_many_tx(handle, args)
        batch = translate_many(args)
        with _errors_of_the_library():
            return await self.river.insert_many_fast(batch) if batch else 0

    async def insert_many_tx(self, tx: AsyncHandle, args: Iterable[JobArgs | InsertManyParams]) -> int:
        """Insert many jobs inside the host's transaction; otherwise as `insert_many` and `insert_tx`."""
        batch = translate_many(args)
        check_handle(tx, "asyncio", "AsyncClient")
        return await self.river.insert_many_fast_tx(tx, batch) if batch else 0


def _checked_prefix(prefix: int | None) -> int | None:
    if prefix is not None and not 0 <= prefix < 2**32:
        raise OverflowError(
            f"advisory_lock_prefix {prefix} must be four bytes, 0 to 4,294,967,295; or leave it out, River needs none"
        )
    return prefix


def _result(inserted: RiverInsertResult[WrittenArgs]) -> InsertResult:
    return InsertResult(Job.of(inserted.job), unique_skipped_as_duplicated=inserted.duplicate)


@contextmanager
def _errors_of_the_library() -> Generator[None]:
    """Let the database library's own error out, where River's client has one of its own around it.

    Applications of the official client catch that one. What River says of it goes with it as a note.
    """
    try:
        yield
    except DatabaseError as error:
        original = error.__cause__
        while isinstance(original, RiverError):
            original = original.__cause__
        if original is None:
            raise
        original.add_note(str(error))
        raise original from original.__cause__


__all__ = [
    "MAX_ATTEMPTS_DEFAULT",
    "PRIORITY_DEFAULT",
    "QUEUE_DEFAULT",
    "UNIQUE_STATES_DEFAULT",
    "AsyncClient",
    "Client",
    "InsertManyParams",
    "InsertOpts",
    "InsertResult",
    "JobArgs",
    "JobArgsWithInsertOpts",
    "UniqueOpts",
]
