"""Hears what other clients say, on a connection of its own, and calls whom it concerns.

Notifications only make things quicker: all that they say can also be found by polling. Whether they arrive is not
taken for granted:

- After some silence the server is asked for a sign of life on the listening connection: a network can be gone without
  a word. A lost connection is made again with growing pauses.
- Each time that listening begins, a probe is sent through the client's ordinary connections. If the listener does not
  hear it, something in between swallows notifications, such as a pooler that lends a connection for one transaction.
  Then `hears` is False, one warning says what can be done, and the probe is repeated at growing intervals.

Nothing is replayed, so whoever waits for notifications has to look for himself each time that listening begins.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ..driver import AsyncListener, Notification
from ..engine.backoff import backoff_seconds
from ..engine.outage import Outage
from ..errors import DatabaseError
from .store import Store, bounded

logger = logging.getLogger("river.notifier")

_payload = msgspec.json.Decoder(dict[str, Any])

INSERT_TOPIC = "river_insert"
CONTROL_TOPIC = "river_control"
PROBE_TOPIC = "river_py_probe"
"""Ours alone. No longer than the topics of other clients: with the longest name of a schema, a channel is full."""

ROUND_SECONDS = 5.0
"""So much silence on the listening connection asks for a sign of life."""

CHECK_SECONDS = 5.0
CONNECT_SECONDS = 10.0

PROBE_SECONDS = 5.0
"""How long a probe may take to arrive."""

PROBE_AGAIN_SECONDS = 15.0
PROBE_AGAIN_AT_MOST_SECONDS = 600.0


class Notifier:
    """Listens until cancelled.

    Args:
        store: Where the listening connection comes from.
        prefix: The schema under which notifications are published.
        handlers: For each topic, what to do with the payload, a JSON object.
        connected: Called each time that listening begins: there may be jobs that nobody told of.
        heard: Called each time that notifications are known to arrive from now on, but not since when.
        publish: Sends a payload to a topic, as the client's inserts would; raises `DatabaseError` if it could not.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        handlers: Mapping[str, Callable[[Mapping[str, Any]], None]],
        *,
        connected: Callable[[], None],
        heard: Callable[[], None],
        publish: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._handlers = {f"{prefix}.{topic}": handler for topic, handler in handlers.items()}
        self._handlers[f"{prefix}.{PROBE_TOPIC}"] = self._hear_probe
        self._connected = connected
        self._heard = heard
        self._publish = publish
        self._nonce: str | None = None
        self._arrived = asyncio.Event()
        self._lost = Outage()
        self._unheard = Outage()
        self.listening = asyncio.Event()
        self.hears = False
        """Whether a notification has been heard on this connection, so that nobody has to poll for what they say."""

    async def run(self) -> None:
        """Listen, and listen again when the connection is lost; until cancelled."""
        failures = 0
        while True:
            try:
                await self._listen()
            except (DatabaseError, TimeoutError) as error:
                # A connection that has proved good and is lost is a new failure; one that never did is the same.
                failures = 1 if self.hears else failures + 1
                self.listening.clear()
                self.hears = False
                self._say_lost(str(error) or "the server did not answer", failures)
                await asyncio.sleep(backoff_seconds(failures))

    async def _listen(self) -> None:
        """Listen until the connection is lost.

        Raises:
            DatabaseError: It is lost, or could not be made.
            TimeoutError: It could not be made in time.
        """
        async with asyncio.timeout(CONNECT_SECONDS) as deadline:
            async with self._store.listen(list(self._handlers)) as listener:
                deadline.reschedule(None)
                self.listening.set()
                if self._lost.recovered():
                    logger.info("listening for notifications again")
                self._connected()
                probing = asyncio.create_task(self._probe(), name="river-probe")
                try:
                    await self._hear(listener)
                finally:
                    probing.cancel()
                    await asyncio.gather(probing, return_exceptions=True)

    async def _hear(self, listener: AsyncListener) -> None:
        while True:
            heard = await listener.wait(ROUND_SECONDS)
            for notification in heard:
                self._handle(notification)
            if not heard:
                await bounded(asyncio.ensure_future(listener.check()), CHECK_SECONDS, listener.abort)

    def _handle(self, notification: Notification) -> None:
        handler = self._handlers.get(notification.channel)
        try:
            payload = _payload.decode(notification.payload)
            if handler is not None:
                handler(payload)
        except Exception:
            # Somebody else's payload, or a handler's own fault: the next notification must be heard all the same.
            logger.exception("a notification could not be handled", extra={"channel": notification.channel})

    def _hear_probe(self, payload: Mapping[str, Any]) -> None:
        if self._nonce is not None and payload.get("nonce") == self._nonce:
            self._arrived.set()

    async def _probe(self) -> None:
        """Send probes until one has arrived; each later than the one before."""
        unheard = unsent = 0
        while True:
            try:
                arrived = await self._send_probe()
            except DatabaseError:
                # The client's other services say so; of listening it says nothing.
                unsent += 1
                await asyncio.sleep(backoff_seconds(unsent))
                continue
            if arrived:
                self.hears = True
                if self._unheard.recovered():
                    logger.info("notifications arrive again")
                    self._connected()
                self._heard()
                return
            unheard += 1
            self._say_unheard()
            longest = PROBE_AGAIN_AT_MOST_SECONDS
            await asyncio.sleep(backoff_seconds(unheard, first=PROBE_AGAIN_SECONDS, longest=longest))

    async def _send_probe(self) -> bool:
        """Send a probe; whether it has arrived in time.

        Raises:
            DatabaseError: It could not be sent.
        """
        self._nonce = secrets.token_hex(8)
        self._arrived.clear()
        await self._publish(PROBE_TOPIC, json.dumps({"nonce": self._nonce}))
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    def _say_lost(self, reason: str, failures: int) -> None:
        if self._lost.failed(asyncio.get_running_loop().time()):
            logger.warning("not listening for notifications, polling instead: %s", reason, extra={"failures": failures})

    def _say_unheard(self) -> None:
        if self._unheard.failed(asyncio.get_running_loop().time()):
            logger.warning(
                "notifications do not arrive, polling instead: one that was sent was not heard within %g s. A pooler "
                "in transaction mode swallows them, or the listening connection leads to another database: give "
                "listen_url=, a URL that leads past the pooler to the database itself, or poll_only=True",
                PROBE_SECONDS,
            )
