"""Args of every kind of class go to JSON and back, and what would not is refused before any statement."""

from __future__ import annotations

import enum
import json
import math
import sys
import types
import uuid
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from river import Client, ConfigurationError, InsertManyParams, InsertOpts, InvalidArgsError, JobArgs
from river.args import any_json, codec_of, encode, kind_of
from tests.test_operation import Script, adoptable, untimed

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Inner:
    name: str
    sizes: list[float]


@dataclass
class Plain:
    kind: ClassVar[str] = "plain"
    number: int
    text: str = "é \\u0000 😀"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    kind: ClassVar[str] = "frozen"
    number: int
    items: tuple[int, str] = (1, "a")


@dataclass
class Rich:
    kind: ClassVar[str] = "rich"
    at: datetime
    day: date
    hour: time
    span: timedelta
    amount: Decimal
    id: uuid.UUID
    colour: Colour
    level: Level
    point: Point
    pair: tuple[int, str]
    many: tuple[int, ...]
    tags: set[str]
    blob: bytes
    inner: Inner
    inners: list[Inner]
    by_name: dict[str, Inner]
    by_number: dict[int, int | None]
    nothing: int | None = None
    either: int | str = "a"
    anything: Any = None


RICH = Rich(
    at=AT,
    day=date(2026, 1, 2),
    hour=time(1, 2, 3),
    span=timedelta(days=1, microseconds=5),
    amount=Decimal("1.10"),
    id=ID,
    colour=Colour.RED,
    level=Level.HIGH,
    point=Point(1, 2),
    pair=(1, "null"),
    many=(1, 2, 3),
    tags={"a"},
    blob=b"\x00\xff",
    inner=Inner("é", [1.5]),
    inners=[Inner("b", [])],
    by_name={"x": Inner("c", [0.1])},
    by_number={1: None},
    anything={"deep": [1, None, {"x": True}]},
)


@dataclass
class Underscored:
    kind: ClassVar[str] = "underscored"
    _number: int
    __: int = 1


@dataclass
class Made:
    """Fields that the constructor does not take."""

    kind: ClassVar[str] = "made"
    number: int
    items: list[int] = field(default_factory=lambda: [1])
    doubled: int = field(init=False)
    noted: str = field(init=False, default="", repr=False)

    def __post_init__(self) -> None:
        self.doubled = self.number * 2


@dataclass
class Child(Plain):
    kind: ClassVar[str] = "child"
    extra: float = 0.5


@attrs.define
class AttrsArgs:
    kind: ClassVar[str] = "attrs"
    number: int = attrs.field(validator=attrs.validators.ge(0))
    at: datetime | None = None


@attrs.frozen(kw_only=True)
class FrozenAttrsArgs:
    kind: ClassVar[str] = "frozen_attrs"
    inner: Inner
    items: list[int] = attrs.Factory(list)


