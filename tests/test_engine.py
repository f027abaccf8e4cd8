"""The decisions of the engine, without a clock: what an attempt's end does to its row, and when queues are asked."""

from __future__ import annotations

import heapq
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from river import JobCancel, JobDiscard, JobRow, JobSnooze, JobState, WorkCancelled
from river.engine.attempt import SCHEDULER_SECONDS, error_record, error_text, storable, transition_of
from river.engine.backoff import backoff_seconds
from river.engine.control import Cancel, Pause, Request, cancel_is_new, request_of
from river.engine.outage import BURST, MINUTE_SECONDS, Outage
from river.engine.pacing import ASK_SECONDS, COMMIT_SECONDS, LIMITS, LINGER_SECONDS, SUPPRESSED_SECONDS, Pacing
from river.engine.transition import Transition
from river.outcome import Cancelled, Completed, Discarded, Failed, Interrupted, Outcome, Snoozed, outcome_of
from river.sql import decode
from tests.test_operation import job_row, untimed

GOLDENS = json.loads((Path(__file__).parent / "fixtures" / "protocol_values.json").read_text(encoding="utf-8"))
AT = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
CLAIM = "2026-01-02T03:04:05.678900+00:00"
JUST_OVER = SCHEDULER_SECONDS + 1e-6


def claimed(**columns: Any) -> JobRow:
    (row,) = decode.jobs([job_row(**{"id": 7, "state": "running", "attempt": 2, "max_attempts": 5} | columns)])
    return row


def end(outcome: Outcome, retry_seconds: float = 16.0, **columns: Any) -> Transition:
    return transition_of(claimed(**columns), CLAIM, outcome, AT, retry_seconds)


BOOM = ValueError("boom")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (JobSnooze(5), Snoozed(5.0)),
        (BOOM, Failed(BOOM)),
        (stop := SystemExit(1), Failed(stop)),
        (cancelled := WorkCancelled("timeout"), Failed(cancelled)),
        (cancel := JobCancel("no"), Cancelled(cancel)),
        (discard := JobDiscard("no"), Discarded(discard)),
    ],
)
def test_what_a_worker_raises_is_its_outcome(error: BaseException, outcome: Outcome) -> None:
    assert outcome_of(error) == outcome


