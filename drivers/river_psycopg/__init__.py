"""River on psycopg 3: drivers over its connection pools, and adopters of its connections and cursors."""

from __future__ import annotations

from typing import Any

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from river.driver import Colour

from .asynchronous import AsyncPsycopgDriver
from .blocking import PsycopgDriver

__all__ = ["AsyncPsycopgDriver", "PsycopgDriver", "driver_for"]


def driver_for(source: Any, colour: Colour) -> PsycopgDriver | AsyncPsycopgDriver | None:
    """A driver for a pool, or for a ``postgresql://`` URL with a pool of its own; None for anything else."""
    pool: Any = source  # whatever its connections give for rows
    match source:
        case ConnectionPool():
            return PsycopgDriver(pool)
        case AsyncConnectionPool():
            return AsyncPsycopgDriver(pool)
        case str():
            return (PsycopgDriver if colour == "blocking" else AsyncPsycopgDriver).connect(source)
        case _:
            return None
