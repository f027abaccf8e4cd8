"""Makes jobs available that are due: those that failed, were snoozed, or were inserted for later.

Every working client does this, with SKIP LOCKED, until leadership gives it to one of them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from datetime import timedelta

from ..engine.attempt import SCHEDULER_SECONDS
from ..errors import DatabaseError, ErrorClass
from ..operations import maintain
from ..sql import Dialect
from .store import Store

logger = logging.getLogger("river.scheduler")

BATCH = 10_000
UNIQUE_BATCH = 500
"""Smaller, because these are tried one by one when one of them meets a conflict."""

STATEMENT_SECONDS = 30.0
HORIZON = timedelta(seconds=SCHEDULER_SECONDS)

_jitter = random.Random()


async def run(store: Store, sql: Dialect, found: Callable[[], None]) -> None:
    """Look for due jobs at every interval of the scheduler; until cancelled.

    Args:
        store: Where.
        sql: The statements.
        found: Called when there were any, some of which may be due only in a moment.
    """
    await asyncio.sleep(_jitter.random())
    while True:
        try:
            if await _schedule(store, sql) + await _schedule_unique(store, sql):
                found()
        except DatabaseError as error:
            logger.warning("due jobs could not be made available", extra={"error": str(error)})
        await asyncio.sleep(SCHEDULER_SECONDS)


async def _schedule(store: Store, sql: Dialect) -> int:
    count, total = BATCH, 0
    while count == BATCH:
        count = await store.query(maintain.schedule(sql, horizon=HORIZON, limit=BATCH), seconds=STATEMENT_SECONDS)
        total += count
    return total


async def _schedule_unique(store: Store, sql: Dialect) -> int:
    due = maintain.due_unique(sql, horizon=HORIZON, limit=BATCH)
    job_ids = await store.query(due, seconds=STATEMENT_SECONDS)
    for begin in range(0, len(job_ids), UNIQUE_BATCH):
        batch = job_ids[begin : begin + UNIQUE_BATCH]
        try:
            await _take_keys(store, sql, batch)
        except DatabaseError as error:
            if error.error_class is ErrorClass.CONNECTION_LOST:
                raise
            for job_id in batch:
                await _take_key(store, sql, job_id)
    return len(job_ids)


async def _take_key(store: Store, sql: Dialect, job_id: int) -> None:
    try:
        await _take_keys(store, sql, [job_id])
    except DatabaseError as error:
        if error.error_class is ErrorClass.CONNECTION_LOST:
            raise
        logger.info(
            "job %s stays as it is for now, because somebody is taking its unique key: %s",
            job_id,
            error,
            extra={"job_id": job_id},
        )


async def _take_keys(store: Store, sql: Dialect, job_ids: Sequence[int]) -> None:
    discarded = await store.query(maintain.schedule_unique(sql, job_ids), seconds=STATEMENT_SECONDS)
    if discarded:
        logger.warning(
            "%s due jobs were discarded, because other jobs have their unique keys by now",
            len(discarded),
            extra={"job_ids": discarded},
        )