@pytest.mark.parametrize("delay", [-1, -0.001, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_a_job_is_not_snoozed_into_the_past_or_for_ever(delay: Any) -> None:
    with pytest.raises(ValueError, match="0 seconds or more"):
        JobSnooze(delay)


def test_a_snooze_is_seconds_or_a_timedelta() -> None:
    assert JobSnooze(timedelta(minutes=1)).seconds == JobSnooze(60).seconds == 60.0
    assert JobSnooze(0).seconds == 0.0


def test_completed_writes_the_state_alone() -> None:
    transition = end(Completed())
    assert transition == Transition(job_id=7, attempted_at=CLAIM, state=JobState.COMPLETED)
    assert transition.plain


@pytest.mark.parametrize(
    ("seconds", "state"),
    [
        (0.0, JobState.AVAILABLE),
        (SCHEDULER_SECONDS, JobState.AVAILABLE),
        (JUST_OVER, JobState.SCHEDULED),
        (86_400.0, JobState.SCHEDULED),
    ],
)
@pytest.mark.parametrize("attempt", [1, 5])
def test_snoozed_gives_the_attempt_back_and_records_no_error(seconds: float, state: JobState, attempt: int) -> None:
    assert end(Snoozed(seconds), attempt=attempt) == Transition(
        job_id=7,
        attempted_at=CLAIM,
        state=state,
        attempt=attempt - 1,
        delay_seconds=seconds,
        error=None,
        metadata={"snoozes": 1},
    )


@pytest.mark.parametrize(
    ("before", "after"), [(None, 1), (0, 1), (3, 4), ("3", 1), (True, 1), (1.5, 1), ([], 1), (2**70, 2**70 + 1)]
)
def test_snoozes_are_counted_from_what_is_a_number(before: Any, after: int) -> None:
    assert end(Snoozed(1.0), metadata={"snoozes": before, "other": 1}).metadata == {"snoozes": after}


@pytest.mark.parametrize("seconds", [1e300, timedelta.max.total_seconds()])
def test_a_snooze_beyond_the_databases_calendar_ends_within_it(seconds: float) -> None:
    """Otherwise the database refuses the transition, and the job stays running."""
    transition = end(Snoozed(seconds))
    assert transition.state is JobState.SCHEDULED
    assert transition.delay_seconds is not None
    assert AT + timedelta(seconds=transition.delay_seconds) < datetime(2400, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("attempt", [0, 1, 5])
def test_interrupted_is_available_at_once_and_gives_the_attempt_back(attempt: int) -> None:
    assert end(Interrupted(), attempt=attempt) == Transition(
        job_id=7, attempted_at=CLAIM, state=JobState.AVAILABLE, attempt=max(attempt - 1, 0), delay_seconds=0.0
    )


@pytest.mark.parametrize(
    ("outcome", "state"), [(Cancelled(JobCancel("no")), JobState.CANCELLED), (Discarded(BOOM), JobState.DISCARDED)]
)
@pytest.mark.parametrize("attempt", [1, 5])
def test_cancelled_and_discarded_are_final_and_record_why(outcome: Any, state: JobState, attempt: int) -> None:
    transition = end(outcome, attempt=attempt)
    assert (transition.state, transition.attempt, transition.delay_seconds) == (state, None, None)
    assert transition.error is not None
    assert transition.error["attempt"] == attempt
    assert not transition.plain


def test_the_text_of_a_cancellation_is_rivers() -> None:
    error = end(Cancelled(JobCancel("no such user"))).error
    assert error is not None
    assert error["error"] == "JobCancelError: no such user"


@pytest.mark.parametrize(
    ("attempt", "most", "seconds", "state"),
    [
        (1, 5, 0.0, JobState.AVAILABLE),
        (1, 5, 1.0, JobState.AVAILABLE),
        (1, 5, SCHEDULER_SECONDS, JobState.AVAILABLE),
        (1, 5, JUST_OVER, JobState.RETRYABLE),
        (4, 5, 256.0, JobState.RETRYABLE),
        (5, 5, 0.0, JobState.DISCARDED),
        (5, 5, 625.0, JobState.DISCARDED),
        (6, 5, 625.0, JobState.DISCARDED),
        (1, 1, 1.0, JobState.DISCARDED),
    ],
)
def test_failed_is_tried_again_until_the_last_attempt(attempt: int, most: int, seconds: float, state: JobState) -> None:
    transition = end(Failed(BOOM), seconds, attempt=attempt, max_attempts=most)
    assert transition.state is state
    assert transition.delay_seconds == (None if state is JobState.DISCARDED else seconds)
    assert (transition.attempt, transition.metadata) == (None, None)
    assert transition.error == {"at": "2026-01-02T03:04:05.678900Z", "attempt": attempt, "error": "boom", "trace": ""}


@untimed
@given(
    st.sampled_from([Completed(), Snoozed(3.0), Snoozed(60.0), Interrupted(), Cancelled(BOOM), Discarded(BOOM)])
    | st.just(Failed(BOOM)),
    st.floats(0, 1e9),
    st.integers(0, 100),
    st.integers(1, 100),
)
def test_every_transition_is_one_that_the_table_can_hold(
    outcome: Outcome, retry_seconds: float, attempt: int, most: int
) -> None:
    transition = end(outcome, retry_seconds, attempt=attempt, max_attempts=most)
    assert (transition.job_id, transition.attempted_at) == (7, CLAIM)
    assert transition.state not in (JobState.RUNNING, JobState.PENDING)
    assert transition.state.finalized == (transition.delay_seconds is None)
    assert transition.attempt is None or 0 <= transition.attempt <= attempt
    json.dumps([transition.error, transition.metadata])


def test_an_error_is_recorded_as_every_river_reads_it() -> None:
    record = error_record(BOOM, 3, AT)
    assert list(record) == list(GOLDENS["attempt_error"])
    assert (row := decode.jobs([job_row(errors=[record])])[0]).errors[0].at == AT
    assert (row.errors[0].attempt, row.errors[0].error) == (3, "boom")
    local = AT.astimezone(timezone(timedelta(hours=5, minutes=45)))
    assert error_record(BOOM, 3, local)["at"] == "2026-01-02T03:04:05.678900Z"
    assert error_record(BOOM, 3, AT.replace(microsecond=0))["at"] == "2026-01-02T03:04:05Z"


class BrokenError(Exception):
    def __str__(self) -> str:
        raise LookupError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("boom"), "boom"),
        (ValueError(), "ValueError"),
        (KeyError("user"), "KeyError: 'user'"),
        (ZeroDivisionError("division by zero"), "division by zero"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (BrokenError(), "BrokenError: (its text cannot be read)"),
        (JobDiscard(), "JobDiscard"),
    ],
)
def test_an_errors_text_always_says_something(error: BaseException, text: str) -> None:
    assert error_text(error) == text


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_trace_begins_in_the_hosts_code_and_names_the_cause() -> None:
    def work() -> None:
        try:
            dict[str, int]()["missing"]
        except KeyError as error:
            raise ValueError("boom") from error

    try:
        work()
    except ValueError as error:
        record = error_record(error, 1, AT)
    assert "in work" in record["trace"]
    assert "KeyError: 'missing'" in record["trace"]
    assert record["trace"].rstrip().endswith("ValueError: boom")
    assert record["trace"].startswith("KeyError") or "Traceback" in record["trace"]


def test_a_trace_of_rivers_own_code_alone_is_kept() -> None:
    with pytest.raises(ValueError, match="0 seconds") as info:
        JobSnooze(-1)
    inner = info.value.with_traceback(info.tb.tb_next)
    assert "outcome.py" in error_record(inner, 1, AT)["trace"]


@untimed
@given(st.text(st.characters()))
def test_whatever_an_error_says_can_be_stored(text: str) -> None:
    stored = storable(text)
    assert "\x00" not in stored
    stored.encode()
    if "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
        assert stored == text


def test_an_unstorable_message_and_trace_are_made_storable() -> None:
    record = error_record(raised(ValueError("a\x00b\ud800")), 1, AT)
    assert record["error"] == "a\\x00b\\ud800"
    record["trace"].encode()
    assert "\x00" not in record["trace"]


def test_a_broken_error_with_a_trace_is_recorded() -> None:
    record = error_record(raised(BrokenError()), 1, AT)
    assert record["error"] == "BrokenError: (its text cannot be read)"
    assert "raise error" in record["trace"]


@untimed
@given(st.integers(1, 10_000), st.floats(0.001, 10), st.floats(10, 1_000))
def test_a_backoff_grows_and_is_bounded(failures: int, first: float, longest: float) -> None:
    seconds = backoff_seconds(failures, first=first, longest=longest)
    assert min(first, longest) * 0.899 <= seconds <= longest * 1.101
    assert backoff_seconds(failures + 2, first=first, longest=longest) >= min(seconds, longest * 0.8)


def test_the_first_backoffs_double() -> None:
    for failures, seconds in enumerate([0.5, 1, 2, 4, 8, 16, 32, 32, 32], 1):
        assert seconds * 0.899 <= backoff_seconds(failures) <= seconds * 1.101


# Pacing: single decisions first, a whole life of a queue after them.


def pacing(slots: int = 10, cooldown: float = 0.1, poll: float = 1.0) -> Pacing:
    return Pacing(slots=slots, cooldown_seconds=cooldown, poll_seconds=poll)


def after(paced: Pacing, now: float, found: int, limit: int = 10) -> Pacing:
    paced.claiming(now)
    paced.claimed(now, found, limit, jitter=0.0)
    return paced


@untimed
@given(st.integers(-5, 20_000))
def test_a_claim_asks_for_no_more_than_is_free_and_for_half_of_it_at_least(free: int) -> None:
    limit = pacing().limit(free)
    assert limit in (*LIMITS, 0)
    assert (limit == 0) == (free <= 0)
    assert limit <= max(free, 0)
    assert limit * 2.5 >= min(free, LIMITS[0])


def test_the_first_claim_is_made_at_once() -> None:
    assert pacing().wait(0.0, 10) == 0.0


@pytest.mark.parametrize("free", [0, -1])
def test_without_a_free_slot_nothing_is_due(free: int) -> None:
    assert pacing().wait(0.0, free) is None
    assert after(pacing(), 0.0, 10).wait(100.0, free) is None


def test_after_a_full_claim_the_next_follows_at_once_when_half_of_the_slots_are_free() -> None:
    paced = after(pacing(), 1.0, found=10)
    assert paced.wait(1.0, 5) == 0.0


def test_after_a_full_claim_a_single_free_slot_lingers_but_not_for_long() -> None:
    paced = after(pacing(), 1.0, found=10)
    assert paced.wait(1.0, 1) == pytest.approx(LINGER_SECONDS)
    assert paced.wait(1.0 + LINGER_SECONDS / 2, 2) == pytest.approx(LINGER_SECONDS / 2)
    assert paced.wait(1.0 + LINGER_SECONDS, 2) == pytest.approx(0.0)


def test_lingering_begins_when_the_first_slot_is_free() -> None:
    paced = after(pacing(), 1.0, found=10)
    assert paced.wait(1.0, 1) == pytest.approx(LINGER_SECONDS)
    assert paced.wait(2.0, 0) is None
    assert paced.wait(3.0, 1) == pytest.approx(LINGER_SECONDS)


def test_after_an_empty_claim_only_the_poll_is_due() -> None:
    assert after(pacing(), 1.0, found=0).wait(1.0, 10) == pytest.approx(1.0)
    assert after(pacing(), 1.0, found=0).wait(2.0, 10) == pytest.approx(0.0)


def test_a_notification_after_an_empty_claim_waits_for_the_cooldown_and_no_longer() -> None:
    paced = after(pacing(), 1.0, found=0)
    paced.woken()
    assert paced.wait(1.0, 10) == pytest.approx(0.1)
    assert paced.wait(1.1, 10) == pytest.approx(0.0)


def test_a_notification_after_a_claim_that_found_something_is_heeded_at_once() -> None:
    paced = after(pacing(), 1.0, found=3)
    paced.woken()
    assert paced.wait(1.0, 7) == 0.0


def test_a_notification_during_a_claim_asks_for_another() -> None:
    paced = pacing()
    paced.claiming(1.0)
    paced.woken()
    paced.claimed(1.0, 3, 10, jitter=0.0)
    assert paced.wait(1.0, 7) == 0.0


def test_a_notification_before_a_claim_is_served_by_it() -> None:
    paced = pacing()
    paced.woken()
    after(paced, 1.0, found=3)
    assert paced.wait(1.0, 7) == pytest.approx(1.0)


def test_a_failed_claim_is_not_repeated_before_its_backoff_is_over_also_when_woken() -> None:
    paced = after(pacing(), 1.0, found=10)
    paced.claiming(1.0)
    paced.failed(1.0, 8.0)
    assert paced.wait(1.0, 10) == pytest.approx(8.0)
    paced.woken()
    assert paced.wait(1.0, 10) == pytest.approx(8.0)
    assert paced.wait(9.0, 10) == pytest.approx(0.0)


@untimed
@given(st.floats(0, 1), st.floats(0.001, 100))
def test_jitter_only_ever_delays_a_poll_and_by_little(jitter: float, poll: float) -> None:
    paced = pacing(poll=poll, cooldown=0.001)
    paced.claiming(0.0)
    paced.claimed(0.0, 0, 10, jitter)
    wait = paced.wait(0.0, 10)
    assert wait is not None
    assert poll <= wait <= poll + max(poll * 0.1, 0.01) + 1e-9


LOOK_SECONDS = SUPPRESSED_SECONDS + COMMIT_SECONDS


def test_after_a_notification_the_queue_is_looked_at_once_more_when_others_were_suppressed_no_longer() -> None:
    paced = after(pacing(poll=60.0), 0.0, found=3)
    paced.notified(1.0)
    assert paced.wait(1.0, 7) == 0.0
    after(paced, 1.0, found=1)
    assert paced.wait(1.0, 7) == pytest.approx(LOOK_SECONDS)
    after(paced, 1.0 + LOOK_SECONDS / 2, found=1)  # for another reason, and too early to have seen all of them
    assert paced.wait(1.0 + LOOK_SECONDS / 2, 7) == pytest.approx(LOOK_SECONDS / 2)
    after(paced, 1.0 + LOOK_SECONDS, found=0)
    assert paced.wait(1.0 + LOOK_SECONDS, 7) == pytest.approx(60.0)


def test_the_second_look_is_the_last_notifications_and_no_earlier_ones() -> None:
    paced = after(pacing(poll=60.0), 0.0, found=3)
    paced.notified(1.0)
    paced.notified(1.05)
    after(paced, 1.05, found=2)
    assert paced.wait(1.05, 7) == pytest.approx(LOOK_SECONDS)


def test_the_second_look_waits_for_a_longer_cooldown() -> None:
    paced = after(pacing(poll=60.0, cooldown=5.0), 0.0, found=3)
    paced.notified(1.0)
    after(paced, 1.0, found=1)
    assert paced.wait(1.0, 7) == pytest.approx(5.0 + COMMIT_SECONDS)


def test_the_second_look_waits_out_the_backoff_of_a_failure() -> None:
    paced = after(pacing(poll=60.0), 0.0, found=3)
    paced.notified(1.0)
    paced.claiming(1.0)
    paced.failed(1.0, 8.0)
    assert paced.wait(1.0 + LOOK_SECONDS, 7) == pytest.approx(8.0 - LOOK_SECONDS)


def test_a_job_that_is_known_to_become_due_is_claimed_then() -> None:
    paced = after(pacing(poll=60.0), 1.0, found=0)
    paced.due(9.0)
    paced.due(5.0)
    paced.due(7.0)
    assert paced.wait(1.0, 7) == pytest.approx(4.0)
    after(paced, 4.0, found=0)
    assert paced.wait(4.0, 7) == pytest.approx(1.0)
    after(paced, 5.0, found=1)
    assert paced.wait(5.0, 7) == pytest.approx(60.0)


def test_when_the_next_job_is_due_is_asked_after_a_claim_that_left_nothing() -> None:
    assert not after(pacing(), 1.0, found=10).asks_when_due(1.0)
    assert after(pacing(), 1.0, found=9).asks_when_due(1.0)
    assert after(pacing(), 1.0, found=0).asks_when_due(1.0)


def test_when_the_next_job_is_due_is_asked_seldom_but_nothing_is_missed() -> None:
    paced = after(pacing(poll=60.0), 1.0, found=3)
    assert paced.asks_when_due(1.0)
    after(paced, 1.05, found=3)
    assert not paced.asks_when_due(1.05)
    assert paced.wait(1.05, 7) == pytest.approx(ASK_SECONDS - 0.05)
    after(paced, 1.0 + ASK_SECONDS, found=0)
    assert paced.asks_when_due(1.0 + ASK_SECONDS)
    assert paced.wait(1.0 + ASK_SECONDS, 7) == pytest.approx(60.0)


def test_when_the_next_job_is_due_is_left_to_the_second_look_if_there_is_one() -> None:
    paced = after(pacing(poll=60.0), 0.0, found=3)
    paced.notified(1.0)
    after(paced, 1.0, found=1)
    assert not paced.asks_when_due(1.0)
    after(paced, 1.0 + LOOK_SECONDS, found=0)
    assert paced.asks_when_due(1.0 + LOOK_SECONDS)


def test_a_job_that_was_due_lets_the_next_one_be_asked_for_at_once() -> None:
    paced = after(pacing(poll=60.0), 1.0, found=0)
    assert paced.asks_when_due(1.0)
    paced.due(1.15)
    after(paced, 1.15, found=1)
    assert paced.asks_when_due(1.15)


# What to say of an outage


def test_an_outage_is_said_when_it_begins_and_once_a_minute_and_its_end_too() -> None:
    outage = Outage()
    assert not outage.recovered()
    said = [second for second in range(200) if outage.failed(float(second))]
    assert said == [0, 60, 120, 180]
    assert outage.recovered()
    assert not outage.recovered()


def test_what_comes_and_goes_is_said_a_few_times_in_a_minute() -> None:
    outage = Outage()
    said = []
    for n in range(600):
        if outage.failed(n / 10):
            said.append(n / 10)
        assert outage.recovered() == (n / 10 in said)
    assert said == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert outage.failed(60.0)


@untimed
@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=100))
def test_no_outage_of_a_minute_is_silent_and_none_is_a_flood(steps: list[tuple[float, bool]]) -> None:
    outage, now, said = Outage(), 0.0, list[float]()
    for seconds, works in steps:
        now += seconds
        if works:
            outage.recovered()
        elif outage.failed(now):
            said.append(now)
        else:
            assert now - said[-1] < MINUTE_SECONDS
    assert all(later - earlier >= MINUTE_SECONDS for earlier, later in zip(said, said[BURST:], strict=False))


