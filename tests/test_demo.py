"""The demo ends well, says so truthfully, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "examples" / "quickstart" / "demo.py"

AT_MOST_SECONDS = 90.0

NOTHING_DONE = '{"committed": 0, "rolled_back_orders": [], "rolled_back_jobs": []}'
ONE_ORDER_LOST = '{"committed": 1, "rolled_back_orders": [], "rolled_back_jobs": []}'


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def name() -> str:
    """What all connections of one demo are called."""
    return f"demo {uuid.uuid4().hex}"


@contextmanager
def demo(database_url: str, name: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running demo, and the schema that it works in."""
    environment = {**os.environ, "DATABASE_URL": database_url, "PGAPPNAME": name}
    process = subprocess.Popen(
        [sys.executable, str(DEMO)], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[1]
        finally:
            process.terminate()


def one(connection: psycopg.Connection, query: sql.SQL | sql.Composed, *values: object) -> object:
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def schema_exists(connection: psycopg.Connection, schema: str) -> object:
    return one(connection, sql.SQL("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)"), schema)


def wait_until_nobody_is_connected(connection: psycopg.Connection, name: str) -> None:
    """A server's processes outlive their clients by a moment; one whose client lives does not end."""
    query = sql.SQL("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s")
    give_up_at = time.monotonic() + AT_MOST_SECONDS
    while one(connection, query, name):
        assert time.monotonic() < give_up_at, "a process of the demo still runs"
        time.sleep(0.02)


def wait_for_an_order(connection: psycopg.Connection, schema: str) -> None:
    orders = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, "orders"))
    give_up_at = time.monotonic() + AT_MOST_SECONDS
    while True:
        try:
            if one(connection, orders):
                return
        except psycopg.errors.UndefinedTable:
            pass
        assert time.monotonic() < give_up_at, "no order was taken"
        time.sleep(0.02)


def quickstart(module: str, database_url: str, schema: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """One of the demo's programs, on a schema of the test's."""
    url = database_url.replace("search_path%3D", f"search_path%3D{schema}")
    return subprocess.run(
        [sys.executable, "-m", f"examples.quickstart.{module}"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url},
        input=text,
        capture_output=True,
        text=True,
        timeout=AT_MOST_SECONDS,
    )


@pytest.mark.slow
def test_the_demo_ends_well_and_leaves_nothing_behind(
    connection: psycopg.Connection, database_url: str, name: str
) -> None:
    with demo(database_url, name) as (process, schema):
        printed, _ = process.communicate(timeout=AT_MOST_SECONDS)
    assert process.returncode == 0, printed
    assert "orders shipped exactly once" in printed
    assert "WRONG" not in printed
    assert not schema_exists(connection, schema)
    wait_until_nobody_is_connected(connection, name)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_nothing_behind(
    connection: psycopg.Connection, database_url: str, name: str, number: signal.Signals
) -> None:
    with demo(database_url, name) as (process, schema):
        wait_for_an_order(connection, schema)
        process.send_signal(number)
        printed, _ = process.communicate(timeout=AT_MOST_SECONDS)
    assert process.returncode == 128 + number, printed
    assert not schema_exists(connection, schema)
    wait_until_nobody_is_connected(connection, name)


def test_a_demo_without_a_database_says_what_to_do() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    refused = subprocess.run([sys.executable, str(DEMO)], env=environment, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "make demo" in refused.stdout


@pytest.fixture
def empty_schema(connection: psycopg.Connection) -> Iterator[str]:
    name = f"river_t_{uuid.uuid4().hex}"
    connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    yield name
    connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def test_the_report_notices_a_lost_order(database_url: str, empty_schema: str) -> None:
    installed = quickstart("install", database_url, empty_schema)
    assert installed.returncode == 0, installed.stderr
    assert quickstart("report", database_url, empty_schema, NOTHING_DONE).returncode == 0
    report = quickstart("report", database_url, empty_schema, ONE_ORDER_LOST)
    assert report.returncode == 1, report.stderr
    assert "WRONG" in report.stdout


def test_the_report_notices_an_order_shipped_twice(
    connection: psycopg.Connection, database_url: str, empty_schema: str
) -> None:
    installed = quickstart("install", database_url, empty_schema)
    assert installed.returncode == 0, installed.stderr
    at = sql.Identifier(empty_schema)
    connection.execute(sql.SQL("INSERT INTO {}.orders (customer) VALUES ('one')").format(at))
    connection.execute(
        sql.SQL(
            "INSERT INTO {}.shipments (order_id, attempt) SELECT id, 1 FROM {}.orders, generate_series(1, 2)"
        ).format(at, at)
    )
    report = quickstart("report", database_url, empty_schema, ONE_ORDER_LOST)
    assert report.returncode == 1, report.stderr
    assert "orders shipped twice" in report.stdout
