"""What the README shows is a program that runs, and that both type checkers accept under their strictest rules."""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.conftest import run_script

ROOT = Path(__file__).parent.parent

AT_MOST_SECONDS = 60.0

LINK = re.compile(r"\]\(([^)#:]+)\)")


def snippets() -> list[str]:
    """The README's Python programs: blocking, asyncio, insert only."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


BLOCKING, ASYNCIO, INSERT_ONLY = range(3)


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The file that a reader would make of a snippet."""
    path = tmp_path / "hello.py"
    path.write_text(snippets()[request.param])
    return path


@pytest.fixture
def empty_schema(schema_connection: psycopg.Connection) -> Iterator[str]:
    """A schema without River's tables."""
    name = f"river_t_{uuid.uuid4().hex}"
    run_script(schema_connection, [f"CREATE SCHEMA {name}"])
    yield name
    run_script(schema_connection, [f"DROP SCHEMA {name} CASCADE"])


def environment(database_url: str, schema: str) -> dict[str, str]:
    """The environment of a reader whose database has one schema."""
    url = database_url.replace("search_path%3D", f"search_path%3D{schema}")
    return {**os.environ, "DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}


class Running:
    """A program that runs, and what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def line(self) -> str:
        """The next line; a program that ends without one gives an empty line."""
        return self._lines.get(timeout=AT_MOST_SECONDS)

    def interrupt(self) -> int:
        """Press Ctrl-C; the exit code."""
        self._process.send_signal(signal.SIGINT)
        return self.end()

    def end(self) -> int:
        """Wait until it ends; the exit code."""
        return self._process.wait(AT_MOST_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())
        self._lines.put("")


@contextmanager
def running(program: Path, environment: dict[str, str]) -> Iterator[Running]:
    with subprocess.Popen(
        [sys.executable, program.name], cwd=program.parent, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def rows(connection: psycopg.Connection, schema: str, columns: str, table: str) -> list[tuple[object, ...]]:
    query = sql.SQL("SELECT {} FROM {} ORDER BY id").format(
        sql.SQL(", ").join(map(sql.Identifier, columns.split())), sql.Identifier(schema, table)
    )
    return connection.execute(query).fetchall()


@pytest.mark.parametrize("program", [BLOCKING], indirect=True)
def test_the_first_program_makes_its_tables_inserts_a_job_and_works_it(
    schema_connection: psycopg.Connection, database_url: str, empty_schema: str, program: Path
) -> None:
    with running(program, environment(database_url, empty_schema)) as process:
        assert process.line() == "welcome, someone@example.com"
        assert process.interrupt() == 0
    assert rows(schema_connection, empty_schema, "kind state attempt", "river_job") == [("welcome", "completed", 1)]
    assert rows(schema_connection, empty_schema, "email welcomed", "users") == [("someone@example.com", True)]


@pytest.mark.parametrize("program", [BLOCKING], indirect=True)
def test_the_first_program_runs_again_on_the_same_database(
    schema_connection: psycopg.Connection, database_url: str, empty_schema: str, program: Path
) -> None:
    for _ in range(2):
        with running(program, environment(database_url, empty_schema)) as process:
            assert process.line() == "welcome, someone@example.com"
            assert process.interrupt() == 0
    assert rows(schema_connection, empty_schema, "state", "river_job") == [("completed",), ("completed",)]


@pytest.mark.parametrize("program", [ASYNCIO], indirect=True)
def test_the_asyncio_program_inserts_a_job_and_works_it(
    schema_connection: psycopg.Connection, database_url: str, schema: str, program: Path
) -> None:
    with running(program, environment(database_url, schema)) as process:
        assert process.line() == "hello, world"
        assert process.interrupt() == 0
    assert rows(schema_connection, schema, "kind state attempt", "river_job") == [("greet", "completed", 1)]


@pytest.mark.parametrize("program", [INSERT_ONLY], indirect=True)
def test_the_program_that_only_inserts_inserts(
    schema_connection: psycopg.Connection, database_url: str, schema: str, program: Path
) -> None:
    with running(program, environment(database_url, schema)) as process:
        assert process.line() == "job 1 is available"
        assert process.end() == 0
    assert rows(schema_connection, schema, "kind queue state args", "river_job") == [
        ("welcome", "mail", "available", {"user_id": 1})
    ]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with all the README's programs."""
    for number, snippet in enumerate(snippets()):
        (tmp_path / f"snippet_{number}.py").write_text(snippet)
    return tmp_path


@pytest.mark.slow
def test_mypy_accepts_the_programs_under_its_strictest_rules(programs: Path) -> None:
    command = ["mypy", "--config-file", "pyproject.toml", *map(str, sorted(programs.glob("*.py")))]
    checked = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
def test_pyright_accepts_the_programs_under_its_strictest_rules(programs: Path) -> None:
    configuration = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT), str(ROOT / "drivers")],
    }
    (programs / "pyrightconfig.json").write_text(json.dumps(configuration))
    command = ["pyright", "--pythonpath", sys.executable, "--project", str(programs)]
    checked = subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/guarantees.md"])
def test_links_lead_to_files(document: str) -> None:
    path = ROOT / document
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert missing == []
