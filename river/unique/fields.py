"""The fields of a class as its JSON has them: their names, and what their annotations say.

It knows the classes that River writes: dataclasses, attrs classes, msgspec Structs, pydantic models, TypedDicts inside
of them, and args classes that write themselves with ``to_json()``.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, Union

import typing_extensions

from ..errors import ConfigurationError

Variables: TypeAlias = Mapping[Any, Any]
"""What the type variables of a generic class stand for."""

# Of both modules, because those of typing_extensions are their own in an older Python.
_WRAPPERS = (
    typing.Final,
    typing.Required,
    typing.NotRequired,
    typing_extensions.Required,
    typing_extensions.NotRequired,
    typing_extensions.ReadOnly,
)


@dataclass(slots=True)
class Annotation:
    """What an annotation says.

    Attributes:
        types: The types that a value may have: a union's members, without what only wraps them.
        metadata: What `Annotated` adds to it, or to a member of the union.
    """

    types: list[Any] = field(default_factory=list[Any])
    metadata: list[Any] = field(default_factory=list[Any])


def fields_of(of: Any, *, writes_itself: bool = False) -> dict[str, Annotation]:
    """The fields of a class, by their names in JSON; none if its objects are no JSON objects with fixed names.

    Args:
        of: A class, or a generic class with its parameters.
        writes_itself: Its ``to_json()`` is what counts. Only its author knows what that writes; its annotations are
            taken for it.

    Raises:
        ConfigurationError: Its annotations cannot be resolved.
    """
    origin: Any = typing.get_origin(of) or of
    variables = dict(zip(getattr(origin, "__parameters__", ()), typing.get_args(of), strict=False))
    try:
        hints = _pydantic_hints(origin) if _is_pydantic(origin) else _hints(origin, writes_itself)
        return {name: read(hint, variables) for name, hint in hints.items()}
    except (NameError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"the annotations of {class_name(origin)} cannot be resolved: {error}; import what they name at run time, "
            "where the class is defined"
        ) from error


def read(hint: Any, variables: Variables) -> Annotation:
    """What an annotation says, with its type variables replaced."""
    said = Annotation()
    _read(hint, variables, said)
    return said


def has_fields(of: Any) -> bool:
    """Whether `fields_of` knows this kind of class."""
    origin = typing.get_origin(of) or of
    return (
        _is_pydantic(origin)
        or hasattr(origin, "__struct_fields__")
        or hasattr(origin, "__attrs_attrs__")
        or dataclasses.is_dataclass(origin)
        or typing_extensions.is_typeddict(origin)
    )


def is_open(of: Any) -> bool:
    """Whether the JSON of its objects may have other members than its fields."""
    origin = typing.get_origin(of) or of
    if not _is_pydantic(origin):
        return callable(getattr(origin, "to_json", None))
    config: Mapping[str, Any] = getattr(origin, "model_config", {})
    decorators: Any = getattr(origin, "__pydantic_decorators__", None)
    return config.get("extra") == "allow" or bool(decorators and decorators.model_serializers)


def writes_itself(args_type: Any) -> bool:
    """Whether the ``to_json()`` of an args class writes its instances."""
    return callable(getattr(args_type, "to_json", None)) and not _is_pydantic(args_type)


def class_name(of: Any) -> str:
    """A class, as messages name it."""
    return f"{of.__module__}.{of.__qualname__}"


def _is_pydantic(origin: Any) -> bool:
    return hasattr(origin, "__pydantic_fields__")


def _hints(origin: Any, writes_itself: bool) -> dict[str, Any]:
    hints = typing_extensions.get_type_hints(origin, include_extras=True)
    names: dict[str, str] = {}
    if writes_itself or typing_extensions.is_typeddict(origin):
        names = {name: name for name, hint in hints.items() if not _is_class_variable(hint)}
    elif hasattr(origin, "__struct_fields__"):
        # An array_like Struct is a JSON array.
        if not origin.__struct_config__.array_like:
            names = dict(zip(origin.__struct_fields__, origin.__struct_encode_fields__, strict=True))
    elif hasattr(origin, "__attrs_attrs__"):
        names = {each.name: each.name for each in origin.__attrs_attrs__}
    elif dataclasses.is_dataclass(origin):
        names = {each.name: each.name for each in dataclasses.fields(origin)}
    return {name: hints.get(attribute, Any) for attribute, name in names.items()}


def _is_class_variable(hint: Any) -> bool:
    return hint is ClassVar or typing.get_origin(hint) is ClassVar


def _pydantic_hints(model: Any) -> dict[str, Any]:
    hints = {
        each.serialization_alias or name: _pydantic_hint(each)
        for name, each in model.__pydantic_fields__.items()
        if each.exclude is not True
    }
    computed: Mapping[str, Any] = getattr(model, "__pydantic_computed_fields__", {})
    return hints | {each.alias or name: each.return_type for name, each in computed.items()}


def _pydantic_hint(each: Any) -> Any:
    # pydantic takes the outermost Annotated off; what it does not know of it stays in metadata.
    return Annotated[(each.annotation, *each.metadata)] if each.metadata else each.annotation


def _read(hint: Any, variables: Variables, said: Annotation) -> None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    named: Any = hint  # to a type checker, an alias and a NewType have nothing in common
    if origin is Annotated:
        said.metadata.extend(hint.__metadata__)
        _read(arguments[0], variables, said)
    elif origin in (Union, types.UnionType):
        for member in arguments:
            _read(member, variables, said)
    elif origin in _WRAPPERS:
        _read(arguments[0], variables, said)
    elif isinstance(hint, TypeVar):
        _read(variables.get(hint, hint.__bound__ or Any), {}, said)
    elif isinstance(hint, typing.NewType):
        _read(named.__supertype__, variables, said)
    elif isinstance(hint, typing_extensions.TypeAliasType):
        _read(named.__value__, variables, said)
    elif getattr(hint, "__pydantic_root_model__", False):
        _read(_pydantic_hint(named.__pydantic_fields__["root"]), variables, said)
    elif hint is not None and hint is not type(None):
        said.types.append(_replaced(hint, variables))


def _replaced(hint: Any, variables: Variables) -> Any:
    parameters: tuple[Any, ...] = getattr(hint, "__parameters__", ()) if typing.get_origin(hint) else ()
    if not variables or not parameters:
        return hint
    return hint[tuple([variables.get(parameter, parameter) for parameter in parameters])]


__all__ = ["Annotation", "Variables", "class_name", "fields_of", "has_fields", "is_open", "read", "writes_itself"]
