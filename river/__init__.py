"""River for Python: a job queue inside the application's own database.

A job is inserted in the same transaction as the change that asks for it, worked at least once, and may be completed
in the same transaction as the work's own writes.
"""

from __future__ import annotations

from .args import Args, JobArgs
from .async_client import AsyncClient
from .cancel import CancellationToken, CancelReason
from .client import Client
from .config import Config, QueueConfig
from .context import WorkContext, current
from .driver import register_handles
from .errors import (
    ClientStateError,
    ConfigurationError,
    DatabaseError,
    ErrorClass,
    HandleClosedError,
    HandleError,
    InvalidArgsError,
    InvalidCursorError,
    InvalidJobError,
    InvalidOptionError,
    JobNotFoundError,
    JobNotRunningError,
    JobRunningError,
    MigrationError,
    NewerSchemaError,
    NotInWorkerError,
    QueueNotFoundError,
    RiverError,
    SwallowedError,
    TransactionRequiredError,
    UndecodableJobError,
    UniqueConflictError,
    UnknownJobKindError,
    UnsupportedHandleError,
)
from .hook import Hook, Middleware
from .insert import InsertManyParams, InsertOptions, InsertOpts, InsertParams
from .job import AttemptError, InsertResult, Job, JobRow, JobState
from .listing import AsyncJobListPage, JobDeleteOptions, JobListCursor, JobListOptions, JobListPage
from .migrator import AsyncMigrator, MigrationStep, Migrator
from .outcome import JobCancel, JobDiscard, JobSnooze, WorkCancelled
from .queue import Queue
from .retry import DefaultRetryPolicy, RetryPolicy
from .unique import Unique, UniqueOpts
from .worker import Worker, Workers

__all__ = [
    "Args",
    "AsyncClient",
    "AsyncJobListPage",
    "AsyncMigrator",
    "AttemptError",
    "CancelReason",
    "CancellationToken",
    "Client",
    "ClientStateError",
    "Config",
    "ConfigurationError",
    "DatabaseError",
    "DefaultRetryPolicy",
    "ErrorClass",
    "HandleClosedError",
    "HandleError",
    "Hook",
    "InsertManyParams",
    "InsertOptions",
    "InsertOpts",
    "InsertParams",
    "InsertResult",
    "InvalidArgsError",
    "InvalidCursorError",
    "InvalidJobError",
    "InvalidOptionError",
    "Job",
    "JobArgs",
    "JobCancel",
    "JobDeleteOptions",
    "JobDiscard",
    "JobListCursor",
    "JobListOptions",
    "JobListPage",
    "JobNotFoundError",
    "JobNotRunningError",
    "JobRow",
    "JobRunningError",
    "JobSnooze",
    "JobState",
    "Middleware",
    "MigrationError",
    "MigrationStep",
    "Migrator",
    "NewerSchemaError",
    "NotInWorkerError",
    "Queue",
    "QueueConfig",
    "QueueNotFoundError",
    "RetryPolicy",
    "RiverError",
    "SwallowedError",
    "TransactionRequiredError",
    "UndecodableJobError",
    "Unique",
    "UniqueConflictError",
    "UniqueOpts",
    "UnknownJobKindError",
    "UnsupportedHandleError",
    "WorkCancelled",
    "WorkContext",
    "Worker",
    "Workers",
    "current",
    "register_handles",
]
