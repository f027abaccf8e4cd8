"""Makes jobs available that are due: those that failed, were snoozed, or were inserted for later.

Every working client does this, with SKIP LOCKED, until leadership gives it to one of them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import timedelta

from ..engine.attempt import SCHEDULER_SECONDS
from ..errors import DatabaseError
from ..operations import maintain
from ..sql import Dialect
from .store import Store

logger = logging.getLogger("river.scheduler")

BATCH = 10_000
STATEMENT_SECONDS = 30.0

_jitter = random.Random()


async def run(store: Store, sql: Dialect) -> None:
    """Look for due jobs at every interval of the scheduler; until cancelled."""
    horizon = timedelta(seconds=SCHEDULER_SECONDS)
    await asyncio.sleep(_jitter.random())
    while True:
        try:
            while (
                await store.query(maintain.schedule(sql, horizon=horizon, limit=BATCH), seconds=STATEMENT_SECONDS)
                == BATCH
            ):
                pass
        except DatabaseError as error:
            logger.warning("due jobs could not be made available", extra={"error": str(error)})
        await asyncio.sleep(SCHEDULER_SECONDS)
