"""River's branch of revisions beside an application's own, under Alembic's own commands.

What each version does to the catalogue is the matter of test_migration_sql.py. Here Alembic leads to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import MetaData, make_url, text
from sqlalchemy.exc import ProgrammingError

from river import ConfigurationError, Migrator, NewerSchemaError, TransactionRequiredError
from river.sql.migration import migrations
from river_sqlalchemy import alembic as river_alembic
from tests.support import catalogue
from tests.support.alembic_hosts import ENVIRONMENTS, NOTHING, Host, host_url, rivers
from tests.support.schemas import Scratch, scratch
from tests.support.urls import with_driver

ALL = list(range(1, 9))
NEWEST = "river_008"
ALEMBIC = tuple(map(int, installed_version("alembic").split(".")[:2]))

MakeHost = Callable[..., Host]

per_migration = pytest.mark.parametrize("per_migration", [False, True], ids=["one transaction", "many transactions"])


@pytest.fixture
def jobs(database_url: str) -> Iterator[Scratch]:
    """Another schema, for River."""
    with scratch(database_url) as made:
        yield made


@pytest.fixture
def make_host(tmp_path: Path, database_url: str, place: Scratch) -> MakeHost:
    """Makes the application: one table, made by one revision, and River's branch beside it."""

    def make(*, drivername: str = "postgresql+psycopg", **options: Any) -> Host:
        host = Host(tmp_path / "host", host_url(database_url, place, drivername), place, **options)
        host.revision(
            "users",
            label="app",
            upgrade='op.execute("CREATE TABLE users (id int)")',
            downgrade='op.drop_table("users")',
        )
        return host

    return make


# Up and down


@per_migration
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_upgrade_heads_brings_the_application_and_river_up(
    make_host: MakeHost, database_url: str, environment: str, per_migration: bool
) -> None:
    host = make_host(environment=environment, transaction_per_migration=per_migration)
    host.upgrade("heads")
    assert host.recorded == {"users", NEWEST}
    assert host.tables == {"users"}
    assert host.place.versions == ALL
    assert rivers(host.place) == catalogue.expected()
    assert Migrator(database_url, schema=host.place.name).validate() == []


@pytest.mark.parametrize(
    ("environment", "drivername"),
    [
        ("guarded", "postgresql+psycopg"),
        ("guarded", "postgresql+psycopg2"),
        ("guarded", "postgresql+pg8000"),
        ("asyncio", "postgresql+psycopg"),
        ("asyncio", "postgresql+asyncpg"),
    ],
)
def test_every_library_goes_up_and_down_and_up(make_host: MakeHost, environment: str, drivername: str) -> None:
    host = make_host(environment=environment, drivername=drivername)
    host.upgrade("heads")
    assert rivers(host.place) == catalogue.expected()
    host.downgrade("river@base")
    assert rivers(host.place) == NOTHING
    assert (host.recorded, host.tables) == ({"users"}, {"users"})
    host.upgrade("river@head")
    assert rivers(host.place) == catalogue.expected()


@per_migration
def test_each_step_leaves_what_rivers_own_migrations_leave(make_host: MakeHost, per_migration: bool) -> None:
    host = make_host(transaction_per_migration=per_migration)
    host.upgrade("app@head")
    for version in ALL:
        host.upgrade("river@+1")
        assert host.recorded == {"users", f"river_{version:03}"}
        assert host.place.versions == ALL[:version]
        assert rivers(host.place) == catalogue.after_up(version)
    for version in reversed(ALL):
        host.downgrade("river@-1")
        assert host.place.versions == ALL[: version - 1]
        assert rivers(host.place) == catalogue.after_down(version)
    assert (host.recorded, host.tables) == ({"users"}, {"users"})


@per_migration
@pytest.mark.parametrize("start", ALL[:-1])
def test_a_database_at_any_version_goes_to_the_newest(make_host: MakeHost, start: int, per_migration: bool) -> None:
    """Version 4 adds a value to an enum, which nothing may use in the transaction that adds it."""
    host = make_host(transaction_per_migration=per_migration)
    host.upgrade(f"river_{start:03}")
    if start > 1:
        host.place.execute(
            """INSERT INTO {at}.river_job (kind, args, max_attempts, state, finalized_at)
            VALUES ('old', '{}', 3, 'available', NULL), ('old', '{}', 3, 'completed', now())"""
        )
    host.upgrade("heads")
    assert rivers(host.place) == catalogue.expected()
    host.place.execute("UPDATE {at}.river_job SET state = 'pending' WHERE state = 'available'")
    assert host.place.execute("SELECT count(*) FROM {at}.river_job") == [(2 if start > 1 else 0,)]


