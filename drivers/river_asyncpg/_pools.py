"""Where connections come from: a pool of the host's, or pools of the driver's own."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from typing import Any

import asyncpg

from river.errors import ConfigurationError, DatabaseError, ErrorClass

from ._library import Connection, Pool, loop_of

SCHEMES = ("postgresql", "postgres", "asyncpg")
REMEDY = (
    "write postgresql://user:password@host:5432/database, and what is special in the user or the password as its "
    "percent code, %40 for @"
)


class HostPool:
    """A pool that the host opens and closes."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        if not isinstance(pool, asyncpg.Pool):
            raise ConfigurationError(
                f"{type(pool).__name__} is no asyncpg pool: hand over what asyncpg.create_pool() returns, or take "
                "AsyncpgDriver.connect(url)"
            )

    async def pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        if loop_of(self._pool) is not loop:
            raise DatabaseError("the asyncpg pool belongs to another event loop: use it in the one that opened it")
        if self._pool.is_closing():
            raise DatabaseError(
                "the asyncpg pool is closed: keep it open for as long as River uses it",
                error_class=ErrorClass.CONNECTION_LOST,
            )
        return self._pool

    async def close(self) -> None:
        """It is the host's."""


class OwnPools:
    """A pool for each event loop, which is made when it is first needed."""

    def __init__(self, url: str, max_size: int) -> None:
        if max_size < 1:
            raise ConfigurationError(f"max_size={max_size}: a pool needs room for 1 connection or more")
        self._url = _checked(url)
        self._max_size = max_size
        self._pools: dict[AbstractEventLoop, Pool] = {}

    async def pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        if loop in self._pools:
            return self._pools[loop]
        for ended in [other for other in list(self._pools) if other.is_closed()]:
            self._pools.pop(ended, None)
        # It begins without connections, so one that loses this race has none to close.
        made: Pool = asyncpg.create_pool(self._url, min_size=0, max_size=self._max_size, connect=_connected)
        await made
        return self._pools.setdefault(loop, made)

    async def close(self) -> None:
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()


async def _connected(dsn: str | None = None, **options: Any) -> Connection:
    try:
        return await asyncpg.connect(dsn, **options)
    except ValueError:
        # asyncpg's message may have a part of the password in it, where that has characters that mean something.
        raise DatabaseError(f"the URL of the database cannot be read: {REMEDY}") from None


def _checked(url: str) -> str:
    scheme, colon, rest = url.partition("://")
    if not colon:
        raise ConfigurationError(f"that is no URL of a database: {REMEDY}")
    if scheme not in SCHEMES:
        raise ConfigurationError(f"asyncpg knows no database {scheme}://: {REMEDY}")
    return f"postgresql://{rest}"
