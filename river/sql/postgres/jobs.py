"""Looking at jobs, and changing those that nobody works."""

from __future__ import annotations

from ...job import JobRow
from ...operation import Query
from .. import decode
from .base import Statements

_GET = """\
SELECT CAST(row_to_json(job) AS text)
FROM {schema}river_job AS job
WHERE id = CAST(:id AS bigint)
"""


class JobStatements(Statements):
    """Looking at jobs, and changing those that nobody works."""

    def job_get(self, job_id: int) -> Query[JobRow | None]:
        """One job, or None."""
        return self._query(_GET, {"id": job_id}, decode.first_job)
