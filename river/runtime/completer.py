"""Persists the ends of attempts, in batches that form by themselves.

What comes in while a batch is being written is the next batch; there is no timer, so a lone job is persisted at
once and a thousand in one statement. A row that a host's open transaction holds is asked for again, apart from the
others. While the database is away nothing is dropped; claims pause when too much is waiting.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

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

BUSY_WARNING_SECONDS = 5.0
"""How long somebody may hold a row before a warning names the job."""

CLOSING_SECONDS = 1.0
"""The longest pause of a client that is stopping: what is not saved in time stays running for an hour."""


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
        self._expected: set[tuple[int, str]] = set()
        self._relieved = relieved
        self._batch = BATCH
        self._waiting: deque[Transition] = deque()
        self._busy: list[Transition] = []
        self._busy_since: dict[int, float] = {}
        self._arrived = asyncio.Event()
        self._closing = asyncio.Event()
        self._give_up_at: float | None = None

    @property
    def congested(self) -> bool:
        """Whether so much is waiting that nothing new should be started."""
        return len(self._waiting) + len(self._busy) >= CONGESTED_AT

    @property
    def in_hand(self) -> set[int]:
        """The ids of the jobs that this client has claimed and whose ends are not saved yet."""
        return {job_id for job_id, _ in self._expected}

    def expect(self, job_id: int, attempted_at: str) -> None:
        """A claimed job is about to start, and will end in a transition."""
        self._expected.add((job_id, attempted_at))

    def submit(self, transition: Transition) -> None:
        """Persist a transition soon."""
        self._waiting.append(transition)
        self._arrived.set()

    def close(self, give_up_at: float | None) -> None:
        """Let `run` end when everything is persisted, or at a time of the loop's clock."""
        self._give_up_at = give_up_at
        self._closing.set()
        self._arrived.set()

    async def run(self) -> None:
        """Persist what comes in, until closed and done; says what could not be, however it ends."""
        try:
            await self._run()
        finally:
            self._report_lost()

    async def _run(self) -> None:
        failures = 0
        while await self._something_to_do():
            # Before the batch is taken out, which may be what ends it.
            congested = self.congested
            batch = self._next_batch()
            try:
                await self._persist(batch)
            except asyncio.CancelledError:
                self._waiting.extendleft(reversed(batch))  # saving them twice is harmless
                raise
            except DatabaseError as error:
                self._waiting.extendleft(reversed(batch))
                failures += 1
                # It may have been too much at once; a single one that is too much then holds up nobody but itself.
                self._batch = max(len(batch) // 2, 1)
                logger.warning(
                    "%s job results could not be saved yet: %s",
                    len(self._waiting),
                    error,
                    extra={"waiting": len(self._waiting), "failures": failures},
                )
                if self._late():
                    break
                await self._pause(backoff_seconds(failures))
            else:
                failures = 0
                self._batch = min(self._batch * 2, BATCH)
                if congested and not self.congested:
                    self._relieved()

    async def _something_to_do(self) -> bool:
        while not self._waiting and not self._late():
            if self._closing.is_set() and not self._busy:
                return False
            self._arrived.clear()
            await self._arrived.wait()
        return not self._late()

    def _next_batch(self) -> list[Transition]:
        return [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]

    async def _persist(self, batch: Sequence[Transition]) -> None:
        try:
            persisted = await self._store.query(work.finish(self._sql, batch), seconds=STATEMENT_SECONDS)
        except DatabaseError as error:
            if error.error_class not in (ErrorClass.OTHER, ErrorClass.UNIQUE_VIOLATION):
                raise
            await self._persist_apart(batch, error)
            return
        for transition in batch:
            if persisted.get(transition.job_id) is not Persisted.BUSY:
                self._busy_since.pop(transition.job_id, None)
                self._expected.discard((transition.job_id, transition.attempted_at))
            match persisted.get(transition.job_id):
                case Persisted.BUSY:
                    # The host that holds these rows is at its own pace.
                    if not self._busy:
                        asyncio.get_running_loop().call_later(BUSY_SECONDS, self._ask_again)
                    self._busy.append(transition)
                    self._remember_busy(transition)
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

    def _remember_busy(self, transition: Transition) -> None:
        """Say it once of each job whose row somebody holds for long: most likely its own worker forgot to commit."""
        now = asyncio.get_running_loop().time()
        since = self._busy_since.setdefault(transition.job_id, now)
        if now - since >= BUSY_WARNING_SECONDS:
            self._busy_since[transition.job_id] = math.inf
            logger.warning(
                "job %s has ended, but another transaction has held its row for %.0f s: was complete_tx() called in a "
                "transaction that nobody commits? Call it inside the `with` block of your transaction",
                transition.job_id,
                now - since,
                extra={"job_id": transition.job_id},
            )

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

    def _ask_again(self) -> None:
        self._waiting.extend(self._busy)
        self._busy.clear()
        self._arrived.set()

    async def _pause(self, seconds: float) -> None:
        """Wait, until the client closes if that comes first; from then on, try at least once a second."""
        loop = asyncio.get_running_loop()
        if not self._closing.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._closing.wait()
        else:
            left = seconds if self._give_up_at is None else max(self._give_up_at - loop.time(), 0.0)
            await asyncio.sleep(min(seconds, left, CLOSING_SECONDS))

    def _late(self) -> bool:
        return self._give_up_at is not None and asyncio.get_running_loop().time() >= self._give_up_at

    def _report_lost(self) -> None:
        lost = [transition.job_id for transition in (*self._waiting, *self._busy)]
        if lost:
            logger.error(
                "results of %s jobs were not saved before the client stopped; they stay running until they are "
                "rescued: %s",
                len(lost),
                lost[:100],
                extra={"job_ids": lost},
            )
