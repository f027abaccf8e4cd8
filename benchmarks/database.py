"""The schema that the benchmarks run in: made for one run, dropped with it.

Everything here is outside the measured time. Floor and product start each measurement from the same table:
just truncated, just filled, just analyzed. So the statistics say that no job is running, as they do in
production, where most of the time none is.
"""

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import psycopg

import river

KIND: Final = "benchmark_noop"

_FILL: Final = """\
INSERT INTO "{schema}".river_job (kind, args, scheduled_at)
SELECT %(kind)s, json_build_object('n', n), now() - INTERVAL '1 minute'
FROM generate_series(1, %(jobs)s) AS n
"""


@contextmanager
def scratch_schema(url: str) -> Generator[str]:
    """Yield the name of a schema with River's tables; it is dropped afterwards, whatever happened."""
    schema = f"river_bench_{secrets.token_hex(4)}"
    with connect(url) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
        try:
            river.Migrator(url, schema=schema).up()
            yield schema
        finally:
            connection.execute(f'DROP SCHEMA "{schema}" CASCADE')


def connect(url: str) -> psycopg.Connection:
    """A blocking connection in autocommit mode: each statement is a transaction of its own."""
    return psycopg.connect(url, autocommit=True)


def empty(url: str, schema: str) -> None:
    """Remove all jobs, and the bloat that they left."""
    fill(url, schema, jobs=0)


def fill(url: str, schema: str, jobs: int) -> None:
    """Replace all jobs by so many new ones, due a minute ago, in the queue ``default``."""
    with connect(url) as connection:
        connection.execute(f'TRUNCATE "{schema}".river_job')
        connection.execute(_FILL.format(schema=schema), {"kind": KIND, "jobs": jobs})
        # VACUUM also empties the pending lists of the GIN indexes, else the first measured statements would.
        connection.execute(f'VACUUM ANALYZE "{schema}".river_job')
