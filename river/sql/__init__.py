"""Every statement that River runs: one function, one statement, for one database and one schema."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from ..engine.transition import Persisted, Transition
from ..errors import ConfigurationError
from ..insert import InsertParams
from ..job import InsertedRow, JobRow, UndecodableJob
from ..listing import FoundJobs, JobDeletion, JobListing
from ..operation import Database, Query
from ..queue import Queue
from .decode import Greeting


class InsertStatements(Protocol):
    """Writing new jobs."""

    def job_insert_many(self, jobs: Sequence[InsertParams], *, muted: Collection[str] = ()) -> Query[list[InsertedRow]]:
        """Insert jobs, and tell listeners but of the *muted* queues; the rows in the order of *jobs*."""
        ...

    def job_insert_many_fast(self, jobs: Sequence[InsertParams], *, muted: Collection[str] = ()) -> Query[int]:
        """Insert jobs, but for those that are there already; how many."""
        ...


class ClaimStatements(Protocol):
    """Taking jobs to work them."""

    def job_claim(
        self, queue: str, *, client_id: str, limit: int, kinds: Collection[str] | None = None
    ) -> Query[list[JobRow | UndecodableJob]]:
        """Claim up to *limit* due jobs of *queue*, in the order in which they are to start.

        Args:
            queue: Of which queue.
            client_id: Who claims.
            limit: How many at most.
            kinds: Of which kinds only; None for all.
        """
        ...


class Dialect(InsertStatements, ClaimStatements, Protocol):
    """All of River's statements for one database."""

    def greeting(self) -> Query[Greeting]:
        """Ask the server for what a client must know before it works."""
        ...

    def job_get(self, job_id: int) -> Query[JobRow | None]:
        """One job, or None."""
        ...

    def job_list(self, listing: JobListing) -> Query[FoundJobs]:
        """One page of a list."""
        ...

    def job_cancel(self, job_id: int, attempted_at: str) -> Query[JobRow | None]:
        """Cancel a job that has not ended, or ask for it if it runs, and tell its client; the job as it is then."""
        ...

    def job_retry(self, job_id: int) -> Query[JobRow | None]:
        """Make a job available now, unless it runs or is available already; the job as it is then, or None."""
        ...

    def job_delete(self, job_id: int) -> Query[tuple[JobRow, bool] | None]:
        """Delete a job unless it runs; the job as it was and whether it was deleted, or None."""
        ...

    def job_delete_many(self, deletion: JobDeletion) -> Query[list[JobRow]]:
        """Delete the jobs that are wanted, but for those that run or are locked; as they were, by id."""
        ...

    def job_update(self, job_id: int, patch: str) -> Query[JobRow | None]:
        """Put the members of a JSON object into a job's metadata; the job as it is then, or None."""
        ...

    def job_give_back(
        self, queue: str, *, client_id: str, since: datetime, until: datetime, in_hand: Collection[int]
    ) -> Query[list[int]]:
        """Make available what *client_id* claimed of *queue* between two times and does not have *in_hand*; their ids.

        *until* is a time of the server's, before the statement is sent.
        """
        ...

    def job_due_in(self, queue: str) -> Query[int | None]:
        """In how many milliseconds the first job of *queue* is due that is available and waits; None without any."""
        ...

    def job_cancellations(self, claims: Sequence[tuple[int, str]]) -> Query[dict[int, Any]]:
        """Of running claims those whose cancellation was asked for; the value in the metadata that says so."""
        ...

    def job_complete(self, job_id: int, attempted_at: str) -> Query[JobRow | None]:
        """Complete a job if the claim of *attempted_at* is still running; else None, and nothing is written."""
        ...

    def job_complete_many(self, claims: Sequence[tuple[int, str]]) -> Query[dict[int, Persisted]]:
        """Complete many jobs, each given by its id and the ``attempted_at`` of its claim."""
        ...

    def job_finish_many(self, transitions: Sequence[Transition]) -> Query[dict[int, Persisted]]:
        """End many attempts, each in its own way."""
        ...

    def job_schedule(self, horizon: timedelta, limit: int) -> Query[int]:
        """Make jobs without a unique key available that are due within *horizon*; how many."""
        ...

    def job_due_unique(self, horizon: timedelta, limit: int) -> Query[list[int]]:
        """The ids of jobs with a unique key that are due within *horizon*, in the order in which they get the key."""
        ...

    def job_schedule_unique(self, job_ids: Sequence[int]) -> Query[list[int]]:
        """Make jobs with a unique key available; the ids of those that were discarded, because others have the key."""
        ...

    def job_stuck(self, older_than: timedelta, *, after_id: int, limit: int) -> Query[list[JobRow]]:
        """Jobs that have been running for longer than *older_than*, by id."""
        ...

    def queue_upsert(self, queue: str) -> Query[Queue]:
        """Record that a queue is worked; the queue as it is now."""
        ...

    def queues_paused(self, queues: Collection[str]) -> Query[dict[str, bool]]:
        """Of those *queues* that there are, whether they are paused."""
        ...

    def probe(self, topic: str, payload: str) -> Query[None]:
        """Tell all who listen to *topic*, once the transaction is committed."""
        ...

    def queue_get(self, queue: str) -> Query[Queue | None]:
        """One queue, or None."""
        ...

    def queue_list(self, first: int) -> Query[list[Queue]]:
        """The first queues by name."""
        ...

    def queue_pause(self, queue: str | None, payload: str) -> Query[int]:
        """Pause a queue, or all if None, and tell clients; how many there are of that name."""
        ...

    def queue_resume(self, queue: str | None, payload: str) -> Query[int]:
        """Resume a queue, or all if None, and tell clients; how many there are of that name."""
        ...

    def queue_update(self, queue: str, metadata: str | None, payload: str | None) -> Query[Queue | None]:
        """Replace a queue's metadata, if there are new ones, and tell clients; the queue as it is then, or None."""
        ...


def dialect_for(database: Database, schema: str | None) -> Dialect:
    """River's statements for *database*, in *schema* (None: wherever the session's search_path leads).

    Raises:
        ConfigurationError: The database is not supported yet.
    """
    if database == "postgresql":
        from .postgres import Postgres

        return Postgres(schema)
    raise ConfigurationError(f"River works on PostgreSQL; {database} is not supported yet")