# What others ask for


@pytest.mark.parametrize(
    ("payload", "request_"),
    [
        ({"action": "cancel", "job_id": 7, "queue": "q", "more": [1]}, Cancel("q", 7)),
        ({"action": "pause", "queue": "q"}, Pause("q", paused=True)),
        ({"action": "resume", "queue": "*"}, Pause("*", paused=False)),
        ({"action": "metadata_changed", "queue": "q", "metadata": {}}, None),
        ({"action": "unheard of", "queue": "q"}, None),
        ({"action": "cancel", "job_id": "7", "queue": "q"}, None),
        ({"action": "cancel", "job_id": 7.0, "queue": "q"}, None),
        ({"action": "cancel", "job_id": True, "queue": "q"}, None),
        ({"action": "cancel", "queue": "q"}, None),
        ({"action": "cancel", "job_id": 7}, None),
        ({"action": "pause", "queue": None}, None),
        ({"action": ["pause"], "queue": "q"}, None),
        ({}, None),
    ],
)
def test_what_a_payload_asks_for_is_known_or_ignored(payload: dict[str, Any], request_: Request | None) -> None:
    assert request_of(payload) == request_


def test_a_pause_of_all_queues_concerns_each_and_one_of_a_queue_only_that() -> None:
    assert Pause("*", paused=True).concerns("q")
    assert Pause("q", paused=True).concerns("q")
    assert not Pause("q", paused=True).concerns("queue")