class StructArgs(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    kind: ClassVar[str] = "struct"
    user_id: int
    inner: Inner | None = None
    _hidden: int = 0


class TaggedStruct(StructArgs, tag=True, tag_field="type", frozen=True):
    kind: ClassVar[str] = "tagged"


class Address(pydantic.BaseModel):
    street: str = pydantic.Field(alias="streetName")


class Model(pydantic.BaseModel):
    kind: ClassVar[str] = "model"
    model_config = pydantic.ConfigDict(populate_by_name=True)
    user_id: int = pydantic.Field(alias="userId", ge=1)
    address: Address
    at: datetime
    amount: Decimal = Decimal("1.10")
    colour: Colour = Colour.RED
    by_number: dict[int, Address] = {}
    nothing: int | None = None


@pydantic.dataclasses.dataclass
class ModelDataclass:
    kind: ClassVar[str] = "model_dataclass"
    number: int = pydantic.Field(gt=0)
    at: datetime | None = None


@dataclass
class SelfWriting:
    """As the official insert-only client asks for, and readable."""

    kind = "self_writing"
    strings: list[str]

    def to_json(self) -> str:
        return json.dumps({"strings": self.strings})

    @classmethod
    def from_json(cls, text: str) -> SelfWriting:
        return cls(json.loads(text)["strings"])


@dataclass
class HalfSelfWriting:
    """With fields, and so readable without from_json."""

    kind: ClassVar[str] = "half_self_writing"
    number: int

    def to_json(self) -> str:
        return json.dumps({"number": self.number})


class Given:
    """Gives what it was given as its JSON."""

    kind = "given"

    def __init__(self, text: Any) -> None:
        self.text = text

    def to_json(self) -> Any:
        if isinstance(self.text, BaseException):
            raise self.text
        return self.text


def model(**fields: Any) -> Model:
    return Model.model_validate({"userId": 1, "address": Address(streetName="é"), "at": AT} | fields)


ROUND_TRIPS = [
    Plain(1),
    Plain(-(2**63)),
    Plain(2**63 - 1),
    Plain(1, "null"),
    Plain(1, "\\u0000 \\ud800 \\"),
    Plain(1, '"\n\t\x01\x7f\u2028￿'),
    Frozen(number=1),
    RICH,
    Underscored(7),
    Made(2),
    Child(1, extra=1e300),
    AttrsArgs(1, AT),
    AttrsArgs(1),
    FrozenAttrsArgs(inner=Inner("a", [1.0])),
    StructArgs(1),
    StructArgs(1, Inner("é", []), 5),
    TaggedStruct(1),
    model(),
    model(by_number={1: Address(streetName="null")}),
    ModelDataclass(1),
    ModelDataclass(1, AT),
    SelfWriting(["é", "null", "\\u0000"]),
    HalfSelfWriting(1),
]


@pytest.mark.parametrize("args", ROUND_TRIPS, ids=lambda args: type(args).__name__)
def test_args_of_every_kind_go_to_a_json_object_and_back(args: Any) -> None:
    text = encode(args, args.kind)
    assert isinstance(json.loads(text), dict)
    back = codec_of(type(args)).decode(text)
    assert back == args
    assert type(back) is type(args)


def test_aliases_and_renamed_fields_are_the_names_in_the_json() -> None:
    assert json.loads(encode(StructArgs(1), "struct")) == {"userId": 1}
    assert json.loads(encode(model(), "model"))["address"] == {"streetName": "é"}
    assert json.loads(encode(model(), "model"))["userId"] == 1


def test_a_kind_is_no_field() -> None:
    assert json.loads(encode(Plain(1, "a"), "plain")) == {"number": 1, "text": "a"}


def test_a_fields_default_stands_in_for_what_the_json_lacks_and_more_is_ignored() -> None:
    assert codec_of(Child).decode('{"number": 1, "new": [1]}') == Child(1)


def test_a_parents_worker_reads_a_childs_args() -> None:
    assert codec_of(Plain).decode(encode(Child(1, extra=2.0), "child")) == Plain(1)


def test_integers_of_any_size_are_exact() -> None:
    @dataclass
    class Free:
        value: Any

    for number in (2**63, 2**64, -(2**63) - 1, 10**400):
        assert codec_of(Free).decode(encode(Free(number), "free")) == Free(number)
        assert any_json(encode(JobArgs("k", {"n": number}), "k")) == {"n": number}


def test_plain_mappings_travel_as_job_args() -> None:
    value = {"a": [1, 2.5, None, True, {"b": "é \\u0000"}], "": {}}
    assert any_json(encode(JobArgs("k", value), "k")) == value
    assert any_json(encode(JobArgs("k", types.MappingProxyType(value)), "k")) == value
    assert any_json(encode(JobArgs("k", {"pair": (1, 2)}), "k")) == {"pair": [1, 2]}


def test_args_without_fields_are_an_empty_object() -> None:
    @dataclass
    class Empty:
        pass

    assert encode(Empty(), "empty") == "{}"


@dataclass
class Loose:
    """A field of each sort that a dataclass does not check."""

    kind: ClassVar[str] = "loose"
    number: int = 0
    text: str = ""
    ratio: float = 0.0
    at: datetime | None = None
    inner: Inner | None = None
    items: list[int] = field(default_factory=list[int])
    free: Any = None


class LooseModel(pydantic.BaseModel):
    kind: ClassVar[str] = "loose_model"
    number: int = 0
    text: str = ""
    ratio: float = 0.0
    at: datetime = AT
    by_name: dict[str, str] = {}
    nothing: None = None


class LooseStruct(msgspec.Struct):
    kind: ClassVar[str] = "loose_struct"
    number: Any = 0
    ratio: float = 0.0


@attrs.define
class LooseAttrs:
    kind: ClassVar[str] = "loose_attrs"
    number: Any = attrs.field(default=0)
    even: int = attrs.field(default=0)


def constructed(**fields: Any) -> LooseModel:
    return LooseModel.model_construct(**fields)


def holding_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def nested(depth: int, inmost: object = 1) -> dict[str, Any]:
    value: Any = inmost
    for _ in range(depth):
        value = {"a": value}
    outermost: dict[str, Any] = value
    return outermost


def loose(**fields: Any) -> Loose:
    return Loose(**fields)


NUL, HALF = "a\x00", "a\ud800"

REFUSED: list[tuple[Any, str]] = [
    (loose(number="1"), "field 'number'"),
    (loose(number=1.5), "field 'number'"),
    (loose(number=None), "field 'number'"),
    (loose(text=5), "field 'text'"),
    (loose(at="yesterday"), "field 'at'"),
    (loose(inner=Inner("a", ["x"])), r"field 'inner.sizes\[0\]'"),  # type: ignore[list-item]
    (loose(inner={"name": "a"}), "field 'inner': .* `sizes`"),
    (loose(items=[1, "2"]), r"field 'items\[1\]'"),
    (loose(free=object()), "object"),
    (loose(text=NUL), r"field 'text' holds U\+0000"),
    (loose(free={"x": [NUL]}), r"field 'free.x\[0\]' holds U\+0000"),
    (loose(free={"x": {NUL: 1}}), r"field 'free.x' has the key 'a\\x00'"),
    (loose(text=HALF), "field 'text' holds half a surrogate pair"),
    (loose(text="\ud83d\ude00"), "field 'text' holds half a surrogate pair"),
    (loose(free={"é": HALF}), "field 'free.é' holds half a surrogate pair"),
    (loose(free={HALF: 1}), "field 'free' has the key"),
    (loose(ratio=math.nan), "field 'ratio' is nan"),
    (loose(ratio=math.inf), "field 'ratio' is inf"),
    (loose(free=[{"x": -math.inf}]), r"field 'free\[0\].x' is -inf"),
    (loose(free={"x": [None, math.nan]}), r"field 'free.x\[1\]' is nan"),
    (loose(free=holding_itself()), "nested|recursion"),
    (loose(free=nested(100_000)), "nested|recursion"),
    (constructed(number="x"), "number"),
    (constructed(ratio=math.nan), "field 'ratio' is nan"),
    (constructed(ratio=math.inf, at=AT), "field 'ratio' is inf"),
    (constructed(text=NUL), "field 'text' holds"),
    (constructed(text=HALF), "field 'text' holds"),
    (constructed(by_name={NUL: "x"}), "field 'by_name' has the key"),
    (LooseStruct(ratio=math.nan), "field 'ratio' is nan"),
    (LooseStruct(ratio="1"), "field 'ratio'"),  # type: ignore[arg-type]
    (LooseStruct(number=NUL), "field 'number' holds"),
    (LooseAttrs(number=HALF), "field 'number' holds"),
    (LooseAttrs(even="x"), "field 'even'"),  # type: ignore[arg-type]
    (JobArgs("k", {"x": object()}), "field 'x' is a object"),
    (JobArgs("k", {"x": {1, 2}}), "field 'x' is a set"),
    (JobArgs("k", {"x": AT}), "field 'x' is a datetime"),
    (JobArgs("k", {"x": b""}), "field 'x' is a bytes"),
    (JobArgs("k", {"x": [math.nan]}), r"field 'x\[0\]' is nan"),
    (JobArgs("k", {"x": math.inf}), "field 'x' is inf"),
    (JobArgs("k", {"x": NUL}), "field 'x' holds"),
    (JobArgs("k", {"x": {"y": HALF}}), "field 'x.y' holds"),
    (JobArgs("k", {NUL: 1}), "the key"),
    (JobArgs("k", {HALF: 1}), "the key"),
    (JobArgs("k", {"x": {1: 2}}), "field 'x' has the key 1"),  # json.dumps would make it "1"
    (JobArgs("k", {None: 1}), "the key None"),  # type: ignore[dict-item]
    (JobArgs("k", {"x": {True: 1}}), "field 'x' has the key True"),
    (JobArgs("k", {"x": {(1, 2): 1}}), r"field 'x' has the key \(1, 2\)"),
    (JobArgs("k", {"x": 10**5000}), "digits"),
    (JobArgs("k", holding_itself()), "nested"),
    (JobArgs("k", nested(100_000)), "nested"),
    (JobArgs("k", nested(900, "é")), "nested"),
    (JobArgs("k", [1]), "JSON object"),  # type: ignore[arg-type]
    (JobArgs("k", "x"), "JSON object"),  # type: ignore[arg-type]
    (JobArgs("k", None), "JSON object"),  # type: ignore[arg-type]
    (Given("[1]"), "JSON object"),
    (Given("1"), "JSON object"),
    (Given('"{}"'), "JSON object"),
    (Given("null"), "JSON object"),
    (Given(""), "no JSON"),
    (Given("{"), "no JSON"),
    (Given("{'a': 1}"), "no JSON"),
    (Given('{"a": 1} x'), "no JSON"),
    (Given('{}},{"args":{}'), "no JSON"),  # would be another job in the statement's document
    (Given('{"a": "\t"}'), "no JSON"),
    (Given('{"a": NaN}'), "field 'a' is nan"),
    (Given('{"a": [-Infinity]}'), r"field 'a\[0\]' is -inf"),
    (Given('{"a": 1e400}'), "field 'a' is inf"),
    (Given('{"a": 1e400000}'), "the number 1e400000 is beyond what PostgreSQL can store"),
    (Given('{"a": -1E-16384}'), "the number -1E-16384 is beyond what PostgreSQL can store"),
    (Given('{"a": 0.' + "1" * 16384 + "}"), "the number 0.1111.* is beyond what PostgreSQL can store"),
    (Given('{"a": "\\u0000"}'), "field 'a' holds"),
    (Given('{"a\\u0000": 1}'), "the key"),
    (Given('{"a": "\\ud800"}'), "field 'a' holds"),
    (Given('{"a": "\ud800"}'), "field 'a' holds"),
    (Given('{"a":' * 5_000 + "1" + "}" * 5_000), "no JSON"),
    (Given(b"{}"), "bytes"),
    (Given({}), "dict"),
    (Given(None), "NoneType"),
    (Given(LookupError("no such user")), "no such user"),
    (Given(LookupError()), "LookupError"),
]


@pytest.fixture
def handle() -> Iterator[Script]:
    """A handle on which every statement is one too many."""
    with adoptable():
        yield Script()


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=lambda value: "" if isinstance(value, str) else None)
def test_a_wrong_value_is_refused_before_any_statement_and_its_place_is_named(
    handle: Script, args: Any, message: str
) -> None:
    client = Client(None)
    with pytest.raises(InvalidArgsError, match=message) as raised:
        client.insert_tx(handle, args)
    assert f"args of {args.kind!r} cannot be inserted: " in str(raised.value)
    with pytest.raises(InvalidArgsError, match=message):
        client.insert_many_tx(handle, [Plain(1), InsertManyParams(args, InsertOpts(queue="q"))])
    assert handle.asked == []


