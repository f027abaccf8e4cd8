"""River on asyncpg: a driver over its pools, and an adopter of its connections.

pool = await asyncpg.create_pool("postgresql://...")
client = river.AsyncClient(pool)

async with pool.acquire() as connection, connection.transaction():
    await client.insert_tx(connection, args)
"""

from __future__ import annotations

from typing import Any

import asyncpg

from river.driver import Colour
from river.errors import ConfigurationError

from .driver import AsyncpgDriver

__all__ = ["AsyncpgDriver", "driver_for"]


def driver_for(source: object, colour: Colour) -> AsyncpgDriver | None:
    """A driver over an `asyncpg.Pool`, or one with pools of its own for an `asyncpg://` URL; None for anything else.

    Raises:
        ConfigurationError: A pool is given to something blocking, which has an event loop of its own.
    """
    if isinstance(source, str) and source.startswith("asyncpg://"):
        return AsyncpgDriver.connect(source)
    pool: Any = source  # whatever class its records have
    if not isinstance(source, asyncpg.Pool):
        return None
    if colour == "blocking":
        raise ConfigurationError(
            "an asyncpg pool works in its own event loop only: take the asyncio class of River's (AsyncClient, "
            "AsyncMigrator), or give a URL instead of the pool"
        )
    return AsyncpgDriver(pool)
