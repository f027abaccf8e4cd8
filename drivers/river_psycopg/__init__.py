"""River on psycopg 3: drivers over its connection pools, and adopters of its connections and cursors."""

from __future__ import annotations

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from river.driver import Colour

from .asynchronous import AsyncPsycopgDriver
from .blocking import PsycopgDriver

__all__ = ["AsyncPsycopgDriver", "PsycopgDriver", "driver_for"]


def driver_for(source: object, colour: Colour) -> PsycopgDriver | AsyncPsycopgDriver | None:
    """A driver for a pool, or for a ``postgresql://`` URL with a pool of its own; None for anything else."""
    if isinstance(source, ConnectionPool):
        return PsycopgDriver(source)
    if isinstance(source, AsyncConnectionPool):
        return AsyncPsycopgDriver(source)
    if isinstance(source, str):
        return (PsycopgDriver if colour == "blocking" else AsyncPsycopgDriver).connect(source)
    return None
