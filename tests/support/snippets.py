"""The programs that documents show: taken out of their page, run as a reader would, and checked by type checkers."""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

ROOT = Path(__file__).parent.parent.parent

AT_MOST_SECONDS = 60.0


def snippets(document: str) -> list[str]:
    """A document's Python programs, in their order."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)


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
            # Two threads that print at once may put their line ends beside each other.
            if line.strip():
                self._lines.put(line.strip())
        self._lines.put("")


@contextmanager
def running(program: Path, environment: dict[str, str], *, stderr: int | None = None) -> Iterator[Running]:
    """A program that is started, and killed at the end if it still runs.

    Args:
        stderr: As subprocess's; STDOUT makes what it logs part of its lines.
    """
    with subprocess.Popen(
        [sys.executable, program.name],
        cwd=program.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def rows(connection: psycopg.Connection, schema: str, columns: str, table: str) -> list[tuple[object, ...]]:
    """Some columns of a table, by id."""
    query = sql.SQL("SELECT {} FROM {} ORDER BY id").format(
        sql.SQL(", ").join(map(sql.Identifier, columns.split())), sql.Identifier(schema, table)
    )
    return connection.execute(query).fetchall()


def mypy_complaints(programs: Path) -> str:
    """What mypy says, under its strictest rules, of the programs in a folder; empty if nothing."""
    command = ["mypy", "--config-file", "pyproject.toml", *map(str, sorted(programs.glob("*.py")))]
    checked = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    return checked.stdout + checked.stderr if checked.returncode else ""


def pyright_complaints(programs: Path) -> str:
    """What pyright says, under its strictest rules, of the programs in a folder; empty if nothing."""
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
    return checked.stdout + checked.stderr if checked.returncode else ""
