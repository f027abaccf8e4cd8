"""Jobs as rows: look at them, and change those that nobody works.

Ids come checked: whoever asks has refused what cannot be one before there was a connection.
"""

from __future__ import annotations

from datetime import datetime

from ..errors import (
    DatabaseError,
    ErrorClass,
    JobNotFoundError,
    JobRunningError,
    UniqueConflictError,
    sqlstate_of,
)
from ..job import JobRow
from ..listing import FoundJobs, JobDeletion, JobListing, rfc3339
from ..operation import Operation
from ..sql import Dialect


def get(sql: Dialect, job_id: int) -> Operation[JobRow]:
    """One job.

    Raises:
        JobNotFoundError: There is no such job.
    """
    return _found(job_id, (yield from sql.job_get(job_id)))


def page(sql: Dialect, listing: JobListing) -> Operation[FoundJobs]:
    """One page of a list."""
    return (yield from sql.job_list(listing))


def cancel(sql: Dialect, job_id: int, now: datetime) -> Operation[JobRow]:
    """Cancel a job that waits, or ask for the end of one that runs; one that has ended stays as it is.

    Args:
        now: What is recorded as the time of the request.

    Raises:
        JobNotFoundError: There is no such job.
    """
    return _found(job_id, (yield from sql.job_cancel(job_id, rfc3339(now))))


def retry(sql: Dialect, job_id: int) -> Operation[JobRow]:
    """Make a job available now; one that runs, or is available and due, stays as it is.

    Raises:
        JobNotFoundError: There is no such job.
        UniqueConflictError: Another job has its unique key by now. In a host's transaction the library's own error
            passes instead, with a note.
    """
    try:
        retried = yield from sql.job_retry(job_id)
    except Exception as error:
        _explain_conflict(job_id, error)
        raise
    return _found(job_id, retried)


def delete(sql: Dialect, job_id: int) -> Operation[JobRow]:
    """Delete a job; as it was.

    Raises:
        JobNotFoundError: There is no such job.
        JobRunningError: It runs; nothing was written.
    """
    found = yield from sql.job_delete(job_id)
    if found is None:
        raise JobNotFoundError(job_id)
    row, deleted = found
    if not deleted:
        raise JobRunningError(job_id)
    return row


def delete_many(sql: Dialect, deletion: JobDeletion) -> Operation[list[JobRow]]:
    """Delete jobs, but for those that run or that somebody else holds locked; as they were, by id."""
    return (yield from sql.job_delete_many(deletion))


def update(sql: Dialect, job_id: int, patch: str | None) -> Operation[JobRow]:
    """Put the members of a JSON object into a job's metadata.

    Args:
        patch: None changes nothing.

    Raises:
        JobNotFoundError: There is no such job.
    """
    if patch is None:
        return (yield from get(sql, job_id))
    return _found(job_id, (yield from sql.job_update(job_id, patch)))


def _found(job_id: int, row: JobRow | None) -> JobRow:
    if row is None:
        raise JobNotFoundError(job_id)
    return row


def _explain_conflict(job_id: int, error: Exception) -> None:
    if ErrorClass.of(sqlstate_of(error) or "") is not ErrorClass.UNIQUE_VIOLATION:
        return
    conflict = UniqueConflictError(job_id, constraint=getattr(error, "constraint", None))
    if isinstance(error, DatabaseError):
        raise conflict from error
    error.add_note(str(conflict))


__all__ = ["cancel", "delete", "delete_many", "get", "page", "retry", "update"]
