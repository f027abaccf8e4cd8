"""The same on asyncio."""

import asyncio
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from river import riverqueue
from river.riverqueue.driver import riversqlalchemy


@dataclass
class SyncArgs:
    account: int
    nested: dict[str, list[float]]

    kind: str = "sync_account"

    def to_json(self) -> str:
        return json.dumps({"account": self.account, "nested": self.nested})


class NightlyArgs:
    """No dataclass, and options that depend on the args."""

    kind = "nightly"

    def __init__(self, size: int) -> None:
        self.size = size

    def to_json(self) -> str:
        return json.dumps({"size": self.size})

    def insert_opts(self) -> riverqueue.InsertOpts:
        return riverqueue.InsertOpts(queue="large" if self.size > 10 else "small")


def show(result: riverqueue.InsertResult) -> None:
    job = result.job
    shown = [job.kind, job.args, job.queue, job.state, job.priority, job.max_attempts, job.tags, job.metadata]
    print(json.dumps([*shown, result.unique_skipped_as_duplicated]))


async def main() -> None:
    engine = create_async_engine(os.environ["DATABASE_URL"])
    client = riverqueue.AsyncClient(riversqlalchemy.AsyncDriver(engine))

    show(await client.insert(SyncArgs(1, {"a": [1.5, 2.0]})))
    at = datetime(2041, 1, 1, tzinfo=UTC)
    show(await client.insert(NightlyArgs(100), insert_opts=riverqueue.InsertOpts(scheduled_at=at, tags=["night"])))
    # Side by side, each in a transaction of its own.
    for result in await asyncio.gather(*(client.insert(NightlyArgs(5)) for _ in range(8))):
        show(result)
    print(await client.insert_many([SyncArgs(2, {}), NightlyArgs(6), riverqueue.InsertManyParams(NightlyArgs(70))]))

    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE account (id integer)"))
        await connection.execute(text("INSERT INTO account VALUES (3)"))
        show(await client.insert_tx(connection, SyncArgs(3, {})))
        print(await client.insert_many_tx(connection, [SyncArgs(4, {}), SyncArgs(5, {})]))
    async with AsyncSession(engine) as session:
        show(await client.insert_tx(session, SyncArgs(6, {"b": []})))
        await session.rollback()
        show(await client.insert_tx(session, SyncArgs(7, {"c": []})))
        await session.commit()
    async with engine.connect() as connection:
        of_connection = riverqueue.AsyncClient(riversqlalchemy.AsyncDriver(connection))
        await of_connection.insert(SyncArgs(8, {}))
        await connection.rollback()
        show(await of_connection.insert(SyncArgs(9, {})))
        print(await of_connection.insert_many([SyncArgs(10, {})]))
        await connection.commit()
    await engine.dispose()


asyncio.run(main())
