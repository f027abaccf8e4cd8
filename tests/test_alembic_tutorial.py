"""docs/alembic.md, followed: the application is built from the page's files, and the page's commands are run in it.

A block that begins with a comment is the file of that name, or an addition to it; a block of commands has the output
that matters. Each section that shows another way begins with the files that it needs, and with a new database.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from tests.support import catalogue
from tests.support.alembic_hosts import NOTHING, rivers
from tests.support.schemas import Scratch
from tests.support.snippets import ROOT, Running, mypy_complaints, pyright_complaints

PAGE = ROOT / "docs/alembic.md"

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w./]+)(?:, (at the end|in \[alembic\]))?\n")
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)

TUTORIAL = ("The application", "Add River's branch", "Insert a job, and work it", "Your next revision")
APPLICATION, BRANCH = TUTORIAL[:2]
OTHER_WAYS = (
    "One revision of your own instead",
    "A schema of its own",
    "River's tables in your MetaData",
    "asyncio",
    "SQL for somebody else to run",
    "Down",
    "Without Alembic",
)


def section(heading: str) -> str:
    """The text of one section of the page."""
    return PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@dataclass
class Application:
    """The reader's application, in a folder.

    Attributes:
        place: The schema that its sessions have on their search path.
    """

    folder: Path
    database_url: str
    place: Scratch
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        url = self.database_url.replace("search_path%3D", f"search_path%3D%22{self.place.name}%22")
        path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
        plain = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.environment = {**os.environ, **plain, "DATABASE_URL": url, "PATH": path}
        self.folder.mkdir()
        self.run("alembic init alembic")

    def follow(self, heading: str, *, schema: str = "jobs") -> None:
        """Write the section's files and run its commands, in the order of the page.

        Args:
            schema: Instead of the page's ``jobs``, which another run may have in the same database.
        """
        for language, block in BLOCK.findall(section(heading)):
            text = re.sub(r"\bjobs\b(?!\.)", schema, block)
            if language == "console":
                self.execute(text)
            else:
                self.write(text)

    def write_files(self, heading: str, *names: str) -> None:
        """Write the section's files only, or some of them."""
        for language, text in BLOCK.findall(section(heading)):
            match = FILE.match(text)
            if language != "console" and match is not None and (not names or match[1] in names):
                self.write(text)

    def write(self, text: str) -> None:
        """Write a block to the file that it names."""
        match = FILE.match(text)
        assert match is not None, f"a block without a file's name: {text}"
        path = self.folder / match[1]
        if match[2] is None:
            path.write_text(text)
        else:
            path.write_text(f"{path.read_text()}\n\n{text[match.end() :]}")

    def execute(self, block: str) -> None:
        """Run a block's commands, each of which prints, among others, the lines below it."""
        _, *parts = COMMAND.split(block)
        for command, expected in zip(parts[::2], parts[1::2], strict=True):
            lines = [line for line in expected.splitlines() if line.strip() and line != "..."]
            if lines[-1:] == ["^C"]:
                self.run_until(command, lines[:-1])
            else:
                printed = self.run(command)
                assert [line for line in lines if line not in printed] == [], printed

    def run(self, command: str) -> list[str]:
        """Run a command to its end; what it prints."""
        done = subprocess.run(
            f"exec {command}",
            shell=True,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout.splitlines()

    def run_until(self, command: str, lines: list[str]) -> None:
        """Run a command until it has printed these lines, then press Ctrl-C."""
        with subprocess.Popen(
            f"exec {command}", shell=True, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                running = Running(process)
                assert [running.line() for _ in lines] == lines
                assert running.interrupt() == 0
            finally:
                process.kill()

    def run_script(self, name: str) -> None:
        """Run a file of SQL, in a session as the application's are."""
        with psycopg.connect(self.environment["DATABASE_URL"], autocommit=True) as connection:
            connection.execute((self.folder / name).read_bytes())


@pytest.fixture
def application(tmp_path: Path, database_url: str, place: Scratch) -> Application:
    return Application(tmp_path / "application", database_url, place)


@pytest.fixture
def with_branch(application: Application) -> Application:
    """The application with River's branch, on a database with nothing in it."""
    application.write_files(APPLICATION)
    application.write_files(BRANCH)
    return application


def test_every_section_with_files_or_commands_is_followed_here() -> None:
    headings = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    assert [heading for heading in headings if BLOCK.search(section(heading))] == [*TUTORIAL, *OTHER_WAYS]


def test_every_file_of_the_page_is_named() -> None:
    unnamed = [
        text for language, text in BLOCK.findall(PAGE.read_text()) if language != "console" and not FILE.match(text)
    ]
    assert unnamed == []


@pytest.mark.slow
def test_the_tutorial_leads_to_a_job_that_is_worked(application: Application, place: Scratch) -> None:
    for heading in TUTORIAL:
        application.follow(heading)
    assert rivers(place) == catalogue.expected()
    assert place.execute("SELECT kind, state FROM {at}.river_job") == [("welcome", "completed")]
    assert place.execute("SELECT email, welcomed FROM {at}.users") == [("someone@example.com", True)]
    assert place.execute("SELECT count(*) FROM {at}.orders") == [(0,)]


def test_one_revision_of_your_own_instead(application: Application, place: Scratch) -> None:
    application.write_files(APPLICATION)
    application.write_files(BRANCH, "alembic/env.py")
    application.follow("One revision of your own instead")
    assert rivers(place) == catalogue.expected()
    assert place.execute("SELECT version_num FROM {at}.alembic_version") == [("0002",)]
    application.run("alembic downgrade 0001")
    assert rivers(place) == NOTHING


def test_a_schema_of_its_own(with_branch: Application, place: Scratch) -> None:
    jobs = Scratch(place.connection, f"{place.name.lower()}_jobs")
    try:
        with_branch.follow("A schema of its own", schema=jobs.name)
        assert (rivers(jobs), rivers(place)) == (catalogue.expected(), NOTHING)
    finally:
        jobs.execute("DROP SCHEMA IF EXISTS {at} CASCADE")


def test_rivers_tables_in_your_metadata(with_branch: Application, place: Scratch) -> None:
    with_branch.follow("River's tables in your MetaData")
    place.execute("DROP INDEX {at}.river_job_kind")
    with pytest.raises(AssertionError, match="river_job_kind"):
        with_branch.run("alembic check")


def test_asyncio(with_branch: Application, place: Scratch) -> None:
    with_branch.follow("asyncio")
    assert rivers(place) == catalogue.expected()


def test_sql_for_somebody_else_to_run(with_branch: Application, place: Scratch) -> None:
    with_branch.follow("SQL for somebody else to run")
    assert rivers(place) == NOTHING
    with_branch.run_script("upgrade.sql")
    assert rivers(place) == catalogue.expected()
    with_branch.run("river validate")
    with_branch.run_script("downgrade.sql")
    assert rivers(place) == NOTHING


def test_down(with_branch: Application, place: Scratch) -> None:
    with_branch.run("alembic upgrade heads")
    with_branch.follow("Down")
    assert rivers(place) == NOTHING
    assert place.execute("SELECT count(*) FROM {at}.users") == [(0,)]


def test_without_alembic(application: Application, place: Scratch) -> None:
    application.write_files(APPLICATION)
    application.write_files(BRANCH, "alembic/env.py")
    application.follow("Without Alembic")
    assert rivers(place) == catalogue.expected()


@pytest.fixture(params=["blocking", "asyncio"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The page's programs in one folder, where type checkers look; a section's file replaces an earlier one's."""
    folder = tmp_path / "programs"
    folder.mkdir()
    sections = (
        [*TUTORIAL, "River's tables in your MetaData"] if request.param == "blocking" else [APPLICATION, "asyncio"]
    )
    for heading in sections:
        for _, text in BLOCK.findall(section(heading)):
            match = FILE.match(text)
            if match is not None and match[1].endswith(".py") and "versions" not in match[1]:
                path = folder / Path(match[1]).name
                path.write_text(text if match[2] is None else f"{path.read_text()}\n\n{text}")
    return folder


@pytest.mark.slow
def test_mypy_accepts_the_programs_under_its_strictest_rules(programs: Path) -> None:
    assert mypy_complaints(programs) == ""


@pytest.mark.slow
def test_pyright_accepts_the_programs_under_its_strictest_rules(programs: Path) -> None:
    assert pyright_complaints(programs) == ""