@per_migration
def test_up_and_down_can_be_repeated_from_every_version(make_host: MakeHost, per_migration: bool) -> None:
    host = make_host(transaction_per_migration=per_migration)
    host.upgrade("heads")
    for version in ALL:
        host.downgrade(f"river@-{version}")
        host.upgrade("heads")
        assert host.place.versions == ALL
    assert rivers(host.place) == catalogue.expected()


@per_migration
@pytest.mark.parametrize("environment", ["plain", "guarded"])
def test_a_version_that_fails_leaves_what_its_transaction_found(
    make_host: MakeHost, environment: str, per_migration: bool
) -> None:
    host = make_host(environment=environment, transaction_per_migration=per_migration)
    host.place.execute("CREATE TABLE {at}.river_queue (name text)")
    with pytest.raises(ProgrammingError, match="river_queue"):
        host.upgrade("river@head")
    host.place.execute("DROP TABLE {at}.river_queue")
    if per_migration:
        assert host.recorded == {"river_003"}
        assert rivers(host.place) == catalogue.after_up(3)
    else:
        assert host.recorded == set()
        assert rivers(host.place) == NOTHING
    host.upgrade("heads")
    assert rivers(host.place) == catalogue.expected()


@per_migration
def test_a_host_that_rolls_its_own_transaction_back_keeps_nothing(make_host: MakeHost, per_migration: bool) -> None:
    host = make_host(transaction_per_migration=per_migration)
    with host.connection() as connection:
        connection.execute(text("CREATE TABLE before (id int)"))
        host.attributes["connection"] = connection
        host.upgrade("heads")
        assert connection.execute(text("SELECT count(*) FROM river_migration")).scalar_one() == 8
        connection.rollback()
    assert (host.recorded, host.tables, rivers(host.place)) == (set(), set(), NOTHING)


def test_a_connection_in_autocommit_is_refused_and_nothing_is_written(make_host: MakeHost) -> None:
    host = make_host(environment="plain")
    with host.connection() as connection:
        host.attributes["connection"] = connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(TransactionRequiredError, match="AUTOCOMMIT"):
            host.upgrade("heads")
    assert rivers(host.place) == NOTHING


def test_a_database_for_which_river_has_no_migrations_is_refused(tmp_path: Path, place: Scratch) -> None:
    for environment in ("plain", "guarded"):
        host = Host(tmp_path / environment, make_url("sqlite://"), place, environment=environment)
        with pytest.raises(ConfigurationError, match="sqlite is not supported"):
            host.upgrade("heads")


# Beside the application's own revisions


def test_the_branch_hangs_together_and_has_one_label(make_host: MakeHost) -> None:
    scripts = ScriptDirectory.from_config(make_host().config())
    assert [script.revision for script in scripts.walk_revisions("river_001", NEWEST)] == [
        f"river_{version:03}" for version in reversed(ALL)
    ]
    for version in ALL:
        script = scripts.get_revision(f"river_{version:03}")
        assert script.branch_labels == {"river"}
        assert script.doc == migrations("postgresql")[version - 1].name


def test_a_merge_of_both_branches_is_one_head(make_host: MakeHost) -> None:
    host = make_host()
    host.revision("both", after=("users", NEWEST))
    host.upgrade("head")
    assert host.recorded == {"both"}
    assert rivers(host.place) == catalogue.expected()
    host.downgrade("river@base")
    assert (host.recorded, rivers(host.place)) == ({"users"}, NOTHING)
    host.upgrade("head")
    assert (host.recorded, host.place.versions) == ({"both"}, ALL)


def test_a_revision_that_depends_on_rivers_comes_after_it(make_host: MakeHost) -> None:
    host = make_host()
    host.revision(
        "trail",
        after="users",
        depends_on="river_006",
        upgrade='op.execute("CREATE TABLE trail (job_id bigint REFERENCES river_job)")',
        downgrade='op.drop_table("trail")',
    )
    host.upgrade("app@head")
    assert (host.tables, host.place.versions) == ({"users", "trail"}, ALL[:6])
    host.upgrade("heads")
    assert host.place.versions == ALL
    host.downgrade("base")
    assert (host.recorded, host.tables, rivers(host.place)) == (set(), set(), NOTHING)


