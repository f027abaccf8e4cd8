"""River's statements for PostgreSQL 14 and newer.

How they are written, and why:

- Every parameter is an int, bool, text or NULL and is cast where it stands; many rows are one JSON document.
- A job comes back as one JSON text, so no session setting (DateStyle, TimeZone, bytea_output) and no library
  changes what is read.
- Instants go in as ISO text with an offset, delays as seconds that the server adds to its own clock.
- ``state IS NOT DISTINCT FROM 'running'`` instead of ``=``: statistics, gathered while nothing ran, say that no
  row is running, and the planner would then walk every running row for each job. IS NOT DISTINCT FROM cannot
  use the index on state, which leaves the primary key.
- ``id = ANY(ARRAY(...))`` instead of a join or IN: the list is made first, and looked up by primary key.
"""

from __future__ import annotations

from .insert import InsertStatements
from .jobs import JobStatements
from .listing import ListStatements
from .maintain import MaintenanceStatements
from .queues import QueueStatements
from .work import WorkStatements


class Postgres(InsertStatements, WorkStatements, JobStatements, ListStatements, QueueStatements, MaintenanceStatements):
    """River's statements for one schema of a PostgreSQL database.

    Args:
        schema: Where River's tables are; None leaves it to each session's search_path.
    """
