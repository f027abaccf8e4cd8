"""One server for a test run, and a schema of its own for every test that asks for one.

The server is started when it is first needed, by the controller if pytest-xdist distributes the tests, which
hands its URL to the workers. Sessions have an empty search path, so a statement that forgets to name its
schema fails.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from river.testing.server import database_server
from tests.support.urls import with_empty_search_path

if TYPE_CHECKING:
    from tests.support.schemas import Scratch

SERVER_URL = pytest.StashKey[str]()


def server_url(config: pytest.Config) -> str:
    """The URL of this run's server, which is started on the first call and stopped after the run."""
    if SERVER_URL not in config.stash:
        run = ExitStack()
        config.add_cleanup(run.close)
        config.stash[SERVER_URL] = run.enter_context(database_server()).url
    return config.stash[SERVER_URL]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the controller of pytest-xdist, for each worker before it starts."""
    node.workerinput["river_server_url"] = server_url(node.config)


@pytest.fixture(scope="session")
def database_url(pytestconfig: pytest.Config) -> str:
    """The libpq URL of a database whose sessions have an empty search path."""
    workerinput: dict[str, Any] = getattr(pytestconfig, "workerinput", {})
    return with_empty_search_path(workerinput.get("river_server_url") or server_url(pytestconfig))


@pytest.fixture(scope="session")
def schema_connection(database_url: str) -> Iterator[psycopg.Connection]:
    """Makes and drops the schemas of one process's tests."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        # A test that left a transaction open must fail by name, not hang until its timeout.
        connection.execute("SET lock_timeout = '10s'")
        yield connection


@pytest.fixture
def schema(schema_connection: psycopg.Connection) -> Iterator[str]:
    """The name of a schema that holds River's tables and is dropped after the test."""
    from tests.support.schemas import creation

    name = f"river_t_{uuid.uuid4().hex}"
    run_script(schema_connection, [f"CREATE SCHEMA {name}", *creation(name)])
    yield name
    run_script(schema_connection, [f"DROP SCHEMA {name} CASCADE"])


@pytest.fixture
def place(database_url: str) -> Iterator["Scratch"]:
    """A schema with nothing in it, in mixed case."""
    from tests.support.schemas import scratch

    with scratch(database_url) as made:
        yield made


def run_script(connection: psycopg.Connection, statements: Sequence[str]) -> None:
    """Run *statements* in one transaction and one round trip."""
    # A new line before the semicolon, because a statement may end in a comment.
    script = "\n;\n".join(["BEGIN", *statements, "COMMIT"])
    try:
        connection.execute(script)
    finally:
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.rollback()