@pytest.mark.parametrize(
    ("at_claim", "found", "new"),
    [
        ({}, "2026-01-01T00:00:00Z", True),
        ({}, None, True),
        ({"cancel_attempted_at": "2026-01-01T00:00:00Z"}, "2026-01-01T00:00:00Z", False),
        ({"cancel_attempted_at": "2026-01-01T00:00:00Z"}, "2026-01-01T00:00:01Z", True),
        ({"cancel_attempted_at": "2026-01-01T00:00:00Z"}, "2025-01-01T00:00:00Z", True),
        ({"cancel_attempted_at": None}, None, False),
        ({"cancel_attempted_at": None}, "2026-01-01T00:00:00Z", True),
    ],
)
def test_a_cancellation_is_new_if_the_row_shows_another_one_than_at_the_claim(
    at_claim: dict[str, Any], found: object, new: bool
) -> None:
    assert cancel_is_new(at_claim, found) is new


CLAIM_SECONDS = 0.001


@dataclass
class Simulation:
    """A producer's loop over a queue, with a clock of its own.

    Jobs arrive, are announced or not, and run for a while; a claim takes a millisecond and finds what is there when
    it ends.
    """

    paced: Pacing
    arrivals: list[tuple[float, bool]]
    durations: Iterator[float]
    now: float = 0.0
    waiting: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    claims: list[tuple[float, int, int]] = field(default_factory=list)
    told_at: float = -math.inf

    def run(self, until: float) -> Simulation:
        steps = 0
        while self.now < until and not (self.idle and self.now > until / 2):
            steps += 1
            assert steps < 100_000, "a busy loop"
            wait = self.paced.wait(self.now, self.free)
            if wait == 0.0:
                self.claim()
            else:
                self.advance(min([*self.events(), until] if wait is None else [*self.events(), self.now + wait, until]))
        return self

    @property
    def free(self) -> int:
        return self.paced.slots - len(self.running)

    @property
    def idle(self) -> bool:
        return not (self.arrivals or self.waiting or self.running)

    def events(self) -> list[float]:
        return [*self.running[:1], *[at for at, _ in self.arrivals[:1]]]

    def advance(self, to: float) -> None:
        self.now = max(self.now, to)
        while self.running and self.running[0] <= self.now:
            heapq.heappop(self.running)
        while self.arrivals and self.arrivals[0][0] <= self.now:
            at, announced = self.arrivals.pop(0)
            self.waiting.append(at)
            # As River's clients do it: one notification in a tenth of a second, by the clock of who inserts.
            if announced and at - self.told_at >= SUPPRESSED_SECONDS:
                self.told_at = at
                self.paced.notified(self.now)

    def claim(self) -> None:
        free = self.free
        limit = self.paced.limit(free)
        assert 0 < limit <= free
        self.paced.claiming(self.now)
        self.advance(self.now + CLAIM_SECONDS)
        found, self.waiting = self.waiting[:limit], self.waiting[limit:]
        for at in found:
            self.delays.append(self.now - at)
            heapq.heappush(self.running, self.now + next(self.durations))
        assert len(self.running) <= self.paced.slots
        self.paced.claimed(self.now, len(found), limit, jitter=0.5)
        self.claims.append((self.now, len(found), limit))


