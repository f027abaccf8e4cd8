"""SQLAlchemy's tables describe River's schema, whose versions are the matter of test_migration_sql.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, func, inspect, select
from sqlalchemy.dialects.postgresql import ENUM
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateTable

from river_sqlalchemy import schema as river_schema
from river_sqlalchemy.schema import Tables, river_job, tables
from tests.conftest import run_script
from tests.support import catalogue
from tests.support.schemas import Scratch, creation

if TYPE_CHECKING:
    pass

POSTGRESQL = create_engine("postgresql+psycopg://").dialect
STATES = catalogue.expected()["enums"]["river_job_state"]


@pytest.fixture
def mixed_case(place: Scratch) -> Scratch:
    """A schema in mixed case, with River's tables."""
    run_script(place.connection, creation(place.name))
    return place


@pytest.fixture
def engine(database_url: str) -> Engine:
    def connect() -> psycopg.Connection:
        return psycopg.connect(database_url, options="-c search_path=")

    return create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)


def test_the_suites_schema_has_rivers_catalogue(schema_connection: psycopg.Connection, schema: str) -> None:
    assert catalogue.read(schema_connection, schema) == catalogue.expected()


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


def test_alembic_finds_nothing_to_change_in_a_mixed_case_schema(engine: Engine, mixed_case: Scratch) -> None:
    metadata = MetaData()
    tables(mixed_case.name, metadata)
    assert compare(engine, metadata, mixed_case.name) == []


def test_alembic_finds_what_a_host_adds(engine: Engine, mixed_case: Scratch) -> None:
    metadata = MetaData(schema=mixed_case.name)
    tables(None, metadata)
    Table("invoice", metadata, Column("id", Integer(), primary_key=True))
    assert [difference[0] for difference in compare(engine, metadata, mixed_case.name)] == ["add_table"]


def test_the_tables_would_make_the_same_catalogue(engine: Engine, place: Scratch) -> None:
    """Alembic compares no check, no primary key's name and no index predicate; the catalogue has them all.

    River's tables are not made this way; the enum and the function are nobody's but the migrations'.
    """
    made = creation(place.name)
    states = ", ".join(f"'{state}'" for state in STATES)
    place.execute(f"CREATE TYPE {{at}}.river_job_state AS ENUM ({states})")
    (function,) = [text for text in made if "FUNCTION" in text and "bitmask" in text and "UNIQUE INDEX" not in text]
    place.execute(function)
    convention = {
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "ix": "x_%(column_0_label)s",
        "pk": "p_%(table_name)s",
    }
    metadata = MetaData(naming_convention=convention)
    tables(place.name, metadata)
    metadata.create_all(engine)
    assert catalogue.read(place.connection, place.name) == catalogue.expected()


def test_columns_agree_with_the_database_by_reflection(engine: Engine, mixed_case: Scratch) -> None:
    described = tables(mixed_case.name)
    with engine.connect() as connection:
        inspector = inspect(connection)
        assert sorted(inspector.get_table_names(mixed_case.name)) == sorted(Tables.__slots__)
        for name in Tables.__slots__:
            reflected = inspector.get_columns(name, mixed_case.name)
            table: Table = getattr(described, name)
            assert [_column(c["name"], c["type"], c["nullable"]) for c in reflected] == [
                _column(c.name, c.type, c.nullable) for c in table.columns
            ]


def _column(name: str, type_: Any, nullable: bool | None) -> tuple[str, str, bool | None]:
    return name, type_.compile(dialect=POSTGRESQL), nullable


def test_a_job_can_be_queried_by_typed_values(engine: Engine, mixed_case: Scratch) -> None:
    mixed_case.execute(
        "INSERT INTO {at}.river_job (args, kind, tags, errors, unique_key, unique_states)"
        """ VALUES ('{"a": 1}', 'k', '{t,u}', ARRAY[CAST('{"at": 1}' AS jsonb)], 'x', B'10000001')"""
    )
    c = tables(mixed_case.name).river_job.c
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
