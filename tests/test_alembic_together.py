"""Several processes that migrate one schema at the same time: Alembic beside Alembic, and beside River's migrator."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, ProgrammingError

from river import ConfigurationError, MigrationError, Migrator
from river.operation import run
from river.operations import migrate
from river_psycopg.blocking import ConnectionExecutor
from tests.support import catalogue
from tests.support.alembic_hosts import NOTHING, Host, host_url, rivers
from tests.support.clients import eventually
from tests.support.proxy import proxy_to
from tests.support.schemas import Scratch, until_somebody_waits
from tests.support.snippets import ROOT

ALL = list(range(1, 9))
NEWEST = "river_008"

# The same key as River's migrator, so the two keep each other out.
LOCK = "SELECT pg_advisory_lock(hashtextextended('river_migration ' || %s, 0))"
TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('river_migration ' || %s, 0))"

MakeHost = Callable[..., Host]


@pytest.fixture
def make_host(tmp_path: Path, database_url: str, place: Scratch) -> MakeHost:
    def make(**options: Any) -> Host:
        url = host_url(database_url, place)
        return Host(tmp_path / "host", url.update_query_dict({"application_name": place.name}), place, **options)

    return make


@contextmanager
def gate(database_url: str, place: Scratch) -> Iterator[psycopg.Connection]:
    """Somebody who migrates the schema meanwhile, as Alembic does it under the guard."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(LOCK, [place.name])
        yield connection


def is_free(database_url: str, place: Scratch) -> bool:
    """Whether the lock could be had, by another session."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        return connection.execute(TRY_LOCK, [place.name]).fetchone() == (True,)


def until_sessions_ask(place: Scratch, count: int, query: str = "pg_sleep|pg_try_advisory_lock") -> None:
    """Return once so many sessions under the schema's name run such a query, or have just run it."""
    asking = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND query ~ %s"
    asyncio.run(
        eventually(lambda: place.execute(asking, place.name, query) == [(count,)], f"{count} sessions ask for the lock")
    )


@pytest.mark.slow
def test_ten_processes_upgrade_at_once_and_each_version_is_applied_once(database_url: str, place: Scratch) -> None:
    url = database_url.replace("search_path%3D", f"search_path%3D%22{place.name}%22")
    environment = {**os.environ, "DATABASE_URL": url, "PGAPPNAME": place.name}
    command = [sys.executable, "-m", "alembic", "upgrade", "heads"]
    with gate(database_url, place):
        processes = [
            subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(10)
        ]
        # Connected, whatever they have asked: before River's lock they have done nothing.
        until_sessions_ask(place, 10, ".")
        assert place.execute("SELECT 1 FROM pg_tables WHERE schemaname = %s", place.name) == []
    logs = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 10, logs
    for version in ALL:
        assert sum(log.count(f"-> river_{version:03}") for log in logs) == 1
    assert rivers(place) == catalogue.expected()
    assert place.execute("SELECT version_num FROM {at}.alembic_version") == [(NEWEST,)]


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
@pytest.mark.parametrize("per_migration", [False, True], ids=["one transaction", "many transactions"])
def test_alembic_waits_for_others_and_finds_their_work_done(
    make_host: MakeHost, database_url: str, per_migration: bool, isolation: str
) -> None:
    host = make_host(transaction_per_migration=per_migration)
    url = host.attributes["url"]
    options = f"{url.query['options']} -cdefault_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}"
    host.attributes["url"] = url.update_query_dict({"options": options})
    script = host.run("upgrade", "heads", sql=True)
    with ThreadPoolExecutor() as threads, gate(database_url, host.place) as other:
        upgrading = threads.submit(host.upgrade)
        until_sessions_ask(host.place, 1)
        # What a second Alembic would do meanwhile. The first must not have read either record before.
        other.execute(f'SET search_path = "{host.place.name}"'.encode())
        other.execute(script.encode())
        other.execute("SELECT pg_advisory_unlock_all()")
        upgrading.result(timeout=60)
    assert (host.recorded, host.place.versions) == ({NEWEST}, ALL)