def test_what_merely_looks_like_an_escape_is_stored_as_it_is() -> None:
    for text in ("\\u0000", "\\\\u0000", "\\ud800", "null", "NaN", "\\uD83D\\uDE00", "😀"):
        for args in (Plain(1, text), JobArgs("k", {text: text}), Given(json.dumps({text: text}))):
            assert text in str(json.loads(encode(args, "k"))) or text in json.loads(encode(args, "k")).values()


def test_a_value_that_its_own_from_json_refuses_is_refused_at_insert() -> None:
    class Strict(Given):
        @classmethod
        def from_json(cls, text: str) -> Strict:
            if "bad" in text:
                raise ValueError("a bad one")
            return cls(text)

    assert encode(Strict('{"a": 1}'), "k") == '{"a": 1}'
    with pytest.raises(InvalidArgsError, match="a bad one"):
        encode(Strict('{"a": "bad"}'), "k")


def test_white_space_around_a_to_json_is_no_harm() -> None:
    assert json.loads(encode(Given(' \n{"a": 1}\n'), "k")) == {"a": 1}


def test_an_attrs_validator_is_asked_at_insert() -> None:
    args = AttrsArgs(1)
    with attrs.validators.disabled():
        args.number = -1
    with pytest.raises(InvalidArgsError, match="number"):
        encode(args, "attrs")


