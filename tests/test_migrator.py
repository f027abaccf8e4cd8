"""`river.Migrator` and `river.AsyncMigrator`: what they apply, in which order, and what stops them.

What each version does to the catalogue is the matter of test_migration_sql.py.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from inspect import isawaitable
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import ConnectionPool
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

import river
from river import AsyncMigrator, ConfigurationError, DatabaseError, MigrationError, Migrator, NewerSchemaError
from river.operation import run
from river.operations import migrate
from river_psycopg.blocking import ConnectionExecutor
from tests.support import catalogue
from tests.support.clients import BLOCKING_SOURCES, Way, eventually, source
from tests.support.proxy import proxy_to
from tests.support.schemas import Scratch, scratch, until_somebody_waits, waiting_for
from tests.support.urls import DRIVERS, with_driver

ALL = list(range(1, 9))

WAYS = (
    *(Way("Client", name) for name in (*BLOCKING_SOURCES, "url", "url-psycopg2")),
    *(Way("AsyncClient", name) for name in ("AsyncConnectionPool", "AsyncEngine-psycopg", "AsyncEngine-asyncpg")),
    *(Way("AsyncClient", name) for name in ("url", "url-asyncpg")),
)


@pytest.fixture
def migrator(database_url: str, place: Scratch) -> Migrator:
    return Migrator(database_url, schema=place.name)


async def settled(value: Any) -> Any:
    return await value if isawaitable(value) else value


def versions(steps: list[river.MigrationStep]) -> list[int]:
    return [step.version for step in steps]


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_every_source_goes_up_and_down_and_up(database_url: str, place: Scratch, way: Way) -> None:
    async with source(way.source, database_url) as made:
        migrator = (Migrator if way.client == "Client" else AsyncMigrator)(made, schema=place.name)
        assert await settled(migrator.validate()) == ALL
        assert versions(await settled(migrator.up())) == ALL
        assert await settled(migrator.applied()) == ALL == place.versions
        assert catalogue.read(place.connection, place.name) == catalogue.expected()
        assert versions(await settled(migrator.up())) == []
        assert versions(await settled(migrator.down(target_version=0))) == ALL[::-1]
        assert place.execute("SELECT 1 FROM pg_tables WHERE schemaname = %s", place.name) == []
        assert await settled(migrator.applied()) == []
        assert versions(await settled(migrator.up())) == ALL
        assert await settled(migrator.validate()) == []


def test_without_a_schema_it_is_where_the_search_path_leads(database_url: str, place: Scratch) -> None:
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(database_url, options=f'-csearch_path="{place.name}"'),
        poolclass=NullPool,
    )
    migrator = Migrator(engine)
    migrator.up(target_version=4)
    assert place.versions == [1, 2, 3, 4]
    # River's tables are found in the second schema of the path, so nothing is made in the first.
    with scratch(database_url) as first:
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(database_url, options=f'-csearch_path="{first.name}","{place.name}"'),
            poolclass=NullPool,
        )
        Migrator(engine).up()
        assert place.versions == ALL
        assert first.versions == []


def test_up_stops_at_the_target_or_after_the_steps_whichever_comes_first(migrator: Migrator, place: Scratch) -> None:
    assert versions(migrator.up(target_version=4, max_steps=2)) == [1, 2]
    assert versions(migrator.up(target_version=4, max_steps=5)) == [3, 4]
    assert versions(migrator.up(target_version=2)) == []
    assert versions(migrator.up(max_steps=1)) == [5]
    assert place.versions == [1, 2, 3, 4, 5]
    assert migrator.validate() == [6, 7, 8]
    assert migrator.validate(target_version=5) == []


def test_down_is_one_step_unless_more_is_said(migrator: Migrator, place: Scratch) -> None:
    migrator.up()
    assert versions(migrator.down()) == [8]
    assert versions(migrator.down(max_steps=2)) == [7, 6]
    assert versions(migrator.down(target_version=2, max_steps=1)) == [5]
    assert versions(migrator.down(target_version=4)) == []
    assert versions(migrator.down(target_version=1, max_steps=99)) == [4, 3, 2]
    assert place.versions == [1]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(migrator: Migrator, place: Scratch) -> None:
    plan = migrator.up(target_version=3, dry_run=True)
    assert versions(plan) == [1, 2, 3]
    assert plan[0].name == "create river migration"
    assert plan[0].duration is None
    assert f'CREATE TABLE "{place.name}".river_migration' in plan[0].sql
    assert place.versions == []
    migrator.up(target_version=3)
    assert versions(migrator.down(dry_run=True)) == [3]
    assert place.versions == [1, 2, 3]


def test_each_step_is_told_once_it_is_committed(migrator: Migrator, place: Scratch) -> None:
    seen: list[tuple[int, list[int]]] = []
    done = migrator.up(target_version=3, on_step=lambda step: seen.append((step.version, place.versions)))
    assert seen == [(1, [1]), (2, [1, 2]), (3, [1, 2, 3])]
    assert all(step.duration is not None and step.duration > timedelta(0) for step in done)


def test_who_looks_on_may_stop_it_between_two_versions(migrator: Migrator, place: Scratch) -> None:
    def stop(step: river.MigrationStep) -> None:
        if step.version == 2:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        migrator.up(on_step=stop)
    assert place.versions == [1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.up(target_version=9), r"version 9 is none of the line's versions: 1 to 8"),
        (lambda m: m.up(target_version=0), r"version 0 is none of the line's versions: 1 to 8"),
        (lambda m: m.down(target_version=-1), r"version -1 is none of the line's versions: 0 to 8"),
        (lambda m: m.down(target_version=6), r"version 6 is not applied.*the database is at 3"),
        (lambda m: m.up(max_steps=0), r"max_steps must be a whole number from 1, not 0"),
        (lambda m: m.validate(target_version=11), r"version 11 is none"),
    ],
)
def test_an_extent_that_makes_no_sense_is_refused(
    migrator: Migrator, place: Scratch, call: Callable[[Migrator], object], message: str
) -> None:
    migrator.up(target_version=3)
    with pytest.raises(ConfigurationError, match=message):
        call(migrator)
    assert place.versions == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"line": "maim"}, "no line of migrations called 'maim': did you mean 'main'"),
        ({"schema": "my schema"}, "schema must be 1 to 46.*'my schema'"),
        ({"statement_timeout": 0}, "statement_timeout must be 0.001 seconds or more"),
        ({"lock_timeout": timedelta(seconds=-1)}, "lock_timeout must be 0.001 seconds or more"),
    ],
)
def test_an_option_that_breaks_a_rule_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Migrator("postgresql://", **options)
    with pytest.raises(ConfigurationError, match=message):
        AsyncMigrator("postgresql://", **options)


def test_a_source_of_the_other_colour_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"AsyncMigrator"):
        Migrator(create_async_engine("postgresql+asyncpg://"))
    with pytest.raises(ConfigurationError, match=r"river\.Migrator"):
        AsyncMigrator(create_engine("postgresql+psycopg://"))
    # A password is in none of the messages.
    for made, url in (
        (Migrator, "postgresql+asyncpg://u:secret@h/d"),
        (AsyncMigrator, "postgresql+psycopg2://u:secret@h/d"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            made(url)
        assert "secret" not in str(caught.value)
        assert f"{url.partition(':')[0]}://..." in str(caught.value)
    with pytest.raises(ConfigurationError, match="sqlite is not supported"):
        Migrator("sqlite://")


def test_a_schema_that_does_not_exist_is_refused_with_the_remedy(database_url: str) -> None:
    migrator = Migrator(database_url, schema="River_Nowhere")
    for call in (migrator.up, migrator.down, migrator.applied, migrator.validate):
        with pytest.raises(ConfigurationError, match=r'does not exist: create it first, CREATE SCHEMA "River_Nowhere"'):
            call()


def test_a_search_path_that_leads_nowhere_is_refused_with_the_remedy(database_url: str) -> None:
    with pytest.raises(ConfigurationError, match="search_path has none that exists: name one with the schema option"):
        Migrator(database_url).up()


def test_a_database_that_does_not_answer_is_an_error_of_the_database() -> None:
    with pytest.raises(DatabaseError, match="refused"):
        Migrator("postgresql://127.0.0.1:1/nobody").up()


def test_a_step_that_fails_leaves_the_version_before_it(migrator: Migrator, place: Scratch) -> None:
    place.execute("CREATE TABLE {at}.river_queue (name text)")
    with pytest.raises(
        MigrationError, match=r"version 004 \[up\] pending and more failed and was rolled back"
    ) as caught:
        migrator.up()
    assert caught.value.version == 4
    assert isinstance(caught.value.__cause__, DatabaseError)
    assert place.versions == [1, 2, 3]
    place.execute("DROP TABLE {at}.river_queue")
    assert catalogue.read(place.connection, place.name) == catalogue.after_up(3)
    assert versions(migrator.up()) == [4, 5, 6, 7, 8]
    assert catalogue.read(place.connection, place.name) == catalogue.expected()


def test_a_statement_that_takes_too_long_says_which_option_gives_it_more(database_url: str, place: Scratch) -> None:
    Migrator(database_url, schema=place.name).up(target_version=6)
    impatient = Migrator(database_url, schema=place.name, statement_timeout=0.1)
    with psycopg.connect(database_url) as busy:
        busy.execute(f'SELECT 1 FROM "{place.name}".river_job')
        with pytest.raises(MigrationError, match=r"007.*a statement may take 0\.1 s: give a longer statement timeout"):
            impatient.up()
    assert place.versions == [1, 2, 3, 4, 5, 6]
    assert versions(impatient.up()) == [7, 8]


def test_the_hosts_own_limits_and_isolation_do_not_matter(database_url: str, place: Scratch) -> None:
    engine = create_engine(
        with_driver(database_url, "postgresql+psycopg"),
        isolation_level="SERIALIZABLE",
        connect_args={"options": "-c search_path= -c statement_timeout=100 -c lock_timeout=100"},
    )
    busy = psycopg.connect(database_url)
    run(ConnectionExecutor(busy), migrate.exclusive(place.name, wait_ms=1000))
    first = Migrator(engine, schema=place.name).migrations[0]
    assert run(ConnectionExecutor(busy), migrate.step(place.name, first, "up"))
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(Migrator(engine, schema=place.name).up, target_version=2)
        until_somebody_waits(place)
        # Longer than the host's limits.
        place.execute("SELECT pg_sleep(0.3)")
        busy.commit()
        # It found version 1 done, although its own plan, made before, had it.
        assert versions(waiting.result()) == [2]
    busy.close()
    engine.dispose()
    assert place.versions == [1, 2]


def test_a_migrator_waits_for_another_but_not_for_ever(database_url: str, place: Scratch) -> None:
    impatient = Migrator(database_url, schema=place.name, lock_timeout=0.1)
    with psycopg.connect(database_url) as busy:
        run(ConnectionExecutor(busy), migrate.exclusive(place.name, wait_ms=1000))
        with pytest.raises(MigrationError, match=r"another process has been migrating this schema for 0\.1 s"):
            impatient.up()
        with scratch(database_url) as other:
            assert versions(Migrator(database_url, schema=other.name, lock_timeout=0.1).up()) == ALL
    assert place.versions == []
    assert versions(impatient.up()) == ALL


def test_a_hosts_limits_are_in_force_again_after_the_lock(database_url: str, place: Scratch) -> None:
    with psycopg.connect(database_url) as host:
        host.execute("SET lock_timeout = '7s'; SET statement_timeout = '9s'")
        run(ConnectionExecutor(host), migrate.exclusive(place.name, wait_ms=1000))
        row = host.execute("SELECT current_setting('lock_timeout'), current_setting('statement_timeout')").fetchone()
        assert row == ("7s", "9s")


def test_ten_processes_at_once_make_each_version_once(database_url: str, place: Scratch) -> None:
    command = [sys.executable, "-m", "river.cli", "migrate-up", "--database-url", database_url, "--schema", place.name]
    with psycopg.connect(database_url) as gate:
        # All of them have found nothing applied, and wait, before the first one goes on.
        run(ConnectionExecutor(gate), migrate.exclusive(place.name, wait_ms=1000))
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(10)
        ]
        until_somebody_waits(place, 10)
    results = [process.communicate(timeout=60) for process in processes]
    assert [(process.returncode, errors) for process, (_, errors) in zip(processes, results, strict=True)] == [
        (0, "")
    ] * 10
    applied = Counter(line.split()[2] for output, _ in results for line in output.splitlines() if "applied" in line)
    assert applied == {f"{version:03}": 1 for version in ALL}
    assert catalogue.read(place.connection, place.name) == catalogue.expected()


def test_a_migrator_that_is_killed_leaves_the_version_before_and_no_lock(database_url: str, place: Scratch) -> None:
    migrator = Migrator(database_url, schema=place.name)
    migrator.up(target_version=6)
    command = [sys.executable, "-m", "river.cli", "migrate-up", "--database-url", database_url, "--schema", place.name]
    with psycopg.connect(database_url) as busy:
        busy.execute(f'SELECT 1 FROM "{place.name}".river_job')
        process = subprocess.Popen(command)
        until_somebody_waits(place, kind="relation")
        process.kill()
        process.wait()
    assert place.versions == [1, 2, 3, 4, 5, 6]
    assert versions(migrator.up()) == [7, 8]


def test_a_connection_that_is_lost_in_the_middle_is_an_error_and_leaves_the_version_before(
    database_url: str, place: Scratch
) -> None:
    Migrator(database_url, schema=place.name).up(target_version=6)
    with proxy_to(database_url) as network, psycopg.connect(database_url) as busy, ThreadPoolExecutor() as threads:
        busy.execute(f'SELECT 1 FROM "{place.name}".river_job')
        waiting = threads.submit(Migrator(network.url, schema=place.name).up)
        until_somebody_waits(place, kind="relation")
        network.cut()
        with pytest.raises(MigrationError, match="007"):
            waiting.result(timeout=30)
        busy.rollback()
    assert place.versions == [1, 2, 3, 4, 5, 6]
    assert Migrator(database_url, schema=place.name).validate() == [7, 8]


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
async def test_a_server_that_falls_silent_in_the_middle_is_given_up(
    database_url: str, place: Scratch, colour: str
) -> None:
    Migrator(database_url, schema=place.name).up(target_version=7)
    made = Migrator if colour == "blocking" else AsyncMigrator
    with proxy_to(database_url) as network:
        migrator = made(network.url, schema=place.name, statement_timeout=0.05, lock_timeout=0.5)

        async def up() -> Any:
            return await settled(await asyncio.to_thread(migrator.up) if colour == "blocking" else migrator.up())

        with psycopg.connect(database_url) as gate:
            run(ConnectionExecutor(gate), migrate.exclusive(place.name, wait_ms=1000))
            call = asyncio.create_task(up())
            await asyncio.to_thread(until_somebody_waits, place)
            network.blackhole()
            with pytest.raises(MigrationError, match="008"):
                await asyncio.wait_for(call, 30)
        network.heal()
    await eventually(lambda: not waiting_for(place, "advisory"), "the abandoned session ends")


async def test_a_cancelled_call_leaves_whole_versions(database_url: str, place: Scratch) -> None:
    migrator = AsyncMigrator(database_url, schema=place.name)
    await migrator.up(target_version=6)
    with psycopg.connect(database_url) as busy:
        busy.execute(f'SELECT 1 FROM "{place.name}".river_job')
        call = asyncio.create_task(migrator.up())
        await asyncio.to_thread(until_somebody_waits, place, 1, "relation")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert place.versions == [1, 2, 3, 4, 5, 6]
    assert versions(await migrator.up()) == [7, 8]


@pytest.mark.parametrize("drivername", DRIVERS)
async def test_an_engine_in_autocommit_gets_real_transactions(
    database_url: str, place: Scratch, drivername: str
) -> None:
    url = with_driver(database_url, drivername)
    blocking = drivername != "postgresql+asyncpg"
    make_engine, make_migrator = (create_engine, Migrator) if blocking else (create_async_engine, AsyncMigrator)
    engine: Any = make_engine(url, isolation_level="AUTOCOMMIT")
    migrator = make_migrator(engine, schema=place.name)
    place.execute("CREATE TABLE {at}.river_leader (id bigint)")
    with pytest.raises(MigrationError, match=r"002 \[up\] initial schema failed and was rolled back"):
        await settled(migrator.up())
    place.execute("DROP TABLE {at}.river_leader")
    assert catalogue.read(place.connection, place.name) == catalogue.after_up(1)
    # The lock is held until the version is recorded.
    if blocking:
        with ThreadPoolExecutor(4) as threads:
            calls = [threads.submit(Migrator(engine, schema=place.name).up) for _ in range(4)]
            done = sorted(version for call in calls for version in versions(call.result()))
    else:
        plans = await asyncio.gather(*(settled(migrator.up()) for _ in range(4)))
        done = sorted(version for steps in plans for version in versions(steps))
    assert done == ALL[1:]
    # The host finds its engine as it was.
    if blocking:
        with engine.connect() as connection:
            assert connection.dialect.detect_autocommit_setting(connection.connection.dbapi_connection)
    await settled(engine.dispose())


def test_up_and_down_at_once_do_not_mix(database_url: str, place: Scratch) -> None:
    migrator = Migrator(database_url, schema=place.name)
    migrator.up()
    with psycopg.connect(database_url) as gate, ThreadPoolExecutor() as threads:
        # Its plan is 8, 7, 6; nothing of it is done when the other one makes its own.
        run(ConnectionExecutor(gate), migrate.exclusive(place.name, wait_ms=1000))
        down = threads.submit(migrator.down, target_version=5)
        until_somebody_waits(place)
        for version in (8, 7):
            run(ConnectionExecutor(gate), migrate.step(place.name, migrator.migrations[version - 1], "down"))
        gate.commit()
        # 8 and 7 were found done; 6 was this one's.
        assert versions(down.result()) == [6]
        # And the same against the direction.
        run(ConnectionExecutor(gate), migrate.exclusive(place.name, wait_ms=1000))
        up = threads.submit(migrator.up)
        until_somebody_waits(place)
        run(ConnectionExecutor(gate), migrate.step(place.name, migrator.migrations[4], "down"))
        gate.commit()
        with pytest.raises(
            MigrationError, match="version 6 cannot be applied while version 5 is not recorded as applied"
        ):
            up.result()
    assert place.versions == [1, 2, 3, 4]
    assert catalogue.read(place.connection, place.name) == catalogue.after_down(5)
    assert versions(migrator.up()) == [5, 6, 7, 8]


def test_a_version_under_others_is_not_reverted(migrator: Migrator, place: Scratch) -> None:
    migrator.up()
    place.execute("DELETE FROM {at}.river_migration WHERE version = 7")
    with pytest.raises(MigrationError, match="version 8 cannot be reverted while version 7 is not recorded as applied"):
        migrator.down(target_version=0)
    assert place.versions == [1, 2, 3, 4, 5, 6, 8]

    def apply_again(step: river.MigrationStep) -> None:
        if step.version == 7:
            place.execute("INSERT INTO {at}.river_migration (line, version) VALUES ('main', 8)")

    place.execute("INSERT INTO {at}.river_migration (line, version) VALUES ('main', 7)")
    with pytest.raises(MigrationError, match="version 6 cannot be reverted while version 8 is recorded as applied"):
        migrator.down(target_version=0, on_step=apply_again)


def test_the_question_what_is_applied_has_a_deadline_too(database_url: str, place: Scratch) -> None:
    migrator = Migrator(database_url, schema=place.name, lock_timeout=0.1)
    migrator.up()
    with psycopg.connect(database_url) as busy:
        busy.execute(f'LOCK TABLE "{place.name}".river_migration IN ACCESS EXCLUSIVE MODE')
        for call in (migrator.up, migrator.down, migrator.validate, migrator.applied):
            with pytest.raises(MigrationError, match=r"another process has been migrating this schema for 0\.1 s"):
                call()


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
async def test_a_server_that_never_answers_is_given_up(
    database_url: str, place: Scratch, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("river.migrator._ANSWER_SECONDS", 0.3)
    blocking = colour == "blocking"
    make_engine, make_migrator = (create_engine, Migrator) if blocking else (create_async_engine, AsyncMigrator)
    with proxy_to(database_url) as network:
        # It keeps its connection, so that the network dies under one that is there.
        engine: Any = make_engine(with_driver(network.url, "postgresql+psycopg"), pool_size=1)
        migrator = make_migrator(engine, schema=place.name, lock_timeout=0.1)

        async def applied() -> Any:
            return await settled(await asyncio.to_thread(migrator.applied))

        await applied()
        network.blackhole()
        with pytest.raises(DatabaseError):
            await asyncio.wait_for(applied(), 30)
        network.heal()
        await settled(engine.dispose())


def test_a_commit_without_an_answer_is_not_said_to_be_rolled_back(database_url: str, place: Scratch) -> None:
    Migrator(database_url, schema=place.name).up(target_version=2)
    with proxy_to(database_url) as network:
        engine = create_engine(with_driver(network.url, "postgresql+psycopg"), poolclass=NullPool)

        @event.listens_for(engine, "commit")
        def answer_is_lost(connection: Any) -> None:
            newest = connection.exec_driver_sql(f'SELECT max(version) FROM "{place.name}".river_migration').scalar()
            if newest == 3:
                connection.connection.driver_connection.commit()
                # What SQLAlchemy commits now is something else, and finds the connection lost.
                connection.exec_driver_sql("SELECT 1")
                network.cut()

        with pytest.raises(MigrationError, match=r"003.*was interrupted: .*done as a whole or not at all: try again"):
            Migrator(engine, schema=place.name).up()
    assert place.versions == [1, 2, 3]


def test_a_relation_of_the_hosts_with_that_name_is_refused_by_its_name(migrator: Migrator, place: Scratch) -> None:
    for made in (
        "TABLE {at}.river_migration (version text)",
        "VIEW {at}.river_migration AS SELECT 1",
        "SEQUENCE {at}.river_migration",
    ):
        place.execute(f"CREATE {made}")
        for call in (migrator.up, migrator.down, migrator.validate):
            with pytest.raises(ConfigurationError, match=r"river_migration in the schema .* is not River's.*rename it"):
                call()
        place.execute(f"DROP {made.split()[0]} {{at}}.river_migration")


@pytest.mark.parametrize("name", ["o'brien", "My-Schema", 'we"ird', "sch\u00e9ma", "a b"])
def test_a_search_path_may_lead_to_a_schema_of_any_name(database_url: str, place: Scratch, name: str) -> None:
    quoted = sql.Identifier(name).as_string()
    place.connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    try:
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(database_url, options=f"-csearch_path={quoted}".replace(" ", "\\ ")),
            poolclass=NullPool,
        )
        Migrator(engine).up()
        assert Migrator(engine).validate() == []
        assert versions(Migrator(engine).down(target_version=0)) == ALL[::-1]
    finally:
        place.connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def test_an_engine_that_asks_before_river_can_is_told_what_to_change(database_url: str, place: Scratch) -> None:
    engine = create_engine(
        with_driver(database_url, "postgresql+psycopg"), isolation_level="SERIALIZABLE", poolclass=NullPool
    )

    @event.listens_for(engine, "begin")
    def ask(connection: Any) -> None:
        connection.exec_driver_sql("SELECT 1")

    with pytest.raises(MigrationError, match="give one in READ COMMITTED"):
        Migrator(engine, schema=place.name).up()


def test_nothing_that_a_migration_runs_stays_prepared(database_url: str, place: Scratch) -> None:
    with ConnectionPool(database_url, min_size=1, max_size=1, kwargs={"prepare_threshold": 0}) as pool:
        Migrator(pool, schema=place.name).up()
        with pool.connection() as connection:
            assert (
                connection.execute("SELECT 1 FROM pg_prepared_statements WHERE NOT from_sql", prepare=False).fetchall()
                == []
            )


def test_one_connection_is_enough(database_url: str, place: Scratch) -> None:
    with ConnectionPool(database_url, min_size=1, max_size=1, timeout=5) as pool:
        assert versions(Migrator(pool, schema=place.name).up()) == ALL
        assert pool.get_stats()["pool_available"] == 1


def test_a_newer_database_is_left_alone_and_named(database_url: str, migrator: Migrator, place: Scratch) -> None:
    migrator.up()
    place.execute("INSERT INTO {at}.river_migration (line, version) VALUES ('main', 9)")
    assert versions(migrator.up()) == []
    for call in (migrator.down, migrator.validate):
        with pytest.raises(NewerSchemaError, match=r"at version 9 of the line 'main'.*up to 8: upgrade river-jobs"):
            call()
    assert migrator.applied() == [*ALL, 9]
    # Clients work on it all the same.
    inserted = river.Client(database_url, schema=place.name).insert(river.JobArgs("newer", {}))
    assert inserted.job.id == 1


def test_other_lines_stay_untouched_and_keep_version_5(migrator: Migrator, place: Scratch) -> None:
    migrator.up(target_version=5)
    place.execute("INSERT INTO {at}.river_migration (line, version) VALUES ('other', 1), ('other', 6), ('other', 44)")
    assert migrator.applied() == [1, 2, 3, 4, 5]
    migrator.up()
    migrator.down(target_version=5)
    with pytest.raises(MigrationError, match=r"005 \[down\].*\(other\); migrate those lines down first"):
        migrator.down(target_version=0)
    assert migrator.applied() == [1, 2, 3, 4, 5]
    others = place.execute("SELECT version FROM {at}.river_migration WHERE line = 'other' ORDER BY version")
    assert others == [(1,), (6,), (44,)]


def test_rows_before_version_5_have_no_line_and_are_kept_when_it_comes(migrator: Migrator, place: Scratch) -> None:
    migrator.up(target_version=4)
    before = place.execute("SELECT id, version, created_at FROM {at}.river_migration ORDER BY id")
    assert [(number, version) for number, version, _ in before] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    migrator.up(target_version=5)
    after = place.execute("SELECT version, created_at FROM {at}.river_migration WHERE line = 'main' ORDER BY version")
    assert after[:4] == [(version, created_at) for _, version, created_at in before]
    migrator.down()
    again = place.execute("SELECT version, created_at FROM {at}.river_migration ORDER BY id")
    assert again == after[:4]


def test_a_version_that_was_never_recorded_is_recorded_with_its_line(migrator: Migrator, place: Scratch) -> None:
    migrator.up()
    place.execute("DELETE FROM {at}.river_migration WHERE version IN (3, 8)")
    assert migrator.validate() == [3, 8]
    assert versions(migrator.up()) == [3, 8]
    assert place.versions == ALL


def test_a_url_of_its_own_leaves_no_connection_behind(database_url: str, place: Scratch) -> None:
    url = f"{database_url}&application_name={place.name}"
    Migrator(url, schema=place.name).up()
    Migrator(url, schema=place.name).applied()
    place.execute("SELECT pg_stat_clear_snapshot()")
    assert place.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", place.name) == []
