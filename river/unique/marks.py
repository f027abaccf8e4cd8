"""Which fields of an args class are marked with `Unique`.

A path is a tuple of names. Its text joins them with dots; a dot or a backslash inside of a name has a backslash
before it.

The marks are found as River finds the tags of a Go struct, so that both make the same key of the same shape:

- A field that holds objects of another class is searched, also where it may be None or of one of several classes.
  What is marked there counts, and the field's own mark does not; only if nothing is, the own mark stands for the whole
  value. Lists and mappings are not searched.
- Each class is searched once per args class, in the order of the fields, depth first: of two fields of one class, only
  the first is searched. The same rule ends a class that contains itself.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Iterable
from typing import Any, TypeAlias

from ..errors import ConfigurationError, InvalidJobError, near
from .fields import Annotation, class_name, fields_of, has_fields, is_open, read, writes_itself

Path: TypeAlias = tuple[str, ...]

_PART = re.compile(r"((?:[^.\\]|\\[.\\])+)(?:\.(?=.)|\Z)", re.DOTALL)
_WHOLE_NUMBER = re.compile(r"-?[0-9]+", re.ASCII)


class Unique:
    """Marks a field that makes the jobs of its args class unique: ``customer_id: Annotated[int, river.Unique]``.

    It counts where `UniqueOpts` has ``by_args=True``; then fields without it do not.
    """


def path_text(path: Path) -> str:
    """A path as text."""
    return ".".join([re.sub(r"[.\\]", r"\\\g<0>", name) for name in path])


def parse_path(text: str) -> Path | None:
    """The path of a text; None if a name in it is empty."""
    names: list[str] = []
    end = 0
    while found := _PART.match(text, end):
        names.append(re.sub(r"\\(.)", r"\1", found[1]))
        end = found.end()
    return tuple(names) if names and end == len(text) else None


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Paths in the order in which River hashes them, each once, and without those that another contains."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: (".".join(path), path)):
        if not any(path[:length] in kept for length in range(1, len(path))):
            kept.append(path)
    return kept


def index_like(path: Path) -> str | None:
    """The name in a path that River would take for an index of an array."""
    return next((name for name in path if _WHOLE_NUMBER.fullmatch(name)), None)


@functools.cache
def unique_paths(args_type: type) -> tuple[str, ...]:
    """The marked fields of an args class, as dotted paths of their JSON names, sorted; found out once per class.

    Raises:
        ConfigurationError: A mark stands where it means nothing, the name of a marked field cannot be hashed, or the
            class has annotations that cannot be resolved.
    """
    paths = in_order(_marked(args_type, (), set(), writes_itself=writes_itself(args_type)))
    for path in paths:
        name = index_like(path)
        if name is not None:
            raise ConfigurationError(
                f"{class_name(args_type)} marks the field {path_text(path)!r}, but River takes the whole number "
                f"{name!r} for the index of an array: mark the object that holds it, or name it otherwise"
            )
    return tuple([path_text(path) for path in paths])


def check_named(args_type: type, paths: Iterable[Path]) -> None:
    """Refuse names that no job of an args class can have, so that all its jobs would count as one.

    What lies inside of values that are no objects of a class, and what a class writes by itself, cannot be known; it
    passes.

    Raises:
        InvalidJobError: A name is unknown.
        ConfigurationError: The class has annotations that cannot be resolved.
    """
    if writes_itself(args_type):
        return
    for path in paths:
        classes: list[Any] = [args_type]
        for name in path:
            fields = {name: said for of in classes for name, said in fields_of(of).items()}
            if not fields or any(is_open(of) for of in classes):
                break
            if name not in fields:
                raise InvalidJobError(
                    f"by_args names {path_text(path)!r}, but {class_name(args_type)} has no {name!r} there: "
                    f"{near(name, fields)}"
                )
            classes = fields[name].types
            if not all(has_fields(of) for of in classes):
                break


def _marked(of: Any, above: Path, searched: set[Any], *, writes_itself: bool = False) -> list[Path]:
    if of in searched:
        return []
    searched.add(of)
    paths: list[Path] = []
    for name, said in fields_of(of, writes_itself=writes_itself).items():
        here = (*above, name)
        below: list[Path] = []
        for inner in said.types:
            if has_fields(inner):
                below += _marked(inner, here, searched)
            else:
                _refuse_marks_inside(of, name, inner)
        paths += below or ([here] if _is_marked(said) else [])
    return paths


def _is_marked(said: Annotation) -> bool:
    return any(mark is Unique or isinstance(mark, Unique) for mark in said.metadata)


def _refuse_marks_inside(of: Any, name: str, container: Any) -> None:
    for argument in typing.get_args(container):
        said = read(argument, {})
        if _is_marked(said):
            raise ConfigurationError(
                f"{class_name(typing.get_origin(of) or of)} marks what is inside of its field {name!r} with Unique, "
                f"where River does not look: mark the field itself, as in {name}: Annotated[list[int], river.Unique]"
            )
        for inner in said.types:
            _refuse_marks_inside(of, name, inner)


__all__ = ["Path", "Unique", "check_named", "in_order", "index_like", "parse_path", "path_text", "unique_paths"]
