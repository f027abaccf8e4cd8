"""The colour of a handle decides the type of the result, for both type checkers and without a cast.

A checker runs on a program, `PROGRAM`; a line that must be an error ends in a comment that says so. Any other error,
and any of these that is none, fails. That nothing awaits the coroutines is no error here: they are only looked at.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
import sqlite3
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, assert_type

import asyncpg
import psycopg
import river
from asyncpg.pool import PoolConnectionProxy
from psycopg.rows import DictRow, TupleRow
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker


@dataclass
class Mail:
    kind: ClassVar[str] = "mail"
    to: str


class AppSession(Session):
    pass


class OwnHandle:
    def execute(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        return []

    def close(self) -> None:
        pass


class OwnAsyncHandle:
    async def execute(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        return []

    async def close(self) -> None:
        pass


def all_blocking(client: river.Client, other: river.AsyncClient, ctx: river.WorkContext) -> None:
@BLOCKING@

def all_asyncio(client: river.Client, other: river.AsyncClient, ctx: river.WorkContext) -> None:
@ASYNCIO@

async def awaited(client: river.AsyncClient, session: AsyncSession, ctx: river.WorkContext) -> None:
    inserted = await client.insert_tx(session, Mail("a"), queue="mail")
    assert_type(inserted, river.InsertResult[Mail])
    assert_type(inserted.job, river.Job[Mail])
    assert_type(inserted.job.args.to, str)
    assert_type(await client.insert_many_tx(session, [Mail("a")]), list[river.InsertResult[Any]])
    assert_type(await client.job_get_tx(session, 1), river.JobRow)
    assert_type(await ctx.complete_tx(session), river.Job[Any])


def refused(
    client: river.Client,
    other: river.AsyncClient,
    ctx: river.WorkContext,
    session: Session,
    engine: Engine,
    async_engine: AsyncEngine,
    sessions: sessionmaker[Session],
    async_sessions: async_sessionmaker[AsyncSession],
    pool: ConnectionPool,
    async_pool: AsyncConnectionPool,
) -> None:
    client.insert_tx(engine, Mail("a"))  # error
    client.insert_tx(async_engine, Mail("a"))  # error
    client.insert_tx(sessions, Mail("a"))  # error
    client.insert_tx(async_sessions, Mail("a"))  # error
    client.insert_tx(pool, Mail("a"))  # error
    client.insert_tx(async_pool, Mail("a"))  # error
    client.insert_tx("postgresql://somewhere", Mail("a"))  # error
    client.insert_tx(None, Mail("a"))  # error
    client.insert_tx(Mail("a"), session)  # error
    client.insert_tx(session, object())  # error
    client.insert_tx(session, Mail("a"), prority=1)  # error
    client.insert_tx(session, Mail("a"), priority="first")  # error
    client.insert_many_tx(engine, [Mail("a")])  # error
    client.insert_many_tx(session, [object()])  # error
    client.job_get_tx(engine, 1)  # error
    client.job_get_tx(session, "1")  # error
    other.insert_tx(engine, Mail("a"))  # error
    ctx.complete_tx(engine)  # error
    ctx.complete_tx(async_engine)  # error
    ctx.complete_tx("postgresql://somewhere")  # error
"""

BLOCKING = [
    "psycopg.Connection",
    "psycopg.Connection[TupleRow]",
    "psycopg.Connection[DictRow]",
    "psycopg.Cursor",
    "psycopg.Cursor[TupleRow]",
    "psycopg.ClientCursor[DictRow]",
    "psycopg.ServerCursor[TupleRow]",
    "Connection",
    "Session",
    "scoped_session[Session]",
    "AppSession",
    "scoped_session[AppSession]",
    "sqlite3.Connection",
    "OwnHandle",
]

ASYNCIO = [
    "psycopg.AsyncConnection",
    "psycopg.AsyncConnection[TupleRow]",
    "psycopg.AsyncConnection[DictRow]",
    "psycopg.AsyncCursor",
    "psycopg.AsyncCursor[TupleRow]",
    "psycopg.AsyncClientCursor[DictRow]",
    "AsyncConnection",
    "AsyncSession",
    "async_scoped_session[AsyncSession]",
    "asyncpg.Connection",
    "asyncpg.Connection[asyncpg.Record]",
    "PoolConnectionProxy",
    "OwnAsyncHandle",
]

CALLS = {
    'client.insert_tx(handle, Mail("a"))': "river.InsertResult[Mail]",
    'other.insert_tx(handle, Mail("a"), river.InsertOpts(queue="mail"))': "river.InsertResult[Mail]",
    'client.insert_tx(handle, river.JobArgs("mail", {}), priority=2)': "river.InsertResult[river.JobArgs]",
    'client.insert_many_tx(handle, [Mail("a"), river.InsertManyParams(Mail("b"))])': "list[river.InsertResult[Any]]",
    "client.job_get_tx(handle, 1)": "river.JobRow",
    "other.job_get_tx(handle, 1)": "river.JobRow",
    "ctx.complete_tx(handle)": "river.Job[Any]",
}


def checks(handle: str, result: str) -> str:
    """A function that makes each call with a handle of one type."""
    asserted = [f"        assert_type({call}, {result % type_})" for call, type_ in CALLS.items()]
    name = re.sub(r"\W+", "_", handle).strip("_").lower()
    return "\n".join([f"    def with_{name}(handle: {handle}) -> None:", *asserted, ""])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, in a folder where nothing else is found by accident."""
    blocking = "\n".join(checks(handle, "%s") for handle in BLOCKING)
    asyncio = "\n".join(checks(handle, "Coroutine[Any, Any, %s]") for handle in ASYNCIO)
    file = tmp_path_factory.mktemp("typing") / "program.py"
    file.write_text(PROGRAM.replace("@BLOCKING@", blocking).replace("@ASYNCIO@", asyncio), encoding="utf-8")
    return file


def expected_errors(program: Path) -> set[int]:
    lines = program.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# error")}


@pytest.mark.slow
def test_mypy_strict_knows_the_result_of_every_handle(program: Path) -> None:
    options = ["--strict", "--disable-error-code=unused-coroutine", "--config-file=", f"--cache-dir={os.devnull}"]
    command = [sys.executable, "-m", "mypy", *options, program.name]
    checked = subprocess.run(command, cwd=program.parent, capture_output=True, text=True)
    found = re.findall(r"^program\.py:(\d+): error: (.*)$", checked.stdout, re.MULTILINE)
    unexpected = [f"{line}: {text}" for line, text in found if int(line) not in expected_errors(program)]
    assert unexpected == [], checked.stdout
    assert {int(line) for line, _ in found} == expected_errors(program), checked.stdout + checked.stderr


@pytest.mark.slow
def test_pyright_strict_knows_the_result_of_every_handle(program: Path) -> None:
    ignored = dict.fromkeys(("reportUnusedCoroutine", "reportUnusedFunction"), "none")
    settings = {"include": [program.name], "typeCheckingMode": "strict", **ignored}
    program.with_name("pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    checked = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, env=environment)
    found = {
        (diagnostic["range"]["start"]["line"] + 1, diagnostic["message"])
        for diagnostic in json.loads(checked.stdout)["generalDiagnostics"]
        if diagnostic["severity"] == "error"
    }
    unexpected = sorted((line, text) for line, text in found if line not in expected_errors(program))
    assert unexpected == []
    assert {line for line, _ in found} == expected_errors(program)
