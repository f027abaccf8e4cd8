"""Values that the host hands over, checked, and written as text for a statement."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeVar

import msgspec

from ..args import bad_text, culprit_in
from ..errors import InvalidOptionError
from ..nesting import DEEPEST, too_deep
from ..shapes import is_collection, is_mapping

T = TypeVar("T")

FIRST_DEFAULT = 100
_FIRST_MOST = 10_000
_BIGINT = 1 << 63

OUTPUT_MOST_BYTES = 32 * 1024 * 1024
"""The largest output of a job that River stores, as JSON in UTF-8."""


def array(texts: Iterable[str]) -> str:
    """Texts as the literal of a PostgreSQL array, which is cast where it stands."""
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"


def integer(option: str, value: object, lowest: int, highest: int) -> int:
    """*value*, if it is a whole number of a range.

    Raises:
        InvalidOptionError: It is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise InvalidOptionError(f"{option} must be a whole number from {lowest:,} to {highest:,}, not {value!r}")
    return int(value)


def job_id(value: object) -> int:
    """*value*, if it can be the id of a job; also one of another library's integers.

    Raises:
        InvalidOptionError: It is no whole number, or has more than 64 bits.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise InvalidOptionError(
            f"job_id must be the id of a job, a whole number, not {type(value).__qualname__}: {value!r}; pass job.id, "
            "or int(text) of a text"
        )
    number = operator.index(value)
    if not -_BIGINT <= number < _BIGINT:
        raise InvalidOptionError(
            f"job_id must have at most 64 bits, unlike {value!r}: no job has such an id; pass job.id"
        )
    return number


def first(value: object) -> int:
    """How many rows are asked for.

    Raises:
        InvalidOptionError: It is no number from 1 to 10,000.
    """
    return integer("first", value, 1, _FIRST_MOST)


def text(option: str, value: object) -> str:
    """*value*, if it is a text that PostgreSQL can hold.

    Raises:
        InvalidOptionError: It is not.
    """
    complaint = bad_text(value) if isinstance(value, str) else "is no text"
    if not isinstance(value, str) or complaint:
        raise InvalidOptionError(f"{option} must be a text, but {value!r} {complaint}")
    return "".join(value)


def flag(option: str, value: object) -> bool:
    """*value*, if it is True or False.

    Raises:
        InvalidOptionError: It is not.
    """
    if not isinstance(value, bool):
        raise InvalidOptionError(f"{option} must be True or False, not {value!r}")
    return value


def several(option: str, values: object) -> list[Any] | None:
    """The values of a filter; None if it is not set.

    Raises:
        InvalidOptionError: It is one value, where there must be a list of them.
    """
    if values is None:
        return None
    if not is_collection(values) or is_mapping(values):
        raise InvalidOptionError(f"{option} must be a list, not {values!r}; a list of one is [{values!r}]")
    return list(values)


def json_object(option: str, value: object) -> str:
    """The JSON text of a mapping.

    Raises:
        InvalidOptionError: It is no mapping, or holds what JSON or PostgreSQL cannot.
    """
    if not is_mapping(value):
        raise InvalidOptionError(
            f"{option} must be a mapping, a JSON object, not {type(value).__qualname__}: {value!r}"
        )
    return json_text(option, dict(value))


def json_text(option: str, value: object) -> str:
    """The JSON text of a value of dicts, lists and scalars.

    Raises:
        InvalidOptionError: It holds what JSON or PostgreSQL cannot; the message names where.
    """
    try:
        encoded = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOptionError(f"{option} is no JSON: {culprit_in(value) or error}") from error
    if too_deep(encoded):
        raise InvalidOptionError(f"{option} is nested more than {DEEPEST} levels deep")
    culprit = culprit_in(value)
    if culprit:
        raise InvalidOptionError(f"{option} cannot be stored: {culprit}")
    return encoded


def output_text(value: object) -> str:
    """The JSON text of a job's output: any JSON value, dataclass, attrs class, Struct or pydantic model.

    Raises:
        InvalidOptionError: It is none of those, or has more than 32 MiB.
    """
    dump = getattr(value, "model_dump", None)
    try:
        plain: object = dump(mode="json") if callable(dump) else msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOptionError(f"output cannot be written as JSON: {error}") from error
    encoded = json_text("output", plain)
    size = len(encoded.encode())
    if size > OUTPUT_MOST_BYTES:
        raise InvalidOptionError(
            f"output is too large: {size:,} bytes of JSON, and at most {OUTPUT_MOST_BYTES:,} are stored; keep it "
            "elsewhere, and its place in the output"
        )
    return encoded
