"""Moving River's schema from one version to the next.

Several processes may migrate one schema at the same time, with whatever tool of River's: `exclusive` lets one
transaction at a time go on, and each looks again what is applied once it is its turn. River's other languages take
no such lock, and their migrators meet ours at the table's primary key: one of the two fails and is rolled back.
"""

from __future__ import annotations

from ..engine.migration import refuse_out_of_turn
from ..errors import ConfigurationError
from ..operation import Operation
from ..sql.migration import Direction, Migration
from ..sql.migration.postgres import Timeouts, command, lock, place, set_timeouts, timeouts, versions


def applied(schema: str | None, line: str) -> Operation[tuple[int, ...]]:
    """The versions of a line that are applied, ascending; none where River's tables are not there yet.

    Raises:
        ConfigurationError: There is no such schema, or for None the search path leads nowhere.
    """
    where, has_ledger = yield from _find(schema)
    return (yield from versions(where, line)) if has_ledger else ()


def exclusive(schema: str | None, *, wait_ms: int) -> Operation[None]:
    """Wait for others that migrate the same schema, and keep them out until this transaction ends.

    The session's own limits are in force again afterwards.

    Args:
        wait_ms: How long to wait; the database then cancels the statement with SQLSTATE 55P03.
    """
    where, _ = yield from _find(schema)
    before = yield from timeouts()
    # The statement timeout would end the wait too, and is for the migration itself.
    yield from set_timeouts(Timeouts(lock=f"{wait_ms}ms", statement="0"))
    yield from lock(where)
    yield from set_timeouts(before)


def step(schema: str | None, migration: Migration, direction: Direction) -> Operation[bool]:
    """Apply or revert one version, and record it; False if somebody else has done it. Call `exclusive` before.

    Raises:
        MigrationError: The versions around it are not as they have to be; nothing was changed.
    """
    where, _ = yield from _find(schema)
    recorded = yield from applied(where, migration.line)
    if (migration.version in recorded) == (direction == "up"):
        return False
    refuse_out_of_turn(direction, migration.version, recorded)
    record = migration.record(direction, where, newest=max(recorded, default=0))
    for statement in (*migration.sql(direction, where), *record):
        yield from command(statement)
    return True


def _find(schema: str | None) -> Operation[tuple[str, bool]]:
    """The name of the schema that a migration would change, and whether versions are recorded there."""
    found = yield from place(schema)
    if found.schema is None:
        raise ConfigurationError(
            "no schema was named, and the session's search_path has none that exists: name one with the schema option"
        )
    if not found.exists:
        raise ConfigurationError(f'the schema {schema!r} does not exist: create it first, CREATE SCHEMA "{schema}"')
    if found.is_taken and not found.has_ledger:
        raise ConfigurationError(
            f"river_migration in the schema {found.schema!r} is not River's, which is a table with a column version of "
            "type bigint: rename it, or choose another schema"
        )
    return found.schema, found.has_ledger
