"""What the annotations of an args class say of its unique keys: marks, names, and the order of its objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pytest
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType

from river import ConfigurationError, InvalidJobError, JobArgs
from river.unique import Unique, unique_paths
from tests.support.unique_keys import by_args, key_by_args, key_of

T = TypeVar("T")
CustomerId = NewType("CustomerId", int)


# Where marks are found, and under which names


@dataclass
class End:
    id: Annotated[str, Unique]
    x: str


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
class Customer:
    kind: ClassVar[str] = "customer"
    id: Annotated[int, Unique]
    note: str = ""


@attrs.define
class AttrsCustomer:
    kind: ClassVar[str] = "customer"
    id: Annotated[int, Unique]
    note: str = ""


class StructCustomer(msgspec.Struct, rename="camel"):
    kind: ClassVar[str] = "customer"
    customer_id: Annotated[int, Unique]
    real_name: Annotated[str, Unique] = msgspec.field(name="name", default="")
    note: str = ""


REGION = pydantic.AliasChoices("region", "zone")


class ModelCustomer(pydantic.BaseModel):
    kind: ClassVar[str] = "customer"
    customer_id: Annotated[int, Unique] = pydantic.Field(alias="id")
    region: Annotated[str, Unique, pydantic.Field(validation_alias=REGION, serialization_alias="zone")] = ""
    inner: Annotated[Customer | None, pydantic.Field(title="Somebody")] = None
    note: str = ""

    @pydantic.computed_field(alias="double")  # type: ignore[prop-decorator]
    @property
    def twice(self) -> Annotated[int, Unique]:
        return self.customer_id * 2


@pydantic.dataclasses.dataclass
class ModelDataclass:
    id: Annotated[int, Unique]
    inner: Customer


class CamelModel(pydantic.BaseModel, alias_generator=to_camel):
    customer_id: Annotated[int, Unique]


class Wrapper(pydantic.RootModel[Customer | None]):
    pass


class WrappedModel(pydantic.BaseModel):
    wrapped: Wrapper


class Options(TypedDict):
    id: Annotated[int, Unique]
    zone: NotRequired[Annotated[str, Unique]]


@dataclass
class Box(Generic[T]):
    content: T
    label: Annotated[str, Unique]


Alias = TypeAliasType("Alias", Annotated[Customer, "a customer"])


@dataclass
class Wrapped:
    options: Options
    box: Box[Customer]
    other: Box[int]
    alias: Alias
    number: Annotated[CustomerId, Unique]
    maybe: Annotated[int, Unique()] | None
    either: Deep | End
    each: Annotated[list[int], Unique]


@dataclass
class Child(Customer):
    zone: Annotated[str, Unique] = ""


class Array(msgspec.Struct, array_like=True):
    id: Annotated[int, Unique]


class Pair(NamedTuple):
    id: int


@dataclass
class Unsearched:
    array: Array
    pair: Pair
    many: dict[str, list[Customer]]
    note: str


class SelfWriting:
    kind: ClassVar[str] = "self_writing"
    limit: ClassVar[int] = 3
    id: Annotated[int, Unique]
    note: str

    def to_json(self) -> str:
        return '{"note": "x", "id": 1.0}'


class BareSelfWriting:
    kind = "self_writing"

    def to_json(self) -> str:
        return '{"b": 1, "a": {"z": 1, "y": 2}}'


@pytest.mark.parametrize(
    ("args_type", "paths"),
    [
        (Customer, ("id",)),
        (AttrsCustomer, ("id",)),
        (StructCustomer, ("customerId", "name")),
        (ModelCustomer, ("double", "id", "inner.id", "zone")),
        (ModelDataclass, ("id", "inner.id")),
        (CamelModel, ("customerId",)),
        (WrappedModel, ("wrapped.id",)),
        (
            Wrapped,
            (
                "box.content.id",
                "box.label",
                "each",
                "either.did",
                "either.p.id",
                "maybe",
                "number",
                "options.id",
                "options.zone",
                "other.label",
            ),
        ),
        (Child, ("id", "zone")),
        (Unsearched, ()),
        (SelfWriting, ("id",)),
        (BareSelfWriting, ()),
        (JobArgs, ()),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_marked_fields_are_found_under_their_names_in_json(args_type: type, paths: tuple[str, ...]) -> None:
    assert unique_paths(args_type) == paths
    assert unique_paths(args_type) is unique_paths(args_type)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (Customer(7, "x"), '{"id":7}'),
        (AttrsCustomer(7, "x"), '{"id":7}'),
        (StructCustomer(customer_id=7, real_name="<", note="x"), '{"customerId":7,"name":"\\u003c"}'),
        (ModelCustomer(id=7, region="z", inner=Customer(8)), '{"double":14,"id":7,"inner":{"id":8},"zone":"z"}'),
        (ModelCustomer(id=7), '{"double":14,"id":7,"zone":""}'),
        (Chain(1, Chain(2, None)), '{"id":1}'),
        (SelfWriting(), '{"id":1}'),
        (BareSelfWriting(), '{"a":{"z":1,"y":2},"b":1}'),
        (JobArgs("k", {"b": {"z": 1.0, "y": 2}, "a": "é"}), '{"a":"é","b":{"z":1,"y":2}}'),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_the_marked_fields_make_the_key_or_else_all_of_them(args: Any, text: str) -> None:
    assert key_of(args) == by_args(text)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["note", "id"], '{"id":7,"note":"x"}'),
        (["note", "note"], '{"note":"x"}'),
        (["inner.note"], '{"inner":{"note":"y"}}'),
        (["inner", "inner.note"], '{"inner":{"id":8,"note":"y"}}'),
        (["inner.note", "zone", "inner.id"], '{"inner":{"id":8,"note":"y"},"zone":"z"}'),
    ],
)
def test_named_fields_go_before_marked_ones(names: list[str], text: str) -> None:
    assert key_of(ModelCustomer(id=7, region="z", note="x", inner=Customer(8, "y")), names) == by_args(text)


def test_a_dot_of_a_name_has_a_backslash_before_it() -> None:
    args = JobArgs("k", {"a.b": 1, "a": {"b": 2}, "c\\d": 3})
    assert key_of(args, ["a.b"]) == by_args('{"a":{"b":2}}')
    assert key_of(args, [r"a\.b"]) == by_args('{"a.b":1}')
    assert key_of(args, [r"c\\d"]) == by_args(r'{"c\\d":3}')


def test_a_path_goes_through_the_first_of_equal_names_that_leads_on() -> None:
    assert key_by_args('{"a":{"x":1},"a":{"b":2},"a":{"b":3}}', "a.b") == by_args('{"a":{"b":2}}')


@dataclass
class Move:
    kind: ClassVar[str] = "move"
    source: End
    target: End


def test_of_two_fields_of_one_class_only_the_first_counts_unless_they_are_named() -> None:
    first, second = Move(End("1", ""), End("2", "")), Move(End("1", ""), End("3", ""))
    assert key_of(first) == key_of(second) == by_args('{"source":{"id":"1"}}')
    named = ["source.id", "target.id"]
    assert key_of(first, named) == by_args('{"source":{"id":"1"},"target":{"id":"2"}}')
    assert key_of(second, named) == by_args('{"source":{"id":"1"},"target":{"id":"3"}}')


# The order of objects


@dataclass
class Inner:
    z: int
    counts: dict[str, int]
    a: int


@dataclass
class Mappings:
    kind: ClassVar[str] = "mappings"
    inner: Inner
    many: list[dict[str, Inner]]
    anything: Any
    bare: dict  # type: ignore[type-arg]
    next: Mappings | None = None


@attrs.define
class AttrsMappings:
    kind: ClassVar[str] = "mappings"
    inner: Inner
    many: list[dict[str, Inner]]
    anything: Any
    bare: dict  # type: ignore[type-arg]
    next: AttrsMappings | None = None


@attrs.define
class AttrsPoint:
    z: int
    a: int


@attrs.define
class AttrsLine:
    kind: ClassVar[str] = "line"
    start: AttrsPoint
    ends: list[AttrsPoint]


def test_an_attrs_class_with_slots_has_its_fields_in_the_order_of_its_declaration() -> None:
    args = AttrsLine(AttrsPoint(1, 2), [AttrsPoint(3, 4)])
    assert key_of(args) == by_args('{"ends":[{"z":3,"a":4}],"start":{"z":1,"a":2}}')


class ModelMappings(pydantic.BaseModel):
    kind: ClassVar[str] = "mappings"
    inner: Inner
    many: list[dict[str, Inner]]
    anything: Any
    bare: dict  # type: ignore[type-arg]
    next: ModelMappings | None = None


@pytest.mark.parametrize("args_type", [Mappings, AttrsMappings, ModelMappings])
def test_mappings_are_sorted_by_key_as_in_go_and_objects_of_classes_keep_their_order(args_type: Any) -> None:
    def args(order: Callable[[dict[str, Any]], dict[str, Any]], following: Any) -> Any:
        inner = Inner(2, order({"y": 1, "é": 3, "x": 2}), 1)
        many = [order({"d": inner, "c": inner})]
        return args_type(
            inner=inner, many=many, anything=[order({"b": 1.0, "a": 2})], bare=order({"2": 1, "10": 2}), next=following
        )

    def backwards(value: dict[str, Any]) -> dict[str, Any]:
        return dict(reversed(value.items()))

    inner = '{"z":2,"counts":{"x":2,"y":1,"é":3},"a":1}'
    text = '{"anything":[{"a":2,"b":1}],"bare":{"10":2,"2":1},"inner":INNER,"many":[{"c":INNER,"d":INNER}],"next":NEXT}'
    rest = '{"inner":INNER,"many":[{"c":INNER,"d":INNER}],"anything":[{"a":2,"b":1}],"bare":{"10":2,"2":1},"next":null}'
    expected = by_args(text.replace("NEXT", rest).replace("INNER", inner))
    assert key_of(args(dict, args(dict, None))) == expected
    assert key_of(args(backwards, args(backwards, None))) == expected


# What is refused


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("customer", "by_args names 'customer', but .*ModelCustomer has no 'customer' there"),
        ("customer_id", "has no 'customer_id' there: the options are double, id, inner, note, zone"),
        ("inner.nots", "by_args names 'inner.nots', .* has no 'nots' there: did you mean 'note'?"),
    ],
)
def test_a_name_that_a_class_does_not_have_is_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidJobError, match=message):
        key_of(ModelCustomer(id=1), ["id", name])


class OpenModel(pydantic.BaseModel, extra="allow"):
    kind: ClassVar[str] = "open"


@pytest.mark.parametrize(
    ("args", "name", "text"),
    [
        (OpenModel.model_validate({"more": 1}), "more", '{"more":1}'),
        (JobArgs("k", {"more": 1}), "more", '{"more":1}'),
        (BareSelfWriting(), "a.y", '{"a":{"y":2}}'),
        (
            Mappings(Inner(1, {"x": 5}, 2), [], {"deep": {"er": 1}}, {}),
            "inner.counts.x",
            '{"inner":{"counts":{"x":5}}}',
        ),
        (
            Mappings(Inner(1, {}, 2), [], {"deep": {"er": 1}}, {}),
            "anything.deep.er",
            '{"anything":{"deep":{"er":1}}}',
        ),
        (JobArgs("k", {"a": 1}), "b", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_name_that_cannot_be_known_may_be_named(args: Any, name: str, text: str) -> None:
    assert key_of(args, [name]) == by_args(text)


@dataclass
class MarkedItems:
    ids: list[Annotated[int, Unique]]


@dataclass
class MarkedInnerItems:
    ids: dict[str, list[Annotated[int, Unique] | None]]


class Indexed(msgspec.Struct, rename={"first": "0"}):
    first: Annotated[int, Unique]


@dataclass
class Unresolvable:
    id: Missing  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("args_type", "message"),
    [
        (MarkedItems, "MarkedItems marks what is inside of its field 'ids' .*: mark the field itself"),
        (MarkedInnerItems, "MarkedInnerItems marks what is inside of its field 'ids'"),
        (Indexed, "Indexed marks the field '0', but River takes the whole number '0' for the index of an array"),
        (Unresolvable, "the annotations of .*Unresolvable cannot be resolved: .*Missing.*; import"),
    ],
)
def test_a_mark_that_means_nothing_is_refused(args_type: type, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        unique_paths(args_type)
