"""PgBouncer in transaction mode in front of the server, where its program is installed.

It lends a connection for one transaction at a time, so that a session's LISTEN stays behind on a connection that
nobody reads.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from tests.support.proxy import proxy_to

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")

START_SECONDS = 20.0

_SETTINGS = """\
[databases]
* = host=127.0.0.1 port={server_port} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 5
ignore_startup_parameters = extra_float_digits,options
logfile = {folder}/log
"""


@contextmanager
def pooler_to(url: str) -> Generator[str]:
    """The libpq URL of the same database, through a PgBouncer of its own."""
    assert PROGRAM is not None
    # A network in front of a server that has only a Unix socket, which another user may not open.
    with proxy_to(url) as network, tempfile.TemporaryDirectory(prefix="river-pooler-") as folder:
        server = make_url(network.url)
        port = _free_port()
        settings = Path(folder, "settings.ini")
        user = server.username or "postgres"
        settings.write_text(_SETTINGS.format(server_port=server.port, user=user, port=port, folder=folder))
        # It refuses to run as root.
        owner = "nobody" if os.geteuid() == 0 else None
        if owner is not None:
            shutil.chown(folder, owner)
        process = subprocess.Popen([PROGRAM, "-q", settings], user=owner, stderr=subprocess.DEVNULL)
        try:
            made = f"postgresql://{user}@127.0.0.1:{port}/{server.database}"
            _wait_for(made, process)
            yield made
        finally:
            process.terminate()
            process.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
