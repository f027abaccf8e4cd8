"""An event loop in a thread of its own, for blocking callers."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import ClientStateError

logger = logging.getLogger("river.client")

T = TypeVar("T")


@dataclass(slots=True)
class _Run:
    """One loop and its thread, from the first call to `close`."""

    loop: asyncio.AbstractEventLoop
    process_id: int = field(default_factory=os.getpid)
    thread: threading.Thread | None = None
    calls: int = 0
    closing: bool = False


class LoopThread:
    """Runs coroutines in an event loop that lives in a daemon thread, started at the first call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._run: _Run | None = None

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for its result in the calling thread.

        An exception in the waiting thread, Ctrl-C for one, cancels the coroutine.
        """
        with self._changed:
            run = self._running()
            if run.thread is threading.current_thread():
                coroutine.close()
                raise ClientStateError(
                    "a blocking method of the client was called on the client's own event loop, which would wait for "
                    "itself: in an `async def` worker use a river.AsyncClient, or a _tx method with an asyncio session"
                )
            run.calls += 1
        try:
            return _result(asyncio.run_coroutine_threadsafe(coroutine, run.loop))
        finally:
            with self._changed:
                run.calls -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Stop the loop when nobody waits for it any more, and wait for its thread."""
        with self._changed:
            run, self._run = self._run, None
            if run is None or run.thread is None or run.process_id != os.getpid():
                return
            self._changed.wait_for(lambda: run.calls == 0, timeout=10)
            run.closing = True
        run.loop.call_soon_threadsafe(run.loop.stop)
        run.thread.join(timeout=10)

    def _running(self) -> _Run:
        # After a fork, the thread is in the parent.
        if self._run is None or self._run.process_id != os.getpid():
            run = self._run = _Run(asyncio.new_event_loop())
            run.thread = threading.Thread(target=_serve, args=(run,), name="river-loop", daemon=True)
            run.thread.start()
        return self._run


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _serve(run: _Run) -> None:
    loop = run.loop
    asyncio.set_event_loop(loop)
    while not run.closing:
        try:
            loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            # asyncio lets these end the loop. This one is not the main thread's, and others wait for what runs in it.
            logger.exception("a task tried to end the client's event loop, which goes on")
    try:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