def test_without_the_guard_alembic_still_waits_for_a_migrator(make_host: MakeHost, database_url: str) -> None:
    host = make_host(environment="plain")
    with psycopg.connect(database_url) as migrator, ThreadPoolExecutor() as threads:
        run(ConnectionExecutor(migrator), migrate.exclusive(host.place.name, wait_ms=1000))
        upgrading = threads.submit(host.upgrade)
        until_somebody_waits(host.place)
        first = Migrator(database_url).migrations[0]
        assert run(ConnectionExecutor(migrator), migrate.step(host.place.name, first, "up"))
        migrator.commit()
        upgrading.result(timeout=60)
    assert (host.recorded, host.place.versions) == ({NEWEST}, ALL)


def test_a_migrator_waits_for_alembic(make_host: MakeHost, database_url: str) -> None:
    host = make_host(transaction_per_migration=True)
    host.upgrade("river_006")
    impatient = Migrator(database_url, schema=host.place.name, lock_timeout=0.1)
    with psycopg.connect(database_url) as busy, ThreadPoolExecutor() as threads:
        busy.execute(f'SELECT 1 FROM "{host.place.name}".river_job'.encode())
        upgrading = threads.submit(host.upgrade)
        until_somebody_waits(host.place, kind="relation")
        with pytest.raises(MigrationError, match="another process has been migrating"):
            impatient.up()
        busy.rollback()
        upgrading.result(timeout=60)
    assert impatient.up() == []


@pytest.mark.parametrize("environment", ["plain", "guarded", "asyncio"])
@pytest.mark.parametrize("said", ["alembic.ini", "keyword"])
def test_alembic_does_not_wait_for_ever(make_host: MakeHost, database_url: str, environment: str, said: str) -> None:
    host = make_host(environment=environment)
    if said == "keyword":
        host.options["river_lock_timeout"] = 0.2
    else:
        host.set_main_option("river_lock_timeout", "0.2")
    with gate(database_url, host.place):
        with pytest.raises(MigrationError, match=r"for 0\.2 s, so nothing was done here.*river_lock_timeout"):
            host.upgrade()
        assert (host.recorded, rivers(host.place)) == (set(), NOTHING)
    host.upgrade()
    assert host.place.versions == ALL


@pytest.mark.parametrize("environment", ["plain", "guarded"])
@pytest.mark.parametrize("value", ["soon", "-1", "0"])
def test_a_wait_that_is_no_time_is_refused(make_host: MakeHost, environment: str, value: str) -> None:
    host = make_host(environment=environment)
    host.set_main_option("river_lock_timeout", value)
    with pytest.raises(ConfigurationError, match="river_lock_timeout must be"):
        host.upgrade()
    assert host.recorded == set()


def test_who_waits_does_not_hold_an_index_up_that_is_built_concurrently(make_host: MakeHost, database_url: str) -> None:
    """Such a build waits for every transaction that is open; one that waited for its lock would never end."""
    host = make_host()
    host.place.execute("CREATE TABLE {at}.users (id int)")
    with ThreadPoolExecutor() as threads, gate(database_url, host.place) as other:
        upgrading = threads.submit(host.upgrade)
        until_sessions_ask(host.place, 1)
        other.execute(f'CREATE INDEX CONCURRENTLY ON "{host.place.name}".users (id)'.encode())
        other.execute("SELECT pg_advisory_unlock_all()")
        upgrading.result(timeout=60)
    assert host.place.versions == ALL


def test_the_applications_own_revision_may_build_an_index_concurrently(make_host: MakeHost, database_url: str) -> None:
    host = make_host()
    host.place.execute("CREATE TABLE {at}.users (id int)")
    host.revision(
        "index",
        upgrade="with op.get_context().autocommit_block():"
        ' op.create_index("users_id", "users", ["id"], postgresql_concurrently=True)',
    )
    host.upgrade()
    assert host.recorded == {"index", NEWEST}
    assert is_free(database_url, host.place)


