"""River on SQLAlchemy: drivers over its engines, adopters of its connections and sessions, and River's tables."""

from __future__ import annotations

from sqlalchemy import URL, Engine, create_engine, exc
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from river.driver import Colour
from river.errors import ConfigurationError

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
    if not isinstance(source, str | URL):
        return None
    engine = _engine_for(source, colour)
    return AsyncSQLAlchemyDriver.owning(engine) if isinstance(engine, AsyncEngine) else SQLAlchemyDriver.owning(engine)


def _engine_for(url: str | URL, colour: Colour) -> Engine | AsyncEngine:
    try:
        parsed = make_url(url)
        if "@" in (parsed.host or ""):
            raise ValueError("an @ of the password has cut the URL in two")
        library = parsed.get_driver_name()
        if library in _ASYNCIO_ONLY or (library == "psycopg" and colour == "asyncio"):
            return create_async_engine(url)
        return create_engine(url)
    except (ImportError, exc.NoSuchModuleError) as error:
        raise ConfigurationError(f"the library that the database URL names cannot be used: {error}") from error
    except (ValueError, exc.ArgumentError):
        # Neither the URL nor SQLAlchemy's words, in which a password would be the port that it was taken for.
        raise ConfigurationError(
            "the database URL cannot be read: write postgresql+psycopg://user:password@host:port/database, with the "
            "password as urllib.parse.quote(password, safe='') gives it"
        ) from None
