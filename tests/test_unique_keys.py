"""A job's unique key is the one that Go's River gives it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from river import InvalidArgsError, InvalidJobError, JobArgs
from river.unique import Unique, UniqueOpts, key_of_job, state_mask, unique_key, unique_paths
from tests.support.unique_keys import AT, BY_ARGS, digest, key_by_args

FIXTURES = Path(__file__).parent / "fixtures"


class _Object(list[tuple[str, Any]]):
    """The members of a JSON object, as they stand."""


class _Number(str):
    """A JSON number, as it stands."""

    __slots__ = ()


def fixture(name: str) -> Any:
    """A fixture with its numbers, and the names of its objects, as they stand in it."""
    text = (FIXTURES / name).read_text()
    return json.loads(text, object_pairs_hook=_Object, parse_int=_Number, parse_float=_Number)


def json_of(value: Any) -> str:
    """A part of such a fixture as JSON, with whitespace."""
    if isinstance(value, _Object):
        return "{ " + ", ".join(f"{json.dumps(name)} : {json_of(item)}" for name, item in value) + " }"
    if isinstance(value, list):
        return "[ " + ", ".join(map(json_of, value)) + " ]"
    return value if isinstance(value, _Number) else json.dumps(value)


# What other implementations have


CONFORMANCE = dict(fixture("unique_keys.json"))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(dict(case), id=dict(case)["name"])
        for case in CONFORMANCE["cases"] + CONFORMANCE["typed_only_cases"]
    ],
)
def test_keys_and_states_are_those_of_the_conformance_cases(case: dict[str, Any]) -> None:
    options = dict(case["options"])
    opts = UniqueOpts(
        by_args=options["by_args"],
        by_period=timedelta(microseconds=int(options["by_period_nanos"]) // 1_000) or None,
        by_queue=options["by_queue"],
        by_state=options.get("by_state"),
        exclude_kind=options["exclude_kind"],
    )
    key = unique_key(
        opts,
        kind=case["kind"],
        encoded_args=json_of(case["args"]),
        paths=case["selected_unique_paths"] or (),
        queue=case["queue"],
        at=datetime.fromisoformat(case["scheduled_at"] or case["now"]),
    )
    assert key.hex() == case["expected_sha256"]
    assert state_mask(opts) == int(case["expected_state_mask"])


VECTORS = json.loads((FIXTURES / "unique_key_vectors.json").read_text())
LOCAL_ZONE = "River before 0.48 wrote the period in the zone of the process; since then in UTC"
PATH_SYNTAX = "River before 0.48 took a name of the args for a path of its lookup; 0.51 takes it literally"
LEFT_OUT = {
    "period_24h_ny": LOCAL_ZONE,
    "raw01": PATH_SYNTAX,
    "raw02": PATH_SYNTAX,
    "raw03": PATH_SYNTAX,
    "raw04": PATH_SYNTAX,
    "raw05": PATH_SYNTAX,
    "raw07": PATH_SYNTAX,
    "raw11": "River before 0.48 refused an empty name; 0.51 hashes it, as unique_keys.json does",
    "raw12": PATH_SYNTAX,
    "raw13": "no encoder of Go's leaves whitespace, which only the inner function of River let pass",
    "raw14": "args that are no object are refused here, and by River 0.51 unless they are an empty list",
    "raw16": PATH_SYNTAX,
}


@pytest.mark.parametrize("vector", [pytest.param(each, id=each["name"]) for each in VECTORS["vectors"]])
def test_keys_are_those_of_the_vectors_but_for_what_has_changed(vector: dict[str, Any]) -> None:
    opts = UniqueOpts(
        by_args=vector["by_args"],
        by_period=vector["by_period_seconds"] or None,
        by_queue=vector["by_queue"],
        exclude_kind=vector["exclude_kind"],
    )
    key = unique_key(
        opts,
        kind=vector["kind"],
        encoded_args=vector["encoded_args"],
        paths=vector["unique_paths"],
        queue=vector["queue"],
        at=datetime.fromisoformat(vector["now"]),
    )
    assert (key.hex() == vector["sha256_hex"]) == (vector["name"] not in LEFT_OUT)


@pytest.mark.parametrize(
    "vector", [pytest.param(each, id=each["name"]) for each in VECTORS["odd_keys_no_tags_by_args_kind_k"]]
)
def test_keys_of_odd_names_are_those_of_the_vectors_but_for_what_has_changed(vector: dict[str, Any]) -> None:
    try:
        key = key_by_args(vector["encoded_args"])
    except InvalidArgsError:
        key = b""
    agrees = vector["pre_hash"] is not None and key == digest(vector["pre_hash"])
    assert agrees == (vector["name"] not in LEFT_OUT)


OBSERVED = json.loads((FIXTURES / "unique_keys_observed.json").read_text())["cases"]


@pytest.mark.parametrize("case", [pytest.param(each, id=each["name"]) for each in OBSERVED])
def test_keys_and_states_are_those_that_river_was_seen_to_write(case: dict[str, Any]) -> None:
    # A timedelta has no nanoseconds, and a float only those of a short period.
    nanoseconds = case["by_period_nanoseconds"]
    short = nanoseconds < 10**12
    period = nanoseconds / 1e9 if short else timedelta(microseconds=nanoseconds // 1_000)
    opts = UniqueOpts(
        by_args=case["by_args"],
        by_period=period or None,
        by_queue=case["by_queue"],
        by_state=case["by_state"],
        exclude_kind=case["exclude_kind"],
    )
    key = unique_key(
        opts,
        kind=case["kind"],
        encoded_args=case["encoded_args"],
        paths=case["unique_paths"],
        queue=case["queue"],
        at=datetime.fromisoformat(case["scheduled_at"] or "2024-09-15T10:37:23Z"),
    )
    assert (key.hex(), state_mask(opts)) == (case["unique_key"], case["unique_states"])


# Classes of the shape of a Go struct


class DottedName(msgspec.Struct, rename={"a": "a.b", "b": "c"}):
    a: Annotated[int, Unique]
    b: Annotated[int, Unique]


class SortedName(msgspec.Struct, rename={"a": "a.b", "b": "aZ"}):
    b: Annotated[int, Unique]
    a: Annotated[int, Unique]


class MarkupName(msgspec.Struct, rename={"a": "x<", "b": "xZ", "c": "x&"}):
    a: Annotated[int, Unique]
    b: Annotated[int, Unique]
    c: Annotated[int, Unique]


class ForeignName(msgspec.Struct, rename={"a": "é<", "b": "z"}):
    a: Annotated[int, Unique]
    b: Annotated[int, Unique]


@dataclass
class End:
    id: Annotated[str, Unique]
    x: str


class Siblings(msgspec.Struct, rename={"source": "from", "target": "to"}):
    source: End
    target: End


class MarkedSiblings(msgspec.Struct, rename={"source": "from", "target": "to"}):
    source: Annotated[End | None, Unique]
    target: Annotated[End | None, Unique]


@dataclass
class Chain:
    kind: ClassVar[str] = "chain"
    id: Annotated[int, Unique]
    next: Chain | None


@dataclass
class Deep:
    p: End
    did: Annotated[int, Unique]


@dataclass
class Point:
    z: int
    a: int


@dataclass
class Searched:
    a: Deep
    b: End
    c: list[End]
    D: dict[str, End]
    e: End | None
    f: Annotated[Point, Unique]


SHAPES: dict[str, type] = {
    "name with a dot": DottedName,
    "missing name with a dot": DottedName,
    "sorted without the escapes": SortedName,
    "markup in names": MarkupName,
    "name that is not ASCII": ForeignName,
    "siblings of one class": Siblings,
    "siblings of one class, themselves marked": MarkedSiblings,
    "first sibling is null": MarkedSiblings,
    "nothing is there": Siblings,
    "a class that contains itself": Chain,
    "lists and mappings are not searched": Searched,
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_class_has_the_key_of_the_go_struct_of_its_shape(name: str) -> None:
    case = next(each for each in OBSERVED if each["name"] == f"marked: {name}")
    key = key_of_job(
        BY_ARGS, SHAPES[name], kind=case["kind"], encoded_args=case["encoded_args"], queue=case["queue"], at=AT
    )
    assert unique_paths(SHAPES[name]) == tuple(case["unique_paths"])
    assert key.hex() == case["unique_key"]


# Periods


@given(
    st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=106_000)),
    st.datetimes(
        timezones=st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours))),
        min_value=AT.replace(year=1, tzinfo=None),
        max_value=AT.replace(year=9999, tzinfo=None),
    ),
)
def test_a_period_begins_a_multiple_of_itself_after_the_year_1_in_whichever_zone(
    period: timedelta, at: datetime
) -> None:
    start = at.astimezone(UTC) - (at - datetime(1, 1, 1, tzinfo=UTC)) % period
    text = start.replace(microsecond=0, tzinfo=None).isoformat()
    key = unique_key(UniqueOpts(by_period=period), kind="k", encoded_args="{}", paths=(), queue="q", at=at)
    assert key == digest(f"&kind=k&period={text}Z")


def test_a_period_is_the_same_in_seconds_and_as_a_timedelta() -> None:
    keys = {
        unique_key(UniqueOpts(by_period=period), kind="k", encoded_args="{}", paths=(), queue="q", at=AT)
        for period in (90, 90.0, timedelta(minutes=1.5))
    }
    assert keys == {digest("&kind=k&period=2024-09-15T10:36:00Z")}


def test_a_naive_time_has_no_period() -> None:
    with pytest.raises(InvalidJobError, match="aware datetime"):
        unique_key(
            UniqueOpts(by_period=60), kind="k", encoded_args="{}", paths=(), queue="q", at=AT.replace(tzinfo=None)
        )


# What a key depends on


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), FLOATS, NAMES)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)


@given(OBJECTS, st.randoms())
def test_the_order_of_top_level_names_and_the_whitespace_do_not_count(
    args: dict[str, Any], chance: random.Random
) -> None:
    shuffled = list(args.items())
    chance.shuffle(shuffled)
    key = key_by_args(json.dumps(args))
    assert key == key_by_args(json.dumps(dict(shuffled), ensure_ascii=False, separators=(",", ":")))
    assert key == key_by_args(json.dumps(dict(shuffled), indent=3))


# A float and the integer that it equals are one number in Go's JSON; json.dumps tells all others apart.
TWO_VALUES = st.lists(
    st.recursive(st.none() | st.booleans() | st.integers() | NAMES, lambda inner: st.lists(inner, max_size=3)),
    min_size=2,
    max_size=2,
    unique_by=json.dumps,
)


@given(OBJECTS, st.text(st.sampled_from("abc.<é"), min_size=1, max_size=3), TWO_VALUES)
def test_a_field_that_counts_changes_the_key_and_another_does_not(
    args: dict[str, Any], name: str, values: list[Any]
) -> None:
    one, other = values
    path = name.replace(".", r"\.")
    first, second = (json.dumps({**args, name: value}) for value in (one, other))
    assert key_by_args(first) != key_by_args(second)
    assert key_by_args(first, path) != key_by_args(second, path)
    assert key_by_args(first, "other", path) == key_by_args(json.dumps({name: one}), path)
    assert key_by_args(first, "zz") == key_by_args(second, "zz")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["kind_a", "kind_b"]),
            st.sampled_from(["q1", "q2"]),
            st.sampled_from([AT, AT.replace(hour=12)]),
        ),
        min_size=2,
        max_size=2,
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_only_what_is_asked_for_counts(
    jobs: list[tuple[str, str, datetime]], by_queue: bool, by_period: bool, exclude_kind: bool
) -> None:
    opts = UniqueOpts(by_args=True, by_queue=by_queue, by_period=3600 if by_period else None, exclude_kind=exclude_kind)
    first, second = (
        unique_key(opts, kind=kind, encoded_args="{}", paths=(), queue=queue, at=at) for kind, queue, at in jobs
    )
    (kind, queue, at), (other_kind, other_queue, other_at) = jobs
    same = (
        (exclude_kind or kind == other_kind)
        and (not by_queue or queue == other_queue)
        and (not by_period or at == other_at)
    )
    assert (first == second) == same


# What has none


@pytest.mark.parametrize("encoded", ["[]", "null", '"text"', "1"])
def test_args_that_are_no_object_have_no_key(encoded: str) -> None:
    with pytest.raises(InvalidArgsError, match=r"'k' cannot be hashed, .* they are no JSON object"):
        key_by_args(encoded)


@dataclass
class Mapped:
    a: dict[str, float]


@pytest.mark.parametrize("args_type", [JobArgs, Mapped])
def test_a_number_that_no_float64_holds_has_no_key(args_type: type) -> None:
    with pytest.raises(InvalidArgsError, match=r"'k' cannot be hashed, .* beyond what a float64 can hold"):
        key_of_job(BY_ARGS, args_type, kind="k", encoded_args='{"a": 1e400}', queue="q", at=AT)
