"""River's schema on PostgreSQL: version 8 of the line ``main``, created in one go.

In: the name of an empty schema that the caller has made, or None for the first one on the search path. Out:
single statements, in order, without parameters. They may run in one transaction, under any search path.

The result is, object for object, what River's own migrations 1 to 8 leave behind, and ``river_migration``
records all eight, so that a migrator finds nothing left to do. Nothing here upgrades an older schema, removes
one, or asks what is there.
"""

from __future__ import annotations

import re
from typing import Final

LINE: Final = "main"
VERSION: Final = 8

# In the enum's order, which is also that of the bits in ``unique_states``, counted from the right.
_STATES: Final = (
    "available",
    "cancelled",
    "completed",
    "discarded",
    "pending",
    "retryable",
    "running",
    "scheduled",
)

# What every River client accepts. A notification channel begins with it, and may have 63 bytes in PostgreSQL.
_SCHEMA_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,45}", re.ASCII)


def install_sql(schema: str | None) -> list[str]:
    """The statements that create version 8 in an empty *schema*.

    Raises:
        ValueError: *schema* is no name that every River client accepts.
    """
    at = _qualifier(schema)
    return [
        _job_state(at),
        _job_state_in_bitmask(at),
        _job(at),
        *_job_indexes(at),
        _leader(at),
        _migration(at),
        _notification(at),
        *_notification_indexes(at),
        _queue(at),
        _versions(at),
    ]


def _qualifier(schema: str | None) -> str:
    """What stands in front of a name: a quoted schema and a dot, or nothing."""
    if schema is None:
        return ""
    if _SCHEMA_NAME.fullmatch(schema) is None:
        raise ValueError(f"schema {schema!r} must be 1 to 46 ASCII letters, digits or underscores, not a digit first")
    return f'"{schema}".'


def _job_state(at: str) -> str:
    # All labels from the start: one that is added later cannot be used before it is committed.
    labels = ",\n  ".join(f"'{state}'" for state in _STATES)
    return f"CREATE TYPE {at}river_job_state AS ENUM (\n  {labels}\n)"


def _job_state_in_bitmask(at: str) -> str:
    # The body needs no search path: labels take the type of `state`, and get_bit() is always visible.
    # get_bit() counts from the left.
    last = len(_STATES) - 1
    branches = "\n    ".join(
        f"WHEN '{state}' THEN get_bit(bitmask, {last - place}) = 1" for place, state in enumerate(_STATES)
    )
    return f"""
CREATE FUNCTION {at}river_job_state_in_bitmask(bitmask bit(8), state {at}river_job_state)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE state
    {branches}
    ELSE false
  END
$$""".strip()


def _job(at: str) -> str:
    # The order of the columns is that of River's migrations, which added the unique ones last.
    return f"""
CREATE TABLE {at}river_job (
  id bigserial NOT NULL,
  state {at}river_job_state NOT NULL DEFAULT 'available',
  attempt smallint NOT NULL DEFAULT 0,
  max_attempts smallint NOT NULL DEFAULT 25,
  attempted_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  finalized_at timestamptz,
  scheduled_at timestamptz NOT NULL DEFAULT now(),
  priority smallint NOT NULL DEFAULT 1,
  args jsonb NOT NULL,
  attempted_by text[],
  errors jsonb[],
  kind text NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{{}}',
  queue text NOT NULL DEFAULT 'default',
  tags varchar(255)[] NOT NULL DEFAULT '{{}}',
  unique_key bytea,
  unique_states bit(8),
  CONSTRAINT river_job_pkey PRIMARY KEY (id),
  CONSTRAINT finalized_or_finalized_at_null CHECK (
    (finalized_at IS NULL AND state NOT IN ('cancelled', 'completed', 'discarded'))
    OR (finalized_at IS NOT NULL AND state IN ('cancelled', 'completed', 'discarded'))
  ),
  CONSTRAINT kind_length CHECK (char_length(kind) > 0 AND char_length(kind) < 128),
  CONSTRAINT max_attempts_is_positive CHECK (max_attempts > 0),
  CONSTRAINT priority_in_range CHECK (priority BETWEEN 1 AND 4),
  CONSTRAINT queue_length CHECK (char_length(queue) > 0 AND char_length(queue) < 128)
)""".strip()