@pytest.mark.skipif(ALEMBIC < (1, 16), reason="Alembic reads pyproject.toml, and separates by newlines, since 1.16")
@pytest.mark.parametrize("form", ["newline", "pyproject.toml"])
def test_the_branch_can_be_named_in_other_ways(make_host: MakeHost, jobs: Scratch, form: str) -> None:
    host = make_host()
    if form == "newline":
        host.ini.write_text(
            "[alembic]\n"
            "script_location = %(here)s/migrations\n"
            "version_locations =\n  %(here)s/migrations/versions\n  river_sqlalchemy:migrations\n"
            f"path_separator = newline\nriver_schema = {jobs.name}\n"
        )
    else:
        host.ini.unlink()
        (host.folder / "pyproject.toml").write_text(
            "[tool.alembic]\n"
            'script_location = "%(here)s/migrations"\n'
            'version_locations = ["%(here)s/migrations/versions", "river_sqlalchemy:migrations"]\n'
            f'river_schema = "{jobs.name}"\n'
        )
    host.upgrade("heads")
    assert (host.tables, rivers(host.place)) == ({"users"}, NOTHING)
    assert rivers(jobs) == catalogue.expected()


# Where


@per_migration
@pytest.mark.parametrize("said", ["alembic.ini", "keyword"])
def test_river_has_a_schema_of_its_own(
    make_host: MakeHost, jobs: Scratch, database_url: str, said: str, per_migration: bool
) -> None:
    host = make_host(transaction_per_migration=per_migration)
    if said == "keyword":
        host.options["river_schema"] = jobs.name
    else:
        host.set_main_option("river_schema", jobs.name)
    host.upgrade("heads")
    assert rivers(jobs) == catalogue.expected()
    assert (host.recorded, host.tables, rivers(host.place)) == ({"users", NEWEST}, {"users"}, NOTHING)
    assert Migrator(database_url, schema=jobs.name).validate() == []
    host.downgrade("river@base")
    assert rivers(jobs) == NOTHING


def test_the_keyword_wins_over_the_file(make_host: MakeHost, jobs: Scratch) -> None:
    host = make_host(river_schema=None)
    host.set_main_option("river_schema", jobs.name)
    host.upgrade("heads")
    assert (host.place.versions, jobs.versions) == (ALL, [])


