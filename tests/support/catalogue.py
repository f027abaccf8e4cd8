"""What PostgreSQL's catalogue says about one schema, as plain JSON values.

The form is that of tests/fixtures/schema_postgres.json, so that ``==`` compares a database with what River's own
migrations leave after each step. Four things are made alike: names are written as if the schema were ``public``
and on the search path, whatever both are; the NOT NULL constraints that PostgreSQL 18 lists, and 15 does not, are
left out (the columns say it); lists are in order of name, columns in order of position; a position counts the
columns that are there, and not those that were dropped before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

if TYPE_CHECKING:
    from psycopg import Connection

Catalogue = dict[str, Any]

_FIXTURE = Path(__file__).parent.parent / "fixtures" / "schema_postgres.json"

# Later ones change nothing but the recorded version.
_LAST_CHANGE = 7


def expected() -> Catalogue:
    """The catalogue that all of River's own migrations leave."""
    return after_up(_LAST_CHANGE)


def after_up(version: int) -> Catalogue:
    """The catalogue that River's own migrations up to *version* leave."""
    value: Catalogue = _fixture()["versions"][str(min(version, _LAST_CHANGE))]
    return value


def after_down(version: int) -> Catalogue:
    """The catalogue that is left when River's own migrations have gone up to the last and down through *version*.

    It is not that of the version before everywhere: a label of an enum, for one, cannot be taken away.
    """
    if version > _LAST_CHANGE:
        return after_up(version - 1)
    value: Catalogue = _fixture()["down"][f"after_down_{version}"]
    return value


def _fixture() -> Catalogue:
    value: Catalogue = json.loads(_FIXTURE.read_text(encoding="utf-8"))
    return value


def read(connection: Connection[Any], schema: str) -> Catalogue:
    """The catalogue of *schema*; the connection's search path is empty afterwards."""
    # Under an empty search path PostgreSQL qualifies every name, so that all can be treated alike.
    connection.execute("SET search_path = ''")
    catalogue: Catalogue = {
        "tables": {table["name"]: _table(connection, table) for table in _rows(connection, _TABLES, schema)},
        "enums": {enum["name"]: enum["labels"] for enum in _rows(connection, _ENUMS, schema)},
        "functions": _rows(connection, _FUNCTIONS, schema),
        "sequences": _rows(connection, _SEQUENCES, schema),
    }
    (quoted,) = _rows(connection, "SELECT quote_ident(%s) AS schema", schema)
    unqualified: Catalogue = _unqualified(catalogue, f"{quoted['schema']}.")
    return unqualified


def _table(connection: Connection[Any], table: Catalogue) -> Catalogue:
    oid = table["oid"]
    return {
        "persistence": table["persistence"],
        "columns": _rows(connection, _COLUMNS, oid),
        "constraints": _rows(connection, _CONSTRAINTS, oid),
        "indexes": _rows(connection, _INDEXES, oid),
        "triggers": _rows(connection, _TRIGGERS, oid),
    }


def _rows(connection: Connection[Any], sql: str, value: str | int) -> list[Catalogue]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(sql, [value]).fetchall()


def _unqualified(value: Any, qualifier: str) -> Any:
    match value:
        case dict():
            return {key: _unqualified(item, qualifier) for key, item in value.items()}
        case list():
            return [_unqualified(item, qualifier) for item in value]
        case str():
            # An index names its table's schema even if that is on the search path.
            return value.replace(f" ON {qualifier}", " ON public.").replace(qualifier, "")
        case _:
            return value


_TABLES = """
SELECT CAST(oid AS bigint) AS oid, relname AS name,
  CASE relpersistence WHEN 'p' THEN 'permanent' WHEN 'u' THEN 'unlogged' ELSE 'temporary' END AS persistence
FROM pg_class
WHERE relkind IN ('r', 'p', 'v', 'm', 'f')
  AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)
ORDER BY relname
"""

_COLUMNS = """
SELECT row_number() OVER (ORDER BY attnum) AS position, attname AS name, format_type(atttypid, atttypmod) AS type,
  pg_get_expr(adbin, adrelid) AS default, NOT attnotnull AS nullable
FROM pg_attribute
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = %s
  AND attnum > 0
  AND NOT attisdropped
ORDER BY attnum
"""

_CONSTRAINTS = """
SELECT conname AS name,
  CASE contype
    WHEN 'c' THEN 'check'
    WHEN 'f' THEN 'foreign_key'
    WHEN 'p' THEN 'primary_key'
    WHEN 'u' THEN 'unique'
    ELSE CAST(contype AS text)
  END AS type,
  pg_get_constraintdef(oid) AS definition
FROM pg_constraint
WHERE conrelid = %s
  AND contype <> 'n'
ORDER BY conname
"""

_INDEXES = """
SELECT relname AS name, amname AS method, indisunique AS unique, indisprimary AS primary,
  pg_get_indexdef(indexrelid) AS definition,
  pg_get_expr(indpred, indrelid) AS predicate,
  ARRAY(
    SELECT pg_get_indexdef(indexrelid, place, false)
    FROM generate_series(1, indnkeyatts) AS place
    ORDER BY place
  ) AS columns
FROM pg_index
JOIN pg_class ON pg_class.oid = indexrelid
JOIN pg_am ON pg_am.oid = relam
WHERE indrelid = %s
ORDER BY relname
"""

_TRIGGERS = """
SELECT tgname AS name, pg_get_triggerdef(oid) AS definition
FROM pg_trigger
WHERE tgrelid = %s
  AND NOT tgisinternal
ORDER BY tgname
"""

_ENUMS = """
SELECT typname AS name, array_agg(CAST(enumlabel AS text) ORDER BY enumsortorder) AS labels
FROM pg_type
JOIN pg_enum ON enumtypid = pg_type.oid
WHERE typnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)
GROUP BY typname
ORDER BY typname
"""

_FUNCTIONS = """
SELECT proname AS name, pg_get_function_arguments(pg_proc.oid) AS arguments,
  format_type(prorettype, NULL) AS returns, lanname AS language,
  CASE provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END AS volatility,
  proisstrict AS strict,
  CASE proparallel WHEN 's' THEN 'safe' WHEN 'r' THEN 'restricted' ELSE 'unsafe' END AS parallel
FROM pg_proc
JOIN pg_language ON pg_language.oid = prolang
WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)
ORDER BY proname
"""

_SEQUENCES = """
SELECT sequencename AS name, CAST(data_type AS text) AS data_type, start_value, increment_by
FROM pg_sequences
WHERE schemaname = %s
ORDER BY sequencename
"""
