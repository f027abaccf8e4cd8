"""Every error that River raises on purpose.

    RiverError
    ├── ConfigurationError         the client or a worker was declared wrongly
    ├── InvalidJobError            a job cannot be inserted as it is; nothing was written
    │   └── InvalidArgsError       its args cannot be encoded, or would not decode again
    ├── UnknownJobKindError        no worker for a kind
    ├── HandleError                the connection or session that was handed over cannot be used
    │   ├── UnsupportedHandleError     nobody here knows its type
    │   ├── TransactionRequiredError   it would commit each statement by itself, or its transaction has failed
    │   └── HandleClosedError          it is closed
    ├── InvalidOptionError         what was asked for breaks a rule; nothing was sent to the database
    │   └── InvalidCursorError         a text is no cursor of this list
    ├── JobNotFoundError           no such row
    ├── QueueNotFoundError         no such queue
    ├── UndecodableJobError        a row that somebody wrote cannot be read as a job
    ├── JobNotRunningError         the job cannot be completed by this attempt any more
    ├── JobRunningError            the job runs, so it cannot be deleted
    ├── SwallowedError             a middleware kept an exception that it must let pass
    ├── NotInWorkerError           only a worker can do this, and only for its own job
    ├── ClientStateError           not in this state of the client (not started, stopping, stopped)
    ├── MigrationError             a version of the schema could not be applied or reverted
    │   └── NewerSchemaError           a newer River has migrated this database
    └── DatabaseError              a statement of River's own failed in River's own transaction
        └── UniqueConflictError        a job's unique key belongs to another job by now

An error of the database on a connection or session that the *host* holds is not wrapped: it passes through as
the library raised it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import Enum


def near(name: str, names: Iterable[str]) -> str:
    """The end of a message about a misspelt *name*: which one was meant, or which there are."""
    known = sorted(names)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"the options are {', '.join(known)}"


class RiverError(Exception):
    """Any error of River."""


class ConfigurationError(RiverError, ValueError):
    """A client or a worker was declared wrongly; the message names the option, its value and the rule."""


class InvalidJobError(RiverError, ValueError):
    """A job cannot be inserted as it is; raised before any statement, so nothing was written."""


class InvalidArgsError(InvalidJobError):
    """A job's args cannot be encoded as JSON that decodes to the same type again; nothing was written."""


class UnknownJobKindError(RiverError):
    """No worker for this kind is registered in this client.

    Register one, correct the kind, or pass ``skip_unknown_job_check=True`` to a client that inserts jobs
    for workers elsewhere.
    """

    def __init__(self, kind: str, known: Iterable[str] = ()) -> None:
        # The first half is the text that all implementations of River store for such a job.
        names = ", ".join(sorted(known))
        hint = f" (known here: {names})" if names else ""
        super().__init__(f"job kind is not registered in the client's Workers bundle: {kind}{hint}")
        self.kind = kind


class HandleError(RiverError):
    """The connection or session that was handed over cannot be used; nothing was written."""


class UnsupportedHandleError(HandleError, TypeError):
    """No installed driver adopts objects of this type.

    Hand over an open psycopg or SQLAlchemy connection or session (not a pool or an engine), install the
    driver's package, or register an adopter with `river.register_handles`.
    """


class TransactionRequiredError(HandleError):
    """The handle is in autocommit, has no open transaction, or its transaction has already failed."""


class HandleClosedError(HandleError):
    """The handle is closed."""


class JobNotFoundError(RiverError, LookupError):
    """There is no job with this id: it never was, it is not visible in this transaction, or it was deleted."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} was not found: it was deleted, or it is not visible to this transaction")
        self.job_id = job_id


class QueueNotFoundError(RiverError, LookupError):
    """There is no queue with this name: no client has worked it of late, or the name is misspelt."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue {name!r} was not found: no client has worked it of late, or the name is misspelt")
        self.name = name


class InvalidOptionError(RiverError, ValueError):
    """What was asked for breaks a rule; the message names the option, its value and the rule. Nothing was sent."""


class InvalidCursorError(InvalidOptionError):
    """A text is no cursor of a list, or of a list with another order: pass ``str(page.cursor)`` of an earlier page."""


class JobRunningError(RiverError):
    """The job runs, so it cannot be deleted; nothing was written. Cancel it, and delete it when it has ended."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} is running, and cannot be deleted: cancel it, and delete it when it has ended")
        self.job_id = job_id


class UndecodableJobError(RiverError):
    """A stored row cannot be read as a job: somebody wrote a value that River's protocol does not allow."""

    def __init__(self, job_id: int, reason: str) -> None:
        # The text that all implementations of River record for such a job.
        super().__init__(f"job row couldn't be decoded: {reason} (job {job_id})")
        self.job_id = job_id


class JobNotRunningError(RiverError):
    """The job cannot be completed by this attempt any more; nothing was written.

    Somebody completed, cancelled or rescued it meanwhile, or another attempt runs it now. Let the exception
    roll the work's own writes back.
    """

    def __init__(self, job_id: int, reason: str) -> None:
        super().__init__(f"job {job_id} cannot be completed: {reason}")
        self.job_id = job_id


