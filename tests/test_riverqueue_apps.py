"""An application of the official insert-only client runs on `river.riverqueue` after its imports are changed.

`tests/riverqueue_apps` are such applications. Where the official package is installed, too, they run on both, and the
rows are compared; it is no dependency of the project, so elsewhere that comparison is skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from river import riverqueue
from tests.support.riverqueue import (
    APPS,
    NOT_HERE,
    assert_same_shape,
    belongs_to,
    comparable_rows,
    of_schema,
    run,
    run_program,
)
from tests.support.snippets import ROOT, mypy_complaints, pyright_complaints, rows, snippets

BLOCKING = ("postgresql+psycopg", "postgresql+psycopg2", "postgresql+pg8000")
ASYNCIO = ("postgresql+psycopg", "postgresql+asyncpg")

RUNS = [
    *(pytest.param("blocking", driver, id=f"blocking-{driver}") for driver in BLOCKING),
    *(pytest.param("asynchronous", driver, id=f"asynchronous-{driver}") for driver in ASYNCIO),
    pytest.param("unique", "postgresql+psycopg", id="unique"),
]

needs_official = pytest.mark.skipif(
    importlib.util.find_spec("riverqueue") is None,
    reason="the official package riverqueue is not installed; pip install --target FOLDER riverqueue, and PYTHONPATH",
)


@pytest.fixture
def jobs(schema_connection: psycopg.Connection, schema: str) -> Callable[[str], list[tuple[object, ...]]]:
    """Some columns of all jobs that are committed."""
    return lambda columns: rows(schema_connection, schema, columns, "river_job")


Jobs = Callable[[str], list[tuple[object, ...]]]


# Whole applications


@pytest.mark.slow
@pytest.mark.parametrize(("app", "driver"), RUNS)
def test_an_application_runs_after_its_imports_are_changed(
    app: str, driver: str, database_url: str, schema: str, jobs: Jobs
) -> None:
    printed = run(app, of_schema(database_url, schema, driver))
    kinds = [kind for (kind,) in jobs("kind")]
    match app:
        case "blocking":
            assert printed[-1] == "['a']"
            assert printed[7:10] == ["2", "20", "20"]
            assert printed[10] == "0"
            assert len(kinds) == 5 + 1 + 1 + 2 + 20 + 2
            assert jobs("kind args state queue priority max_attempts tags")[:4] == [
                ("report", {"month": 1}, "available", "reports", 4, 3, ["monthly"]),
                ("report", {"month": 2}, "available", "reports", 2, 3, ["yearly", "big_one"]),
                ("confirm_order", {"order_id": 0, "customer": "Ünïcode ☕"}, "scheduled", "default", 1, 25, []),
                ("confirm_order", {"order_id": 0, "customer": "past"}, "scheduled", "default", 1, 25, []),
            ]
            assert kinds.count("confirm_order") == 2 + 1 + 1 + 20 + 2
        case "asynchronous":
            accounts = [args["account"] for kind, args in args_by_kind(jobs) if kind == "sync_account"]
            assert accounts == [1, 2, 3, 4, 5, 7, 9, 10]
            assert sorted(str(queue) for kind, queue in jobs("kind queue") if kind == "nightly") == (
                ["large"] * 2 + ["small"] * 9
            )
        case _:
            accounts = [args["account_id"] for kind, args in args_by_kind(jobs) if kind == "reconcile"]
            assert accounts == [1, 2, 3, 4]
            assert [queue for kind, queue in jobs("kind queue") if kind == "clean"] == [
                "one",
                "two",
                "three",
                "four",
                "four",
            ]
            assert json.loads(printed[11]) == [False] + [True] * 7
            assert printed[-1] == "insert_many takes no unique jobs"


@needs_official
@pytest.mark.slow
@pytest.mark.parametrize(("app", "driver"), RUNS)
def test_the_official_client_prints_and_writes_the_same(
    app: str,
    driver: str,
    database_url: str,
    schema: str,
    schema_connection: psycopg.Connection,
    tmp_path: Path,
) -> None:
    differs = {"unique_key", "unique_states"} if app == "unique" else set[str]()
    url = of_schema(database_url, schema, driver)
    ours = run(app, url), comparable_rows(schema_connection, schema)
    schema_connection.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(schema, "river_job")))
    for table in ("shop_order", "account"):
        schema_connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, table)))
    theirs = run(app, url, official_in=tmp_path), comparable_rows(schema_connection, schema)
    assert ours[0] == theirs[0]
    assert len(ours[1]) == len(theirs[1])
    for our_row, their_row in zip(ours[1], theirs[1], strict=True):
        assert {name for name in our_row if our_row[name] != their_row[name]} <= differs


@needs_official
def test_every_name_field_and_parameter_of_the_official_client_is_here() -> None:
    for module in (
        "",
        ".client",
        ".insert_opts",
        ".job",
        ".driver",
        ".driver.driver_protocol",
        ".driver.riversqlalchemy",
    ):
        theirs = importlib.import_module(f"riverqueue{module}")
        ours = importlib.import_module(f"river.riverqueue{module}")
        for name, value in vars(theirs).items():
            if name.startswith("_") or name in NOT_HERE or not belongs_to(theirs, name, value):
                continue
            assert hasattr(ours, name), f"{ours.__name__}.{name}"
            if inspect.isclass(value):
                assert_same_shape(getattr(ours, name), value)


@pytest.mark.slow
def test_mypy_accepts_the_applications_under_its_strictest_rules() -> None:
    assert mypy_complaints(APPS) == ""


@pytest.mark.slow
def test_pyright_accepts_the_applications_under_its_strictest_rules(tmp_path: Path) -> None:
    for app in APPS.glob("*.py"):
        (tmp_path / app.name).write_text(app.read_text())
    assert pyright_complaints(tmp_path) == ""


# The page


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """The programs of docs/from-riverqueue.md: one before, in the official client's words, and one after."""
    before, after = snippets("docs/from-riverqueue.md")
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(after)
    return tmp_path


@pytest.mark.slow
def test_the_programs_of_the_page_insert_what_it_says(
    pages: Path, database_url: str, schema: str, jobs: Jobs, schema_connection: psycopg.Connection
) -> None:
    for page in ("before.py", "after.py"):
        run_program(pages / page, of_schema(database_url, schema, "postgresql+psycopg"))
        shown = jobs("kind args queue state")
        assert shown == [
            ("sort", {"strings": ["whale", "tiger"]}, "default", "available"),
            ("sort", {"strings": ["bear"]}, "sorting", "available"),
            ("sort", {"strings": ["a"]}, "default", "available"),
            ("sort", {"strings": ["b"]}, "default", "available"),
        ], page
        schema_connection.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(schema, "river_job")))


@pytest.mark.slow
def test_mypy_accepts_the_programs_of_the_page(pages: Path) -> None:
    assert mypy_complaints(pages) == ""


@pytest.mark.slow
def test_pyright_accepts_the_programs_of_the_page(pages: Path) -> None:
    assert pyright_complaints(pages) == ""


def test_the_page_names_everything_that_the_layer_exports() -> None:
    page = (ROOT / "docs/from-riverqueue.md").read_text()
    assert [name for name in riverqueue.__all__ if f"`{name}`" not in page] == []


def args_by_kind(jobs: Jobs) -> list[tuple[Any, Any]]:
    return [(kind, args) for kind, args in jobs("kind args")]
