"""Adopting what the host holds: psycopg connections and cursors of either colour."""

from __future__ import annotations

from typing import Any

import psycopg

from river.errors import HandleClosedError
from river.operation import AsyncExecutor, Executor

from ._common import check_usable
from .asynchronous import AsyncConnectionExecutor
from .blocking import ConnectionExecutor


def adopt(handle: Any) -> Executor | AsyncExecutor | None:
    """An executor over a host's connection, or over the connection of its cursor; None for anything else.

    Raises:
        HandleClosedError: It is closed.
        TransactionRequiredError: It is in autocommit without a transaction, or its transaction has failed.
    """
    connection: Any = handle  # whatever it gives for rows
    match handle:
        case psycopg.Cursor() | psycopg.AsyncCursor():
            if connection.closed:
                raise HandleClosedError("the psycopg cursor is closed: hand over an open one, or its connection")
            return adopt(connection.connection)
        case psycopg.Connection():
            check_usable(connection)
            return ConnectionExecutor(connection)
        case psycopg.AsyncConnection():
            check_usable(connection)
            return AsyncConnectionExecutor(connection)
        case _:
            return None