def test_a_pydantic_rule_is_asked_at_insert() -> None:
    args = model()
    args.user_id = 0
    with pytest.raises(InvalidArgsError, match="field 'userId': Input should be greater than or equal to 1") as raised:
        encode(args, "model")
    assert "https" not in str(raised.value)


def test_a_class_without_from_json_can_be_inserted_but_not_read() -> None:
    assert encode(Given("{}"), "k") == "{}"
    with pytest.raises(ConfigurationError, match=r"Given has no from_json\(text\)"):
        codec_of(Given).decode("{}")


T = TypeVar("T")


@dataclass
class GenericArgs(Generic[T]):
    kind: ClassVar[str] = "generic"
    value: T


def test_a_generic_dataclass_goes_to_json_and_back() -> None:
    assert codec_of(GenericArgs).decode(encode(GenericArgs({"a": 1}), "k")) == GenericArgs({"a": 1})


@dataclass
class WithInitVar:
    number: int
    seed: InitVar[int]


@attrs.define
class WithPrivate:
    number: int
    _secret: int = 3


@dataclass
class WithUnknownType:
    value: Nowhere  # type: ignore[name-defined]  # noqa: F821


class NoClass:
    pass


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (WithInitVar(1, 2), "InitVar"),
        (WithPrivate(1, 2), "'_secret' .* is private"),
        (WithUnknownType(1), "Nowhere"),
        (NoClass(), "use a dataclass, attrs class, msgspec Struct or pydantic model"),
        ({"a": 1}, "river.JobArgs"),
        ("text", "river.JobArgs"),
        (Point(1, 2), "river.JobArgs"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_class_that_cannot_be_args_is_a_configuration_error_that_says_why(args: Any, message: str) -> None:
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=message) as raised:
            encode(args, "k")
        assert type(args).__qualname__ in str(raised.value)


