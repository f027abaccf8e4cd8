"""An asyncpg connection of the host's, in whose transaction River works."""

from __future__ import annotations

import asyncpg

from river.errors import HandleClosedError, HandleError, TransactionRequiredError
from river.operation import AsyncExecutor, Database, Rows, Statement

from ._library import Connection, is_lost, run


class HandleExecutor(AsyncExecutor):
    """Runs statements on a connection of the host's; errors are asyncpg's own."""

    database: Database = "postgresql"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def execute(self, statement: Statement) -> Rows:
        return await run(self._connection, statement)


def adopt(handle: object) -> AsyncExecutor | None:
    """An executor in the transaction of an `asyncpg.Connection`, or of the proxy of one that a pool gives out.

    None for any other object.

    Raises:
        HandleClosedError: The connection is closed, or its pool has it back.
        TransactionRequiredError: No transaction is open on it. (Whether an open one has failed, only the server knows:
            then asyncpg's own error passes.)
        HandleError: It is a pool.
    """
    connection: Connection = handle
    if isinstance(handle, asyncpg.Pool):
        raise HandleError(
            "an asyncpg pool holds no transaction: hand over a connection of it, in "
            "`async with pool.acquire() as connection, connection.transaction():`"
        )
    if not isinstance(handle, asyncpg.Connection):
        return None
    if is_lost(connection):
        raise HandleClosedError("the asyncpg connection is closed, or its pool has it back: hand over an open one")
    if not connection.is_in_transaction():
        raise TransactionRequiredError(
            "no transaction is open on the asyncpg connection, so the job would be committed by itself: open one with "
            "`async with connection.transaction():`"
        )
    return HandleExecutor(connection)
