"""What a value of the host's is, for values that a type checker knows nothing about.

``isinstance`` leaves the items of a container unknown, which strict checking rightly refuses to pass on; these say
that they may be anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether it has keys and values."""
    return isinstance(value, Mapping)


def is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether it is what JSON writes as an array."""
    return isinstance(value, list | tuple)


def is_collection(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether its items can be taken one by one; a text is no collection of its letters."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def plain_text(value: str) -> str:
    """A text as a `str` and nothing more: a member of a ``(str, Enum)`` is formatted as its name."""
    return str.__str__(value)
