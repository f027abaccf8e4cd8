"""What the README shows is a program that runs, and that both type checkers accept under their strictest rules."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conftest import run_script
from tests.support.snippets import environment, mypy_complaints, pyright_complaints, rows, running, snippets

BLOCKING, ASYNCIO, INSERT_ONLY = range(3)
"""The README's Python programs."""


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The file that a reader would make of a snippet."""
    path = tmp_path / "hello.py"
    path.write_text(snippets("README.md")[request.param])
    return path


@pytest.fixture
def empty_schema(schema_connection: psycopg.Connection) -> Iterator[str]:
    """A schema without River's tables."""
    name = f"river_t_{uuid.uuid4().hex}"
    run_script(schema_connection, [f"CREATE SCHEMA {name}"])
    yield name
    run_script(schema_connection, [f"DROP SCHEMA {name} CASCADE"])


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
    for number, snippet in enumerate(snippets("README.md")):
        (tmp_path / f"snippet_{number}.py").write_text(snippet)
    return tmp_path


@pytest.mark.slow
def test_mypy_accepts_the_programs_under_its_strictest_rules(programs: Path) -> None:
    assert mypy_complaints(programs) == ""


@pytest.mark.slow
def test_pyright_accepts_the_programs_under_its_strictest_rules(programs: Path) -> None:
    assert pyright_complaints(programs) == ""