def lasting(seed: int, longest: float) -> Iterator[float]:
    chance = random.Random(seed)
    while True:
        yield chance.uniform(0.0, longest)


WORKLOADS = st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=200).map(sorted)


@untimed
@given(WORKLOADS, st.integers(1, 40), st.integers(0, 99), st.sampled_from([0.0, 0.01, 0.2]))
def test_no_job_starves_and_no_claim_is_idle(
    arrivals: list[tuple[float, bool]], slots: int, seed: int, longest: float
) -> None:
    poll, cooldown = 0.5, 0.1
    simulation = Simulation(pacing(slots, cooldown, poll), list(arrivals), lasting(seed, longest)).run(60.0)
    assert simulation.idle
    # Nobody waits for longer than a poll, but for what is in front of it and for slots to become free.
    ahead = len(arrivals) * (CLAIM_SECONDS + LINGER_SECONDS + longest)
    assert max(simulation.delays, default=0.0) <= poll * 1.1 + cooldown + CLAIM_SECONDS + ahead
    empty = [at for at, found, _ in simulation.claims if found == 0]
    assert all(later - earlier >= cooldown - 1e-9 for earlier, later in pairwise(empty))
    assert len(simulation.claims) <= len(arrivals) + len(empty)
    assert len(empty) <= simulation.now / cooldown + 2


