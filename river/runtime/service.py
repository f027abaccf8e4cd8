"""A running client: its services, in the order in which they start and stop.

    start   greet the server, record the queues; completer, notifier, watch, scheduler, producers
    stop    producers claim no more and drain; the others end; the completer persists the last result

Notifier and watch live as long as jobs run, because cancellations reach them through these. Nothing that the host gave
is closed.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from ..base_client import BaseClient
from ..driver import AnyDriver, Colour, driver_for, is_asyncio
from ..engine.control import Cancel, Pause, request_of
from ..errors import ClientStateError, DatabaseError
from ..operations import work
from ..sql import Dialect
from ..sql.decode import Greeting
from . import scheduler
from .completer import Completer
from .executor import Executor
from .notifier import CONTROL_TOPIC, INSERT_TOPIC, Notifier
from .producer import Producer
from .store import Store, close_driver, store_for
from .watch import Watch, keep_alive

logger = logging.getLogger("river.client")

START_SECONDS = 10.0
FINALIZE_SECONDS = 30.0
"""How long the last results may take to be saved, should the database be away when everything else has ended."""


class Service:
    """One run of a client, from start to stop; made and used in one event loop.

    Args:
        client: Whose run it is.
        context: The context variables of its attempts.
    """

    def __init__(self, client: BaseClient, context: contextvars.Context) -> None:
        self._client = client
        self._context = context
        self._producers: dict[str, Producer] = {}
        self._fetching: list[asyncio.Task[None]] = []
        self._background: list[asyncio.Task[None]] = []
        self._saving: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._notifier: Notifier | None = None
        self._listen_driver: AnyDriver | None = None
        self.completed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.greeting: Greeting | None = None
        """What the server said at the start; with the client's id, this run's incarnation."""

    @property
    def belongs_here(self) -> bool:
        """Whether its event loop is the running one; if not, it has ended with its own."""
        return self.completed.get_loop() is asyncio.get_running_loop()

    async def start(self) -> None:
        """Start working.

        Raises:
            ClientStateError: There is nothing to work: no queues or no workers.
            DatabaseError: The database does not answer, or has no tables of River's.
        """
        config = self._client.config
        if not config.queues or not config.workers:
            raise ClientStateError(
                "nothing to work: give the client queues={'default': 10} and workers=, with at least one worker"
            )
        self._store = store_for(self._client.driver)
        try:
            self.greeting, paused = await self._greet()
        except BaseException:
            await self._store.close()
            raise
        self._launch(self.greeting, paused)
        logger.info("client started", extra={"client_id": self._client.id, "queues": sorted(config.queues)})

    def stop(self) -> asyncio.Task[None]:
        """Begin to stop, once; the task ends when nothing runs any more and every result is saved."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="river-stop")
        return self._stopping

    async def _greet(self) -> tuple[Greeting, Mapping[str, bool]]:
        """What the server says, and which queues are paused."""
        sql = self._client.sql(self._store.database)
        try:
            greeting = await self._store.query(sql.greeting(), seconds=START_SECONDS)
            queues = self._client.config.queues
            return greeting, await self._store.query(work.open_queues(sql, queues), seconds=START_SECONDS)
        except DatabaseError as error:
            self._client.explain(error)
            raise

    def _launch(self, greeting: Greeting, paused: Mapping[str, bool]) -> None:
        config = self._client.config
        sql = self._client.sql(self._store.database)
        completer = Completer(self._store, sql, self._relieve)
        slots = {name: config.queue(name) for name in config.queues}
        thread_limit = sum(queue.max_workers for queue in slots.values())
        executor = Executor(self._client, completer, self._context, thread_limit)
        self._completer, self._executor = completer, executor
        self._saving = self._task("completer", completer.run())
        watch = self._watch = Watch(self._store, sql, self._producers, self._hears)
        self._start_listening(greeting, sql, watch)
        self._background.append(self._task("watch", watch.run()))
        self._background.append(self._task("keep-alive", keep_alive(self._store, sql, list(slots))))
        self._background.append(self._task("scheduler", scheduler.run(self._store, sql, self._wake_all)))
        for name, queue in slots.items():
            producer = Producer(
                name,
                queue,
                client_id=self._client.id,
                since=greeting.now,
                # After a fork, the parent and its other children go by the same id, and have jobs that are not ours.
                gives_back=self._client.made_in_process == os.getpid(),
                paused=paused.get(name, False),
                kinds=list(config.workers or ()) if config.fetch_only_known_kinds else None,
                doubt=watch.look,
                store=self._store,
                sql=sql,
                executor=executor,
                completer=completer,
                extensions=self._client.extensions,
            )
            self._producers[name] = producer
            self._fetching.append(self._task(f"producer-{name}", producer.run()))

    def _start_listening(self, greeting: Greeting, sql: Dialect, watch: Watch) -> None:
        store = self._listening_store()
        if store is None:
            return

        async def publish(topic: str, payload: str) -> None:
            await self._store.query(sql.probe(topic, payload), seconds=START_SECONDS)

        handlers = {INSERT_TOPIC: self._inserted, CONTROL_TOPIC: self._requested}
        prefix = greeting.channel_prefix
        self._notifier = Notifier(store, prefix, handlers, connected=self._wake_all, heard=watch.look, publish=publish)
        self._background.append(self._task("notifier", self._notifier.run()))

    def _listening_store(self) -> Store | None:
        """Where to listen; None if this client only polls."""
        config = self._client.config
        if config.listen_url is not None:
            colour: Colour = "asyncio" if is_asyncio(self._client.driver) else "blocking"
            self._listen_driver = driver_for(config.listen_url, colour)
            return store_for(self._listen_driver)
        return self._store if self._store.supports_listen and not config.poll_only else None

    def _hears(self) -> bool:
        return self._notifier is not None and self._notifier.hears

    async def _stop(self) -> None:
        running = sum(producer.running for producer in self._producers.values())
        if running:
            # A warning, so that whoever pressed Ctrl-C sees why nothing seems to happen.
            logger.warning("client stopping; waiting for %s running jobs", running, extra={"running": running})
        else:
            logger.info("client stopping", extra={"client_id": self._client.id})
        for producer in self._producers.values():
            producer.stop()
        await asyncio.gather(*self._fetching, return_exceptions=True)
        await asyncio.gather(*(producer.drain() for producer in self._producers.values()), return_exceptions=True)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._executor.close()
        if self._saving is not None:
            self._completer.close(give_up_at=asyncio.get_running_loop().time() + FINALIZE_SECONDS)
            await asyncio.gather(self._saving, return_exceptions=True)
            if self._saving.cancelled():  # by somebody who cancels all tasks; what they leave is saved all the same
                with suppress(Exception):
                    await self._completer.run()
        await self._store.close()
        if self._listen_driver is not None:
            with suppress(DatabaseError):  # it was lost already
                await close_driver(self._listen_driver)
        if not self.completed.done():
            self.completed.set_result(None)
        logger.info("client stopped", extra={"client_id": self._client.id})

    def _task(self, name: str, service: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(service, name=f"river-{name}", context=self._context.copy())
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A service that fails is a fault of River's: it ends the client, and `completed` says why."""
        error = self._unasked_cancellation() if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("a service of the client failed", exc_info=error, extra={"service": task.get_name()})
            if not self.completed.done():
                self.completed.set_exception(error)
                self.completed.exception()  # seen: it is in the log, also if nobody waits for it
            self.stop()

    def _unasked_cancellation(self) -> ClientStateError | None:
        if self._stopping is not None:
            return None
        return ClientStateError(
            "a service of the client was cancelled by somebody else, perhaps with all tasks of its loop"
        )

    def _inserted(self, payload: Mapping[str, Any]) -> None:
        producer = self._producers.get(str(payload.get("queue")))
        if producer is not None:
            producer.notified()

    def _requested(self, payload: Mapping[str, Any]) -> None:
        match request_of(payload):
            case Cancel(queue, job_id):
                producer = self._producers.get(queue)
                if producer is not None:
                    producer.cancel(job_id)
            case Pause() as request:
                for name, producer in self._producers.items():
                    if request.concerns(name):
                        producer.pause(request.paused)
            case None:
                pass

    def _wake_all(self) -> None:
        for producer in self._producers.values():
            producer.wake()

    def _relieve(self) -> None:
        for producer in self._producers.values():
            producer.relieve()


async def wait_for(stopping: asyncio.Task[None], timeout: float | timedelta | None) -> None:
    """Wait for a stop that goes on whatever becomes of the waiting.

    Raises:
        TimeoutError: Time is over.
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    done, _ = await asyncio.wait([stopping], timeout=seconds)
    if not done:
        raise TimeoutError(f"the client did not stop within {seconds:g} s; it goes on stopping")
    await stopping
