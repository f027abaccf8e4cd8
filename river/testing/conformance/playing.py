"""One text of a test for both colours: coroutines, and who runs them.

    claim       makes a pytest test of a coroutine
    Player      runs it: AsyncPlayer in an event loop, BlockingPlayer without one
    settled     what a call gives, of either colour

A coroutine over a blocking driver never suspends, so that it can be run to its end in one step, in a thread of its own.
Every test has a deadline: a driver at fault fails its tests, and does not hang them.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")
P = ParamSpec("P")

_PAUSE_SECONDS = 0.01


class Started(Protocol[T_co]):
    """Something that runs beside the test."""

    async def result(self) -> T_co:
        """What it returns or raises; it must end in time."""
        ...

    def cancel(self) -> None:
        """Cancel it, where there are tasks."""
        ...


class Player(ABC):
    """Runs the coroutines of one colour.

    Attributes:
        deadline_seconds: How long a test may take; only a failing one does.
        event_seconds: How long a test waits for what must come.
    """

    deadline_seconds: float = 60.0
    event_seconds: float = 20.0

    @abstractmethod
    def play(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, from a test."""

    @abstractmethod
    def start(self, coroutine: Coroutine[Any, Any, T]) -> Started[T]:
        """Run a coroutine beside the one that calls this."""

    @abstractmethod
    def around(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Hold a context open over several calls of `play`; as a context manager."""

    @abstractmethod
    async def pause(self) -> None:
        """Let some milliseconds pass before a server is asked again for what nobody is told."""

    async def until(self, probe: Callable[[], Awaitable[object]], what: str) -> None:
        """Return once *probe* says yes."""
        give_up_at = time.monotonic() + self.event_seconds
        while not await probe():
            assert time.monotonic() < give_up_at, f"not within {self.event_seconds:g} s: {what}"
            await self.pause()


class BlockingPlayer(Player):
    """Runs coroutines that never suspend, each in a thread."""

    def play(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return _in_thread(coroutine).result(self.deadline_seconds)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Started[T]:
        """Run a coroutine in another thread."""
        return _StartedThread(_in_thread(coroutine), self.event_seconds)

    @contextmanager
    def around(self, manager: AbstractAsyncContextManager[T]) -> Generator[T]:
        """Hold a context open."""
        entered = self.play(_coroutine(manager.__aenter__()))
        try:
            yield entered
        finally:
            self.play(_coroutine(manager.__aexit__(None, None, None)))

    async def pause(self) -> None:
        """Block for some milliseconds."""
        time.sleep(_PAUSE_SECONDS)  # noqa: ASYNC251 - there is no event loop


class AsyncPlayer(Player):
    """Runs coroutines in an event loop of its own, which stands still between the tests.

    Args:
        runner: Whose loop it is.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def play(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._runner.run(asyncio.wait_for(coroutine, self.deadline_seconds))

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Started[T]:
        """Run a coroutine in another task."""
        return _StartedTask(asyncio.create_task(coroutine), self.event_seconds)

    @contextmanager
    def around(self, manager: AbstractAsyncContextManager[T]) -> Generator[T]:
        """Hold a context open, in a task that enters and leaves it: some contexts must be left where they began."""
        life: _Life[T] = self._runner.run(_alive(manager))
        try:
            yield life.entered
        finally:
            self._runner.run(asyncio.wait_for(life.end(), self.deadline_seconds))

    async def pause(self) -> None:
        """Sleep for some milliseconds."""
        await asyncio.sleep(_PAUSE_SECONDS)


class Playable:
    """What a test is about: it knows who runs the test.

    Attributes:
        player: Who.
    """

    def __init__(self, player: Player) -> None:
        self.player = player


def claim(
    body: Callable[Concatenate[S, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[S, P], None]:
    """Make a test of a coroutine: one of its arguments is a `Playable`."""

    def test(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        (player,) = {each.player for each in (*args, *kwargs.values()) if isinstance(each, Playable)}
        player.play(body(self, *args, **kwargs))

    # pytest finds the fixtures in the signature of what was wrapped.
    functools.update_wrapper(test, body)
    return test


async def settled(value: Any) -> Any:
    """What a call of either colour gives."""
    return await value if inspect.isawaitable(value) else value


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise AssertionError("a call of a blocking driver suspended its coroutine")


def _in_thread(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(drive(coroutine))
        except BaseException as error:  # noqa: BLE001 - it is the test's, and so is pytest's own of a skipped test
            future.set_exception(error)

    # A daemon, so that a driver that hangs for ever does not keep the process from ending.
    threading.Thread(target=run, name="river-conformance", daemon=True).start()
    return future


async def _coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


class _StartedThread(Generic[T]):
    def __init__(self, future: Future[T], seconds: float) -> None:
        self._future = future
        self._seconds = seconds

    async def result(self) -> T:
        return self._future.result(self._seconds)

    def cancel(self) -> None:
        raise AssertionError("a thread cannot be cancelled")


class _StartedTask(Generic[T]):
    def __init__(self, task: asyncio.Task[T], seconds: float) -> None:
        self._task = task
        self._seconds = seconds

    async def result(self) -> T:
        return await asyncio.wait_for(asyncio.shield(self._task), self._seconds)

    def cancel(self) -> None:
        self._task.cancel()


class _Life(Generic[T]):
    """A context that is held open by a task."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._over = asyncio.Event()
        self._begun: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live())

    @property
    def entered(self) -> T:
        return self._begun.result()

    async def begin(self) -> None:
        tasks: list[asyncio.Future[Any]] = [self._begun, self._task]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not self._begun.done():
            await self._task

    async def end(self) -> None:
        self._over.set()
        await self._task

    async def _live(self) -> None:
        async with self._manager as entered:
            self._begun.set_result(entered)
            await self._over.wait()


async def _alive(manager: AbstractAsyncContextManager[T]) -> _Life[T]:
    life = _Life(manager)
    await life.begin()
    return life
