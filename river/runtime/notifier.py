"""Hears what other clients say, on a connection of its own, and calls whom it concerns.

Notifications only make things quicker: all that they say can also be found by polling. After a lost connection the
notifier comes back with growing pauses, and then wakes everybody, because nothing is replayed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..driver import AsyncListener, Notification
from ..engine.backoff import backoff_seconds
from ..errors import DatabaseError
from .store import Store

logger = logging.getLogger("river.notifier")

_payload = msgspec.json.Decoder(dict[str, Any])

INSERT_TOPIC = "river_insert"
ROUND_SECONDS = 5.0
CONNECT_SECONDS = 10.0


class Notifier:
    """Listens until cancelled.

    Args:
        store: Where the connection comes from.
        prefix: The schema under which notifications are published.
        handlers: For each topic, what to do with the payload, a JSON object.
        connected: Called each time that listening begins.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        handlers: Mapping[str, Callable[[Mapping[str, Any]], None]],
        connected: Callable[[], None],
    ) -> None:
        self._store = store
        self._handlers = {f"{prefix}.{topic}": handler for topic, handler in handlers.items()}
        self._connected = connected
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """Listen, and listen again when the connection is lost; until cancelled."""
        failures = 0
        while True:
            try:
                async with asyncio.timeout(CONNECT_SECONDS) as deadline:
                    async with self._store.listen(list(self._handlers)) as listener:
                        deadline.reschedule(None)
                        failures = 0
                        self.listening.set()
                        self._connected()
                        await self._hear(listener)
            except (DatabaseError, TimeoutError) as error:
                self.listening.clear()
                failures += 1
                logger.warning(
                    "not listening for notifications, polling instead: %s",
                    str(error) or "the server did not answer",
                    extra={"failures": failures},
                )
                await asyncio.sleep(backoff_seconds(failures))

    async def _hear(self, listener: AsyncListener) -> None:
        while True:
            for notification in await listener.wait(ROUND_SECONDS):
                self._handle(notification)

    def _handle(self, notification: Notification) -> None:
        handler = self._handlers.get(notification.channel)
        try:
            payload = _payload.decode(notification.payload)
            if handler is not None:
                handler(payload)
        except Exception:
            # Somebody else's payload, or a handler's own fault: the next notification must be heard all the same.
            logger.exception("a notification could not be handled", extra={"channel": notification.channel})
