"""The SQL that ``alembic upgrade --sql`` prints does, run by other means, what Alembic itself would have done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from river import ConfigurationError, Migrator
from tests.support import catalogue
from tests.support.alembic_hosts import NOTHING, Host, host_url, rivers
from tests.support.schemas import Scratch, scratch

ALL = list(range(1, 9))
NEWEST = "river_008"

MakeHost = Callable[..., Host]

per_migration = pytest.mark.parametrize("per_migration", [False, True], ids=["one transaction", "many transactions"])


@pytest.fixture
def jobs(database_url: str) -> Iterator[Scratch]:
    """Another schema, for River."""
    with scratch(database_url) as made:
        yield made


@pytest.fixture
def make_host(tmp_path: Path, database_url: str, place: Scratch) -> MakeHost:
    def make(**options: Any) -> Host:
        host = Host(tmp_path / "host", host_url(database_url, place), place, **options)
        host.revision(
            "users",
            label="app",
            upgrade='op.execute("CREATE TABLE users (id int)")',
            downgrade='op.drop_table("users")',
        )
        return host

    return make


@pytest.fixture
def execute(database_url: str, place: Scratch) -> Callable[[str], None]:
    """Runs a script as psql would, in a session as the application's are."""

    def run(script: str) -> None:
        url = database_url.replace("search_path%3D", f"search_path%3D%22{place.name}%22")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(script.encode())

    return run


def test_the_connection_of_offline_mode_is_never_opened(make_host: MakeHost) -> None:
    host = make_host()
    host.attributes["url"] = "postgresql+psycopg://127.0.0.1:1/nobody"
    assert "CREATE UNLOGGED TABLE" in host.run("upgrade", "heads", sql=True)


@per_migration
def test_what_upgrade_and_downgrade_print_does_what_they_do(
    make_host: MakeHost, execute: Callable[[str], None], database_url: str, per_migration: bool
) -> None:
    host = make_host(transaction_per_migration=per_migration)
    upgrade = host.run("upgrade", "heads", sql=True)
    assert upgrade.count("COMMIT;") == (9 if per_migration else 1)
    execute(upgrade)
    assert (host.recorded, host.tables, host.place.versions) == ({"users", NEWEST}, {"users"}, ALL)
    assert rivers(host.place) == catalogue.expected()
    assert Migrator(database_url, schema=host.place.name).up() == []
    host.upgrade("heads")  # finds nothing to do
    execute(host.run("downgrade", f"{NEWEST}:river@base", sql=True))
    assert rivers(host.place) == NOTHING


@per_migration
@pytest.mark.parametrize("start", ALL[:-1])
def test_what_is_printed_goes_on_from_any_revision_and_back_to_it(
    make_host: MakeHost, execute: Callable[[str], None], start: int, per_migration: bool
) -> None:
    host = make_host(transaction_per_migration=per_migration)
    revision = f"river_{start:03}"
    host.upgrade(revision)
    execute(host.run("upgrade", f"{revision}:river@head", sql=True))
    assert (host.recorded, host.place.versions) == ({NEWEST}, ALL)
    assert rivers(host.place) == catalogue.expected()
    execute(host.run("downgrade", f"{NEWEST}:{revision}", sql=True))
    assert (host.recorded, host.place.versions) == ({revision}, ALL[:start])
    assert rivers(host.place) == catalogue.after_down(start + 1)


@pytest.mark.parametrize("said", ["alembic.ini", "keyword"])
def test_what_is_printed_names_the_schema(
    make_host: MakeHost, execute: Callable[[str], None], jobs: Scratch, said: str
) -> None:
    host = make_host()
    if said == "keyword":
        host.options["river_schema"] = jobs.name
    else:
        host.set_main_option("river_schema", jobs.name)
    execute(host.run("upgrade", "heads", sql=True))
    assert (rivers(jobs), rivers(host.place)) == (catalogue.expected(), NOTHING)
    execute(host.run("downgrade", f"{NEWEST}:river@base", sql=True))
    assert rivers(jobs) == NOTHING


@pytest.mark.parametrize("drivername", ["psycopg", "psycopg2", "asyncpg", "pg8000"])
def test_what_is_printed_is_the_same_for_every_library(make_host: MakeHost, drivername: str) -> None:
    host = make_host()
    # Alembic's own statements differ, in what they return.
    expected = rivers_part(host.run("upgrade", "river@head", sql=True))
    host.attributes["url"] = f"postgresql+{drivername}://"
    assert rivers_part(host.run("upgrade", "river@head", sql=True)) == expected


def rivers_part(script: str) -> str:
    return "\n".join(piece for piece in script.split("\n\n") if "alembic_version" not in piece)


@per_migration
def test_a_call_in_a_revision_prints_its_versions(
    make_host: MakeHost, execute: Callable[[str], None], per_migration: bool
) -> None:
    host = make_host(transaction_per_migration=per_migration)
    host.without_the_branch()
    host.revision(
        "jobs",
        after="users",
        upgrade="river_alembic.upgrade(op, version=5)",
        downgrade="river_alembic.downgrade(op, version=0, from_version=5)",
    )
    host.revision(
        "more",
        after="jobs",
        upgrade="river_alembic.upgrade(op, version=8, from_version=5)",
        downgrade="river_alembic.downgrade(op, version=5, from_version=8)",
    )
    execute(host.run("upgrade", "head", sql=True))
    assert (host.recorded, host.place.versions) == ({"more"}, ALL)
    assert rivers(host.place) == catalogue.expected()
    execute(host.run("downgrade", "more:jobs", sql=True))
    assert host.place.versions == ALL[:5]
    execute(host.run("downgrade", "jobs:base", sql=True))
    assert (host.tables, rivers(host.place)) == (set(), NOTHING)


def test_a_call_that_reverts_has_to_say_from_where(make_host: MakeHost) -> None:
    host = make_host()
    host.revision("jobs", after="users", downgrade="river_alembic.downgrade(op, version=0)")
    with pytest.raises(ConfigurationError, match=r"say it, as in downgrade\(op, version=0, from_version=8\)"):
        host.run("downgrade", "jobs:users", sql=True)


def test_the_guard_prints_nothing(make_host: MakeHost) -> None:
    host = make_host()
    plain = host.run("upgrade", "heads", sql=True)
    host.guard_everything()
    assert host.run("upgrade", "heads", sql=True) == plain