@pytest.mark.parametrize("environment", ["plain", "guarded"])
@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("nowhere", r'the schema \'nowhere\' does not exist: create it first, CREATE SCHEMA "nowhere"'),
        ("no where", "schema must be 1 to 46 ASCII letters"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_before_anything_is_written(
    make_host: MakeHost, environment: str, schema: str, message: str
) -> None:
    host = make_host(environment=environment, river_schema=schema)
    with pytest.raises(ConfigurationError, match=message):
        host.upgrade("heads")
    assert host.recorded == set()


@pytest.mark.parametrize("environment", ["plain", "guarded"])
def test_a_search_path_that_leads_nowhere_is_refused(make_host: MakeHost, database_url: str, environment: str) -> None:
    host = make_host(environment=environment)
    host.options["version_table_schema"] = host.place.name
    host.attributes["url"] = with_driver(database_url, "postgresql+psycopg")
    with pytest.raises(ConfigurationError, match="search_path has none that exists"):
        host.upgrade("river@head")
    assert host.recorded == set()


def test_an_empty_search_path_does_not_matter_where_the_schemas_are_named(
    make_host: MakeHost, jobs: Scratch, database_url: str
) -> None:
    host = make_host(river_schema=jobs.name)
    host.options["version_table_schema"] = host.place.name
    host.attributes["url"] = with_driver(database_url, "postgresql+psycopg")
    host.upgrade("river@head")
    assert (host.recorded, rivers(jobs)) == ({NEWEST}, catalogue.expected())
    Migrator(database_url, schema=jobs.name).down(target_version=4)
    host.upgrade("river@head")
    assert (host.recorded, jobs.versions) == ({NEWEST}, ALL)
    host.downgrade("river@base")
    assert (host.recorded, rivers(jobs)) == (set(), NOTHING)


@pytest.mark.parametrize("whose", ["alembic's transaction", "the host's transaction"])
def test_the_schema_may_be_made_on_the_way(make_host: MakeHost, jobs: Scratch, whose: str) -> None:
    jobs.execute("DROP SCHEMA {at}")
    host = make_host(river_schema=jobs.name)
    host.before_migrations(f"context.execute('CREATE SCHEMA IF NOT EXISTS \"{jobs.name}\"')")
    if whose == "alembic's transaction":
        host.upgrade("heads")
    else:
        with host.connection() as connection, connection.begin():
            host.attributes["connection"] = connection
            host.upgrade("heads")
    assert rivers(jobs) == catalogue.expected()


# Who else migrates


@per_migration
@pytest.mark.parametrize("environment", ["plain", "guarded"])
@pytest.mark.parametrize("done", ALL)
def test_what_another_migrator_has_applied_is_not_applied_again(
    make_host: MakeHost, database_url: str, environment: str, done: int, per_migration: bool
) -> None:
    host = make_host(environment=environment, transaction_per_migration=per_migration)
    Migrator(database_url, schema=host.place.name).up(target_version=done)
    before = recorded_by_river(host.place)
    host.upgrade("heads")
    assert recorded_by_river(host.place)[:done] == before
    assert (host.recorded, host.place.versions) == ({"users", NEWEST}, ALL)
    assert rivers(host.place) == catalogue.expected()


def test_a_migrator_goes_on_where_alembic_has_stopped_and_the_other_way_round(
    make_host: MakeHost, database_url: str
) -> None:
    host = make_host(environment="plain")
    migrator = Migrator(database_url, schema=host.place.name)
    host.upgrade("river_003")
    assert [step.version for step in migrator.up(max_steps=2)] == [4, 5]
    host.upgrade("river_006")
    assert [step.version for step in migrator.up()] == [7, 8]
    host.upgrade("river@head")
    assert (host.recorded, host.place.versions) == ({NEWEST}, ALL)
    assert migrator.up() == []
    assert rivers(host.place) == catalogue.expected()


def test_what_another_migrator_has_reverted_is_not_reverted_again(make_host: MakeHost, database_url: str) -> None:
    host = make_host(environment="plain")
    host.upgrade("heads")
    Migrator(database_url, schema=host.place.name).down(target_version=5)
    host.downgrade("river_006")
    assert (host.recorded, host.place.versions) == ({"users", "river_006"}, ALL[:5])
    host.downgrade("river_004")
    assert host.place.versions == ALL[:4]
    assert rivers(host.place) == catalogue.after_down(5)


def test_reverting_a_version_reverts_those_that_another_migrator_has_put_on_top(
    make_host: MakeHost, database_url: str
) -> None:
    host = make_host()
    host.upgrade("river_006")
    Migrator(database_url, schema=host.place.name).up()
    host.downgrade("river@-1")
    assert (host.recorded, host.place.versions) == ({"river_005"}, ALL[:5])
    assert rivers(host.place) == catalogue.after_down(6)


@pytest.mark.parametrize("environment", ["plain", "guarded"])
def test_applying_a_version_applies_those_below_it_that_another_migrator_has_reverted(
    make_host: MakeHost, database_url: str, environment: str
) -> None:
    host = make_host(environment=environment)
    host.upgrade("river_006")
    Migrator(database_url, schema=host.place.name).down(target_version=3)
    host.upgrade("river_007")
    assert host.place.versions == ALL[:7]
    assert rivers(host.place) == catalogue.after_up(7)


@per_migration
@pytest.mark.parametrize("left", [0, 3, 7])
def test_upgrade_heads_applies_again_what_another_migrator_has_reverted(
    make_host: MakeHost, database_url: str, left: int, per_migration: bool
) -> None:
    host = make_host(transaction_per_migration=per_migration)
    host.upgrade("heads")
    Migrator(database_url, schema=host.place.name).down(target_version=left)
    host.upgrade("heads")
    assert (host.recorded, host.place.versions) == ({"users", NEWEST}, ALL)
    assert rivers(host.place) == catalogue.expected()


def test_upgrade_heads_makes_everything_again_where_rivers_schema_was_dropped(
    make_host: MakeHost, jobs: Scratch
) -> None:
    host = make_host(river_schema=jobs.name)
    host.upgrade("heads")
    jobs.execute("DROP SCHEMA {at} CASCADE; CREATE SCHEMA {at}")
    host.upgrade("heads")
    assert (host.recorded, jobs.versions) == ({"users", NEWEST}, ALL)


def test_check_says_that_the_database_is_not_up_to_date_once_another_migrator_has_reverted(
    make_host: MakeHost, database_url: str
) -> None:
    host = make_host(target_metadata=MetaData(), include_object=river_alembic.include_object)
    host.revision("users", label="app")
    host.upgrade("heads")
    host.run("check")
    Migrator(database_url, schema=host.place.name).down(target_version=6)
    host.run("current")
    assert host.recorded == {"users", NEWEST}  # that command only reads
    with pytest.raises(CommandError, match="not up to date"):
        host.run("check")
    assert host.recorded == {"users", "river_006"}


@pytest.mark.parametrize("tie", ["depends on", "merges"])
def test_a_branch_that_a_revision_of_the_hosts_has_absorbed_is_left_as_it_is_with_a_warning(
    make_host: MakeHost, database_url: str, caplog: pytest.LogCaptureFixture, tie: str
) -> None:
    host = make_host()
    if tie == "merges":
        host.revision("tie", after=("users", NEWEST))
    else:
        host.revision("tie", after="users", depends_on=NEWEST)
    host.upgrade("heads")
    host.upgrade("heads")
    assert "migrate-up" not in caplog.text
    migrator = Migrator(database_url, schema=host.place.name)
    migrator.down(target_version=6)
    host.upgrade("heads")
    assert (host.recorded, host.place.versions) == ({"tie"}, ALL[:6])
    assert "run the command river migrate-up" in caplog.text
    migrator.up()
    caplog.clear()
    host.upgrade("heads")
    assert "migrate-up" not in caplog.text


@pytest.mark.parametrize("tie", ["depends on", "merges"])
@pytest.mark.parametrize("left", range(8))
def test_what_another_migrator_has_reverted_below_a_tie_of_the_hosts_is_applied_again(
    make_host: MakeHost, database_url: str, caplog: pytest.LogCaptureFixture, left: int, tie: str
) -> None:
    host = make_host()
    if tie == "merges":
        host.revision("tie", after=("users", "river_006"))
    else:
        host.revision("tie", after="users", depends_on="river_006")
    host.upgrade("heads")
    assert host.recorded == {"tie", NEWEST}
    Migrator(database_url, schema=host.place.name).down(target_version=left)
    host.upgrade("heads")
    assert (host.recorded, host.place.versions) == ({"tie", NEWEST}, ALL)
    assert "migrate-up" not in caplog.text  # nothing was left to do
    assert rivers(host.place) == catalogue.expected()
    host.downgrade("base")
    assert (host.recorded, rivers(host.place)) == (set(), NOTHING)


@pytest.mark.parametrize("environment", ["plain", "guarded"])
def test_a_record_that_alembic_cannot_read_can_be_mended_with_alembics_own_command(
    make_host: MakeHost, environment: str
) -> None:
    host = make_host(environment=environment)
    host.upgrade("heads")
    for lost in ("users", NEWEST):
        host.place.execute("UPDATE {at}.alembic_version SET version_num = 'lost' WHERE version_num = %s", lost)
        with pytest.raises(CommandError, match="Can't locate revision identified by 'lost'"):
            host.upgrade("heads")
        host.run("stamp", "heads", purge=True)
        host.upgrade("heads")
        assert (host.recorded, host.place.versions) == ({"users", NEWEST}, ALL)


def test_a_newer_database_is_not_changed_downwards(make_host: MakeHost) -> None:
    host = make_host()
    host.upgrade("heads")
    host.place.execute("INSERT INTO {at}.river_migration (line, version) VALUES ('main', 9)")
    host.upgrade("heads")
    with pytest.raises(NewerSchemaError, match="upgrade river-jobs"):
        host.downgrade("river@-1")
    assert host.recorded == {"users", NEWEST}
    assert host.place.versions == [*ALL, 9]


def recorded_by_river(place: Scratch) -> list[tuple[Any, ...]]:
    """The rows of River's own record, with the time of each."""
    return place.execute("SELECT version, created_at FROM {at}.river_migration ORDER BY version")
