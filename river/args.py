"""Args of jobs: from the host's own class to JSON text and back.

An args class is any dataclass, attrs class, msgspec Struct or pydantic model with a ``kind``, or any class that
has ``to_json()`` (and ``from_json(text)``, if it is to be worked here). `codec_of` finds out once per class
how its instances are written and read.

Whatever is wrong with a value is said here, before any statement, and names the field: encoding decodes its own
result again, because a dataclass does not check its fields and a worker would be the first to notice. What
PostgreSQL would refuse, and thereby abort the host's transaction (U+0000, half a surrogate pair), and what JSON
would silently change (NaN, infinities) are refused here too.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Generic, Protocol, TypeAlias

import msgspec
from typing_extensions import TypeVar

from .errors import ConfigurationError, InvalidArgsError
from .nesting import DEEPEST, too_deep
from .shapes import is_mapping, is_sequence

A = TypeVar("A", default=Any)

_DIGITS_BEFORE, _DIGITS_AFTER = 131_072, 16_383

_SECRET = '"**********"'
"""What pydantic writes in the place of a SecretStr or SecretBytes."""


class _KindOfClass(Protocol):
    kind: ClassVar[str]


class _KindOfInstance(Protocol):
    @property
    def kind(self) -> str: ...


# Two protocols, because to pyright a ClassVar is neither a property nor a plain attribute.
Args: TypeAlias = _KindOfClass | _KindOfInstance
"""What `insert` accepts: an object with a ``kind``, of a class that River can write as JSON.

