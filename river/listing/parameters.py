"""The parameters of a host's own condition: of which SQL type each is, and how its value is written for it.

What the database would refuse is refused here, by the parameter's name: in the host's transaction it would cost that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypeVar
from uuid import UUID

from ..args import bad_text
from ..errors import InvalidOptionError
from ..operation import Value
from ..shapes import is_mapping, is_sequence
from .values import array, json_object

T = TypeVar("T")

# The documented limits of numeric, and of an interval of hours in 32 bits, which PostgreSQL 14 reads.
_NUMERIC_BEFORE_POINT, _NUMERIC_AFTER_POINT = 131_072, 16_383
_INTERVAL_HOURS = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value as it is sent.

    Attributes:
        value: What crosses the seam.
        sql_type: What it is cast to.
    """

    value: Value
    sql_type: str


def parameter(name: str, value: object) -> Parameter | None:
    """How *value* is sent as the parameter *name*; None for what needs no type: None, and a list without elements.

    Raises:
        InvalidOptionError: It is of no known type, or one that its SQL type cannot hold.
    """
    for types, sql_type, convert in _TYPES:
        if isinstance(value, types):
            return Parameter(_converted(name, convert, value), sql_type)
    if is_mapping(value):
        return Parameter(json_object(f"where_parameters[{name!r}]", value), "jsonb")
    if is_sequence(value):
        return _list(name, list(value))
    if value is None:
        return None
    raise InvalidOptionError(
        f"where_parameters[{name!r}] must be a text, number, bool, None, date, aware datetime, timedelta, UUID, a "
        f"list of texts or of whole numbers, or a mapping for jsonb, not {type(value).__qualname__}"
    )


def _list(name: str, values: list[object]) -> Parameter | None:
    if not values:
        return None
    if all(isinstance(each, str) for each in values):
        return Parameter(_converted(name, _texts, values), "text[]")
    if all(isinstance(each, int) and not isinstance(each, bool) for each in values):
        return Parameter(_converted(name, _integers, values), "bigint[]")
    raise InvalidOptionError(f"where_parameters[{name!r}] must hold texts only, or whole numbers only: {values!r}")


def _converted(name: str, convert: Callable[[T], Value], value: T) -> Value:
    try:
        return convert(value)
    except (InvalidOptionError, OverflowError) as error:
        raise InvalidOptionError(f"where_parameters[{name!r}] cannot be sent: {error}") from error


def _text(value: object) -> str:
    # A member of a StrEnum is a str, and libraries send what its class makes of it.
    text = "".join(value) if isinstance(value, str) else ""
    complaint = bad_text(text)
    if complaint:
        raise InvalidOptionError(f"{value!r} {complaint}")
    return text


def _integer(value: object) -> int:
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise InvalidOptionError(f"{value!r} has more than 64 bits")
    return int(value)


def _texts(values: list[object]) -> str:
    return array(map(_text, values))


def _integers(values: list[object]) -> str:
    return array(str(_integer(each)) for each in values)


def _float(value: object) -> str:
    # Not repr(), which a class of the host's may have changed, as numpy's has.
    return float.__repr__(value) if isinstance(value, float) else ""


def _numeric(value: object) -> str:
    number = value if isinstance(value, Decimal) else Decimal()
    if number.is_snan():
        raise InvalidOptionError(f"{number!r} is a signalling NaN, which numeric does not know: pass Decimal('NaN')")
    if number.is_nan():
        return "NaN"  # without the sign and the digits that Python's may have
    if not number:
        return "0"  # with any exponent
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and (number.adjusted() >= _NUMERIC_BEFORE_POINT or -exponent > _NUMERIC_AFTER_POINT):
        shown = Decimal.__str__(number)
        raise InvalidOptionError(
            f"{shown if len(shown) <= 60 else f'{shown[:57]}...'} has more digits than numeric can hold, which are "
            f"{_NUMERIC_BEFORE_POINT:,} before the point and {_NUMERIC_AFTER_POINT:,} after it: round it"
        )
    return Decimal.__str__(number)


def _instant(value: object) -> str:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidOptionError(f"{value!r} is no aware datetime, such as datetime.now(UTC)")
    return value.astimezone(UTC).isoformat()


def _date(value: object) -> str:
    return date.isoformat(value) if isinstance(value, date) else ""


def _interval(value: object) -> str:
    # In hours, because a day in SQL is not always 24 of them.
    microseconds = value // timedelta(microseconds=1) if isinstance(value, timedelta) else 0
    seconds, fraction = divmod(abs(microseconds), 1_000_000)
    hours, seconds = divmod(seconds, 3_600)
    if hours > _INTERVAL_HOURS:
        raise InvalidOptionError(
            f"{value!r} is too long for an interval, which can hold {_INTERVAL_HOURS:,} hours: make it shorter"
        )
    sign = "-" if microseconds < 0 else ""
    return f"{sign}{hours}:{seconds // 60:02}:{seconds % 60:02}.{fraction:06}"


# In this order: a bool is an int, and a datetime a date.
_TYPES: tuple[tuple[type, str, Callable[[object], Value]], ...] = (
    (bool, "boolean", bool),
    (int, "bigint", _integer),
    (float, "double precision", _float),
    (Decimal, "numeric", _numeric),
    (str, "text", _text),
    (datetime, "timestamptz", _instant),
    (date, "date", _date),
    (timedelta, "interval", _interval),
    (UUID, "uuid", str),
)
