"""The command `river`: what it prints, where, and with which exit code."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psycopg
import pytest

from river import cli
from river.operation import run
from river.operations import migrate
from river_psycopg.blocking import ConnectionExecutor
from tests.support.schemas import Scratch, until_somebody_waits
from tests.support.urls import with_driver

COMMANDS = ("migrate-up", "migrate-down", "migrate-list", "migrate-get", "validate", "version")
RIVER = Path(sys.executable).with_name("river")


@dataclass(frozen=True)
class Result:
    code: int
    out: list[str]
    err: list[str]


Run = Callable[..., Result]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, where the environment names no database."""
    for name in [name for name in os.environ if name.startswith("PG") or name == "DATABASE_URL"]:
        monkeypatch.delenv(name)

    def river(*arguments: str) -> Result:
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out.splitlines(), captured.err.splitlines())

    return river


@pytest.fixture
def river(bare: Run, monkeypatch: pytest.MonkeyPatch, database_url: str, place: Scratch) -> Run:
    """Runs a command on the test's schema; the database comes from the environment."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    return lambda command, *arguments: bare(command, "--schema", place.name, *arguments)


def without_times(lines: list[str]) -> list[str]:
    return [re.sub(r"\[[\d.]+(ms|s)\]$", "[TIME]", line) for line in lines]


def test_up_prints_a_line_for_each_version_and_then_nothing_is_left(river: Run, place: Scratch) -> None:
    first = river("migrate-up", "--target-version", "3")
    assert (first.code, first.err) == (0, [])
    assert without_times(first.out) == [
        "applied migration 001 [up] create river migration  [TIME]",
        "applied migration 002 [up] initial schema          [TIME]",
        "applied migration 003 [up] river job tags non null [TIME]",
    ]
    rest = river("migrate-up", "--max-steps", "99")
    assert rest.code == 0
    assert len(rest.out) == 6
    assert rest.out[-1] == "no more migrations to apply"
    again = river("migrate-up")
    assert again == Result(0, ["no migrations to apply"], [])
    assert place.versions == list(range(1, 9))


def test_down_is_one_version_and_zero_is_everything(river: Run, place: Scratch) -> None:
    river("migrate-up")
    assert without_times(river("migrate-down").out) == ["applied migration 008 [down] job id autoincrement [TIME]"]
    assert len(river("migrate-down", "--target-version", "0", "--max-steps", "2").out) == 2
    assert place.versions == [1, 2, 3, 4, 5]
    assert river("migrate-down", "--target-version", "0").code == 0
    river("migrate-up")
    assert river("migrate-down", "--target-version", "-1").code == 0
    assert place.versions == []


def test_a_dry_run_prints_and_changes_nothing(river: Run, place: Scratch) -> None:
    result = river("migrate-up", "--dry-run", "--show-sql", "--max-steps", "1")
    assert result.code == 0
    assert result.out[:3] == [
        "migration 001 [up] create river migration [DRY RUN]",
        "-" * 80,
        "-- River main migration 001 [up]",
    ]
    assert f'CREATE TABLE "{place.name}".river_migration (' in result.out
    assert place.versions == []


def test_show_sql_prints_what_was_run(river: Run, place: Scratch) -> None:
    result = river("migrate-up", "--show-sql", "--target-version", "1")
    assert f'CREATE TABLE "{place.name}".river_migration (' in result.out
    assert place.versions == [1]


def test_the_list_marks_where_the_database_is(river: Run) -> None:
    unmarked = river("migrate-list")
    assert (unmarked.code, unmarked.err) == (0, ["no version is applied"])
    assert unmarked.out[0] == "001 create river migration"
    assert len(unmarked.out) == 8
    river("migrate-up", "--target-version", "2")
    assert river("migrate-list").out[:3] == [
        "  001 create river migration",
        "* 002 initial schema",
        "  003 river job tags non null",
    ]


def test_a_newer_database_is_named_in_the_list_and_refused_by_down_and_validate(river: Run, place: Scratch) -> None:
    river("migrate-up")
    place.execute("INSERT INTO {at}.river_migration (line, version) VALUES ('main', 9)")
    assert river("migrate-list").err == ["the database is at version 9, which this river does not know"]
    assert river("migrate-up") == Result(0, ["no migrations to apply"], [])
    for command in ("migrate-down", "validate"):
        refused = river(command)
        assert refused.code == 1
        assert refused.out == []
        assert len(refused.err) == 1
        assert "at version 9 of the line 'main'" in refused.err[0]


def test_validate_exits_with_one_until_everything_is_applied(river: Run, place: Scratch) -> None:
    river("migrate-up", "--target-version", "6")
    missing = f"river: versions that are not applied: 7, 8; run river migrate-up --schema {place.name}"
    assert river("validate") == Result(1, [], [missing])
    assert river("validate", "--target-version", "6") == Result(0, ["all versions are applied"], [])
    river("migrate-up")
    assert river("validate") == Result(0, ["all versions are applied"], [])


def test_get_prints_sql_that_psql_runs(bare: Run, database_url: str, place: Scratch) -> None:
    up = bare("migrate-get", "--all", "--up", "--schema", place.name)
    assert (up.code, up.err) == (0, [])
    assert [line for line in up.out if line.startswith("-- River")] == [
        f"-- River main migration {version:03} [up]" for version in range(1, 9)
    ]
    place.connection.execute("\n".join(up.out).encode())
    assert place.execute("SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'river_job'", place.name)
    assert place.versions == []  # it says what to run and records nothing
    down = bare("migrate-get", "--all", "--down", "--schema", place.name)
    assert down.out[0] == "-- River main migration 008 [down]"
    place.connection.execute("\n".join(down.out).encode())
    assert place.execute("SELECT 1 FROM pg_tables WHERE schemaname = %s", place.name) == []


def test_sql_with_its_record_is_known_to_the_migrator_and_without_it_the_error_says_so(
    bare: Run, river: Run, place: Scratch
) -> None:
    up = bare("migrate-get", "--all", "--up", "--record", "--schema", place.name)
    place.connection.execute("\n".join(up.out).encode())
    assert river("validate").code == 0
    down = bare("migrate-get", "--all", "--down", "--record", "--schema", place.name)
    place.connection.execute("\n".join(down.out).encode())
    up = bare("migrate-get", "--all", "--up", "--schema", place.name)
    place.connection.execute("\n".join(up.out).encode())
    assert "made without recording their versions, insert those into river_migration" in river("migrate-up").err[0]


def test_get_chooses_versions(bare: Run) -> None:
    def headings(*arguments: str) -> list[str]:
        lines = bare("migrate-get", *arguments).out
        return [line.removeprefix("-- River main migration ") for line in lines if line.startswith("-- River")]

    assert headings("--version", "3,1", "--up") == ["003 [up]", "001 [up]"]
    assert headings("--version", "3", "--version", "4", "--down") == ["003 [down]", "004 [down]"]
    assert headings("--all", "--up", "--exclude-version", "1,2,3,4", "--exclude-version", "8") == [
        "005 [up]",
        "006 [up]",
        "007 [up]",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["migrate-get", "--up"], "give either --version or --all"),
        (["migrate-get", "--all", "--version", "1", "--up"], "give either --version or --all"),
        (["migrate-get", "--all"], "give either --up or --down"),
        (["migrate-get", "--version", "9", "--up"], "there is no version 9: they are 1 to 8"),
        (["migrate-get", "--version", "one", "--up"], "'one' is no list of versions"),
        (["migrate-get", "--all", "--up", "--line", "maim"], "'maim': did you mean 'main'?"),
        (["migrate-get", "--all", "--up", "--schema", "a b"], "schema must be 1 to 46"),
        (["migrate-up"], "no database: give --database-url, or set DATABASE_URL or libpq's PGDATABASE"),
        (["migrate-list"], "no database: give --database-url"),
        (["validate"], "no database: give --database-url"),
        (["migrate-up", "--database-url", "localhost/db"], "the database URL must be like postgresql://user"),
        (["migrate-up", "--database-url", "mysql://u:secret@h/db"], "the database URL must be like postgresql://"),
        (["migrate-up", "--database-url", "host=h password=secret"], "the database URL must be like postgresql://"),
        (["validate", "--dry-run"], "No such option '--dry-run'; see river validate --help"),
        (["migrate-up", "--database-url", "sqlite:///a.db"], "sqlite is not supported yet"),
        (["validate", "--database-url", "postgresql://127.0.0.1:1/db"], "refused"),
        (["migrate-up", "--statement-timeout", "soon"], "'soon' is no duration: write 500ms, 10s, 1m30s, 2h, or none"),
        (["migrate-up", "--statement-timeout", ""], "'' is no duration"),
        (["migrate-up", "--statement-timeout", "99999999999999h"], "'99999999999999h' is too long"),
        (["migrate-up", "--lock-timeout", "none"], "a wait needs a limit"),
        (["migrate-up", "--max-steps", "some"], "'some' is not a valid integer"),
        (["migrate-up", "--statment-timeout", "1s"], "--statement-timeout"),
        (["migrate-upp"], "No such command 'migrate-upp'"),
    ],
)
def test_an_error_is_one_line_and_exit_code_one(bare: Run, arguments: list[str], message: str) -> None:
    result = bare(*arguments)
    assert result.code == 1
    assert result.out == []
    assert len(result.err) == 1
    assert result.err[0].startswith("river: ")
    assert message in result.err[0]
    assert "secret" not in result.err[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["migrate-up", "--target-version", "9"], "version 9 is none of the line's versions: 1 to 8"),
        (["migrate-up", "--max-steps", "0"], "max_steps must be a whole number from 1, not 0"),
        (["migrate-down", "--target-version", "5"], "version 5 is not applied"),
    ],
)
def test_an_extent_that_makes_no_sense_is_one_line_too(river: Run, arguments: list[str], message: str) -> None:
    river("migrate-up", "--target-version", "2")
    result = river(*arguments)
    assert (result.code, result.out) == (1, [])
    assert len(result.err) == 1
    assert message in result.err[0]


def test_a_failed_version_is_one_line_and_those_before_it_were_printed(river: Run, place: Scratch) -> None:
    place.execute("CREATE TABLE {at}.river_job (id bigint)")
    result = river("migrate-up")
    assert result.code == 1
    assert without_times(result.out) == [
        "applied migration 001 [up] create river migration                           [TIME]"
    ]
    assert len(result.err) == 1
    assert result.err[0].startswith("river: version 002 [up] initial schema failed and was rolled back: relation")


def test_the_statement_timeout_is_that_of_the_option(river: Run, database_url: str, place: Scratch) -> None:
    river("migrate-up", "--target-version", "6")
    with psycopg.connect(database_url) as busy:
        busy.execute(f'SELECT 1 FROM "{place.name}".river_job')
        result = river("migrate-up", "--statement-timeout", "50ms")
    assert result.code == 1
    assert "a statement may take 0.05 s: give a longer statement timeout" in result.err[0]


@pytest.mark.parametrize("library", ["postgresql+psycopg", "postgresql+asyncpg", "postgresql+pg8000"])
def test_a_sqlalchemy_url_works_whatever_its_colour(bare: Run, database_url: str, place: Scratch, library: str) -> None:
    url = with_driver(database_url, library).render_as_string(hide_password=False)
    where = ("--database-url", url, "--schema", place.name)
    assert bare("migrate-up", *where).code == 0
    assert bare("validate", *where).code == 0
    assert place.versions == list(range(1, 9))


def test_libpqs_variables_name_a_database_too(
    bare: Run, monkeypatch: pytest.MonkeyPatch, database_url: str, place: Scratch
) -> None:
    for option, value in psycopg.conninfo.conninfo_to_dict(database_url).items():
        name = {"dbname": "PGDATABASE"}.get(option, f"PG{option.upper()}")
        monkeypatch.setenv(name, str(value))
    assert bare("migrate-up", "--schema", place.name).code == 0
    assert place.versions == list(range(1, 9))


def test_the_flag_wins_over_the_environment(river: Run, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/nobody")
    monkeypatch.setenv("PGDATABASE", "nobody")
    assert river("migrate-list", "--database-url", database_url).code == 0


def test_the_version_is_that_of_the_installed_package(bare: Run) -> None:
    expected = f"River for Python {version('river-jobs')}"
    for arguments in (["version"], ["--version"]):
        result = bare(*arguments)
        assert (result.code, result.err) == (0, [])
        assert result.out[0] == expected
        assert result.out[1].startswith("Python 3.")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(bare: Run, command: str) -> None:
    result = bare(command, "--help")
    assert (result.code, result.err) == (0, [])
    assert result.out[0].startswith(f"Usage: river {command}")
    assert command in "\n".join(bare("--help").out)


def test_without_a_command_the_help_is_shown(bare: Run) -> None:
    assert "migrate-up" in "\n".join(bare().out)


def test_the_installed_command_runs(database_url: str, place: Scratch) -> None:
    environment = {**os.environ, "DATABASE_URL": database_url}
    command = [str(RIVER), "migrate-up", "--schema", place.name]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert len(result.stdout.splitlines()) == 8
    assert result.stderr == ""


def test_a_reader_that_has_seen_enough_is_no_error(database_url: str, place: Scratch) -> None:
    command = [str(RIVER), "migrate-get", "--all", "--up"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    process.wait(timeout=60)


@pytest.mark.parametrize("reader", ["gone", "full"])
def test_a_report_that_cannot_be_written_does_not_stop_the_migration(
    database_url: str, place: Scratch, reader: str
) -> None:
    command = [str(RIVER), "migrate-up", "--database-url", database_url, "--schema", place.name]
    if reader == "full":
        out = os.open("/dev/full", os.O_WRONLY)
    else:
        unread, out = os.pipe()
        os.close(unread)
    process = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(out)
    assert place.versions == list(range(1, 9))
    assert process.returncode == 1
    assert process.stderr.startswith("river: the migration is done, but its report cannot be written: ")
    assert len(process.stderr.splitlines()) == 1


def test_output_that_cannot_be_written_is_one_line() -> None:
    out = os.open("/dev/full", os.O_WRONLY)
    command = [str(RIVER), "migrate-get", "--all", "--up"]
    process = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(out)
    assert process.returncode == 1
    assert process.stderr == "river: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:S3cr3t%zz@h/d",
        "postgresql://u:pw S3cr3t@h/d",
        "postgresql://u:@S3cr3t@h/d",
        "postgresql://u:S3cr3t/pw@h/d",
        "postgresql+psycopg://u:@S3cr3t@h/d",
        "postgresql+asyncpg://u:p@S3cr3t@h/d",
    ],
)
def test_a_password_that_is_not_quoted_is_not_shown(bare: Run, url: str) -> None:
    result = bare("validate", "--database-url", url)
    assert result.code == 1
    assert "S3cr3t" not in result.err[0]
    assert "urllib.parse.quote(password, safe='')" in result.err[0]


def test_ctrl_c_while_it_waits_rolls_back_and_says_so(database_url: str, place: Scratch) -> None:
    command = [str(RIVER), "migrate-up", "--database-url", database_url, "--schema", place.name]
    with psycopg.connect(database_url) as gate:
        run(ConnectionExecutor(gate), migrate.exclusive(place.name, wait_ms=1000))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until_somebody_waits(place)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.strip() == "river: interrupted: what was not finished has been rolled back"
    assert place.versions == []


def test_a_terminal_shows_which_version_is_being_applied(database_url: str, place: Scratch) -> None:
    terminal, child = pty.openpty()
    command = [str(RIVER), "migrate-up", "--database-url", database_url, "--schema", place.name]
    environment = {**os.environ, "TERM": "xterm"}
    with psycopg.connect(database_url) as gate:
        run(ConnectionExecutor(gate), migrate.exclusive(place.name, wait_ms=1000))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=child, env=environment)
        os.close(child)
        until_somebody_waits(place)
        shown = b""
        while b"migration 001 (up) create river migration" not in shown:
            shown += os.read(terminal, 4096)
    out, _ = process.communicate(timeout=60)
    os.close(terminal)
    assert process.returncode == 0
    assert len(out.splitlines()) == 8
