"""A network in front of the server that can fail in every way that networks do.

    cut()        established connections are reset; new ones work
    refuse()     established connections are reset; nobody listens any more
    blackhole()  connections stay open and new ones are accepted, but nothing passes in either direction
    heal()       whatever it was, it is over; what was held back by a black hole arrives

It listens on a TCP port of 127.0.0.1, which stays the same, and leads to a TCP address or a Unix socket. It lives
in a thread of its own, so that it serves blocking tests and those that block their event loop.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import SimpleQueue

from sqlalchemy import make_url

from tests.support.urls import DEFAULT_PORT, _libpq

_RESET = struct.pack("ii", 1, 0)
"""Linger for no time: closing sends a reset."""

_SEND_SECONDS = 10.0


class Proxy:
    """The network; see the module. Its methods return when what they say is so.

    Args:
        url: The libpq URL of the server.
    """

    def __init__(self, url: str) -> None:
        self._target = url
        self._selector = selectors.DefaultSelector()
        self._commands: SimpleQueue[tuple[Callable[[], None], Future[None]]] = SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._listener: socket.socket | None = None
        self._port = 0
        # Below here, all belongs to the thread.
        self._passes = True
        self._ends = False
        self._held: list[socket.socket] = []
        self._peers: dict[socket.socket, socket.socket] = {}

    @property
    def url(self) -> str:
        """The libpq URL of the same database, through this network."""
        parsed = make_url(self._target)
        query = {key: value for key, value in parsed.query.items() if key not in ("host", "port")}
        return _libpq(parsed.set(host="127.0.0.1", port=self._port, query=query))

    def cut(self) -> None:
        """Reset what is established."""
        self._call(self._cut)

    def refuse(self) -> None:
        """Reset what is established, and refuse what is new."""
        self._call(self._refuse)

    def blackhole(self) -> None:
        """Let nothing pass, and say nothing."""
        self._call(self._blackhole)

    def heal(self) -> None:
        """Work again."""
        self._call(self._heal)

    def open(self) -> None:
        """Begin to listen."""
        self._thread.start()
        self.heal()

    def close(self) -> None:
        """End everything."""
        self._call(self._end)
        self._thread.join()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _call(self, command: Callable[[], None]) -> None:
        done: Future[None] = Future()
        self._commands.put((command, done))
        self._wake.send(b"!")
        done.result(30)

    def _run(self) -> None:
        while not self._ends:
            for key, _ in self._selector.select():
                self._serve(key.fileobj)

    def _serve(self, ready: object) -> None:
        if ready is self._woken:
            self._woken.recv(1)
            command, done = self._commands.get()
            try:
                command()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)
        elif self._listener is not None and ready is self._listener:
            client, _ = self._listener.accept()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            if self._passes:
                self._link(client)
            else:
                self._held.append(client)
        elif isinstance(ready, socket.socket) and ready in self._peers:
            self._forward(ready)

    def _link(self, client: socket.socket) -> None:
        server = self._connect()
        for one, other in ((client, server), (server, client)):
            one.settimeout(_SEND_SECONDS)
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _connect(self) -> socket.socket:
        parsed = make_url(self._target)
        host = str(parsed.query.get("host", parsed.host))
        port = int(str(parsed.query.get("port", parsed.port or DEFAULT_PORT)))
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((host, port))

    def _forward(self, source: socket.socket) -> None:
        if not self._passes:  # it was ready before the network failed
            return
        data = b""
        with suppress(OSError):
            data = source.recv(65_536)
            self._peers[source].sendall(data)
            if data:
                return
        self._unlink(source)

    def _unlink(self, end: socket.socket) -> None:
        for each in (end, self._peers[end]):
            del self._peers[each]
            with suppress(KeyError):  # in a black hole nobody is registered
                self._selector.unregister(each)
            each.close()

    def _cut(self) -> None:
        while self._peers:
            self._unlink(next(iter(self._peers)))
        while self._held:
            self._held.pop().close()

    def _refuse(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
        self._cut()

    def _blackhole(self) -> None:
        if self._passes:
            self._passes = False
            for end in self._peers:
                self._selector.unregister(end)

    def _heal(self) -> None:
        if not self._passes:
            self._passes = True
            for end in self._peers:
                self._selector.register(end, selectors.EVENT_READ)
            while self._held:
                self._link(self._held.pop())
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self._port), backlog=256)
            self._port = self._listener.getsockname()[1]
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _end(self) -> None:
        self._refuse()
        self._ends = True


@contextmanager
def proxy_to(url: str) -> Generator[Proxy]:
    """A network to the server of *url*, in order."""
    proxy = Proxy(url)
    proxy.open()
    try:
        yield proxy
    finally:
        proxy.close()
