"""The official insert-only Python client's API, over River's own client.

An application that was written for the package ``riverqueue`` runs after its imports are changed:

    from river import riverqueue                                 # import riverqueue
    from river.riverqueue.driver import riversqlalchemy          # from riverqueue.driver import riversqlalchemy

The layer translates options and results, and nothing else: rules, unique keys, SQL and transactions are those of
`river.Client` and `river.AsyncClient`. Where the official client differs from River's protocol, this follows River;
``docs/from-riverqueue.md`` lists each difference.
"""

from __future__ import annotations

from .client import (
    MAX_ATTEMPTS_DEFAULT,
    PRIORITY_DEFAULT,
    QUEUE_DEFAULT,
    UNIQUE_STATES_DEFAULT,
    AsyncClient,
    Client,
    InsertManyParams,
    InsertOpts,
    InsertResult,
    JobArgs,
    JobArgsWithInsertOpts,
    UniqueOpts,
)
from .job import AttemptError, Job, JobState

__all__ = [
    "MAX_ATTEMPTS_DEFAULT",
    "PRIORITY_DEFAULT",
    "QUEUE_DEFAULT",
    "UNIQUE_STATES_DEFAULT",
    "AsyncClient",
    "AttemptError",
    "Client",
    "InsertManyParams",
    "InsertOpts",
    "InsertResult",
    "Job",
    "JobArgs",
    "JobArgsWithInsertOpts",
    "JobState",
    "UniqueOpts",
]
