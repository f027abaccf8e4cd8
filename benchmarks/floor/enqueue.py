"""The fastest inserts that raw psycopg reaches on River's schema: what a client's insert is measured against.

One blocking connection in autocommit mode, one round trip a statement, statements prepared, the new ids read
back. It names the columns that a River client has to fill and leaves the rest to the schema's defaults; it
does not validate, encode arguments, or know unique keys.
"""

import json
import time
from collections.abc import Iterable
from typing import Final

import psycopg

from benchmarks.database import KIND, connect
from benchmarks.result import Result

DOCUMENT_ROWS: Final = 1_000

INSERT: Final = """\
INSERT INTO "{schema}".river_job (args, kind, max_attempts, metadata, priority, queue, tags)
VALUES (
    CAST($1 AS jsonb), CAST($2 AS text), 25, '{{}}', 1, 'default', '{{}}'
)
RETURNING id
"""

# The outer SELECT must read from the notifying CTE: PostgreSQL does not run a SELECT that nobody reads.
INSERT_AND_NOTIFY: Final = """\
WITH inserted AS (
    INSERT INTO "{schema}".river_job (args, kind, max_attempts, metadata, priority, queue, tags)
    VALUES (
        CAST($1 AS jsonb), CAST($2 AS text), 25, '{{}}', 1, 'default', '{{}}'
    )
    RETURNING id
),
notified AS (
    SELECT pg_notify('{schema}.river_insert', '{{"queue": "default"}}')
)
SELECT id
FROM inserted, notified
"""

INSERT_DOCUMENT: Final = """\
INSERT INTO "{schema}".river_job (args, kind, max_attempts, metadata, priority, queue, tags)
SELECT args, kind, max_attempts, metadata, priority, queue, tags
FROM ROWS FROM (
    json_to_recordset(CAST(CAST($1 AS text) AS json)) AS (
        args jsonb, kind text, max_attempts smallint, metadata jsonb, priority smallint, queue text,
        tags varchar[]
    )
) WITH ORDINALITY
ORDER BY ordinality
RETURNING id
"""


def insert_one_by_one(url: str, schema: str, jobs: int, *, notify: bool) -> Result:
    """Insert and commit *jobs* jobs, one statement each.

    Args:
        notify: Tell listeners too, in the same statement.
    """
    text = INSERT_AND_NOTIFY if notify else INSERT
    parameters = ((f'{{"n": {n}}}', KIND) for n in range(jobs))
    return _timed(url, text.format(schema=schema), parameters, jobs)


def insert_documents(url: str, schema: str, jobs: int) -> Result:
    """Insert *jobs* jobs, 1,000 to a statement, as one JSON document; building the document is measured."""
    sizes = (min(DOCUMENT_ROWS, jobs - start) for start in range(0, jobs, DOCUMENT_ROWS))
    return _timed(url, INSERT_DOCUMENT.format(schema=schema), ((_document(size),) for size in sizes), jobs)


def _timed(url: str, text: str, parameters: Iterable[tuple[str, ...]], jobs: int) -> Result:
    with connect(url) as connection:
        cursor = psycopg.RawCursor(connection)
        started = time.perf_counter()
        inserted = 0
        for values in parameters:
            inserted += len(cursor.execute(text, values, prepare=True).fetchall())
        seconds = time.perf_counter() - started
    if inserted != jobs:
        raise RuntimeError(f"inserted {inserted} of {jobs} jobs")
    return Result(jobs, seconds)


def _document(rows: int) -> str:
    row = {
        "args": {"n": 0},
        "kind": KIND,
        "max_attempts": 25,
        "metadata": {},
        "priority": 1,
        "queue": "default",
        "tags": [],
    }
    return json.dumps([row | {"args": {"n": n}} for n in range(rows)])
