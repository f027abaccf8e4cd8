"""The repository's own alembic.ini and alembic/: they work from a clone, and pass pytest-alembic's checks."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from pytest_alembic.tests import (
    test_model_definitions_match_ddl,
    test_single_head_revision,
    test_up_down_consistency,
    test_upgrade,
)
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from tests.support import catalogue
from tests.support.alembic_hosts import NOTHING, host_url, rivers
from tests.support.schemas import Scratch, scratch
from tests.support.snippets import ROOT

# pytest-alembic's own, collected here with the two fixtures below.
__all__ = [
    "test_model_definitions_match_ddl",
    "test_single_head_revision",
    "test_up_down_consistency",
    "test_upgrade",
]

ALL = list(range(1, 9))


@pytest.fixture
def url(database_url: str, place: Scratch) -> str:
    """As a person would write it who has one schema."""
    return database_url.replace("search_path%3D", f"search_path%3D%22{place.name}%22")


@pytest.fixture
def alembic_config() -> dict[str, str]:
    return {"file": str(ROOT / "alembic.ini")}


@pytest.fixture
def alembic_engine(database_url: str, place: Scratch) -> Engine:
    return create_engine(host_url(database_url, place), poolclass=NullPool)


def alembic(*arguments: str, **environment: str) -> str:
    """What the command prints."""
    script = Path(sysconfig.get_path("scripts")) / "alembic"
    kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL" and not name.startswith("PG")}
    done = subprocess.run(
        [str(script), *arguments], cwd=ROOT, env={**kept, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_commands_work_from_a_clone(url: str, place: Scratch) -> None:
    def run(*arguments: str) -> str:
        return alembic(*arguments, DATABASE_URL=url)

    assert "Running upgrade river_007 -> river_008, job id autoincrement" in run("upgrade", "heads")
    assert rivers(place) == catalogue.expected()
    assert "No new upgrade operations detected" in run("check")
    assert "river_008 (head)" in run("current")
    assert "<base> -> river_001 (river), create river migration" in run("history")
    run("downgrade", "river@-1")
    assert place.versions == ALL[:7]
    run("downgrade", "base")
    assert rivers(place) == NOTHING


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_url_of_any_scheme_will_do(url: str, place: Scratch, scheme: str) -> None:
    alembic("upgrade", "heads", DATABASE_URL=url.replace("postgresql://", f"{scheme}://"))
    assert place.versions == ALL


def test_libpqs_variables_will_do(url: str, place: Scratch) -> None:
    found = psycopg.conninfo.conninfo_to_dict(url)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    variables = {variable: str(found[name]) for name, variable in names.items() if found.get(name)}
    alembic("upgrade", "heads", **variables, PGOPTIONS=str(found["options"]))
    assert place.versions == ALL


def test_offline_mode_needs_no_database(url: str, place: Scratch) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "upgrade", "heads", "--sql"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": "postgresql://127.0.0.1:1/nobody"},
        capture_output=True,
        text=True,
        check=True,
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(done.stdout.encode())
    assert rivers(place) == catalogue.expected()


def test_a_schema_can_be_named(database_url: str, alembic_engine: Engine, place: Scratch) -> None:
    with scratch(database_url) as jobs:

        def run(name: str, *arguments: Any) -> None:
            config = Config(str(ROOT / "alembic.ini"), stdout=io.StringIO())
            config.set_main_option("river_schema", jobs.name)
            config.attributes["connection"] = alembic_engine
            getattr(command, name)(config, *arguments)

        run("upgrade", "heads")
        assert (rivers(jobs), rivers(place)) == (catalogue.expected(), NOTHING)
        run("check")
        run("downgrade", "base")
        assert rivers(jobs) == NOTHING


def test_a_connection_of_a_programs_own_is_used_in_its_transaction(alembic_engine: Engine, place: Scratch) -> None:
    config = Config(str(ROOT / "alembic.ini"))
    with alembic_engine.connect() as connection:
        config.attributes["connection"] = connection
        with connection.begin() as transaction:
            command.upgrade(config, "heads")
            transaction.rollback()
        assert rivers(place) == NOTHING
        command.upgrade(config, "heads")
    assert rivers(place) == catalogue.expected()


def test_the_wheel_holds_the_revisions_and_not_the_environment(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for version in ALL:
        assert f"river_sqlalchemy/migrations/river_{version:03}.py" in names
    assert not [name for name in names if name.startswith("alembic")]


def test_a_table_filter_works_before_alembic_has_run_anything() -> None:
    program = (
        "from river_sqlalchemy.alembic import include_name\n"
        "print([include_name(name, 'table', {'schema_qualified_table_name': name}) for name in ('users', 'river_job')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[True, False]\n"
