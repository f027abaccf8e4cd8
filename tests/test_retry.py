"""River's retry schedule, held to the values that River Go computes."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from river import DefaultRetryPolicy, JobRow, JobState
from river.retry import LONGEST_DELAY
from tests.test_operation import untimed

GOLDENS = json.loads((Path(__file__).parent / "fixtures" / "protocol_values.json").read_text(encoding="utf-8"))
NOW = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Fixed(random.Random):
    """A generator whose every number lies at one place of its range."""

    def __init__(self, place: float) -> None:
        super().__init__(0)
        self._place = place

    def random(self) -> float:
        return self._place


LOWEST, MIDDLE, HIGHEST = Fixed(0.0), Fixed(0.5), Fixed(1 - 2**-53)


def failed(times: int | None, **columns: Any) -> JobRow:
    """A job as claimed after it has failed so many times."""
    values: dict[str, Any] = {
        "id": 1,
        "state": JobState.RUNNING,
        "attempt": 1,
        "max_attempts": 25,
        "attempted_at": NOW,
        "created_at": NOW,
        "finalized_at": None,
        "scheduled_at": NOW,
        "priority": 1,
        "recorded_args": msgspec.Raw(b"{}"),
        "attempted_by": ["me"],
        "recorded_errors": None if times is None else [msgspec.Raw(b"{}")] * times,
        "kind": "note",
        "metadata": {},
        "queue": "default",
        "tags": [],
        "unique_key_text": None,
        "unique_states_text": None,
    }
    return JobRow(**values | columns)


@pytest.mark.parametrize("case", GOLDENS["retry_cases"], ids=lambda case: f"after-{case['error_count']}")
def test_delays_are_those_of_river(case: dict[str, Any]) -> None:
    """The goldens count the current failure, which the row that is asked about does not have yet."""
    now = datetime.fromisoformat(case["now"])
    shortest, longest = (timedelta(microseconds=case[f"{bound}_delay_ns"] / 1000) for bound in ("min", "max"))
    # Go's longest duration has a fraction of a second more than the whole seconds that it is cut to here.
    slack = timedelta(seconds=1) if longest > LONGEST_DELAY else MICROSECOND
    row = failed(case["error_count"] - 1, id=case["job_id"])
    for jitter in (LOWEST, MIDDLE, HIGHEST, random.Random(case["seed"])):
        delay = DefaultRetryPolicy(jitter).next_retry(row, now) - now
        assert shortest - slack <= delay <= longest + slack
    if longest <= LONGEST_DELAY:
        assert abs(DefaultRetryPolicy(LOWEST).next_retry(row, now) - now - shortest) <= MICROSECOND
        assert abs(DefaultRetryPolicy(HIGHEST).next_retry(row, now) - now - longest) <= MICROSECOND


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 1), (2, 16), (3, 81), (4, 256), (5, 625), (10, 10_000), (15, 50_625), (24, 331_776)]
)
def test_the_delay_is_the_fourth_power_of_the_failures(failures: int, seconds: int) -> None:
    assert abs(DefaultRetryPolicy(MIDDLE).delay(failures) - timedelta(seconds=seconds)) <= MICROSECOND


def test_the_current_failure_counts_though_it_is_not_recorded_yet() -> None:
    policy = DefaultRetryPolicy(MIDDLE)
    for row in (failed(None), failed(0)):
        assert abs(policy.next_retry(row, NOW) - NOW - timedelta(seconds=1)) <= MICROSECOND


def test_attempts_without_a_recorded_error_cost_nothing() -> None:
    policy = DefaultRetryPolicy(MIDDLE)
    assert policy.next_retry(failed(1, attempt=20), NOW) == policy.next_retry(failed(1, attempt=2), NOW)


@untimed
@given(st.integers(1, 40_000), st.integers())
def test_a_delay_is_within_ten_percent_and_below_the_cap(failures: int, seed: int) -> None:
    delay = DefaultRetryPolicy(random.Random(seed)).delay(failures)
    base = failures**4
    assert timedelta(0) < delay <= LONGEST_DELAY
    assert delay >= min(timedelta(seconds=0.9 * base) if base < 10**13 else LONGEST_DELAY, LONGEST_DELAY) * 0.9999
    if base < 8_000_000_000:
        assert delay <= timedelta(seconds=1.1 * base) + MICROSECOND


@untimed
@given(st.integers(1, 40_000), st.datetimes(max_value=datetime(9000, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_no_number_of_failures_leads_out_of_the_calendar(failures: int, now: datetime) -> None:
    at = DefaultRetryPolicy(HIGHEST).next_retry(failed(failures - 1) if failures < 500 else failed(500), now)
    assert at > now
    assert at.tzinfo is UTC


@pytest.mark.parametrize("failures", [310, 311, 1_000, 32_767, 10**9])
@pytest.mark.parametrize("jitter", [LOWEST, HIGHEST])
def test_at_the_cap_there_is_no_jitter(failures: int, jitter: random.Random) -> None:
    assert DefaultRetryPolicy(jitter).delay(failures) == LONGEST_DELAY


def test_below_the_cap_jitter_cannot_exceed_it() -> None:
    assert DefaultRetryPolicy(HIGHEST).delay(309) == LONGEST_DELAY
    assert DefaultRetryPolicy(LOWEST).delay(309) < LONGEST_DELAY


def test_jitter_is_used_and_is_the_callers() -> None:
    first, second = (DefaultRetryPolicy(random.Random(1)) for _ in range(2))
    delays = [first.delay(5) for _ in range(10)]
    assert delays == [second.delay(5) for _ in range(10)]
    assert len(set(delays)) == 10
