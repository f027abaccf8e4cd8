"""A network in front of the server that can fail in every way that networks do.

    cut()        established connections are reset; new ones work
    refuse()     established connections are reset; nobody listens any more
    blackhole()  connections stay open and new ones are accepted, but nothing passes in either direction
    heal()       whatever it was, it is over; what was held back by a black hole arrives

It listens on a TCP port of 127.0.0.1, which stays the same, and leads to a TCP address or a Unix socket. It lives
in a thread of its own, so that it serves blocking tests and those that block their event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import make_url

from tests.support.urls import DEFAULT_PORT, _libpq

T = TypeVar("T")


class Proxy:
    """The network; see the module. Its methods return when what they say is so.

    Args:
        url: The libpq URL of the server.
    """

    def __init__(self, url: str) -> None:
        self._target = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._passes = asyncio.Event()
        self._links: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The libpq URL of the same database, through this network."""
        parsed = make_url(self._target)
        query = {key: value for key, value in parsed.query.items() if key not in ("host", "port")}
        return _libpq(parsed.set(host="127.0.0.1", port=self._port, query=query))

    def cut(self) -> None:
        """Reset what is established."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Reset what is established, and refuse what is new."""
        self._call(self._refuse())

    def blackhole(self) -> None:
        """Let nothing pass, and say nothing."""
        self._loop.call_soon_threadsafe(self._passes.clear)
        self._call(asyncio.sleep(0))

    def heal(self) -> None:
        """Work again."""
        self._call(self._heal())

    def open(self) -> None:
        """Begin to listen."""
        self._thread.start()
        self.heal()

    def close(self) -> None:
        """End everything."""
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _heal(self) -> None:
        self._passes.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _cut(self) -> None:
        links = dict(self._links)
        for task, writer in links.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*links, *(writer.wait_closed() for writer in links.values()), return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it was refused meanwhile
            writer.transport.abort()
            return
        task = asyncio.create_task(self._link(reader, writer))
        self._links[task] = writer
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._links.pop(task).transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passes.wait()
        server_reader, server_writer = await self._connect()
        pumps = [
            asyncio.create_task(self._pump(reader, server_writer)),
            asyncio.create_task(self._pump(server_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server_writer.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parsed = make_url(self._target)
        host = str(parsed.query.get("host", parsed.host))
        port = int(str(parsed.query.get("port", parsed.port or DEFAULT_PORT)))
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()


@contextmanager
def proxy_to(url: str) -> Generator[Proxy]:
    """A network to the server of *url*, in order."""
    proxy = Proxy(url)
    proxy.open()
    try:
        yield proxy
    finally:
        proxy.close()
