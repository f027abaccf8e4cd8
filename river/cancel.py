"""The one signal that reaches an attempt, wherever it runs: stop what you are doing, and why.

A token belongs to one attempt. It is cancelled at most once, from any thread, and never un-cancelled. It is also
cancelled when the attempt has finished, so that work which a worker left running stops too.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from enum import Enum

from .outcome import WorkCancelled

logger = logging.getLogger("river.worker")


class CancelReason(Enum):
    """Why an attempt was cancelled."""

    TIMEOUT = "timeout"
    CANCELLED_REMOTELY = "cancelled remotely"
    CLIENT_STOPPING = "client stopping"
    ATTEMPT_FINISHED = "attempt finished"


class CancellationToken:
    """Whether, and why, an attempt is to stop. All of it is safe to use from any thread."""

    __slots__ = ("_callbacks", "_lock", "_reason")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: CancelReason | None = None
        self._callbacks: list[Callable[[], object]] | None = None

    @property
    def reason(self) -> CancelReason | None:
        """Why the attempt was cancelled; None as long as it was not."""
        return self._reason

    @property
    def cancelled(self) -> bool:
        """Whether the attempt was cancelled."""
        return self._reason is not None

    def cancel(self, reason: CancelReason) -> bool:
        """Cancel, and run the callbacks in this thread; whether this call was the first."""
        with self._lock:
            if self._reason is not None:
                return False
            self._reason = reason
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            _call(callback)
        return True

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have *callback* called on cancellation, by the thread that cancels; at once if that was already.

        Returns:
            A function that withdraws the callback, if it has not been called.
        """
        with self._lock:
            if self._reason is None:
                # A function of its own, so that withdrawing one of two equal callbacks leaves the other.
                registered = functools.partial(callback)
                self._callbacks = [*(self._callbacks or ()), registered]
                return lambda: self._withdraw(registered)
        _call(callback)
        return lambda: None

    def raise_if_cancelled(self) -> None:
        """Raise `WorkCancelled` if the attempt was cancelled."""
        if self._reason is not None:
            raise WorkCancelled(self._reason.value)

    def _withdraw(self, callback: Callable[[], object]) -> None:
        with self._lock:
            self._callbacks = [each for each in self._callbacks or () if each is not callback]


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except BaseException:
        # The others must be told all the same.
        logger.exception("a callback of on_cancel failed")