@untimed
@given(st.integers(1, 500), st.integers(1, 200))
def test_a_backlog_is_claimed_without_a_pause_and_in_large_portions(jobs: int, slots: int) -> None:
    simulation = Simulation(pacing(slots), [(0.0, False)] * jobs, lasting(1, 0.0)).run(60.0)
    assert len(simulation.delays) == jobs
    full = [(found, limit) for _, found, limit in simulation.claims if found]
    assert all(found == limit for found, limit in full[:-9])
    assert max(simulation.delays) <= len(full) * (CLAIM_SECONDS + LINGER_SECONDS)


@untimed
@given(st.integers(2, 100), st.integers(0, 99))
def test_under_load_claims_are_bounded_by_the_linger(slots: int, seed: int) -> None:
    """Jobs end one by one; a claim for each would cost more than the jobs."""
    jobs = slots * 20
    simulation = Simulation(pacing(slots), [(0.0, False)] * jobs, lasting(seed, 0.1)).run(600.0)
    assert len(simulation.delays) == jobs
    busy = [claim for claim in simulation.claims if claim[1] == claim[2]]
    small = [
        (earlier[0], later[0])
        for earlier, later in pairwise(busy)
        if later[2] * 5 < slots  # far less than half of the slots, so it must have lingered
    ]
    assert all(later - earlier >= LINGER_SECONDS for earlier, later in small)


