"""Adopting what the host holds: psycopg connections and cursors of either colour."""

from __future__ import annotations

from typing import Any

import psycopg

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
    if isinstance(handle, psycopg.Cursor | psycopg.AsyncCursor):
        handle = handle.connection
    if isinstance(handle, psycopg.Connection):
        check_usable(handle)
        return ConnectionExecutor(handle)
    if isinstance(handle, psycopg.AsyncConnection):
        check_usable(handle)
        return AsyncConnectionExecutor(handle)
    return None
