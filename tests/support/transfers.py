"""Worker processes that move money, each in one transaction with the completion of its job.

    python -m tests.support.transfers LIBRARY URL SCHEMA CLIENT_ID QUEUE[,QUEUE ...]

A transfer takes from one account, gives to another, and writes a line into the ledger. Nothing in the tables keeps
it from happening twice or by half. A job may ask for the death of its process at its first attempt, at one of the
moments in `DEATHS`; the process then kills itself, without any cleaning up.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import psycopg
from psycopg_pool import ConnectionPool
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import river
from tests.support.urls import with_driver

Library = Literal["psycopg", "asyncpg"]
LIBRARIES: Final[tuple[Library, ...]] = ("psycopg", "asyncpg")
"""A blocking pool of psycopg's with ``def`` workers; SQLAlchemy on asyncpg with ``async def`` workers."""

DEATHS: Final = ("before the work", "before the completion", "before the commit", "after the commit")

SLOTS: Final = 8

# Locked in the order of their ids, so that transfers in opposite directions wait for each other and never deadlock.
_LOCK: Final = "SELECT id FROM {schema}.account WHERE id IN (:source, :target) ORDER BY id FOR UPDATE"
_MOVE: Final = """
UPDATE {schema}.account
SET balance = balance + CASE id WHEN :source THEN -1 ELSE 1 END * :amount
WHERE id IN (:source, :target)
"""
_WRITE: Final = """
INSERT INTO {schema}.ledger (job_id, attempt, source, target, amount)
VALUES (:job_id, :attempt, :source, :target, :amount)
"""


@dataclass
class Transfer:
    """Moves an amount from one account to another.

    Attributes:
        death: The moment at which the first attempt's process dies.
    """

    kind: ClassVar[str] = "transfer"
    source: int
    target: int
    amount: int
    death: str | None = None


def tables(schema: str, accounts: int, balance: int) -> list[str]:
    """The statements that make the accounts, with so much on each, and an empty ledger."""
    return [
        f"CREATE TABLE {schema}.account (id int PRIMARY KEY, balance int NOT NULL)",
        f"INSERT INTO {schema}.account SELECT id, {balance} FROM generate_series(1, {accounts}) AS id",
        # No unique constraint: what is written twice shall be found, not refused.
        f"CREATE TABLE {schema}.ledger (job_id bigint, attempt int, source int, target int, amount int)",
    ]


def command(library: Library, url: str, schema: str, client_id: str, *queues: str) -> list[str]:
    """The command of a worker process."""
    return [sys.executable, "-m", __name__, library, url, schema, client_id, ",".join(queues)]


def _die_if_asked(job: river.Job[Transfer], moment: str) -> None:
    if job.attempt == 1 and job.args.death == moment:
        os.kill(os.getpid(), signal.SIGKILL)


def _values(job: river.Job[Transfer]) -> dict[str, int]:
    args = job.args
    return {
        "job_id": job.id,
        "attempt": job.attempt,
        "source": args.source,
        "target": args.target,
        "amount": args.amount,
    }


def _statements(schema: str) -> list[str]:
    return [statement.format(schema=schema) for statement in (_LOCK, _MOVE, _WRITE)]


def work_with_psycopg(url: str, schema: str, client_id: str, queues: dict[str, int]) -> None:
    """Work until told to stop: a blocking client, ``def`` workers, transactions of psycopg's."""
    workers = river.Workers()
    statements = [re.sub(r":(\w+)", r"%(\1)s", statement).encode() for statement in _statements(schema)]

    @workers.work()
    def transfer(job: river.Job[Transfer], ctx: river.WorkContext) -> None:
        _die_if_asked(job, "before the work")
        with pool.connection() as connection:
            for statement in statements:
                connection.execute(statement, _values(job))
            _die_if_asked(job, "before the completion")
            ctx.complete_tx(connection)
            _die_if_asked(job, "before the commit")
        _die_if_asked(job, "after the commit")

    kwargs = {"application_name": client_id}
    with ConnectionPool[psycopg.Connection](url, kwargs=kwargs, min_size=1, max_size=SLOTS + 3) as pool:
        river.Client(pool, schema=schema, id=client_id, workers=workers, queues=queues).run()


async def work_with_asyncpg(url: str, schema: str, client_id: str, queues: dict[str, int]) -> None:
    """Work until told to stop: an asyncio client, ``async def`` workers, sessions of SQLAlchemy's on asyncpg."""
    workers = river.Workers()
    statements = [text(statement) for statement in _statements(schema)]

    @workers.work()
    async def transfer(job: river.Job[Transfer], ctx: river.WorkContext) -> None:
        _die_if_asked(job, "before the work")
        async with AsyncSession(engine) as session, session.begin():
            for statement in statements:
                await session.execute(statement, _values(job))
            _die_if_asked(job, "before the completion")
            await ctx.complete_tx(session)
            _die_if_asked(job, "before the commit")
        _die_if_asked(job, "after the commit")

    engine = create_async_engine(
        with_driver(url, "postgresql+asyncpg"),
        connect_args={"server_settings": {"application_name": client_id}},
        pool_size=SLOTS + 3,
    )
    await river.AsyncClient(engine, schema=schema, id=client_id, workers=workers, queues=queues).run()
    await engine.dispose()


def main(library: str, *place: str) -> None:
    """Work with one of LIBRARIES until SIGTERM."""
    url, schema, client_id, names = place
    queues = dict.fromkeys(names.split(","), SLOTS)
    if library == "psycopg":
        work_with_psycopg(url, schema, client_id, queues)
    else:
        asyncio.run(work_with_asyncpg(url, schema, client_id, queues))


if __name__ == "__main__":
    main(*sys.argv[1:])
