"""River's migrations as calls in revisions of the application's own; one head, and no branch of River's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations

from river import ConfigurationError, Migrator, NewerSchemaError
from river_sqlalchemy import alembic as river_alembic
from tests.support import catalogue
from tests.support.alembic_hosts import NOTHING, Host, host_url, rivers
from tests.support.schemas import Scratch, scratch

ALL = list(range(1, 9))

MakeHost = Callable[..., Host]

per_migration = pytest.mark.parametrize("per_migration", [False, True], ids=["one transaction", "many transactions"])


@pytest.fixture
def jobs(database_url: str) -> Iterator[Scratch]:
    """Another schema, for River."""
    with scratch(database_url) as made:
        yield made


@pytest.fixture
def make_host(tmp_path: Path, database_url: str, place: Scratch) -> MakeHost:
    """Makes an application whose only revisions are its own."""

    def make(**options: Any) -> Host:
        host = Host(tmp_path / "host", host_url(database_url, place), place, **options)
        host.without_the_branch()
        return host

    return make


def upgrade_to(version: int, **more: object) -> str:
    """The line of a revision."""
    return f"river_alembic.upgrade(op, version={version}{_arguments(more)})"


def downgrade_to(version: int, **more: object) -> str:
    return f"river_alembic.downgrade(op, version={version}{_arguments(more)})"


def _arguments(more: dict[str, object]) -> str:
    return "".join(f", {name}={value!r}" for name, value in more.items())


@per_migration
@pytest.mark.parametrize("environment", ["plain", "guarded", "asyncio"])
def test_one_revision_makes_rivers_tables_and_removes_them(
    make_host: MakeHost, database_url: str, environment: str, per_migration: bool
) -> None:
    host = make_host(environment=environment, transaction_per_migration=per_migration)
    host.revision("jobs", upgrade=upgrade_to(8), downgrade=downgrade_to(0))
    host.upgrade("head")
    assert host.recorded == {"jobs"}
    assert rivers(host.place) == catalogue.expected()
    assert Migrator(database_url, schema=host.place.name).validate() == []
    host.downgrade("base")
    assert (host.recorded, rivers(host.place)) == (set(), NOTHING)
    host.upgrade("head")
    assert rivers(host.place) == catalogue.expected()


@per_migration
@pytest.mark.parametrize("between", ALL[:-1])
def test_a_later_revision_goes_on_to_a_later_version(make_host: MakeHost, between: int, per_migration: bool) -> None:
    host = make_host(transaction_per_migration=per_migration)
    host.revision("jobs", upgrade=upgrade_to(between), downgrade=downgrade_to(0))
    host.revision("more", after="jobs", upgrade=upgrade_to(8), downgrade=downgrade_to(between))
    host.upgrade("jobs")
    assert rivers(host.place) == catalogue.after_up(between)
    host.upgrade("more")
    assert rivers(host.place) == catalogue.expected()
    host.downgrade("jobs")
    assert rivers(host.place) == catalogue.after_down(between + 1)
    assert host.place.versions == ALL[:between]


def test_it_goes_on_from_whatever_is_applied(make_host: MakeHost, database_url: str) -> None:
    host = make_host()
    host.revision("jobs", upgrade=upgrade_to(6), downgrade=downgrade_to(2))
    migrator = Migrator(database_url, schema=host.place.name)
    migrator.up(target_version=4)
    host.upgrade("head")
    assert host.place.versions == ALL[:6]
    migrator.up()
    host.downgrade("base")
    assert host.place.versions == ALL[:2]
    migrator.up()
    host.upgrade("head")
    assert host.place.versions == ALL


def test_a_newer_database_is_not_changed_downwards(make_host: MakeHost) -> None:
    host = make_host()
    host.revision("jobs", upgrade=upgrade_to(8), downgrade=downgrade_to(0))
    host.upgrade("head")
    host.place.execute("INSERT INTO {at}.river_migration (line, version) VALUES ('main', 9)")
    with pytest.raises(NewerSchemaError):
        host.downgrade("base")
    assert (host.recorded, host.place.versions) == ({"jobs"}, [*ALL, 9])


def test_the_schema_of_the_call_wins_over_the_option(make_host: MakeHost, jobs: Scratch) -> None:
    host = make_host(river_schema="nowhere")
    host.revision("jobs", upgrade=upgrade_to(8, schema=jobs.name), downgrade=downgrade_to(0, schema=jobs.name))
    host.upgrade("head")
    assert (rivers(jobs), rivers(host.place)) == (catalogue.expected(), NOTHING)
    host.downgrade("base")
    assert rivers(jobs) == NOTHING


def test_the_schema_may_be_made_in_the_same_revision(make_host: MakeHost, jobs: Scratch) -> None:
    jobs.execute("DROP SCHEMA {at}")
    host = make_host(river_schema=jobs.name)
    host.revision("jobs", upgrade=f"op.execute('CREATE SCHEMA \"{jobs.name}\"'); {upgrade_to(8)}")
    host.upgrade("head")
    assert rivers(jobs) == catalogue.expected()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (upgrade_to(0), "version 0 is none of River's versions: 1 to 8"),
        (upgrade_to(9), "version 9 is none of River's versions: 1 to 8"),
        (upgrade_to(8, from_version=9), "from_version 9 is none of River's versions: 0 to 8"),
        (downgrade_to(-1), "version -1 is none of River's versions: 0 to 8"),
        (downgrade_to(12), "version 12 is none of River's versions: 0 to 8"),
        (downgrade_to(0, from_version=9), "from_version 9 is none of River's versions: 0 to 8"),
        (upgrade_to(8, schema="no where"), "schema must be 1 to 46 ASCII letters"),
        (downgrade_to(0, schema="no where"), "schema must be 1 to 46 ASCII letters"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(make_host: MakeHost, call: str, message: str) -> None:
    host = make_host()
    host.revision("jobs", upgrade=call)
    with pytest.raises(ConfigurationError, match=message):
        host.upgrade("head")
    assert (host.recorded, rivers(host.place)) == (set(), NOTHING)


def test_it_needs_no_environment(make_host: MakeHost) -> None:
    """Alembic's operations also work on a connection alone, as in a program or a test."""
    host = make_host()
    with host.connection() as connection, connection.begin():
        river_alembic.upgrade(Operations(MigrationContext.configure(connection)), version=8)
    assert rivers(host.place) == catalogue.expected()


def test_without_a_connection_it_says_so() -> None:
    with pytest.raises(ConfigurationError, match="give one to context"):
        river_alembic.upgrade(Operations(MigrationContext.configure(dialect_name="postgresql")), version=8)
