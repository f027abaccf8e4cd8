"""River's migrations under Alembic, in a host's own environment.

    version_locations = ... river_sqlalchemy:migrations     in alembic.ini: the branch ``river``, river_001 to river_008
    upgrade(op, version=8), downgrade(op, version=0)        or the same in one revision of the host's own
    include_object, include_name                            in env.py: autogenerate leaves River's tables alone
    with migrating(context): ...                            in env.py: one process at a time, and a true record

What is applied is recorded in River's own table, river_migration, by whichever tool applied it: this one, the command
``river``, the migrators of River's other languages. So each step takes River's lock, looks there, and does what is
missing, which may be nothing; Alembic's own table follows. A step runs in Alembic's transaction and never ends it.

In offline mode nothing can be locked or looked at: what is printed is right for a database at the version before.

Options, as keywords of ``context.configure`` or in the main section of alembic.ini; a keyword wins:

- ``river_schema``: where River's tables are, or are to be. It has to exist. Else the session's search path says where.
- ``river_lock_timeout``: how many seconds to wait for another process that migrates the same schema; 60.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import alembic.context
from alembic.script.revision import RevisionError
from sqlalchemy import Column, Connection, MetaData, String, Table, exc, text

from river.config import seconds
from river.engine.migration import plan_up, refuse_newer
from river.errors import ConfigurationError, MigrationError
from river.migrator import DEFAULT_LOCK_TIMEOUT
from river.operation import Executor, run
from river.operations import migrate
from river.shapes import is_collection
from river.sql.migration import MAIN, Direction, Migration, migrations
from river.sql.migration.postgres import command, place, session_unlock, try_session_lock
from river.sql.names import check_schema

from ._common import check_usable, database_error, database_of
from .blocking import ConnectionExecutor

if TYPE_CHECKING:
    from alembic.runtime.environment import NameFilterParentNames, NameFilterType
    from alembic.runtime.migration import MigrationContext
    from sqlalchemy.schema import SchemaItem

# Below Alembic's own, because fileConfig() in an env.py disables loggers that its file does not name.
logger = logging.getLogger("alembic.river")

_TABLES: Final = frozenset(
    {
        "river_client",
        "river_client_queue",
        "river_job",
        "river_leader",
        "river_migration",
        "river_notification",
        "river_queue",
    }
)
_OWN_TABLES: Final = "river_python_"
"""What the names of the tables begin with that this library has for itself."""

_REVISION: Final = re.compile(r"river_(\d{3})")

_LOCK_NOT_AVAILABLE = "55P03"
_LONGEST_WAIT_MS = 2**31 - 1

_PAUSE: Final = "SELECT true FROM pg_sleep(0.05)"


class HasContext(Protocol):
    """``alembic.op``, ``alembic.context``, or whatever else has Alembic's context."""

    def get_context(self) -> MigrationContext:
        """The migration that goes on."""
        ...


def upgrade(op: HasContext, *, version: int, from_version: int = 0, schema: str | None = None) -> None:
    """Apply all versions of River's schema up to *version* that are not applied yet, in Alembic's transaction.

    Args:
        op: ``alembic.op``.
        version: The last version to apply. A later one is applied by a later revision.
        from_version: The version that is applied already. Only for offline mode, which cannot ask.
        schema: Where; None leaves it to the option ``river_schema``, or else to the search path.

    Raises:
        ConfigurationError: There is no such version or schema; nothing was changed.
        MigrationError: Another process migrates this schema, and was not done in time.
        SQLAlchemyError: The database failed.
    """
    _check_version("version", version, lowest=1)
    _check_version("from_version", from_version, lowest=0)
    context = op.get_context()
    _migrate(context, "up", version, _schema(context, schema), assumed=range(1, from_version + 1))


def downgrade(op: HasContext, *, version: int, from_version: int | None = None, schema: str | None = None) -> None:
    """Revert all versions of River's schema above *version* that are applied; data of what is dropped is lost.

    Args:
        op: ``alembic.op``.
        version: The version to stay at; 0 removes River's tables, and all jobs.
        from_version: The version that is applied now. Only for offline mode, which cannot ask.
        schema: As for `upgrade`.

    Raises:
        NewerSchemaError: The database is at a version that is not known here; nothing was changed.
        ConfigurationError: As for `upgrade`, and offline if *from_version* is missing.
        MigrationError: As for `upgrade`.
        SQLAlchemyError: As for `upgrade`.
    """
    context = op.get_context()
    _check_version("version", version, lowest=0)
    if from_version is not None:
        _check_version("from_version", from_version, lowest=0)
    elif context.as_sql:
        raise ConfigurationError(
            "offline mode cannot ask which versions of River's schema are applied: say it, as in "
            f"downgrade(op, version={version}, from_version={_known()[-1].version})"
        )
    _migrate(context, "down", version, _schema(context, schema), assumed=range(1, (from_version or 0) + 1))