def test_how_a_class_is_written_is_found_out_once() -> None:
    assert codec_of(Plain) is codec_of(Plain)
    assert codec_of(Plain) is not codec_of(Child)


@pytest.mark.parametrize("declared", [5, None, b"k"])
def test_a_class_whose_kind_is_no_text_is_refused(declared: Any) -> None:
    with pytest.raises(ConfigurationError, match="has no kind"):
        kind_of(type("Odd", (), {"kind": declared}))


def test_a_class_without_a_kind_is_told_how_to_declare_one() -> None:
    with pytest.raises(ConfigurationError, match=r"Inner has no kind: declare `kind: ClassVar\[str\]"):
        kind_of(Inner)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


@untimed
@given(
    st.builds(
        Rich,
        at=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-11, minutes=-30))])),
        day=st.dates(),
        hour=st.times(),
        span=st.timedeltas(timedelta(days=-999), timedelta(days=999)),
        amount=st.decimals(allow_nan=False, allow_infinity=False),
        id=st.uuids(),
        colour=st.just(Colour.RED),
        level=st.just(Level.HIGH),
        point=st.builds(Point, st.integers(-9, 9), st.integers(-9, 9)),
        pair=st.tuples(st.integers(-(2**63), 2**63 - 1), TEXTS),
        many=st.lists(st.integers(0, 9)).map(tuple),
        tags=st.sets(TEXTS),
        blob=st.binary(),
        inner=st.builds(Inner, TEXTS, st.lists(st.floats(allow_nan=False, allow_infinity=False))),
        inners=st.just([]),
        by_name=st.dictionaries(TEXTS, st.builds(Inner, TEXTS, st.just([]))),
        by_number=st.dictionaries(st.integers(-9, 9), st.none() | st.integers(0, 9)),
        nothing=st.none() | st.integers(-(2**63), 2**63 - 1),
        either=st.integers(-9, 9) | TEXTS,
        anything=st.recursive(st.none() | st.booleans() | TEXTS, lambda inner: st.dictionaries(TEXTS, inner)),
    )
)
def test_a_dataclass_of_any_values_of_its_types_goes_to_json_and_back(args: Rich) -> None:
    assert codec_of(Rich).decode(encode(args, "rich")) == args


@untimed
@given(st.text(st.characters()))
def test_any_text_is_either_kept_exactly_or_refused(text: str) -> None:
    unstorable = "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text)
    makes: list[Callable[[], Any]] = [
        lambda: Plain(1, text),
        lambda: JobArgs("k", {"text": text}),
        lambda: Given(json.dumps({"text": text})),
        lambda: Given(json.dumps({"text": text}, ensure_ascii=False)),
        lambda: LooseModel.model_construct(text=text),
    ]
    for make in makes:
        if unstorable:
            with pytest.raises(InvalidArgsError):
                encode(make(), "k")
        else:
            assert json.loads(encode(make(), "k"))["text"] == text


def test_a_deep_caller_does_not_get_a_recursion_error() -> None:
    """What is left of the stack is the caller's business; what the error is, is ours."""
    depth = sys.getrecursionlimit()

    def descend(levels: int) -> str:
        return encode(JobArgs("k", nested(depth // 3, "é")), "k") if levels == 0 else descend(levels - 1)

    with pytest.raises(InvalidArgsError):
        descend(depth // 2)


@dataclass
class WritesItself:
    """Its fields are of a type that nobody could read."""

    kind: ClassVar[str] = "writes_itself"
    state: enum.Enum | str

    def to_json(self) -> str:
        return json.dumps({"state": str(self.state)})


def test_a_class_that_writes_itself_can_be_inserted_though_it_cannot_be_read() -> None:
    codec = codec_of(WritesItself)
    assert encode(WritesItself("new"), "writes_itself") == '{"state": "new"}'
    with pytest.raises(ConfigurationError, match="WritesItself cannot be a job's args"):
        codec.decode('{"state": "new"}')
