"""What has been applied to a PostgreSQL schema, and the lock that lets one process at a time apply more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ...operation import Query, Rows, Statement, Value
from .. import decode
from ..names import qualifier

T = TypeVar("T")

# Without a schema's name it is the one in which the session's search path finds a ledger, else the first one on it.
_PLACE = """\
WITH place AS (
    SELECT coalesce(
        CAST(:schema AS text),
        (
            SELECT CAST(nspname AS text)
            FROM pg_class
            JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE pg_class.oid = to_regclass('river_migration')
        ),
        CAST(current_schema() AS text)
    ) AS schema
)
SELECT
    place.schema,
    pg_namespace.oid IS NOT NULL,
    pg_class.oid IS NOT NULL,
    EXISTS (
        SELECT
        FROM pg_attribute
        WHERE attrelid = pg_class.oid
          AND attname = 'version'
          AND atttypid = CAST('bigint' AS regtype)
          AND relkind IN ('r', 'p')
    )
FROM place
LEFT JOIN pg_namespace ON nspname = place.schema
LEFT JOIN pg_class ON relnamespace = pg_namespace.oid AND relname = 'river_migration'
"""

# The row as JSON, because the column `line` is not there before version 5; everything is of the line main then.
_VERSIONS = """\
SELECT version
FROM {at}river_migration AS ledger
WHERE coalesce(to_jsonb(ledger) ->> 'line', 'main') = CAST(:line AS text)
ORDER BY version
"""

_KEY = "hashtextextended('river_migration ' || CAST(:schema AS text), 0)"
"""Which lock is meant, by whoever migrates this schema."""

# In FROM, so that a row comes back that every library can read: the function's own result has no type.
_LOCK = f"SELECT true FROM pg_advisory_xact_lock({_KEY})"
_TRY_SESSION_LOCK = f"SELECT pg_try_advisory_lock({_KEY})"
_SESSION_UNLOCK = f"SELECT pg_advisory_unlock({_KEY})"

_TIMEOUTS = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"

_SET_TIMEOUTS = """\
SELECT
    set_config('lock_timeout', CAST(:lock AS text), true),
    set_config('statement_timeout', CAST(:statement AS text), true)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where River's tables are, or will be.

    Attributes:
        schema: The schema's name; None if none was given and the search path has none.
        exists: Whether there is such a schema.
        is_taken: Whether something is called as the table that records applied versions.
        has_ledger: Whether it is that table.
    """

    schema: str | None
    exists: bool
    is_taken: bool
    has_ledger: bool


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Two settings of a session as PostgreSQL writes them, such as ``10s``; ``0`` means no limit."""

    lock: str
    statement: str


def place(schema: str | None) -> Query[Place]:
    """Where River's tables are in the schema of this name, or for None where the session would find them."""
    return _query(_PLACE, {"schema": schema}, _read_place)


def versions(schema: str, line: str) -> Query[tuple[int, ...]]:
    """Which versions of a line have been recorded, ascending."""
    return _query(_VERSIONS.format(at=qualifier(schema)), {"line": line}, _read_versions)


def lock(schema: str) -> Query[None]:
    """Wait until no other transaction migrates this schema, and keep others out until this one ends."""
    return _query(_LOCK, {"schema": schema}, _nothing)


def try_session_lock(schema: str) -> Query[bool]:
    """Keep others out until `session_unlock`, or the end of the session; False if somebody else migrates."""
    return _query(_TRY_SESSION_LOCK, {"schema": schema}, _is_true)


def session_unlock(schema: str) -> Query[bool]:
    """Let others in again; False if this session did not keep them out."""
    return _query(_SESSION_UNLOCK, {"schema": schema}, _is_true)


def read_committed() -> Query[None]:
    """Let each statement see what has been committed before it, whatever the host's default; the first statement."""
    return command("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")


def timeouts() -> Query[Timeouts]:
    """The session's limits."""
    return _query(_TIMEOUTS, {}, _read_timeouts)


def set_timeouts(values: Timeouts) -> Query[None]:
    """Other limits, until the end of the transaction."""
    return _query(_SET_TIMEOUTS, {"lock": values.lock, "statement": values.statement}, _nothing)


def command(sql: str) -> Query[None]:
    """A statement without parameters and without an answer."""
    return _query(sql, {}, _nothing)


def _query(sql: str, parameters: Mapping[str, Value], decoder: Callable[[Rows], T]) -> Query[T]:
    # A prepared one would be about tables that have changed since.
    return Query(Statement(sql, parameters, prepared=False), decoder)


def _read_place(rows: Rows) -> Place:
    schema, exists, is_taken, has_ledger = rows[0]
    return Place(None if schema is None else decode.text(schema), bool(exists), bool(is_taken), bool(has_ledger))


def _read_versions(rows: Rows) -> tuple[int, ...]:
    return tuple(decode.integer(version) for (version,) in rows)


def _read_timeouts(rows: Rows) -> Timeouts:
    lock_timeout, statement_timeout = rows[0]
    return Timeouts(decode.text(lock_timeout), decode.text(statement_timeout))


def _is_true(rows: Rows) -> bool:
    return rows[0][0] is True


def _nothing(rows: Rows) -> None:
    """The answer says nothing."""
