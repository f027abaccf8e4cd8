"""Applications of the official insert-only client: run on either client, and what there is to compare afterwards."""

from __future__ import annotations

import dataclasses
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

from tests.support.snippets import ROOT
from tests.support.urls import with_driver

APPS = ROOT / "tests" / "riverqueue_apps"


def belongs_to(module: ModuleType, name: str, value: object) -> bool:
    """Whether a name is the module's own, or one that a package exports, and not one that it happens to import."""
    made_in = getattr(value, "__module__", "")
    is_package = hasattr(module, "__path__")
    return made_in == module.__name__ or (is_package and made_in.startswith("riverqueue.")) or name.isupper()


NOT_HERE = {
    "AsyncExecutorProtocol",
    "ExecutorProtocol",
    "JobGetByKindAndUniquePropertiesParam",
    "JobInsertParams",
    "fnv1_hash",
}
"""What only a driver of the official client's needs."""


def assert_same_shape(ours: Any, theirs: Any) -> None:
    """Fields and their order, defaults, methods and their parameters."""
    if dataclasses.is_dataclass(theirs):
        mine = [(field.name, field.default) for field in dataclasses.fields(ours)]
        assert mine == [(field.name, field.default) for field in dataclasses.fields(theirs)], ours
    for name, method in vars(theirs).items():
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            if "Driver" in theirs.__name__ and name != "__init__":
                continue  # how a driver does it is its own business
            mine = parameters(getattr(ours, name))
            assert mine == parameters(method), f"{ours.__name__}.{name}"


def parameters(method: Callable[..., object]) -> list[tuple[str, object]]:
    return [
        (name, parameter.default)
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        and parameter.kind is not inspect.Parameter.VAR_POSITIONAL
    ]


def of_libpq(database_url: str, schema: str) -> str:
    """The database's URL, for sessions that find the tables of one schema."""
    return database_url.replace("search_path%3D", f"search_path%3D{schema}")


def of_schema(database_url: str, schema: str, driver: str) -> sa.URL:
    return with_driver(of_libpq(database_url, schema), driver)


def run(app: str, url: sa.URL, *, official_in: Path | None = None) -> list[str]:
    """What an application prints; of the official client, if there is a folder for its source."""
    path = APPS / f"{app}.py"
    if official_in is not None:
        theirs = official_in / path.name
        source = path.read_text().replace("from river import riverqueue\n", "import riverqueue\n")
        theirs.write_text(source.replace("from river.riverqueue.", "from riverqueue."))
        path = theirs
    return run_program(path, url, "-W", "error")


def run_program(path: Path, url: sa.URL, *options: str) -> list[str]:
    """What a program prints; to standard error nothing."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "DATABASE_URL": url.render_as_string(hide_password=False),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    # tests.support.urls teaches pg8000 the setting that makes a session find the tables.
    starts = "import runpy, sys, tests.support.urls; runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, *options, "-c", starts, str(path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def comparable_rows(connection: psycopg.Connection, schema: str) -> list[dict[str, Any]]:
    """All jobs, but for their ids and the instants of the run."""
    query = sql.SQL("SELECT to_jsonb(job), scheduled_at - created_at FROM {} AS job ORDER BY id")
    compared: list[dict[str, Any]] = []
    for row, ahead in connection.execute(query.format(sql.Identifier(schema, "river_job"))):
        del row["id"], row["created_at"]
        if abs(ahead) < timedelta(minutes=1):
            row["scheduled_at"] = "now"
        compared.append(row)
    return compared
