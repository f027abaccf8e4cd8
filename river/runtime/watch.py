"""Looks after the queues that are worked: their rows say that they are, whether they are paused, and what is cancelled.

Where notifications are heard, they say that somebody has paused a queue or cancelled a job. Where they are not, the
rows are looked at every two seconds; and once each time that listening begins, because nothing is replayed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping

from ..engine.control import cancel_is_new
from ..engine.outage import Outage
from ..errors import DatabaseError
from ..operations import work
from ..sql import Dialect
from .producer import Producer
from .store import Store

logger = logging.getLogger("river.watch")

LOOK_SECONDS = 2.0
"""How often the rows are looked at without notifications, as in River."""

KEEP_ALIVE_SECONDS = 600.0
"""How often a queue's row says that somebody works it, as in River; after a day without, it may be deleted."""

STATEMENT_SECONDS = 10.0

_jitter = random.Random()


class Watch:
    """Looks until cancelled.

    Args:
        store: Where.
        sql: The statements.
        producers: Who works which queue; they may come and go.
        hears: Whether notifications make looking superfluous.
    """

    def __init__(
        self, store: Store, sql: Dialect, producers: Mapping[str, Producer], hears: Callable[[], bool]
    ) -> None:
        self._store = store
        self._sql = sql
        self._producers = producers
        self._hears = hears
        self._owed = False
        self._asked = asyncio.Event()
        self._outage = Outage()

    def look(self) -> None:
        """Look at once: something may not have been heard."""
        self._owed = True
        self._asked.set()

    async def run(self) -> None:
        """Look every two seconds if nothing is heard, and when asked; until cancelled."""
        while True:
            await self._wait()
            if self._hears() and not self._owed:
                continue
            # Before looking, so that who asks meanwhile gets another look.
            owed, self._owed = self._owed, False
            try:
                await self._look_at_queues()
                await self._look_at_jobs()
                self._outage.recovered()
            except DatabaseError as error:
                self._owed = self._owed or owed
                if self._outage.failed(asyncio.get_running_loop().time()):
                    logger.warning("whether queues are paused and jobs cancelled could not be looked up: %s", error)

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(LOOK_SECONDS, self._asked.set)
        try:
            await self._asked.wait()
            self._asked.clear()
        finally:
            timer.cancel()

    async def _look_at_queues(self) -> None:
        turns = {name: producer.turns for name, producer in self._producers.items()}
        paused = await self._store.query(self._sql.queues_paused(turns), seconds=STATEMENT_SECONDS)
        for name, flag in paused.items():
            producer = self._producers.get(name)
            # What was told by a notification meanwhile may be newer than this answer.
            if producer is not None and producer.turns == turns[name]:
                producer.pause(flag)

    async def _look_at_jobs(self) -> None:
        running = {
            attempt.row.id: (producer, attempt)
            for producer in self._producers.values()
            for attempt in producer.attempts.values()
        }
        if not running:
            return
        claims = [(attempt.row.id, attempt.fence) for _, attempt in running.values()]
        asked = await self._store.query(self._sql.job_cancellations(claims), seconds=STATEMENT_SECONDS)
        for job_id, value in asked.items():
            producer, attempt = running[job_id]
            if cancel_is_new(attempt.row.metadata, value):
                producer.cancel_attempt(attempt)


async def keep_alive(store: Store, sql: Dialect, queues: Collection[str]) -> None:
    """Say every ten minutes that queues are worked; until cancelled."""
    outage = Outage()
    while True:
        # Earlier rather than later, and not all clients at once.
        await asyncio.sleep(KEEP_ALIVE_SECONDS * _jitter.uniform(0.9, 1.0))
        try:
            await store.query(work.open_queues(sql, queues), seconds=STATEMENT_SECONDS)
            outage.recovered()
        except DatabaseError as error:
            if outage.failed(asyncio.get_running_loop().time()):
                logger.warning("the rows of the queues that are worked could not be kept: %s", error)
