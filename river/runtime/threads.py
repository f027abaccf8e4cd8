"""Threads of River's own, for calls that block, started from and reported to one event loop.

The loop's default executor wakes the loop once per call (43 microseconds, measured); these threads share one
wake-up per burst. They are daemons, because a thread that hangs must not keep the process alive.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

_Call: TypeAlias = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class Threads:
    """A pool of daemon threads that grows up to a limit. All methods are called in the event loop.

    Args:
        name: Names the threads.
        limit: How many there are at most; more calls wait their turn.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._reports: deque[Callable[[], None]] = deque()
        self._wake_pending = threading.Event()
        self._started = 0
        self._busy = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the threads report to."""
        return self._loop

    def submit(self, call: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run *call* in a thread, then *done* in the loop with its result or its exception."""
        self._busy += 1
        if self._busy > self._started < self._limit:
            try:
                self._start_one()
            except RuntimeError as error:  # the system has no more threads; those that there are will do
                if not self._started:
                    self._busy -= 1
                    self._loop.call_soon(done, None, error)
                    return
        self._calls.put((call, done))

    def future(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run *call* in a thread; a future of its result. Cancelling the future does not stop the call."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(call, done)
        return future

    def spare(self) -> None:
        """Allow one thread more, in the place of one that hangs."""
        self._limit += 1

    def close(self) -> None:
        """Let the threads end when they are done; nothing may be submitted afterwards."""
        for _ in range(self._started):
            self._calls.put(None)

    def _start_one(self) -> None:
        name = f"{self._name}-{self._started + 1}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._started += 1

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001 - handed to the loop, whatever it is
                error = raised
            self._report(done, result, error)
            # An idle thread must not keep the last call's objects alive.
            del item, call, done, result, error

    def _report(
        self, done: Callable[[Any, BaseException | None], None], result: Any, error: BaseException | None
    ) -> None:
        self._reports.append(lambda: done(result, error))
        if self._wake_pending.is_set():
            return
        self._wake_pending.set()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # First, so that a report that comes in from here on wakes the loop again.
        self._wake_pending.clear()
        while self._reports:
            report = self._reports.popleft()
            self._busy -= 1
            try:
                report()
            except Exception as error:  # noqa: BLE001 - a fault of River's own; the other reports must arrive
                self._loop.call_exception_handler({"message": f"a report of {self._name} failed", "exception": error})
