"""Jobs as rows: look at them, and change those that nobody works."""

from __future__ import annotations

import operator

from ..errors import JobNotFoundError
from ..job import JobRow
from ..operation import Operation
from ..sql import Dialect


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