@contextmanager
def migrating(context: HasContext) -> Generator[None]:
    """Let no other process migrate River's schema meanwhile, and begin with a true record; around Alembic's own block.

        context.configure(connection=connection, target_metadata=target_metadata)
        with river_alembic.migrating(context), context.begin_transaction():
            context.run_migrations()

    Alembic has no lock of its own. With this one, several processes may call ``alembic upgrade heads`` at once: one
    does the work, and the others find it done. It is held by the session until the block ends, so the connection must
    reach one server session: a pool between here and the server has to work in session mode. Where *context* was
    configured with a connection in a transaction, the lock is held until the host ends that.

    If Alembic's table names a revision of River's that somebody else has reverted since, with the command ``river``
    or from another language, the row is put back to what is applied, so that an upgrade does what is missing. Where
    a revision of the host's merges River's newest or depends on it, there is no such row, and a warning is logged.

    Offline it does nothing, nor for ``alembic current``, which only reads.

    Args:
        context: ``alembic.context``, configured.

    Raises:
        MigrationError: Another process migrates this schema, and was not done in time; nothing was changed.
    """
    migration = context.get_context()
    if migration.as_sql or migration.opts.get("dont_mutate"):
        yield
        return
    connection, schema = _connection(migration), _schema(migration)
    if connection.in_transaction():
        if run(_executor(migration), place(schema)).exists:
            _lock_in_transaction(migration, schema)
        _correct(migration, schema)
        yield
    else:
        with _session_lock(migration, schema):
            _correct(migration, schema)
            connection.commit()
            yield


def include_object(
    _object: SchemaItem,
    name: str | None,
    type_: NameFilterType,
    _reflected: bool,
    compare_to: SchemaItem | None,
) -> bool:
    """Leave River's tables out of autogenerate and ``alembic check``, unless they are in the host's MetaData, too.

    For ``context.configure(include_object=...)``; a filter of the host's own may call it. A table that is only in the
    MetaData is left out as well, because River's migrations make it.
    """
    return type_ != "table" or not _is_rivers(name) or compare_to is not None


def include_name(name: str | None, type_: NameFilterType, parent_names: NameFilterParentNames) -> bool:
    """Do not even read River's tables, unless they are in the host's MetaData; beside `include_object`, to save time.

    For ``context.configure(include_name=...)``; a filter of the host's own may call it.
    """
    if type_ != "table" or not _is_rivers(name):
        return True
    return parent_names.get("schema_qualified_table_name") in _described_tables()


def _migrate(
    context: MigrationContext, direction: Direction, version: int, schema: str | None, *, assumed: Collection[int]
) -> None:
    if context.as_sql:
        for migration in _plan(direction, version, assumed):
            for statement in (*migration.sql(direction, schema), *migration.record(direction, schema)):
                context.execute(text(statement))
        return
    executor = _lock_in_transaction(context, schema)
    applied = run(executor, migrate.applied(schema, MAIN))
    for migration in _plan(direction, version, applied):
        run(executor, migrate.step(schema, migration, direction))


def _plan(direction: Direction, version: int, applied: Collection[int]) -> list[Migration]:
    """What is missing up to *version*, or what is applied above it."""
    known = [migration.version for migration in _known()]
    if direction == "up":
        missing = plan_up(known, applied, target=version)
        return [each for each in _known() if each.version in missing]
    # Reverting a version below one that nobody here knows would leave a schema of no version at all.
    refuse_newer(MAIN, known, applied)
    return [each for each in reversed(_known()) if each.version > version and each.version in applied]


def _known() -> tuple[Migration, ...]:
    return migrations("postgresql", MAIN)


def _check_version(argument: str, version: int, *, lowest: int) -> None:
    newest = _known()[-1].version
    if not lowest <= version <= newest:
        raise ConfigurationError(f"{argument} {version} is none of River's versions: {lowest} to {newest}")


def _option(context: MigrationContext, name: str) -> object:
    if name in context.opts:
        value: object = context.opts[name]
        return value
    config = context.config
    if config is None:
        return None
    # The first also reads pyproject.toml, and is there since Alembic 1.16.
    read: Callable[[str], object] = getattr(config, "get_alembic_option", config.get_main_option)
    return read(name) or None


def _schema(context: MigrationContext, argument: str | None = None) -> str | None:
    schema = _option(context, "river_schema") if argument is None else argument
    check_schema(schema)
    return schema if isinstance(schema, str) else None


def _lock_seconds(context: MigrationContext) -> float:
    value = _option(context, "river_lock_timeout")
    if value is None:
        return DEFAULT_LOCK_TIMEOUT.total_seconds()
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
        value = float(value)
    return seconds("river_lock_timeout", value)


def _connection(context: MigrationContext) -> Connection:
    if context.connection is None:
        raise ConfigurationError("River's migrations need a connection: give one to context.configure, or use --sql")
    return context.connection


def _executor(context: MigrationContext) -> Executor:
    connection = _connection(context)
    database = database_of(connection.engine)
    migrations(database, MAIN)  # refuses a database for which there are none
    check_usable(connection)
    return ConnectionExecutor(connection, database)


