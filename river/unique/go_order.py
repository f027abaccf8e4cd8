"""A job's JSON with the members of its objects in the order in which Go would write them.

Go writes a struct in the order of its fields and a map in the order of its keys. Python's JSON libraries write both as
they come: a dict in the order of its insertion, so that two equal ones may give two texts, and msgspec an attrs class
with slots in the order of the alphabet. The annotations of an args class tell which of its objects are which.
"""

from __future__ import annotations

import functools
import json
import typing
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import gojson
from ..shapes import is_mapping, is_sequence
from .fields import fields_of, has_fields, read, writes_itself


@dataclass(slots=True)
class _Shape:
    """In which order the members of a value belong.

    Attributes:
        is_mapping: In that of their keys.
        is_shuffled: In that of *members*, which is not how they are written.
        members: What is known of the members, if it is an object of a class.
        each: What is known of its other members or items.
    """

    is_mapping: bool = False
    is_shuffled: bool = False
    members: dict[str, _Shape] = field(default_factory=dict[str, "_Shape"])
    each: _Shape | None = None


_SCALAR = _Shape()


def in_go_order(args_type: type, encoded_args: str) -> str:
    """The JSON of an args class with mappings in the order of their keys, and objects in that of their fields.

    A value of type Any is sorted through and through. What a class writes by its own ``to_json()`` stays as it is:
    nobody else knows what its objects are.

    Raises:
        OverflowError: A number is beyond what a float64 can hold.
        ConfigurationError: The class has annotations that cannot be resolved.
    """
    shape = _shape_of(args_type)
    return encoded_args if shape is None else gojson.dumps(_ordered(json.loads(encoded_args), shape))


@functools.cache
def _shape_of(args_type: type) -> _Shape | None:
    """None if every object in it is in order as it is written."""
    if writes_itself(args_type):
        return None
    known: dict[Any, _Shape] = {}
    _of_class(args_type, known)
    members = [member for shape in known.values() for member in shape.members.values()]
    shuffled = any(shape.is_shuffled for shape in known.values())
    return known[args_type] if shuffled or any(map(_holds_mapping, members)) else None


def _of_class(of: Any, known: dict[Any, _Shape]) -> _Shape:
    if of not in known:
        # Before its fields, for a class that contains itself.
        known[of] = shape = _Shape(is_shuffled=hasattr(of, "__attrs_attrs__") and hasattr(of, "__slots__"))
        for name, said in fields_of(of).items():
            shape.members[name] = _of_types(said.types, known)
    return known[of]


def _of_types(types: Iterable[Any], known: dict[Any, _Shape]) -> _Shape:
    shapes = [shape for of in types if (shape := _of_type(of, known)) is not _SCALAR]
    if len(shapes) < 2:
        return shapes[0] if shapes else _SCALAR
    # An object of several classes: its members' names tell them apart as well as can be.
    return _Shape(
        all(shape.is_mapping for shape in shapes),
        any(shape.is_shuffled for shape in shapes),
        {name: member for shape in reversed(shapes) for name, member in shape.members.items()},
        next((shape.each for shape in shapes if shape.each), None),
    )


def _of_type(of: Any, known: dict[Any, _Shape]) -> _Shape:
    if has_fields(of):
        return _of_class(of, known)
    if of is Any or of is object:
        return _ANYTHING
    origin: Any = typing.get_origin(of) or of
    if hasattr(origin, "_fields") or not isinstance(origin, type) or issubclass(origin, str | bytes | bytearray):
        return _SCALAR
    arguments = [argument for argument in typing.get_args(of) if argument is not ...]
    if issubclass(origin, Mapping):
        value = arguments[1:] or [Any]
        return _Shape(is_mapping=True, each=_of_types(read(value[0], {}).types, known))
    if issubclass(origin, Collection):
        items = [item for argument in arguments or [Any] for item in read(argument, {}).types]
        inner = _of_types(items, known)
        return _SCALAR if inner is _SCALAR else _Shape(each=inner)
    return _SCALAR


def _holds_mapping(shape: _Shape) -> bool:
    """Whether it, or an item of it, is a mapping; the members of its classes are not looked at."""
    return shape.is_mapping or (shape.each is not None and _holds_mapping(shape.each))


def _ordered(value: Any, shape: _Shape) -> Any:
    if is_mapping(value):
        return {
            name: _ordered(value[name], shape.members.get(name, shape.each or _SCALAR)) for name in _names(value, shape)
        }
    if is_sequence(value):
        return [_ordered(item, shape.each or _SCALAR) for item in value]
    return value


def _names(value: Mapping[str, Any], shape: _Shape) -> Iterable[str]:
    if shape.is_mapping:
        return sorted(value)
    if shape.is_shuffled:
        places = {name: place for place, name in enumerate(shape.members)}
        return sorted(value, key=lambda name: places.get(name, len(places)))
    return value


_ANYTHING = _Shape(is_mapping=True)
_ANYTHING.each = _ANYTHING

__all__ = ["in_go_order"]
