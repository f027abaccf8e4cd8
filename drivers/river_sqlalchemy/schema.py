"""River's five tables, for queries by the host and for Alembic; version 8 of the line ``main``.

The module's own tables carry no schema name; ``tables("jobs")`` makes a set for River in the schema ``jobs``.
``river_job`` also says which bind of a session is River's: ``Session(binds={river_job: engine})``.

They describe the schema and never make it. ``MetaData.create_all`` fails on an empty database, because
neither the enum ``river_job_state`` nor the function under the unique index belongs to a table: River's
migrations make those. The description is complete, though (constraints, indexes, defaults), so that Alembic
finds nothing to change in a migrated database.

Read jobs with these tables, do not write them: an insert or a change of state has rules that live elsewhere.

On SQLite a column's raw value comes back, since River's spellings there are not SQLAlchemy's: timestamps are
text in several forms, JSON and arrays are JSONB blobs to be read through ``func.json(column)``, and
``unique_states`` is an integer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BIT, BYTEA, ENUM, JSONB
from sqlalchemy.schema import conv

from river.job import JobState

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.types import TypeEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """River's tables in one schema."""

    river_job: Table
    river_leader: Table
    river_migration: Table
    river_notification: Table
    river_queue: Table


def tables(schema: str | None = None, metadata: MetaData | None = None) -> Tables:
    """River's tables in *schema*, as part of *metadata*.

    Args:
        schema: None means the schema of *metadata*, or no qualification if that has none.
        metadata: The host's, so that one Alembic comparison covers both; None makes a fresh one. It holds one
            set per schema: asking twice is an error, keep what was returned.
    """
    metadata = MetaData() if metadata is None else metadata
    schema = metadata.schema if schema is None else schema
    return Tables(
        river_job=_job(metadata, schema),
        river_leader=_leader(metadata, schema),
        river_migration=_migration(metadata, schema),
        river_notification=_notification(metadata, schema),
        river_queue=_queue(metadata, schema),
    )


def _job(metadata: MetaData, schema: str | None) -> Table:
    table = Table(
        "river_job",
        metadata,
        Column("id", BigInteger()),
        Column("state", _job_state(schema), nullable=False, server_default=text("'available'")),
        Column("attempt", SmallInteger(), nullable=False, server_default=text("0")),
        Column("max_attempts", SmallInteger(), nullable=False, server_default=text("25")),
        Column("attempted_at", _timestamp(), nullable=True),
        Column("created_at", _timestamp(), nullable=False, server_default=func.now()),
        Column("finalized_at", _timestamp(), nullable=True),
        Column("scheduled_at", _timestamp(), nullable=False, server_default=func.now()),
        Column("priority", SmallInteger(), nullable=False, server_default=text("1")),
        Column("args", _json(), nullable=False),
        Column("attempted_by", _array(Text()), nullable=True),
        Column("errors", _array(JSONB()), nullable=True),
        Column("kind", Text(), nullable=False),
        Column("metadata", _json(), nullable=False, server_default=text("'{}'")),
        Column("queue", Text(), nullable=False, server_default=text("'default'")),
        Column("tags", _array(String(255)), nullable=False, server_default=text("'{}'")),
        Column("unique_key", BYTEA().with_variant(LargeBinary(), "sqlite"), nullable=True),
        Column("unique_states", BIT(8).with_variant(Integer(), "sqlite"), nullable=True),
        _primary_key("river_job_pkey", "id"),
        _check(
            "finalized_or_finalized_at_null",
            "(finalized_at IS NULL AND state NOT IN ('cancelled', 'completed', 'discarded'))"
            " OR (finalized_at IS NOT NULL AND state IN ('cancelled', 'completed', 'discarded'))",
        ),
        _check("kind_length", "char_length(kind) > 0 AND char_length(kind) < 128"),
        _check("max_attempts_is_positive", "max_attempts > 0"),
        _check("priority_in_range", "priority BETWEEN 1 AND 4"),
        _check("queue_length", "char_length(queue) > 0 AND char_length(queue) < 128"),
        schema=schema,
    )
    _job_indexes(table, schema)
    return table


