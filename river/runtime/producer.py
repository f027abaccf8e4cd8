"""Fetches the jobs of one queue, as many as there are free slots, and starts them.

When it fetches is decided in `engine.pacing`; this is the loop around those decisions. It also knows which attempts
run, so that a cancellation finds its own, and whether the queue is paused.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime

from ..cancel import CancelReason
from ..config import QueueConfig, seconds
from ..engine.backoff import backoff_seconds
from ..engine.control import CANCEL_KEY
from ..engine.pacing import Pacing
from ..errors import DatabaseError
from ..hook import Extensions
from ..job import JobRow, UndecodableJob
from ..operations import work
from ..sql import Dialect
from .attempt import Attempt
from .completer import Completer
from .executor import Executor
from .store import Store

logger = logging.getLogger("river.producer")

CLAIM_SECONDS = 10.0
"""How long a claim may take, as in River."""

DOUBTFUL_SECONDS = 60.0
"""How long after a failed claim jobs are looked for that it may have taken all the same."""

_jitter = random.Random()


class Producer:
    """Works one queue.

    Args:
        queue: Its name.
        config: How, with nothing left open.
        client_id: Whom the claims are for.
        since: When the client started, by the database's clock.
        gives_back: Whether claims without an answer are looked for; not if others may go by the same id.
        paused: Whether the queue is paused.
        kinds: The only kinds to claim; None for all.
        doubt: Called when a running job may have to be cancelled, which its row can tell.
    """

    def __init__(
        self,
        queue: str,
        config: QueueConfig,
        *,
        client_id: str,
        since: datetime,
        gives_back: bool,
        paused: bool,
        kinds: Collection[str] | None,
        doubt: Callable[[], None],
        store: Store,
        sql: Dialect,
        executor: Executor,
        completer: Completer,
        extensions: Extensions,
    ) -> None:
        self.queue = queue
        self._slots = config.max_workers
        self._client_id = client_id
        self._since = since
        self._gives_back = gives_back
        self._paused = paused
        self._kinds = kinds
        self._doubt = doubt
        self._doubtful_until = 0.0
        self._store = store
        self._sql = sql
        self._executor = executor
        self._completer = completer
        self._extensions = extensions
        self._pacing = Pacing(
            slots=config.max_workers,
            cooldown_seconds=seconds("fetch_cooldown", config.fetch_cooldown),
            poll_seconds=seconds("fetch_poll_interval", config.fetch_poll_interval),
        )
        self._running = 0
        self._attempts: dict[int, Attempt] = {}
        self._early: set[int] | None = None
        self._changed = asyncio.Event()
        self._stopping = False
        self.turns = 0
        """How often it was told to pause or to go on; what was asked before the last time is out of date."""

    @property
    def running(self) -> int:
        """How many of its jobs run now."""
        return self._running

    @property
    def attempts(self) -> Mapping[int, Attempt]:
        """The attempts that run now, by the id of their job."""
        return self._attempts

    @property
    def paused(self) -> bool:
        """Whether it claims nothing until it is told to go on."""
        return self._paused

    def wake(self) -> None:
        """There may be work."""
        self._pacing.woken()
        self._changed.set()

    def notified(self) -> None:
        """A client has inserted jobs, and will not tell at once of those that follow."""
        self._pacing.notified(asyncio.get_running_loop().time())
        self._changed.set()

    def pause(self, paused: bool) -> None:
        """Claim nothing more, or go on at once; what runs, runs on, and a claim on its way is started."""
        self.turns += 1
        if self._paused != paused:
            self._paused = paused
            logger.info("queue %s %s", self.queue, "paused" if paused else "resumed", extra={"queue": self.queue})
            self.wake()

    def cancel(self, job_id: int) -> None:
        """Somebody has asked for a job's cancellation; it may be one of ours.

        The claim that takes it may still be on its way: then the job starts as cancelled.
        """
        attempt = self._attempts.get(job_id)
        if attempt is not None:
            if CANCEL_KEY in attempt.row.metadata:
                self._doubt()  # it had been cancelled and retried before, which may be what this is about
            else:
                self.cancel_attempt(attempt)
        elif self._early is not None:
            self._early.add(job_id)

    def cancel_attempt(self, attempt: Attempt) -> None:
        """Ask an attempt to stop, because its job was cancelled."""
        if attempt.cancel(CancelReason.CANCELLED_REMOTELY):
            row = attempt.row
            logger.info("job %s (%s) is to stop, because it was cancelled", row.id, row.kind, extra={"job_id": row.id})

    def relieve(self) -> None:
        """The completer takes results again."""
        self._changed.set()

    def stop(self) -> None:
        """Claim no more; what runs, runs on. A claim on its way is still started."""
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Fetch and start jobs until stopped."""
        failures = 0
        loop = asyncio.get_running_loop()
        while not self._stopping:
            self._changed.clear()
            delay = self._pacing.wait(loop.time(), self._free())
            if delay is None or delay > 0:
                await self._wait(delay)
                continue
            try:
                await self._give_back()
                await self._fetch()
                failures = 0
            except DatabaseError as error:
                failures += 1
                self._doubtful_until = loop.time() + DOUBTFUL_SECONDS
                self._pacing.failed(loop.time(), backoff_seconds(failures))
                logger.warning(
                    "jobs of queue %s could not be fetched: %s",
                    self.queue,
                    error,
                    extra={"queue": self.queue, "failures": failures},
                )
            except asyncio.CancelledError:
                self._doubtful_until = math.inf
                raise

    async def drain(self) -> None:
        """Wait until all jobs that were started have ended; call it when `run` has ended, however that was."""
        while self._running:
            self._changed.clear()
            await self._changed.wait()
        with suppress(DatabaseError):
            await self._give_back()

    async def _give_back(self) -> None:
        """After a failed claim: it may have been made all the same, and then nobody would work its jobs.

        Not once but for a while, because a server that waits for a lock does not notice that nobody waits for it.
        """
        if not self._gives_back or asyncio.get_running_loop().time() >= self._doubtful_until:
            return
        in_hand = self._completer.in_hand
        operation = work.give_back(self._sql, self.queue, client_id=self._client_id, since=self._since, in_hand=in_hand)
        given_back = await self._store.query(operation, seconds=CLAIM_SECONDS)
        if given_back:
            logger.warning(
                "%s jobs of queue %s were claimed without an answer; they are available again",
                len(given_back),
                self.queue,
                extra={"queue": self.queue, "job_ids": given_back},
            )

    def _free(self) -> int:
        return 0 if self._paused or self._completer.congested else self._slots - self._running

    async def _fetch(self) -> None:
        loop = asyncio.get_running_loop()
        limit = self._pacing.limit(self._free())
        self._pacing.claiming(loop.time())
        claim = work.claim(self._sql, self.queue, client_id=self._client_id, limit=limit, kinds=self._kinds)
        early: set[int] = set()
        self._early = early
        try:
            claimed = await self._store.query(claim, seconds=CLAIM_SECONDS)
        finally:
            self._early = None
        self._pacing.claimed(loop.time(), len(claimed), limit, _jitter.random())
        for job in claimed:
            self._start(job, early)
        if self._pacing.asks_when_due(loop.time()):
            await self._ask_when_due()

    def _start(self, job: JobRow | UndecodableJob, early: Collection[int]) -> None:
        self._running += 1
        self._announce(job)
        if isinstance(job, JobRow) and job.id in early:
            doubtful = CANCEL_KEY in job.metadata
            attempt = self._executor.start(job, self._finished, cancelled=not doubtful)
            if doubtful:
                self._doubt()
        else:
            attempt = self._executor.start(job, self._finished)
        if attempt is not None:
            self._attempts[attempt.row.id] = attempt

    async def _ask_when_due(self) -> None:
        """Jobs that wait for their time should not have to wait for a poll, too."""
        with suppress(DatabaseError):  # the next claim will say so
            milliseconds = await self._store.query(self._sql.job_due_in(self.queue), seconds=CLAIM_SECONDS)
            if milliseconds is not None:
                self._pacing.due(asyncio.get_running_loop().time() + milliseconds / 1000)

    def _announce(self, job: JobRow | UndecodableJob) -> None:
        if isinstance(job, JobRow):
            try:
                self._extensions.claimed(job)
            except BaseException:
                logger.exception("a work_claimed hook failed", extra={"job_id": job.id, "queue": self.queue})

    def _finished(self, attempt: Attempt | None) -> None:
        self._running -= 1
        # Not one that was rescued meanwhile and claimed again, by this very client.
        if attempt is not None and self._attempts.get(attempt.row.id) is attempt:
            del self._attempts[attempt.row.id]
        self._changed.set()

    async def _wait(self, delay: float | None) -> None:
        if delay is None:
            await self._changed.wait()
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(delay, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()
