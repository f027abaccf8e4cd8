"""The whole thing on screen: install.py, then service.py beside two of worker.py, then report.py.

    service ---- one transaction: an order, its job ----> PostgreSQL <---- one transaction: a shipment, ---- workers
                                                                           its job is completed

Each is a process of its own, as in real life, and finds the database in DATABASE_URL. This file only starts them,
shows how far they are, and ends them. It works in a schema of its own, and leaves nothing behind.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

import sqlalchemy as sa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

CLONE = Path(__file__).parent.parent.parent
WORKERS = 2
AT_MOST_SECONDS = 60.0
STOP_SECONDS = 10.0
LOOK_EVERY_SECONDS = 0.1
LOG_LINES = 40

COUNTS = sa.text("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM river_job WHERE state = 'completed')")

console = Console()


def main() -> int:
    """Run the demo; 0 if everything was as it must be."""
    given = os.environ.get("DATABASE_URL")
    if not given:
        console.print("DATABASE_URL is not set; `make demo` starts a server and sets it")
        return 2
    # So that the `with` blocks below are left in any case, and put everything away.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    try:
        with schema_of_its_own(sa.make_url(given)) as url, tempfile.TemporaryFile("w+") as log:
            code = Demo(url, log).run()
            if code:
                log.seek(0)
                console.print(*log.readlines()[-LOG_LINES:], sep="", markup=False, highlight=False)
            return code
    except KeyboardInterrupt:
        console.print("interrupted; everything is put away")
        return 128 + signal.SIGINT


def interrupted(number: int, _frame: FrameType | None) -> None:
    """The handler of signals that would otherwise end this process on the spot."""
    sys.exit(128 + number)


@contextmanager
def schema_of_its_own(url: sa.URL) -> Generator[sa.URL]:
    """A schema, and the URL under which it is the only one; dropped with all that is in it."""
    name = f"river_demo_{secrets.token_hex(4)}"
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"))
    try:
        with engine.begin() as connection:
            connection.execute(sa.schema.CreateSchema(name))
        console.print(f"Schema [bold]{name}[/] is made for this demo, and dropped at the end.")
        yield url.update_query_dict({"options": f"-csearch_path={name}"})
    finally:
        with engine.begin() as connection:
            connection.execute(sa.schema.DropSchema(name, cascade=True, if_exists=True))
        engine.dispose()


class DemoError(Exception):
    """A process ended before its time, or all of it took too long."""


class Demo:
    """The processes, and what is shown of them.

    Args:
        url: The database.
        log: Takes what the processes log; shown if something goes wrong.
    """

    def __init__(self, url: sa.URL, log: IO[str]) -> None:
        self.engine = sa.create_engine(url.set(drivername="postgresql+psycopg"))
        self.environment = {**os.environ, "DATABASE_URL": url.render_as_string(hide_password=False)}
        self.log = log

    def run(self) -> int:
        """Everything, from install to report; the exit code."""
        try:
            with self.started("install") as install:
                if install.wait(AT_MOST_SECONDS) != 0:
                    raise DemoError("the tables could not be made")
            with ExitStack() as running:
                workers = [running.enter_context(self.started("worker")) for _ in range(WORKERS)]
                service = running.enter_context(self.started("service", stdout=subprocess.PIPE))
                self.watch(service, workers)
                summary, _ = service.communicate()
            report = subprocess.run(command("report"), cwd=CLONE, env=self.environment, input=summary, text=True)
        except DemoError as error:
            console.print(f"[red]{error}[/]")
            return 1
        finally:
            self.engine.dispose()
        return report.returncode

    @contextmanager
    def started(self, name: str, stdout: int | None = None) -> Generator[subprocess.Popen[str]]:
        """A program, which is asked to stop, and waited for, when the block is left."""
        process = subprocess.Popen(
            command(name),
            cwd=CLONE,
            env=self.environment,
            stdout=stdout or self.log,
            stderr=self.log,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process alone, which then stops the others
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def watch(self, service: subprocess.Popen[str], workers: list[subprocess.Popen[str]]) -> None:
        """Show progress until the service has ended and every job is completed."""
        give_up_at = time.monotonic() + AT_MOST_SECONDS
        with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console) as bars:
            taken = bars.add_task("orders taken", total=None)
            shipped = bars.add_task("orders shipped", total=None)
            while True:
                taking = service.poll() is None  # asked first, so that the count below is final when it is over
                orders, completed = self.counts()
                bars.update(taken, completed=orders, total=None if taking else orders)
                bars.update(shipped, completed=completed, total=orders)
                if service.returncode == 0 and completed == orders:
                    return
                if service.returncode:
                    raise DemoError("the service failed")
                if any(worker.poll() is not None for worker in workers):
                    raise DemoError("a worker ended by itself")
                if time.monotonic() > give_up_at:
                    raise DemoError(f"only {completed} of {orders} orders were shipped in {AT_MOST_SECONDS:g} s")
                time.sleep(LOOK_EVERY_SECONDS)

    def counts(self) -> tuple[int, int]:
        """Orders, and completed jobs."""
        with self.engine.connect() as connection:
            orders, completed = connection.execute(COUNTS).one()
            return int(orders), int(completed)


def command(name: str) -> list[str]:
    """The command of one of the programs of this folder."""
    return [sys.executable, "-m", f"examples.quickstart.{name}"]


if __name__ == "__main__":
    sys.exit(main())