def _job_indexes(at: str) -> list[str]:
    return [
        f"CREATE INDEX river_job_args_index ON {at}river_job USING gin (args)",
        f"CREATE INDEX river_job_kind ON {at}river_job (kind)",
        f"CREATE INDEX river_job_metadata_index ON {at}river_job USING gin (metadata)",
        _job_fetching_index(at),
        _job_finalized_index(at),
        _job_unique_index(at),
    ]


def _job_fetching_index(at: str) -> str:
    return f"""
CREATE INDEX river_job_prioritized_fetching_index
ON {at}river_job (state, queue, priority, scheduled_at, id)""".strip()


def _job_finalized_index(at: str) -> str:
    return f"""
CREATE INDEX river_job_state_and_finalized_at_index
ON {at}river_job (state, finalized_at)
WHERE finalized_at IS NOT NULL""".strip()


def _job_unique_index(at: str) -> str:
    # A job holds its unique key only while it is in one of its ``unique_states``.
    return f"""
CREATE UNIQUE INDEX river_job_unique_idx
ON {at}river_job (unique_key)
WHERE unique_key IS NOT NULL
  AND unique_states IS NOT NULL
  AND {at}river_job_state_in_bitmask(unique_states, state)""".strip()


def _leader(at: str) -> str:
    # UNLOGGED: a lease is renewed every few seconds and worth nothing after a crash.
    # The primary key can have one value only, so that there is one leader at most.
    return f"""
CREATE UNLOGGED TABLE {at}river_leader (
  elected_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  leader_id text NOT NULL,
  name text NOT NULL DEFAULT 'default',
  CONSTRAINT river_leader_pkey PRIMARY KEY (name),
  CONSTRAINT leader_id_length CHECK (char_length(leader_id) > 0 AND char_length(leader_id) < 128),
  CONSTRAINT name_length CHECK (name = 'default')
)""".strip()


def _migration(at: str) -> str:
    # The key is called pkey1 wherever River's migrations ran: the table's old form still held the plain name.
    return f"""
CREATE TABLE {at}river_migration (
  line text NOT NULL,
  version bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT river_migration_pkey1 PRIMARY KEY (line, version),
  CONSTRAINT line_length CHECK (char_length(line) > 0 AND char_length(line) < 128),
  CONSTRAINT version_gte_1 CHECK (version >= 1)
)""".strip()


def _notification(at: str) -> str:
    # Unused on PostgreSQL, which has NOTIFY; part of version 7 all the same.
    return f"""
CREATE TABLE {at}river_notification (
  id bigserial NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  payload text NOT NULL,
  topic text NOT NULL,
  CONSTRAINT river_notification_pkey PRIMARY KEY (id),
  CONSTRAINT topic_length CHECK (length(topic) > 0 AND length(topic) < 128)
)""".strip()


def _notification_indexes(at: str) -> list[str]:
    return [
        f"CREATE INDEX river_notification_created_at_idx ON {at}river_notification (created_at)",
        f"CREATE INDEX river_notification_topic_id_idx ON {at}river_notification (topic, id)",
    ]


def _queue(at: str) -> str:
    return f"""
CREATE TABLE {at}river_queue (
  name text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  metadata jsonb NOT NULL DEFAULT '{{}}',
  paused_at timestamptz,
  updated_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
  CONSTRAINT river_queue_pkey PRIMARY KEY (name)
)""".strip()


def _versions(at: str) -> str:
    # Every version is a row, because a migrator applies those that it does not find.
    rows = ",\n  ".join(f"('{LINE}', {version})" for version in range(1, VERSION + 1))
    return f"INSERT INTO {at}river_migration (line, version)\nVALUES\n  {rows}"
