"""The installed schema is River's, and SQLAlchemy's tables describe it.

``schema`` is the suite's; others are made here, in mixed case, where a forgotten quotation mark shows.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from psycopg import sql
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, func, inspect, select
from sqlalchemy.dialects.postgresql import ENUM
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateTable

from river.sql.migration.postgres import LINE, VERSION, install_sql
from river_sqlalchemy import schema as river_schema
from river_sqlalchemy.schema import Tables, river_job, tables
from tests.support import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

POSTGRESQL = create_engine("postgresql+psycopg://").dialect
STATES = catalogue.expected()["enums"]["river_job_state"]


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET search_path = ''")
        yield connection


@pytest.fixture
def empty_schema(connection: psycopg.Connection) -> Iterator[str]:
    """A mixed-case schema with nothing in it."""
    name = f"River_Mixed_Case_{secrets.token_hex(4)}"
    connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    yield name
    connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


@pytest.fixture
def mixed_case_schema(connection: psycopg.Connection, empty_schema: str) -> str:
    """A mixed-case schema, installed in one transaction under an empty search path."""
    install(connection, empty_schema)
    return empty_schema


@pytest.fixture
def engine(database_url: str) -> Engine:
    def connect() -> psycopg.Connection:
        return psycopg.connect(database_url, options="-c search_path=")

    return create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)


def install(connection: psycopg.Connection, schema: str | None) -> None:
    with connection.transaction():
        for statement in install_sql(schema):
            connection.execute(statement.encode())


def test_the_suites_schema_has_rivers_catalogue(connection: psycopg.Connection, schema: str) -> None:
    assert catalogue.read(connection, schema) == catalogue.expected()


def test_a_mixed_case_schema_has_rivers_catalogue(connection: psycopg.Connection, mixed_case_schema: str) -> None:
    assert catalogue.read(connection, mixed_case_schema) == catalogue.expected()


def test_no_schema_name_means_the_first_schema_of_the_search_path(
    connection: psycopg.Connection, empty_schema: str
) -> None:
    connection.execute("SELECT set_config('search_path', quote_ident(%s), false)", [empty_schema])
    install(connection, None)
    assert catalogue.read(connection, empty_schema) == catalogue.expected()


def test_every_version_is_recorded(connection: psycopg.Connection, mixed_case_schema: str) -> None:
    query = sql.SQL("SELECT line, version FROM {}.river_migration ORDER BY version")
    rows = connection.execute(query.format(sql.Identifier(mixed_case_schema))).fetchall()
    assert (LINE, VERSION) == ("main", 8)
    assert rows == [("main", version) for version in range(1, 9)]


def test_sequences_go_with_their_tables(connection: psycopg.Connection, mixed_case_schema: str) -> None:
    connection.execute(sql.SQL("DROP TABLE {}.river_job").format(sql.Identifier(mixed_case_schema)))
    left = [sequence["name"] for sequence in catalogue.read(connection, mixed_case_schema)["sequences"]]
    assert left == ["river_notification_id_seq"]


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", 'a"b', "a.b", "ä", "a\n", "a" * 47])
def test_a_name_that_river_refuses_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        install_sql(name)


def test_a_name_of_46_characters_is_accepted() -> None:
    assert install_sql("a" * 46)


def test_statements_hold_nothing_that_a_driver_takes_for_a_parameter() -> None:
    text = "".join(install_sql("Jobs"))
    assert not set(text) & set("%:?;")


def _in_bitmask(connection: psycopg.Connection, schema: str, bitmask: str | None, state: str | None) -> bool | None:
    query = sql.SQL("SELECT {0}.river_job_state_in_bitmask(CAST(%s AS bit(8)), CAST(%s AS {0}.river_job_state))")
    row = connection.execute(query.format(sql.Identifier(schema)), [bitmask, state]).fetchone()
    assert row is not None
    value: bool | None = row[0]
    return value


def test_available_is_the_rightmost_bit_and_scheduled_the_leftmost(
    connection: psycopg.Connection, mixed_case_schema: str
) -> None:
    for place in range(8):
        bitmask = format(1 << place, "08b")
        found = [state for state in STATES if _in_bitmask(connection, mixed_case_schema, bitmask, state)]
        assert found == [STATES[place]]


def test_an_unknown_state_is_in_no_bitmask_and_an_unknown_bitmask_is_unknown(
    connection: psycopg.Connection, mixed_case_schema: str
) -> None:
    assert _in_bitmask(connection, mixed_case_schema, "11111111", None) is False
    assert _in_bitmask(connection, mixed_case_schema, None, "available") is None


def test_a_unique_key_is_held_only_in_its_states(connection: psycopg.Connection, mixed_case_schema: str) -> None:
    insert = sql.SQL(
        "INSERT INTO {}.river_job (args, kind, unique_key, unique_states) VALUES ('{{}}', 'k', 'x', B'00000001')"
    ).format(sql.Identifier(mixed_case_schema))
    connection.execute(insert)
    with pytest.raises(psycopg.errors.UniqueViolation, match="river_job_unique_idx"):
        connection.execute(insert)
    update = sql.SQL("UPDATE {}.river_job SET state = 'running'").format(sql.Identifier(mixed_case_schema))
    connection.execute(update)
    connection.execute(insert)


def compare(engine: Engine, metadata: MetaData, schema: str) -> list[Any]:
    """What Alembic would change to bring *schema* to what *metadata* says."""
    # include_schemas, because Alembic else reads the default schema only; include_name, because it then
    # reads them all, and would drop what other schemas hold.
    options = {
        "include_schemas": True,
        "include_name": lambda name, kind, _parents: kind != "schema" or name == schema,
        "compare_type": True,
        "compare_server_default": True,
    }
    with engine.connect() as connection:
        differences: list[Any] = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        return differences


def test_alembic_finds_nothing_to_change(engine: Engine, schema: str) -> None:
    metadata = MetaData()
    tables(schema, metadata)
    assert compare(engine, metadata, schema) == []


def test_alembic_finds_nothing_to_change_in_a_mixed_case_schema(engine: Engine, mixed_case_schema: str) -> None:
    metadata = MetaData()
    tables(mixed_case_schema, metadata)
    assert compare(engine, metadata, mixed_case_schema) == []


def test_alembic_finds_what_a_host_adds(engine: Engine, mixed_case_schema: str) -> None:
    metadata = MetaData(schema=mixed_case_schema)
    tables(None, metadata)
    Table("invoice", metadata, Column("id", Integer(), primary_key=True))
    assert [difference[0] for difference in compare(engine, metadata, mixed_case_schema)] == ["add_table"]


def test_the_tables_would_make_the_same_catalogue(
    connection: psycopg.Connection, engine: Engine, empty_schema: str
) -> None:
    """Alembic compares no check, no primary key's name and no index predicate; the catalogue has them all.

    River's tables are not made this way; the enum and the function are nobody's but the migrations'.
    """
    enum, function = install_sql(empty_schema)[:2]
    connection.execute(enum.encode())
    connection.execute(function.encode())
    convention = {
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "ix": "x_%(column_0_label)s",
        "pk": "p_%(table_name)s",
    }
    metadata = MetaData(naming_convention=convention)
    tables(empty_schema, metadata)
    metadata.create_all(engine)
    assert catalogue.read(connection, empty_schema) == catalogue.expected()


def test_columns_agree_with_the_database_by_reflection(engine: Engine, mixed_case_schema: str) -> None:
    described = tables(mixed_case_schema)
    with engine.connect() as connection:
        inspector = inspect(connection)
        assert sorted(inspector.get_table_names(mixed_case_schema)) == sorted(Tables.__slots__)
        for name in Tables.__slots__:
            reflected = inspector.get_columns(name, mixed_case_schema)
            table: Table = getattr(described, name)
            assert [_column(c["name"], c["type"], c["nullable"]) for c in reflected] == [
                _column(c.name, c.type, c.nullable) for c in table.columns
            ]


def _column(name: str, type_: Any, nullable: bool | None) -> tuple[str, str, bool | None]:
    return name, type_.compile(dialect=POSTGRESQL), nullable


def test_a_job_can_be_queried_by_typed_values(
    connection: psycopg.Connection, engine: Engine, mixed_case_schema: str
) -> None:
    insert = sql.SQL(
        "INSERT INTO {}.river_job (args, kind, tags, errors, unique_key, unique_states)"
        """ VALUES ('{{"a": 1}}', 'k', '{{t,u}}', ARRAY[CAST('{{"at": 1}}' AS jsonb)], 'x', B'10000001')"""
    )
    connection.execute(insert.format(sql.Identifier(mixed_case_schema)))
    c = tables(mixed_case_schema).river_job.c
    query = (
        select(c.state, c.args, c.metadata, c.tags, c.errors, c.unique_key, c.attempted_by, c.created_at)
        .where(c.state == "available")
        .where(c.args["a"].as_integer() == 1)
        .where(c.tags.contains(["t"]))
        .where(func.get_bit(c.unique_states, 0) == 1)
    )
    with engine.connect() as sqlalchemy_connection:
        *values, created_at = sqlalchemy_connection.execute(query).one()
    assert values == ["available", {"a": 1}, {}, ["t", "u"], [{"at": 1}], b"x", None]
    assert created_at.tzinfo is not None


def test_the_default_tables_carry_no_schema() -> None:
    assert set(river_schema.metadata.tables) == set(Tables.__slots__)
    assert river_schema.metadata.tables["river_job"] is river_job
    assert all(table.schema is None for table in river_schema.metadata.tables.values())


def test_the_states_are_the_enums() -> None:
    state = river_job.c.state.type
    assert isinstance(state, ENUM)
    assert state.enums == STATES


def test_the_schema_of_the_metadata_is_used_throughout() -> None:
    job = tables(None, MetaData(schema="Jobs")).river_job
    ddl = str(CreateTable(job).compile(dialect=POSTGRESQL))
    assert 'CREATE TABLE "Jobs".river_job' in ddl
    assert 'state "Jobs".river_job_state' in ddl


def test_the_tables_can_be_queried_on_sqlite() -> None:
    engine = create_engine("sqlite://")
    columns = ", ".join(river_job.c.keys())
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE river_job ({columns})")
        connection.exec_driver_sql(
            "INSERT INTO river_job (id, state, created_at, metadata, unique_states)"
            " VALUES (1, 'available', '2026-01-01 00:00:00.12', X'00', 129)"
        )
        query = select(river_job).where(river_job.c.state == "available", river_job.c.id == 1)
        row = connection.execute(query).one()
    assert (row.state, row.created_at, row.unique_states) == ("available", "2026-01-01 00:00:00.12", 129)
    assert row.metadata == b"\x00"
    engine.dispose()
