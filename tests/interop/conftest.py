"""The Go program, built once for a run, and both Rivers on one empty schema.

Schemas have mixed-case names, and sessions an empty search path: a forgotten quotation mark or qualifier shows.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import psycopg
import pytest
from _pytest.capture import CaptureManager
from psycopg import sql

from tests.interop.build import GoUnavailableError, build
from tests.interop.go_river import GoRiver
from tests.interop.python_river import PythonRiver, River

PROGRAM = "river-interop"


@pytest.fixture(scope="session")
def go_program(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go program; without Go, or without its modules, all that need it are skipped."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # the one that all workers of this run share
    program, skipped = folder / PROGRAM, folder / f"{PROGRAM}.skipped"

    def say(line: str) -> None:
        with _uncaptured(pytestconfig):
            sys.stderr.write(f"{PROGRAM}: {line}\n")
            sys.stderr.flush()

    with _one_process_at_a_time(folder / f"{PROGRAM}.lock"):
        if not program.exists() and not skipped.exists():
            try:
                build(program, os.environ, say)
            except GoUnavailableError as error:
                # For the other workers, which would wait as long for the same answer.
                skipped.write_text(str(error), encoding="utf-8")
    if skipped.exists():
        pytest.skip(skipped.read_text(encoding="utf-8"))
    return program


@contextmanager
def _uncaptured(config: pytest.Config) -> Generator[None]:
    """Let a fixture of the whole session write to the terminal; ``capsys`` is for single tests."""
    manager = config.pluginmanager.getplugin("capturemanager")
    with manager.global_and_fixture_disabled() if isinstance(manager, CaptureManager) else nullcontext():
        yield


@contextmanager
def _one_process_at_a_time(path: Path) -> Generator[None]:
    with path.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    """Sees what the Rivers do; it prepares nothing, because they change the tables under its statements."""
    with psycopg.connect(database_url, autocommit=True, prepare_threshold=None) as connection:
        # A test that left a transaction open must fail by name, not hang until its timeout.
        connection.execute("SET lock_timeout = '10s'")
        yield connection


@contextmanager
def _schema(connection: psycopg.Connection) -> Generator[str]:
    name = f"River_Interop_{secrets.token_hex(4)}"
    connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    yield name
    connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


@pytest.fixture
def empty_schema(connection: psycopg.Connection) -> Iterator[str]:
    """A schema with nothing in it."""
    with _schema(connection) as name:
        yield name


@pytest.fixture
def other_schema(connection: psycopg.Connection) -> Iterator[str]:
    """Another one, to compare with."""
    with _schema(connection) as name:
        yield name


@pytest.fixture
def rivers(go_program: Path, database_url: str, empty_schema: str) -> dict[str, River]:
    """Both, by name, on the same schema."""
    return {
        "go": GoRiver(go_program, database_url, empty_schema),
        "python": PythonRiver(database_url, empty_schema),
    }


@pytest.fixture
def go_elsewhere(go_program: Path, database_url: str, other_schema: str) -> GoRiver:
    """The real River, alone on a schema of its own."""
    return GoRiver(go_program, database_url, other_schema)
