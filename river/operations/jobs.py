"""Jobs as rows: insert and look up."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from ..errors import JobNotFoundError
from ..insert import InsertParams
from ..job import JobRow
from ..operation import Operation
from ..sql import Dialect, InsertStatements


def insert_many(sql: InsertStatements, jobs: Sequence[InsertParams]) -> Operation[list[JobRow]]:
    """Insert jobs and tell listeners, both when the transaction commits; the rows in the order of *jobs*."""
    return (yield from sql.job_insert_many(jobs))


def get(sql: Dialect, job_id: int) -> Operation[JobRow]:
    """One job.

    Raises:
        JobNotFoundError: There is no such job.
        TypeError: *job_id* is no integer.
    """
    row = yield from sql.job_get(operator.index(job_id))
    if row is None:
        raise JobNotFoundError(job_id)
    return row
