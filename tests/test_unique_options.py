"""Which jobs count as the same is said in options, and what they cannot be is refused where they are made."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from river import InvalidJobError, JobState
from river.unique import UniqueOpts, state_mask
from tests.support.unique_keys import BY_ARGS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by_args": "id"}, "by_args must be True, False or a list"),
        ({"by_args": 1}, "by_args must be True, False or a list"),
        ({"by_args": None}, "by_args must be True, False or a list"),
        ({"by_args": []}, "by_args is an empty list"),
        ({"by_args": [1]}, "by_args holds 1"),
        ({"by_args": [""]}, "by_args names ''"),
        ({"by_args": ["a..b"]}, "by_args names 'a..b'"),
        ({"by_args": ["a."]}, "by_args names 'a.'"),
        ({"by_args": [r"a\b"]}, "has a backslash before it"),
        ({"by_args": ["a.0"]}, "whole number '0'"),
        ({"by_args": ["-1"]}, "whole number '-1'"),
        ({"by_period": 0}, "by_period must be 1 second to 9223372036 seconds"),
        ({"by_period": 0.999}, "by_period must be 1 second"),
        ({"by_period": -60}, "by_period must be 1 second"),
        ({"by_period": timedelta(milliseconds=999)}, "by_period must be 1 second"),
        ({"by_period": 9_223_372_037}, "by_period must be 1 second to 9223372036 seconds"),
        ({"by_period": True}, "by_period must be a number of seconds"),
        ({"by_period": math.nan}, "by_period must be a number of seconds"),
        ({"by_period": math.inf}, "by_period must be a number of seconds"),
        ({"by_period": "1h"}, "by_period must be a number of seconds"),
        ({"by_queue": 1}, "by_queue must be True or False, not 1"),
        ({"by_queue": "mail"}, "by_queue must be True or False, not 'mail'"),
        ({"exclude_kind": None, "by_args": True}, "exclude_kind must be True or False, not None"),
        ({"exclude_kind": True}, "exclude_kind=True needs one of by_args, by_period and by_queue"),
        (
            {"exclude_kind": True, "by_state": list(JobState)},
            "exclude_kind=True needs one of by_args, by_period and by_queue",
        ),
        ({"by_state": "available"}, "by_state must be a list of states"),
        ({"by_state": 245}, "by_state must be a list of states"),
        ({"by_state": ["avaliable"]}, "by_state holds 'avaliable'.* did you mean 'available'?"),
        ({"by_state": [None]}, "by_state holds None"),
        ({"by_state": ["available"]}, r"by_state \['available'\] lacks pending, running, scheduled"),
        ({"by_state": [each for each in JobState if each != "running"]}, "lacks running"),
    ],
)
def test_an_option_that_cannot_be_is_refused_where_it_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJobError, match=message):
        UniqueOpts(**options)


def test_an_unknown_option_is_refused() -> None:
    unknown: dict[str, Any] = {"by_arg": True}
    with pytest.raises(TypeError, match="by_arg"):
        UniqueOpts(**unknown)


@pytest.mark.parametrize(
    ("opts", "empty"),
    [
        (UniqueOpts(), True),
        (UniqueOpts(by_args=False, by_queue=False), True),
        (BY_ARGS, False),
        (UniqueOpts(by_args=["id"]), False),
        (UniqueOpts(by_period=1), False),
        (UniqueOpts(by_queue=True), False),
        (UniqueOpts(by_state=[]), False),
    ],
)
def test_options_are_empty_when_nothing_is_asked_for(opts: UniqueOpts, empty: bool) -> None:
    assert opts.is_empty == empty


def test_options_do_not_change_with_the_lists_that_they_were_made_of() -> None:
    names, states = ["id"], list[JobState | str](JobState)
    opts = UniqueOpts(by_args=names, by_state=states)
    names.append("note")
    states.clear()
    assert opts == UniqueOpts(by_args=("id",), by_state=tuple(JobState))
    assert hash(opts) == hash(UniqueOpts(by_args=("id",), by_state=tuple(JobState)))


@given(st.permutations(list(JobState)), st.integers(0, 4))
def test_states_count_as_their_bits_in_any_order_and_spelling(states: list[JobState], optional: int) -> None:
    required = [JobState.AVAILABLE, JobState.PENDING, JobState.RUNNING, JobState.SCHEDULED]
    chosen = [*required, *[each for each in states if each not in required][:optional]]
    names = ["available", "cancelled", "completed", "discarded", "pending", "retryable", "running", "scheduled"]
    mask = sum(1 << names.index(state.value) for state in chosen)
    assert state_mask(UniqueOpts(by_state=chosen)) == mask
    assert state_mask(UniqueOpts(by_state=[state.value for state in reversed(chosen)])) == mask