def _lock_in_transaction(context: MigrationContext, schema: str | None) -> Executor:
    """Wait until nobody else migrates the schema, and keep others out until Alembic's transaction ends."""
    executor = _executor(context)
    wait = _lock_seconds(context)
    try:
        run(executor, migrate.exclusive(schema, wait_ms=min(int(wait * 1000), _LONGEST_WAIT_MS)))
    except exc.SQLAlchemyError as error:
        if database_error(error).sqlstate != _LOCK_NOT_AVAILABLE:
            raise
        raise _not_in_time(wait) from error
    return executor


@contextmanager
def _session_lock(context: MigrationContext, schema: str | None) -> Generator[None]:
    """The same, until the block ends, whatever transactions begin and end in it; the connection is in none."""
    connection, executor = _connection(context), _executor(context)
    where = run(executor, place(schema)).schema or ""
    wait = _lock_seconds(context)
    give_up_at = time.monotonic() + wait
    # It asks again and again, with no transaction in between. One that waits would be waited for by a CREATE INDEX
    # CONCURRENTLY of whoever has the lock: a deadlock. The pause is the server's, so that an event loop is not held up.
    while True:
        has_lock = run(executor, try_session_lock(where))
        # Also so that what is read with the lock is what the process before has left, under any isolation level.
        connection.rollback()
        if has_lock:
            break
        if time.monotonic() > give_up_at:
            raise _not_in_time(wait)
        run(executor, command(_PAUSE))
    ended_well = False
    try:
        yield
        ended_well = True
    finally:
        if not connection.closed:
            _unlock(connection, executor, where, ended_well=ended_well)


def _unlock(connection: Connection, executor: Executor, schema: str, *, ended_well: bool) -> None:
    try:
        if not ended_well:
            connection.rollback()
        # What a host has left open, without an error, it has still to commit.
        is_open = connection.in_transaction()
        run(executor, session_unlock(schema))
        if not is_open:
            connection.rollback()
    except exc.SQLAlchemyError as error:
        # Not to the pool: the session's end is what gives the lock back.
        connection.invalidate(error)


def _not_in_time(wait: float) -> MigrationError:
    return MigrationError(
        f"another process has been migrating River's schema for {wait:g} s, so nothing was done here: try again when "
        "it is done, or set a longer river_lock_timeout"
    )


def _correct(context: MigrationContext, schema: str | None) -> None:
    """Put a row of Alembic's that names a reverted version of River's back to the last one that is applied."""
    connection, executor = _connection(context), _executor(context)
    found = run(executor, place(schema))
    applied = run(executor, migrate.applied(schema, MAIN)) if found.exists else ()
    true_version = next(version for version in range(len(applied) + 1) if version + 1 not in applied)
    table = Table(context.version_table, MetaData(), Column("version_num", String), schema=context.version_table_schema)
    heads = context.get_current_heads()
    for head in heads:
        version = _version_of(head)
        if version <= true_version:
            continue
        row = table.c.version_num == head
        # Alembic keeps no row for what comes before another row's revision, and refuses to work where there is one.
        if true_version > _implied(context, tuple(other for other in heads if other != head)):
            connection.execute(table.update().where(row).values(version_num=f"river_{true_version:03}"))
        else:
            connection.execute(table.delete().where(row))
        logger.info("Alembic's record of River was ahead", extra={"revision": head, "applied": true_version})
    if not any(map(_version_of, heads)) and _implied(context, heads) > true_version:
        logger.warning(
            "Alembic's record has versions of River that are not applied, as part of another revision: "
            "run the command river migrate-up",
            extra={"revisions": heads, "applied": true_version},
        )


def _implied(context: MigrationContext, revisions: tuple[str, ...]) -> int:
    """The newest version of River's that comes before one of these revisions; 0 if none does."""
    if not revisions or context.script is None:
        return 0
    try:
        return max(_version_of(script.revision) for script in context.script.iterate_revisions(revisions, "base"))
    except RevisionError:
        return 0  # Alembic does not know one of them, and says so itself, but for a command that mends that


def _version_of(revision: str) -> int:
    """The version of one of River's revisions; 0 for another's."""
    match = _REVISION.fullmatch(revision)
    return 0 if match is None else int(match[1])


def _is_rivers(table: str | None) -> bool:
    return table is not None and (table in _TABLES or table.startswith(_OWN_TABLES))


def _described_tables() -> set[str]:
    """The names of the tables, schema included, that the host's MetaData has."""
    try:
        target = alembic.context.get_context().opts.get("target_metadata")
    except (NameError, AttributeError):
        return set()  # outside of env.py, before and after one
    described = target if is_collection(target) else [target]
    return {name for metadata in described if isinstance(metadata, MetaData) for name in metadata.tables}


__all__ = ["HasContext", "downgrade", "include_name", "include_object", "migrating", "upgrade"]