@pytest.mark.parametrize("environment", ["guarded", "asyncio"])
@pytest.mark.parametrize("per_migration", [False, True], ids=["one transaction", "many transactions"])
@pytest.mark.parametrize("fails", [False, True], ids=["works", "fails"])
def test_the_lock_is_given_back(
    make_host: MakeHost, database_url: str, environment: str, per_migration: bool, fails: bool
) -> None:
    host = make_host(environment=environment, transaction_per_migration=per_migration)
    if fails:
        host.place.execute("CREATE TABLE {at}.river_queue (name text)")
        with pytest.raises(ProgrammingError, match="river_queue"):
            host.upgrade()
    else:
        host.upgrade()
    assert is_free(database_url, host.place)


@pytest.mark.parametrize("fails", [False, True], ids=["works", "fails"])
def test_a_connection_of_the_hosts_comes_back_without_lock_and_transaction(
    make_host: MakeHost, database_url: str, fails: bool
) -> None:
    host = make_host()
    with host.connection() as connection:
        host.attributes["connection"] = connection
        if fails:
            host.place.execute("CREATE TABLE {at}.river_queue (name text)")
            with pytest.raises(ProgrammingError, match="river_queue"):
                host.upgrade()
        else:
            host.upgrade()
        assert is_free(database_url, host.place)
        assert not connection.in_transaction()
        assert (
            connection.execute(
                text("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'")
            ).scalar_one()
            == 0
        )


def test_what_the_host_has_still_to_commit_stays_open_and_locked(make_host: MakeHost, database_url: str) -> None:
    host = make_host()
    env = host.folder / "migrations" / "env.py"
    env.write_text(env.read_text().replace(", context.begin_transaction():", ":"))
    with host.connection() as connection:
        host.attributes["connection"] = connection
        host.upgrade()
        assert not is_free(database_url, host.place)
        assert host.place.versions == []
        connection.commit()
        assert is_free(database_url, host.place)
    assert host.place.versions == ALL
    assert host.recorded == {NEWEST}


def test_a_connection_in_a_transaction_keeps_the_lock_until_the_host_ends_it(
    make_host: MakeHost, database_url: str
) -> None:
    host = make_host()
    with host.connection() as connection, connection.begin():
        host.attributes["connection"] = connection
        host.upgrade()
        assert not is_free(database_url, host.place)
    assert is_free(database_url, host.place)
    assert host.place.versions == ALL


def test_an_error_between_two_transactions_leaves_the_hosts_connection_as_it_was(
    make_host: MakeHost, database_url: str
) -> None:
    host = make_host(transaction_per_migration=True)
    host.before_migrations("connection.exec_driver_sql('SELECT 1/0')")
    with host.connection() as connection:
        host.attributes["connection"] = connection
        with pytest.raises(DBAPIError, match="division"):
            host.upgrade()
        assert not connection.invalidated
        assert not connection.in_transaction()
        assert is_free(database_url, host.place)


def test_a_session_that_ends_in_the_middle_is_reported_as_what_it_is(make_host: MakeHost, database_url: str) -> None:
    host = make_host()
    host.revision("end", upgrade='op.execute("SELECT pg_terminate_backend(pg_backend_pid())")')
    with pytest.raises(DBAPIError, match="terminat"):
        host.upgrade()
    asyncio.run(eventually(lambda: is_free(database_url, host.place), "the session's end gives the lock back"))
    host.upgrade("river@head")
    assert host.place.versions == ALL


def test_a_server_that_is_gone_in_the_middle_is_reported_as_what_it_is(
    tmp_path: Path, database_url: str, place: Scratch
) -> None:
    Migrator(database_url, schema=place.name).up(target_version=6)
    with proxy_to(database_url) as network, psycopg.connect(database_url) as busy, ThreadPoolExecutor() as threads:
        host = Host(tmp_path / "host", host_url(network.url, place), place)
        busy.execute(f'SELECT 1 FROM "{place.name}".river_job'.encode())
        upgrading = threads.submit(host.upgrade)
        until_somebody_waits(place, kind="relation")
        network.refuse()
        # Not that nobody listens any more, which is what giving the lock back would find.
        with pytest.raises(DBAPIError, match=r"reset|closed|SSL") as caught:
            upgrading.result(timeout=60)
        assert "refused" not in str(caught.value)
        busy.rollback()
    assert place.versions == ALL[:6]