The kind names the type of the job for every process and language that works it; 1 to 127 characters.
"""


@dataclass(frozen=True, slots=True)
class JobArgs:
    """Args without a class of their own: a kind, and a mapping of JSON values.

    Workers registered with ``workers.work(kind=...)`` receive the mapping as ``job.args``.
    """

    kind: str
    args: Mapping[str, Any]

    def to_json(self) -> str:
        """The mapping as JSON.

        Raises:
            InvalidArgsError: It holds something that is not JSON; the message names where.
        """
        args = dict(self.args) if is_mapping(self.args) else self.args
        try:
            text = json.dumps(args, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            exact = json.loads(text) == args
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgsError(_complaint(self.kind, culprit_in(args) or str(error))) from error
        culprit = None if exact else culprit_in(args)  # keys that are no strings, which json.dumps makes strings
        if culprit:
            raise InvalidArgsError(_complaint(self.kind, culprit))
        return text


@dataclass(frozen=True, slots=True)
class Codec(Generic[A]):
    """How values of one args class are written and read.

    Attributes:
        encode: The JSON text of a value.
        decode: The value of a JSON text; raises any exception if it is not one.
        plain: The value as dicts, lists and scalars, to look for what JSON cannot say.
        reads_back: Whether encoding can check itself by decoding.
    """

    encode: Callable[[A], str]
    decode: Callable[[str], A]
    plain: Callable[[A], object]
    reads_back: bool = True


_codecs: dict[type, Codec[Any]] = {}


def kind_of(args_type: type) -> str:
    """The kind that a class declares.

    Raises:
        ConfigurationError: It declares none, or not as a string.
    """
    kind = getattr(args_type, "kind", None)
    if not isinstance(kind, str):
        raise ConfigurationError(f'{_name(args_type)} has no kind: declare `kind: ClassVar[str] = "..."` in the class')
    return kind


def codec_of(args_type: type[Any]) -> Codec[Any]:
    """How values of *args_type* are written and read; found out once.

    Raises:
        ConfigurationError: It is none of the kinds of class that River can write as JSON.
    """
    codec = _codecs.get(args_type)
    if codec is None:
        codec = _codecs[args_type] = _find_codec(args_type)
    return codec


def _find_codec(args_type: type[Any]) -> Codec[Any]:
    if hasattr(args_type, "__pydantic_validator__"):
        return _pydantic_codec(args_type)
    if callable(getattr(args_type, "to_json", None)):
        return _self_writing_codec(args_type)
    if _has_fields(args_type):
        return _msgspec_codec(args_type)
    raise ConfigurationError(
        f"{_name(args_type)} cannot be a job's args: use a dataclass, attrs class, msgspec Struct or pydantic "
        "model, give it to_json() and from_json(text), or insert river.JobArgs(kind, mapping)"
    )


def encode(args: object, kind: str) -> str:
    """The JSON object of *args*, checked.

    Raises:
        InvalidArgsError: A field has the wrong type, or a value that JSON or PostgreSQL cannot hold.
        ConfigurationError: The class of *args* cannot be a job's args.
    """
    codec = codec_of(type(args))
    try:
        text = codec.encode(args)
    except InvalidArgsError:
        raise
    except Exception as error:
        raise InvalidArgsError(_complaint(kind, _culprit_of(codec, args) or _reason(error))) from error
    _refuse_the_unstorable(codec, args, kind, text)
    if codec.reads_back:
        _refuse_the_unreadable(codec, args, kind, text)
    return text


def any_json(text: str) -> Any:
    """Decode args for which there is no class: integers stay exact, whatever their size."""
    return json.loads(text)


def _refuse_the_unstorable(codec: Codec[Any], args: object, kind: str, text: str) -> None:
    if codec.encode is _write_itself and not isinstance(args, JobArgs):
        check_text(text, kind)
        return
    # The look at the text is quick, and nearly always enough; only a hit is worth a walk through the value.
    if "\\u0000" in text or "\\ud" in text or "\\uD" in text or not text.isascii():
        culprit = culprit_in(_loads(text, kind))
        if culprit:
            raise InvalidArgsError(_complaint(kind, culprit))
    if "null" in text:
        culprit = culprit_in(codec.plain(args))
        if culprit:
            raise InvalidArgsError(_complaint(kind, culprit))
    if not text.startswith("{"):
        raise InvalidArgsError(_complaint(kind, "args must be a JSON object"))
    if too_deep(text):
        raise InvalidArgsError(_complaint(kind, f"args are nested more than {DEEPEST} levels deep"))


def _refuse_the_unreadable(codec: Codec[Any], args: object, kind: str, text: str) -> None:
    try:
        read = codec.decode(text)
        again = codec.encode(read)
    except Exception as error:
        raise InvalidArgsError(_complaint(kind, _reason(error))) from error
    # Both, because a set may come out in another order, and not every class can tell equal values.
    if again != text and read != args:
        before, after = json.loads(text), json.loads(again)
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        if changed:
            raise InvalidArgsError(
                _complaint(kind, f"field {changed[0]!r} would be read back as something else than was written")
            )
    if _SECRET in text:
        raise InvalidArgsError(
            _complaint(
                kind, "a field would be stored as asterisks, as pydantic writes secrets: give the model a serializer"
            )
        )


def check_text(text: object, kind: str) -> None:
    """Check a text of the host's own making.

    Raises:
        InvalidArgsError: It is no JSON object, or holds what JSON or PostgreSQL cannot.
    """
    if not isinstance(text, str):
        raise InvalidArgsError(_complaint(kind, f"their text is no JSON, but {type(text).__name__}"))
    value = _loads(text, kind)
    if too_deep(text):
        raise InvalidArgsError(_complaint(kind, f"args are nested more than {DEEPEST} levels deep"))
    culprit = culprit_in(value) if is_mapping(value) else "args must be a JSON object"
    if culprit:
        raise InvalidArgsError(_complaint(kind, culprit))


def _loads(text: str, kind: str) -> object:
    try:
        return json.loads(text, parse_float=_storable)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgsError(_complaint(kind, f"their text is no JSON: {error}")) from error


def _storable(literal: str) -> float:
    """A number that is written with a fraction or an exponent, unless PostgreSQL's numeric cannot hold it.

    Its bounds are 131,072 digits before the point and 16,383 after it.
    """
    number = Decimal(literal)
    before = number.adjusted() + 1
    if before > _DIGITS_BEFORE or len(number.as_tuple().digits) - before > _DIGITS_AFTER:
        raise ValueError(f"the number {literal[:30]} is beyond what PostgreSQL can store")
    return float(literal)


def _culprit_of(codec: Codec[Any], args: object) -> str | None:
    # The value has already failed; this only looks for a better message.
    with suppress(Exception):
        return culprit_in(codec.plain(args))
    for name in getattr(type(args), "__annotations__", ()):
        try:
            msgspec.json.encode(getattr(args, name, None))
        except Exception as error:  # noqa: BLE001
            return f"field {name!r}: {error}"
    return None


def culprit_in(value: object) -> str | None:
    """Say where *value* holds what JSON or PostgreSQL cannot, or None."""
    try:
        return next(_culprits(value, ""), None)
    except RecursionError:
        return "a value is nested too deeply, or holds itself"


def _culprits(value: object, path: str) -> Iterator[str]:
    if is_mapping(value):
        yield from _culprits_of_mapping(value, path)
        return
    if is_sequence(value):
        for index, item in enumerate(value):
            yield from _culprits(item, f"{path}[{index}]")
        return
    where = f"field {path!r}" if path else "a value"
    match value:
        case str() if bad_text(value):
            yield f"{where} {bad_text(value)}"
        case float() if not math.isfinite(value):
            yield f"{where} is {value}, which JSON cannot say"
        case None | str() | int() | float():
            return
        case _:
            yield f"{where} is a {type(value).__name__}, which is no JSON value"


def _culprits_of_mapping(value: Mapping[Any, Any], path: str) -> Iterator[str]:
    where = f"field {path!r}" if path else "a value"
    for key, item in value.items():
        if not isinstance(key, str):
            yield f"{where} has the key {key!r}, which is no string"
        elif bad_text(key):
            yield f"{where} has the key {key!r}, which {bad_text(key)}"
        else:
            yield from _culprits(item, f"{path}.{key}" if path else key)


def bad_text(value: str) -> str | None:
    """Why PostgreSQL would refuse *value*, or None."""
    if "\x00" in value:
        return "holds U+0000, which PostgreSQL cannot store"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "holds half a surrogate pair, which is no Unicode text"
    return None


def _msgspec_codec(args_type: type[Any]) -> Codec[Any]:
    private = [each.name for each in getattr(args_type, "__attrs_attrs__", ()) if each.name.startswith("_")]
    if private:
        raise ConfigurationError(
            f"{_name(args_type)} cannot be a job's args: the field {private[0]!r} of an attrs class is private, and "
            "would not be written; name it without the underscore"
        )
    try:
        decoder = msgspec.json.Decoder(args_type)
    except (TypeError, NameError) as error:
        raise ConfigurationError(f"{_name(args_type)} cannot be a job's args: {error}") from error
    return Codec(
        encode=lambda args: msgspec.json.encode(args).decode(),
        decode=decoder.decode,
        plain=functools.partial(msgspec.to_builtins, str_keys=True),
    )


def _pydantic_codec(args_type: type[Any]) -> Codec[Any]:
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(args_type)
    return Codec(
        encode=lambda args: adapter.dump_json(args, by_alias=True, warnings="error").decode(),
        decode=adapter.validate_json,
        plain=lambda args: adapter.dump_python(args, mode="json", by_alias=True, warnings=False),
    )


def _self_writing_codec(args_type: type[Any]) -> Codec[Any]:
    reads: Any = getattr(args_type, "from_json", None)
    if args_type is JobArgs:
        decode: Callable[[str], Any] = any_json
    elif reads is not None:
        decode = reads
    elif _has_fields(args_type):
        decode = _decode_of_fields(args_type)
    else:
        decode = functools.partial(_cannot_read, args_type)
    return Codec(
        encode=_write_itself,
        decode=decode,
        plain=lambda args: any_json(_write_itself(args)),
        reads_back=args_type is not JobArgs and decode is reads,
    )


def _decode_of_fields(args_type: type[Any]) -> Callable[[str], Any]:
    """How a class that only writes itself is read: field by field, if that is possible."""
    try:
        return _msgspec_codec(args_type).decode
    except ConfigurationError as error:
        refusal = error  # of a worker: an insert does not read

        def refuse(_text: str) -> Any:
            raise refusal

        return refuse


def _write_itself(args: Any) -> str:
    text = args.to_json()
    if not isinstance(text, str):
        raise TypeError(f"to_json() must give str, but gave {type(text).__name__}")
    return text


def _cannot_read(args_type: type, _text: str) -> Any:
    raise ConfigurationError(f"{_name(args_type)} has no from_json(text), so its jobs cannot be worked here")


def _has_fields(args_type: Any) -> bool:
    return (
        dataclasses.is_dataclass(args_type)
        or hasattr(args_type, "__attrs_attrs__")
        or hasattr(args_type, "__struct_fields__")
    )


def _reason(error: Exception) -> str:
    """What a validation library says, without its pointers to its own documentation."""
    validation: Any = error
    if isinstance(error, msgspec.ValidationError):
        message, separator, path = str(error).rpartition(" - at `$.")
        return f"field {path.rstrip('`')!r}: {message}" if separator else str(error)
    if hasattr(error, "errors"):  # pydantic's
        for first in validation.errors(include_url=False):
            return f"field {'.'.join(map(str, first['loc']))!r}: {first['msg']}"
    return str(error) or type(error).__name__


def _complaint(kind: str, reason: str) -> str:
    return f"args of {kind!r} cannot be inserted: {reason}"


def _name(args_type: type) -> str:
    return f"{args_type.__module__}.{args_type.__qualname__}"


__all__ = ["Args", "Codec", "JobArgs", "any_json", "bad_text", "check_text", "codec_of", "encode", "kind_of"]
