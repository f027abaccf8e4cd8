"""River on SQLAlchemy: drivers over its engines, adopters of its connections and sessions, and River's tables."""

from __future__ import annotations

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from river.driver import Colour

from .asynchronous import AsyncSQLAlchemyDriver
from .blocking import SQLAlchemyDriver
from .schema import (
    Tables,
    metadata,
    river_job,
    river_leader,
    river_migration,
    river_notification,
    river_queue,
    tables,
)

__all__ = [
    "AsyncSQLAlchemyDriver",
    "SQLAlchemyDriver",
    "Tables",
    "driver_for",
    "metadata",
    "river_job",
    "river_leader",
    "river_migration",
    "river_notification",
    "river_queue",
    "tables",
]

_ASYNCIO_ONLY = ("asyncpg", "aiosqlite", "psycopg_async")


def driver_for(source: object, colour: Colour) -> SQLAlchemyDriver | AsyncSQLAlchemyDriver | None:
    """A driver for an engine, or for a ``dialect+driver://`` URL with an engine of its own; None for anything else.

    Of a DB-API that has both colours, psycopg, the client's decides.
    """
    if isinstance(source, Engine):
        return SQLAlchemyDriver(source)
    if isinstance(source, AsyncEngine):
        return AsyncSQLAlchemyDriver(source)
    if not isinstance(source, str):
        return None
    library = make_url(source).get_driver_name()
    if library in _ASYNCIO_ONLY or (library == "psycopg" and colour == "asyncio"):
        return AsyncSQLAlchemyDriver.owning(create_async_engine(source))
    return SQLAlchemyDriver.owning(create_engine(source))