def _job_indexes(table: Table, schema: str | None) -> None:
    c = table.c
    # A function in SQLAlchemy's SQL has no schema that would be quoted for it: the predicate is text.
    at = "" if schema is None else '"{}".'.format(schema.replace('"', '""'))
    Index(conv("river_job_args_index"), c.args, postgresql_using="gin")
    Index(conv("river_job_kind"), c.kind)
    Index(conv("river_job_metadata_index"), c.metadata, postgresql_using="gin")
    Index(conv("river_job_prioritized_fetching_index"), c.state, c.queue, c.priority, c.scheduled_at, c.id)
    Index(
        conv("river_job_state_and_finalized_at_index"),
        c.state,
        c.finalized_at,
        postgresql_where=c.finalized_at.is_not(None),
    )
    Index(
        conv("river_job_unique_idx"),
        c.unique_key,
        unique=True,
        postgresql_where=text(
            "unique_key IS NOT NULL AND unique_states IS NOT NULL"
            f" AND {at}river_job_state_in_bitmask(unique_states, state)"
        ),
    )


def _leader(metadata: MetaData, schema: str | None) -> Table:
    return Table(
        "river_leader",
        metadata,
        Column("elected_at", _timestamp(), nullable=False),
        Column("expires_at", _timestamp(), nullable=False),
        Column("leader_id", Text(), nullable=False),
        Column("name", Text(), nullable=False, server_default=text("'default'")),
        _primary_key("river_leader_pkey", "name"),
        _check("leader_id_length", "char_length(leader_id) > 0 AND char_length(leader_id) < 128"),
        _check("name_length", "name = 'default'"),
        prefixes=["UNLOGGED"],
        schema=schema,
    )


def _migration(metadata: MetaData, schema: str | None) -> Table:
    return Table(
        "river_migration",
        metadata,
        Column("line", Text(), nullable=False),
        Column("version", BigInteger(), nullable=False),
        Column("created_at", _timestamp(), nullable=False, server_default=func.now()),
        _primary_key("river_migration_pkey1", "line", "version"),
        _check("line_length", "char_length(line) > 0 AND char_length(line) < 128"),
        _check("version_gte_1", "version >= 1"),
        schema=schema,
    )


def _notification(metadata: MetaData, schema: str | None) -> Table:
    table = Table(
        "river_notification",
        metadata,
        Column("id", BigInteger()),
        Column("created_at", _timestamp(), nullable=False, server_default=func.now()),
        Column("payload", Text(), nullable=False),
        Column("topic", Text(), nullable=False),
        _primary_key("river_notification_pkey", "id"),
        _check("topic_length", "length(topic) > 0 AND length(topic) < 128"),
        schema=schema,
    )
    Index(conv("river_notification_created_at_idx"), table.c.created_at)
    Index(conv("river_notification_topic_id_idx"), table.c.topic, table.c.id)
    return table


def _queue(metadata: MetaData, schema: str | None) -> Table:
    return Table(
        "river_queue",
        metadata,
        Column("name", Text(), nullable=False),
        Column("created_at", _timestamp(), nullable=False, server_default=func.now()),
        Column("metadata", _json(), nullable=False, server_default=text("'{}'")),
        Column("paused_at", _timestamp(), nullable=True),
        Column("updated_at", _timestamp(), nullable=False, server_default=text("CURRENT_TIMESTAMP")),
        _primary_key("river_queue_pkey", "name"),
        schema=schema,
    )


def _job_state(schema: str | None) -> TypeEngine[str]:
    enum = ENUM(*(state.value for state in JobState), name="river_job_state", schema=schema, create_type=False)
    return enum.with_variant(Text(), "sqlite")


def _timestamp() -> TypeEngine[datetime]:
    return DateTime(timezone=True).with_variant(Text(), "sqlite")


def _json() -> TypeEngine[Any]:
    return JSONB().with_variant(LargeBinary(), "sqlite")


def _array(item: TypeEngine[Any]) -> TypeEngine[Any]:
    return ARRAY(item).with_variant(LargeBinary(), "sqlite")


# conv() says that a name is final: a naming convention of the host's MetaData would rewrite it otherwise.


def _primary_key(name: str, *columns: str) -> PrimaryKeyConstraint:
    return PrimaryKeyConstraint(*columns, name=conv(name))


def _check(name: str, rule: str) -> CheckConstraint:
    return CheckConstraint(rule, name=conv(name))


metadata = MetaData()
_default = tables(metadata=metadata)

river_job = _default.river_job
river_leader = _default.river_leader
river_migration = _default.river_migration
river_notification = _default.river_notification
river_queue = _default.river_queue
