"""The real River accepts what Alembic has migrated, and Alembic what the real River has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from tests.interop import ledger
from tests.interop.go_river import GoRiver
from tests.interop.python_river import River
from tests.support import catalogue
from tests.support.catalogue import Catalogue
from tests.support.urls import with_driver

# The build has a deadline of its own, which is longer than that of a test.
pytestmark = pytest.mark.timeout(120, func_only=True)

NEWEST = 8
UPWARDS = range(1, NEWEST + 1)
DOWNWARDS = range(NEWEST - 1, -1, -1)

ENV = """
from contextlib import nullcontext

from alembic import context
from river_sqlalchemy import alembic as river_alembic

config = context.config
with config.attributes["engine"].connect() as connection:
    context.configure(
        connection=connection,
        version_table_schema=config.get_main_option("river_schema"),
        transaction_per_migration=config.attributes["transaction_per_migration"],
    )
    guard = river_alembic.migrating(context) if config.attributes["guarded"] else nullcontext()
    with guard, context.begin_transaction():
        context.run_migrations()
"""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(with_driver(database_url, "postgresql+psycopg"), poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
def config(tmp_path: Path, engine: Engine, empty_schema: str) -> Config:
    """A host's Alembic that has River's migrations and none of its own."""
    (tmp_path / "env.py").write_text(ENV, encoding="utf-8")
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("version_locations", "river_sqlalchemy:migrations")
    config.set_main_option("path_separator", "newline")  # a colon is part of the name of the place
    config.set_main_option("river_schema", empty_schema)
    config.attributes["engine"] = engine
    config.attributes["transaction_per_migration"] = True
    config.attributes["guarded"] = True
    return config


def rivers_catalogue(connection: psycopg.Connection, schema: str) -> Catalogue:
    """The catalogue without Alembic's own table."""
    found = catalogue.read(connection, schema)
    found["tables"].pop("alembic_version", None)
    return found


def revision(version: int) -> str:
    return f"river_{version:03}" if version else "river@base"


def test_the_real_river_validates_what_alembic_has_migrated_at_every_version_up_and_down(
    connection: psycopg.Connection,
    config: Config,
    rivers: dict[str, River],
    empty_schema: str,
    go_elsewhere: GoRiver,
    other_schema: str,
) -> None:
    def assert_like_rivers_own(version: int) -> None:
        for river in rivers.values():
            assert river.applied() == list(range(1, version + 1))
            assert river.unapplied() == list(range(version + 1, NEWEST + 1))
        assert ledger.read(connection, empty_schema) == ledger.expected(version)
        assert rivers_catalogue(connection, empty_schema) == catalogue.read(connection, other_schema)

    for version in UPWARDS:
        command.upgrade(config, revision(version))
        go_elsewhere.up(version)
        assert_like_rivers_own(version)
    for version in DOWNWARDS:
        command.downgrade(config, revision(version))
        go_elsewhere.down(version)
        assert_like_rivers_own(version)


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("transaction_per_migration", [True, False])
def test_the_real_river_validates_what_alembic_has_migrated_to_the_head_in_one_command(
    connection: psycopg.Connection,
    config: Config,
    rivers: dict[str, River],
    empty_schema: str,
    go_elsewhere: GoRiver,
    other_schema: str,
    transaction_per_migration: bool,
    guarded: bool,
) -> None:
    config.attributes.update(transaction_per_migration=transaction_per_migration, guarded=guarded)
    command.upgrade(config, "river@head")
    go_elsewhere.up()
    assert rivers["go"].unapplied() == rivers["python"].unapplied() == []
    assert ledger.read(connection, empty_schema) == ledger.expected(NEWEST)
    assert rivers_catalogue(connection, empty_schema) == catalogue.read(connection, other_schema)
    command.downgrade(config, "river@base")
    go_elsewhere.down(0)
    assert rivers["go"].applied() == rivers["python"].applied() == []
    assert rivers_catalogue(connection, empty_schema) == catalogue.read(connection, other_schema)


@pytest.mark.parametrize("version", UPWARDS)
def test_alembic_goes_on_from_what_the_real_river_has_migrated(
    connection: psycopg.Connection,
    config: Config,
    rivers: dict[str, River],
    empty_schema: str,
    go_elsewhere: GoRiver,
    other_schema: str,
    version: int,
) -> None:
    rivers["go"].up(version)
    before = ledger.times(connection, empty_schema)
    command.upgrade(config, "river@head")
    go_elsewhere.up()
    assert rivers["go"].unapplied() == []
    after = ledger.times(connection, empty_schema)
    assert {**after, **before} == after
    assert rivers_catalogue(connection, empty_schema) == catalogue.read(connection, other_schema)


@pytest.mark.parametrize("version", DOWNWARDS)
def test_alembic_reverts_what_the_real_river_has_not_reverted_already(
    connection: psycopg.Connection,
    config: Config,
    rivers: dict[str, River],
    empty_schema: str,
    version: int,
) -> None:
    command.upgrade(config, "river@head")
    rivers["go"].down(version)
    command.downgrade(config, "river@base")
    assert rivers["go"].applied() == []
    assert rivers_catalogue(connection, empty_schema)["tables"] == {}


@pytest.mark.parametrize("version", DOWNWARDS)
def test_alembic_applies_again_what_the_real_river_has_reverted(
    connection: psycopg.Connection,
    config: Config,
    rivers: dict[str, River],
    empty_schema: str,
    go_elsewhere: GoRiver,
    other_schema: str,
    version: int,
) -> None:
    command.upgrade(config, "river@head")
    rivers["go"].down(version)
    command.upgrade(config, "river@head")
    assert rivers["go"].unapplied() == []
    assert ledger.read(connection, empty_schema) == ledger.expected(NEWEST)
    go_elsewhere.up()
    go_elsewhere.down(version)
    go_elsewhere.up()
    assert rivers_catalogue(connection, empty_schema) == catalogue.read(connection, other_schema)