class SwallowedError(RiverError):
    """A middleware's context manager swallowed an exception, so that nobody knows any more what happened.

    An insert was not made, and its transaction is rolled back. Let exceptions pass. (A middleware that swallows the
    exception of a *worker* is within its rights: the job is then completed.)
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"a middleware's context manager swallowed an exception of {what}: let exceptions pass")


class NotInWorkerError(RiverError):
    """Only a worker can do this, for the job that it is working, while it works it."""


class ClientStateError(RiverError):
    """The client cannot do this in the state that it is in."""


class MigrationError(RiverError):
    """A version of River's schema could not be applied or reverted; its transaction was rolled back.

    The versions before it stay as they are, so that the same call goes on from there once the cause is mended.

    Attributes:
        version: The version that failed; None if it came to none.
    """

    def __init__(self, message: str, *, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


class NewerSchemaError(MigrationError):
    """The database is at a version of a line that this library does not know; nothing was changed.

    Clients work on it all the same. To revert or validate it, upgrade the library.
    """

    def __init__(self, line: str, version: int, known: int) -> None:
        super().__init__(
            f"the database is at version {version} of the line {line!r}, and this library knows those up to {known}: "
            "upgrade river-jobs, or use the program that migrated it",
            version=version,
        )


class ErrorClass(Enum):
    """What River needs to know of a database error in order to decide what to do."""

    TRANSIENT = "transient"
    """Serialization failure, deadlock, too many connections, shutting down: the same call may work later."""
    CONNECTION_LOST = "connection lost"
    UNIQUE_VIOLATION = "unique violation"
    UNDEFINED_TABLE = "undefined table"
    CANCELLED = "cancelled"
    """The statement was cancelled, by somebody or by a timeout of the server."""
    OTHER = "other"

    @classmethod
    def of(cls, sqlstate: str) -> ErrorClass:
        """The class of an SQLSTATE; see appendix A of PostgreSQL's documentation."""
        return _BY_SQLSTATE.get(sqlstate) or _BY_SQLSTATE_CLASS.get(sqlstate[:2], cls.OTHER)


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE of any library's error, or None: libraries keep it in different places, SQLAlchemy one below."""
    original: object = getattr(error, "orig", None) or error
    for name in ("sqlstate", "pgcode"):
        state = getattr(original, name, None)
        if isinstance(state, str):
            return state
    fields = getattr(original, "args", None)  # pg8000's are the fields of the server's message
    state = fields[0].get("C") if fields and isinstance(fields[0], dict) else None
    return state if isinstance(state, str) else None


_BY_SQLSTATE = {
    "23505": ErrorClass.UNIQUE_VIOLATION,
    "42P01": ErrorClass.UNDEFINED_TABLE,
    "57014": ErrorClass.CANCELLED,
    "40001": ErrorClass.TRANSIENT,
    "40P01": ErrorClass.TRANSIENT,
    "55P03": ErrorClass.TRANSIENT,
    "25006": ErrorClass.TRANSIENT,  # read-only: the server is a replica, until a failover is over
    # Timeouts by which the server ends a session that waits.
    "25P03": ErrorClass.CONNECTION_LOST,
    "25P04": ErrorClass.CONNECTION_LOST,
    "57P05": ErrorClass.CONNECTION_LOST,
    "57P01": ErrorClass.CONNECTION_LOST,
    "57P02": ErrorClass.CONNECTION_LOST,
    "57P03": ErrorClass.CONNECTION_LOST,
    "57P04": ErrorClass.CONNECTION_LOST,
    "3D000": ErrorClass.CONNECTION_LOST,
}
# A login that is refused, 28, may be granted again: while a password is changed, no result may be given up.
_BY_SQLSTATE_CLASS = {
    "08": ErrorClass.CONNECTION_LOST,
    "28": ErrorClass.CONNECTION_LOST,
    "53": ErrorClass.TRANSIENT,
}


class DatabaseError(RiverError):
    """A statement of River's own failed, in a transaction or connection of River's own; it was rolled back.

    Attributes:
        sqlstate: The SQLSTATE, where the server gave one.
        constraint: The name of the violated constraint, where there is one.
        error_class: What kind of failure it is.
    """

    def __init__(
        self,
        message: str,
        *,
        sqlstate: str | None = None,
        constraint: str | None = None,
        error_class: ErrorClass = ErrorClass.OTHER,
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.constraint = constraint
        self.error_class = error_class


class UniqueConflictError(DatabaseError):
    """A job cannot be made available again, because another job has its unique key by now; nothing was written.

    Wait until that one has ended, or cancel or delete it.

    Attributes:
        job_id: The job that stays as it was.
    """

    def __init__(self, job_id: int, *, constraint: str | None = None) -> None:
        super().__init__(
            f"job {job_id} cannot be made available: another job has its unique key by now; wait until that one has "
            "ended, or cancel or delete it",
            sqlstate="23505",
            constraint=constraint,
            error_class=ErrorClass.UNIQUE_VIOLATION,
        )
        self.job_id = job_id