def test_an_announced_job_of_a_quiet_queue_starts_within_a_claim() -> None:
    arrivals = [(0.35 * n, True) for n in range(1, 20)]
    simulation = Simulation(pacing(poll=10.0), arrivals, lasting(1, 0.0)).run(60.0)
    assert max(simulation.delays) <= CLAIM_SECONDS + 1e-9


@untimed
@given(st.lists(st.floats(0, 3), max_size=100).map(sorted), st.integers(0, 99))
def test_an_announced_job_starts_soon_also_when_its_notification_was_suppressed(
    arrivals: list[float], seed: int
) -> None:
    announced = [(at, True) for at in arrivals]
    simulation = Simulation(pacing(200, poll=600.0), announced, lasting(seed, 0.0)).run(60.0)
    assert simulation.idle
    assert max(simulation.delays, default=0.0) <= 2 * LOOK_SECONDS + CLAIM_SECONDS


def test_an_unannounced_job_of_a_quiet_queue_starts_within_a_poll() -> None:
    simulation = Simulation(pacing(poll=0.5), [(0.7, False), (3.1, False)], lasting(1, 0.0)).run(60.0)
    assert max(simulation.delays) <= 0.5 * 1.1 + CLAIM_SECONDS


def test_a_quiet_queue_is_polled_and_no_more() -> None:
    simulation = Simulation(pacing(poll=1.0), [(100.0, False)], lasting(1, 0.0)).run(100.0)
    assert 90 <= len(simulation.claims) <= 101


def test_notifications_for_jobs_that_others_take_cost_a_claim_per_cooldown() -> None:
    paced = pacing(cooldown=0.1, poll=10.0)
    now, claims = 0.0, 0
    for _ in range(1_000):
        paced.woken()
        if paced.wait(now, 10) == 0.0:
            after(paced, now, found=0)
            claims += 1
        now += 0.001
    assert 10 <= claims <= 12
