"""The pool of threads under ``def`` workers and blocking drivers, by itself."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from river.runtime.threads import Threads
from tests.support.clients import eventually


async def results_of(threads: Threads, *calls: Callable[[], Any]) -> list[Any]:
    return await asyncio.gather(*(threads.future(call) for call in calls), return_exceptions=True)


def alive(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


async def test_a_call_runs_in_a_named_daemon_thread_and_reports_in_the_loop() -> None:
    threads = Threads("river-test-name", 1)
    reported: asyncio.Future[tuple[str, int | None]] = asyncio.get_running_loop().create_future()

    def call() -> threading.Thread:
        return threading.current_thread()

    def done(result: threading.Thread | None, error: BaseException | None) -> None:
        assert result is not None
        assert result.daemon
        reported.set_result((result.name, threading.current_thread().ident))

    threads.submit(call, done)
    assert await reported == ("river-test-name-1", threading.get_ident())
    threads.close()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_whatever_a_call_raises_is_reported_and_the_thread_lives_on(error: BaseException) -> None:
    name = f"river-test-{type(error).__name__}"
    threads = Threads(name, 1)
    reported: asyncio.Queue[tuple[object, BaseException | None]] = asyncio.Queue()

    def call() -> None:
        raise error

    threads.submit(call, lambda result, raised: reported.put_nowait((result, raised)))
    assert await reported.get() == (None, error)
    threads.submit(lambda: 7, lambda result, raised: reported.put_nowait((result, raised)))
    assert await reported.get() == (7, None)
    assert alive(name) == 1
    threads.close()


async def test_there_are_never_more_threads_than_the_limit_and_all_calls_get_their_turn() -> None:
    threads = Threads("river-test-limit", 3)
    lock, inside, most = threading.Lock(), 0, 0
    full = threading.Event()

    def call() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            if inside == 3:
                full.set()
        assert full.wait(30)
        with lock:
            inside -= 1

    assert await results_of(threads, *[call] * 50) == [None] * 50
    assert most == 3
    threads.close()


async def test_one_thread_is_enough_for_calls_that_come_one_by_one() -> None:
    threads = Threads("river-test-one", 10)
    for _ in range(20):
        await threads.future(lambda: None)
    assert alive("river-test-one") == 1
    threads.close()


async def test_a_spare_thread_takes_the_place_of_one_that_hangs() -> None:
    threads = Threads("river-test-spare", 1)
    release = threading.Event()
    hanging = threads.future(lambda: release.wait(60))
    waiting = threads.future(lambda: "done")
    threads.spare()
    assert await threads.future(lambda: "also") == "also"
    assert await waiting == "done"
    assert not hanging.done()
    release.set()
    assert await hanging
    threads.close()


async def test_a_cancelled_future_does_not_stop_the_call_and_its_result_is_dropped() -> None:
    threads = Threads("river-test-cancel", 1)
    entered, release, left = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        entered.set()
        assert release.wait(30)
        left.set()

    future = threads.future(call)
    await eventually(entered.is_set, "the call has begun")
    future.cancel()
    release.set()
    await eventually(left.is_set, "the call has ended")
    assert await threads.future(lambda: "next") == "next"
    threads.close()


async def test_threads_end_after_close_when_their_calls_are_done() -> None:
    threads = Threads("river-test-close", 4)
    release = threading.Event()
    futures = [threads.future(lambda: release.wait(60)) for _ in range(4)]
    assert alive("river-test-close") == 4
    threads.close()
    release.set()
    assert await asyncio.gather(*futures) == [True] * 4
    await eventually(lambda: alive("river-test-close") == 0, "the threads have ended")


async def test_the_calls_of_a_burst_share_one_wake_up_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    threads = Threads("river-test-burst", 1)
    wake_ups = 0
    wake = loop.call_soon_threadsafe

    def counted(callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.Handle:
        nonlocal wake_ups
        wake_ups += 1
        return wake(callback, *args, **options)

    last = threading.Event()
    done: list[int] = []
    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    for _ in range(100):
        threads.submit(lambda: None, lambda _result, _error: done.append(len(done)))
    threads.submit(last.set, lambda _result, _error: done.append(len(done)))
    # The loop is kept from running meanwhile, so all hundred come in behind the first one's wake-up.
    assert last.wait(30)
    await eventually(lambda: len(done) == 101, "all calls are reported")
    monkeypatch.undo()
    assert done == list(range(101))
    assert wake_ups <= 2
    threads.close()


async def test_a_report_that_fails_does_not_strand_the_others_of_its_burst() -> None:
    loop = asyncio.get_running_loop()
    faults: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: faults.append(context))
    threads = Threads("river-test-fault", 1)
    done: list[str] = []
    last = threading.Event()

    def fail(_result: object, _error: object) -> None:
        raise RuntimeError("fault")

    threads.submit(lambda: None, fail)
    threads.submit(last.set, lambda _result, _error: done.append("second"))
    assert last.wait(30)
    await eventually(lambda: bool(done), "the second call is reported", seconds=5)
    assert [str(fault["exception"]) for fault in faults] == ["fault"]
    threads.close()


def test_a_call_that_outlives_its_loop_ends_quietly() -> None:
    entered, release, left = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        entered.set()
        assert release.wait(30)

    async def start() -> None:
        threads = Threads("river-test-closed-loop", 1)
        threads.submit(call, lambda _result, _error: pytest.fail("reported to a closed loop"))
        threads.submit(left.set, lambda _result, _error: pytest.fail("reported to a closed loop"))
        assert entered.wait(30)
        threads.close()

    asyncio.run(start())
    release.set()
    assert left.wait(30)
    for thread in threading.enumerate():
        if thread.name.startswith("river-test-closed-loop"):
            thread.join(30)
    assert alive("river-test-closed-loop") == 0


async def test_an_idle_thread_keeps_nothing_of_its_last_call_alive() -> None:
    class Thing:
        pass

    threads = Threads("river-test-alive", 1)

    def call_with(thing: Thing) -> Callable[[], Thing]:
        return lambda: thing

    thing = Thing()
    reference = weakref.ref(thing)
    await threads.future(call_with(thing))
    del thing

    def is_gone() -> bool:
        gc.collect()
        return reference() is None

    await eventually(is_gone, "the thing is freed")
    assert alive("river-test-alive") == 1
    threads.close()
