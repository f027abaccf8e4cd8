"""A token is cancelled once, by whichever thread is first, and everyone who asked is told once."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from river import CancellationToken, CancelReason, WorkCancelled

THREADS = 16
again = pytest.mark.parametrize("turn", range(20))


def at_once(*calls: Callable[[], object]) -> None:
    """Make all calls at the same moment, each in a thread of its own."""
    barrier = threading.Barrier(len(calls), timeout=30)
    errors: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            barrier.wait()
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert errors == []


def test_a_new_token_is_not_cancelled() -> None:
    token = CancellationToken()
    assert not token.cancelled
    assert token.reason is None
    token.raise_if_cancelled()


@pytest.mark.parametrize("reason", CancelReason)
def test_a_cancelled_token_says_why(reason: CancelReason) -> None:
    token = CancellationToken()
    assert token.cancel(reason)
    assert (token.cancelled, token.reason) == (True, reason)
    with pytest.raises(WorkCancelled, match=reason.value):
        token.raise_if_cancelled()


def test_the_first_reason_stays() -> None:
    token = CancellationToken()
    assert token.cancel(CancelReason.TIMEOUT)
    assert not token.cancel(CancelReason.CLIENT_STOPPING)
    assert token.reason is CancelReason.TIMEOUT


def test_work_cancelled_is_not_caught_with_ordinary_errors() -> None:
    assert not issubclass(WorkCancelled, Exception)


def test_callbacks_are_called_in_order_by_the_thread_that_cancels_and_see_the_reason() -> None:
    token, seen = CancellationToken(), list[object]()

    def note(name: str) -> None:
        seen.append((name, token.reason, threading.current_thread().name))

    for name in "ab":
        token.on_cancel(partial(note, name))
    thread = threading.Thread(target=token.cancel, args=(CancelReason.TIMEOUT,), name="canceller")
    thread.start()
    thread.join(timeout=30)
    assert seen == [("a", CancelReason.TIMEOUT, "canceller"), ("b", CancelReason.TIMEOUT, "canceller")]


def test_a_second_cancellation_calls_nobody() -> None:
    token, seen = CancellationToken(), list[int]()
    token.on_cancel(lambda: seen.append(1))
    token.cancel(CancelReason.TIMEOUT)
    token.cancel(CancelReason.TIMEOUT)
    assert seen == [1]


def test_a_late_callback_is_called_at_once() -> None:
    token, seen = CancellationToken(), list[int]()
    token.cancel(CancelReason.TIMEOUT)
    withdraw = token.on_cancel(lambda: seen.append(1))
    assert seen == [1]
    withdraw()
    assert seen == [1]


def test_a_withdrawn_callback_is_not_called_and_the_others_are() -> None:
    token, seen = CancellationToken(), list[str]()
    withdraw = token.on_cancel(lambda: seen.append("withdrawn"))
    token.on_cancel(lambda: seen.append("kept"))
    withdraw()
    withdraw()
    token.cancel(CancelReason.TIMEOUT)
    withdraw()
    assert seen == ["kept"]


def test_withdrawing_one_of_two_registrations_of_a_callback_leaves_the_other() -> None:
    token, seen = CancellationToken(), list[int]()

    def callback() -> None:
        seen.append(1)

    withdraw = token.on_cancel(callback)
    token.on_cancel(callback)
    withdraw()
    token.cancel(CancelReason.TIMEOUT)
    assert seen == [1]


def test_a_failing_callback_is_logged_and_does_not_keep_the_others_from_being_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    token, seen = CancellationToken(), list[int]()
    token.on_cancel(lambda: 1 // 0)
    token.on_cancel(lambda: seen.append(1))
    with caplog.at_level(logging.ERROR, logger="river.worker"):
        assert token.cancel(CancelReason.TIMEOUT)
    assert seen == [1]
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_callback_may_use_the_token() -> None:
    token, seen = CancellationToken(), list[object]()

    def callback() -> None:
        seen.append(token.cancel(CancelReason.CLIENT_STOPPING))
        token.on_cancel(lambda: seen.append(token.reason))

    token.on_cancel(callback)
    token.cancel(CancelReason.TIMEOUT)
    assert seen == [False, CancelReason.TIMEOUT]


@again
def test_of_many_threads_that_cancel_one_is_first_and_each_callback_is_called_once(turn: int) -> None:
    token, firsts, seen = CancellationToken(), list[CancelReason](), list[int]()
    for n in range(5):
        token.on_cancel(partial(seen.append, n))

    def cancel(reason: CancelReason) -> None:
        if token.cancel(reason):
            firsts.append(reason)

    at_once(*[partial(cancel, list(CancelReason)[n % len(CancelReason)]) for n in range(THREADS)])
    assert firsts == [token.reason]
    assert seen == [0, 1, 2, 3, 4]


@again
def test_callbacks_that_race_with_the_cancellation_are_each_called_once(turn: int) -> None:
    token, seen = CancellationToken(), list[int]()
    registrations = [partial(token.on_cancel, partial(seen.append, n)) for n in range(THREADS)]
    at_once(*registrations, partial(token.cancel, CancelReason.TIMEOUT))
    assert Counter(seen) == Counter(range(THREADS))


@again
def test_withdrawals_that_race_with_the_cancellation_are_called_once_or_never(turn: int) -> None:
    token, seen, kept = CancellationToken(), list[int](), list[int]()
    withdrawals = [token.on_cancel(partial(seen.append, n)) for n in range(THREADS)]
    token.on_cancel(partial(kept.append, 1))
    at_once(*withdrawals, partial(token.cancel, CancelReason.TIMEOUT))
    assert max(Counter(seen).values(), default=0) <= 1
    assert kept == [1]
