"""JSON comes out byte for byte as Go's encoder writes it."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from enum import IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from river.gojson import dumps, members, quoted, recode

OBSERVED: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "fixtures/go_json.json").read_text())

# Code points of every kind that Go treats by itself, often enough.
TEXTS = st.text(
    st.one_of(st.sampled_from('<>&"\\/\b\f\n\r\t\x00\x1f\x7f\u2028\u2029é😀'), st.characters(codec="utf-8"))
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def values(*scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON values of some scalars."""
    return st.recursive(
        st.one_of(st.none(), st.booleans(), TEXTS, *scalars),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
        max_leaves=12,
    )


VALUES = values(st.integers(), FLOATS)
ENCODERS: list[Callable[[Any], str]] = [
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    lambda value: json.dumps(value, indent=2),
]


class Level(IntEnum):
    HIGH = 3


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(("text", "written"), OBSERVED["numbers"].items())
def test_numbers_are_written_as_go_writes_them(text: str, written: str) -> None:
    assert recode(text) == written
    assert dumps(float(text)) == written


@pytest.mark.parametrize(("text", "written"), OBSERVED["strings"].items())
def test_strings_are_written_as_go_writes_them(text: str, written: str) -> None:
    assert recode(text) == written
    assert dumps(json.loads(text)) == written
    assert recode(f"{{ {text} : [ {text} ] }}") == f"{{{written}:[{written}]}}"


@pytest.mark.parametrize("text", ["0", "-0", "9223372036854775808", "-123456789012345678901234567890", "1" * 5000])
def test_an_integer_stays_as_it_is_whatever_its_size(text: str) -> None:
    assert recode(text) == text
    assert recode(f'{{"a": [{text}, 1.0]}}') == f'{{"a":[{text},1]}}'


def test_the_order_of_members_is_kept_and_so_is_a_name_that_occurs_twice() -> None:
    assert recode('{"b": 1.0, "a": {"d": 1, "c": 2}, "b": 3}') == '{"b":1,"a":{"d":1,"c":2},"b":3}'
    assert dumps({"b": 1.0, "a": {"d": 1, "c": 2}}) == '{"b":1,"a":{"d":1,"c":2}}'


@pytest.mark.parametrize("text", ["1e400", "-1.0e309", '{"a": [1, 1e400]}'])
def test_a_number_beyond_a_float64_is_refused(text: str) -> None:
    with pytest.raises(OverflowError, match="beyond what a float64 can hold"):
        recode(text)


def test_a_text_that_is_go_s_already_is_returned_as_it_is() -> None:
    text = '{"a":[1,-2,true,false,null,"x"],"é":{"":{}}}'
    assert recode(text) is text


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, "true"),
        (5, "5"),
        (5.0, "5"),
        (-0.0, "-0"),
        (Level.HIGH, "3"),
        (Colour.RED, '"red"'),
        ((1, [2.5]), "[1,[2.5]]"),
        (MappingProxyType({"b": None, "a": {}}), '{"b":null,"a":{}}'),
        ({}, "{}"),
        ([], "[]"),
    ],
)
def test_values_are_written_by_what_they_are(value: Any, written: str) -> None:
    assert dumps(value) == written


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (math.nan, ValueError),
        ([-math.inf], OverflowError),
        ({1: "a"}, TypeError),
        ({"a": object()}, TypeError),
        (b"bytes", TypeError),
    ],
)
def test_what_is_no_json_is_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        dumps(value)


@pytest.mark.parametrize("encoder", ENCODERS)
@given(value=VALUES)
def test_every_encoder_s_text_becomes_the_same_text(encoder: Callable[[Any], str], value: Any) -> None:
    assert recode(encoder(value)) == dumps(value)


@given(values(st.integers()))
def test_what_is_written_reads_as_the_same_value(value: Any) -> None:
    text = dumps(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")


@given(VALUES)
def test_what_is_written_is_written_the_same_again(value: Any) -> None:
    text = dumps(value)
    assert recode(text) == text


@given(FLOATS)
def test_a_float_has_an_exponent_only_outside_of_go_s_bounds_and_never_a_point_without_need(value: float) -> None:
    text = dumps(value)
    assert struct.pack("d", float(text)) == struct.pack("d", value)
    assert ("e" in text) == (value != 0 and not 1e-6 <= abs(value) < 1e21)
    assert not text.endswith(".0")
    assert "e0" not in text
    assert "e-0" not in text
    assert "e+0" not in text


@given(st.dictionaries(TEXTS, VALUES))
def test_members_are_the_names_and_the_texts_of_an_object(value: dict[str, Any]) -> None:
    found = members(dumps(value))
    assert found == [(name, dumps(item)) for name, item in value.items()]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", 'c"', "d{", "é"]), VALUES), max_size=5))
def test_members_have_every_name_as_often_as_it_occurs(pairs: list[tuple[str, Any]]) -> None:
    text = "{" + ",".join(f"{quoted(name)}:{dumps(item)}" for name, item in pairs) + "}"
    assert members(text) == [(name, dumps(item)) for name, item in pairs]


@pytest.mark.parametrize("text", ["[]", "1", '"{"', "null"])
def test_what_is_no_object_has_no_members(text: str) -> None:
    assert members(text) is None


def test_args_that_are_nested_as_deeply_as_they_may_be_are_written() -> None:
    text = '{"a":' * 199 + "[1.0]" + "}" * 199
    assert recode(text) == text.replace("1.0", "1")


def test_a_mebibyte_of_args_is_written() -> None:
    value: dict[str, Any] = {f"key {n}": ["<" * 20, n / 4, {"é": None}] for n in range(20_000)}
    text = msgspec.json.encode(value).decode()
    assert len(text) > 1024 * 1024
    assert recode(text) == dumps(value)
