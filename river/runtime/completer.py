"""Persists the ends of attempts, in batches that form by themselves.

What comes in while a batch is being written is the next batch; there is no timer, so a lone job is persisted at
once and a thousand in one statement. A row that a host's open transaction holds is asked for again, apart from the
others. While the database is away nothing is dropped; claims pause when too much is waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from ..engine.backoff import backoff_seconds
from ..engine.transition import Persisted, Transition
from ..errors import DatabaseError, ErrorClass
from ..operations import work
from ..sql import Dialect
from .store import Store

logger = logging.getLogger("river.completer")

BATCH = 1_000
STATEMENT_SECONDS = 10.0
CONGESTED_AT = 10_000
"""So many waiting transitions stop further claims, as in River."""

BUSY_SECONDS = 0.05
"""How soon a row is asked for again that somebody holds."""


class Completer:
    """Takes transitions and persists them.

    Args:
        store: Where to.
        sql: The statements.
        relieved: Called when congestion is over.
    """

    def __init__(self, store: Store, sql: Dialect, relieved: Callable[[], None]) -> None:
        self._store = store
        self._sql = sql
        self._relieved = relieved
        self._waiting: deque[Transition] = deque()
        self._busy: list[Transition] = []
        self._arrived = asyncio.Event()
        self._closing = False
        self._give_up_at: float | None = None

    @property
    def congested(self) -> bool:
        """Whether so much is waiting that nothing new should be started."""
        return len(self._waiting) + len(self._busy) >= CONGESTED_AT

    def submit(self, transition: Transition) -> None:
        """Persist a transition soon."""
        self._waiting.append(transition)
        self._arrived.set()

    def close(self, give_up_at: float | None) -> None:
        """Let `run` end when everything is persisted, or at a time of the loop's clock."""
        self._closing = True
        self._give_up_at = give_up_at
        self._arrived.set()

    async def run(self) -> None:
        """Persist what comes in, until closed and done."""
        failures = 0
        while await self._something_to_do():
            # Before the batch is taken out, which may be what ends it.
            congested = self.congested
            batch = self._next_batch()
            try:
                await self._persist(batch)
            except DatabaseError as error:
                self._waiting.extendleft(reversed(batch))
                failures += 1
                logger.warning(
                    "job results could not be saved yet",
                    extra={"waiting": len(self._waiting), "failures": failures, "error": str(error)},
                )
                if self._late():
                    break
                await self._pause(backoff_seconds(failures))
            else:
                failures = 0
                if congested and not self.congested:
                    self._relieved()
        self._report_lost()

    async def _something_to_do(self) -> bool:
        while not self._waiting:
            if self._busy:
                # The host that holds these rows is at its own pace.
                await self._pause(BUSY_SECONDS)
                self._waiting.extend(self._busy)
                self._busy.clear()
                return not self._late()
            if self._closing:
                return False
            self._arrived.clear()
            await self._arrived.wait()
        return not self._late()

    def _next_batch(self) -> list[Transition]:
        return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    async def _persist(self, batch: Sequence[Transition]) -> None:
        try:
            persisted = await self._store.query(work.finish(self._sql, batch), seconds=STATEMENT_SECONDS)
        except DatabaseError as error:
            if error.error_class not in (ErrorClass.OTHER, ErrorClass.UNIQUE_VIOLATION):
                raise
            await self._persist_apart(batch, error)
            return
        for transition in batch:
            match persisted.get(transition.job_id):
                case Persisted.BUSY:
                    self._busy.append(transition)
                case Persisted.LOST:
                    # Expected after complete_tx(), which cannot be told from a rescue without asking again; worth a
                    # line if the worker failed after that, which has been logged and now counts for nothing.
                    logger.log(
                        logging.DEBUG if transition.plain else logging.INFO,
                        "a job's result counts for nothing, because its claim was over",
                        extra={"job_id": transition.job_id, "state": transition.state.value},
                    )
                case _:
                    pass

    async def _persist_apart(self, batch: Sequence[Transition], error: DatabaseError) -> None:
        """One transition that the database refuses must not stop the others: find it by halves."""
        if len(batch) == 1:
            logger.error(
                "a job's result cannot be saved; the job stays running until it is rescued",
                extra={"job_id": batch[0].job_id, "state": batch[0].state.value, "error": str(error)},
            )
            return
        middle = len(batch) // 2
        await self._persist(batch[:middle])
        await self._persist(batch[middle:])

    async def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._give_up_at is not None:
            seconds = min(seconds, max(self._give_up_at - loop.time(), 0.0))
        await asyncio.sleep(seconds)

    def _late(self) -> bool:
        return self._give_up_at is not None and asyncio.get_running_loop().time() >= self._give_up_at

    def _report_lost(self) -> None:
        lost = [transition.job_id for transition in (*self._waiting, *self._busy)]
        if lost:
            logger.error(
                "job results were not saved before the client stopped; the jobs stay running until they are rescued",
                extra={"job_ids": lost},
            )
