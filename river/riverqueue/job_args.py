"""What an application inserts, and how it reaches River's own client.

`translate` is the whole of it: a host's args and options become args that River writes as they are, and options that
River resolves and checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..errors import InvalidJobError
from ..insert import InsertManyParams as RiverInsertManyParams
from ..insert import InsertOpts as RiverInsertOpts
from .insert_opts import InsertOpts


class JobArgs(Protocol):
    """The args of a job: an object with a kind that writes itself as a JSON object."""

    kind: str

    def to_json(self) -> str:
        """The args as the text of a JSON object."""
        ...


@runtime_checkable
class JobArgsWithInsertOpts(Protocol):
    """Args that say how they are inserted, where the call does not."""

    def insert_opts(self) -> InsertOpts:
        """The options of every job of this kind."""
        ...


@dataclass
class InsertManyParams:
    """One of the jobs of `insert_many`: its args, and options of its own."""

    args: JobArgs
    insert_opts: InsertOpts | None = None


class WrittenArgs:
    """Args that have written themselves, and the options that they declare; River's client inserts them.

    No dataclass, because River would look at its fields to read it back.
    """

    __slots__ = ("insert_opts", "kind", "text")

    def __init__(self, kind: str, text: str, insert_opts: RiverInsertOpts | None) -> None:
        self.kind = kind
        self.text = text
        self.insert_opts = insert_opts

    def to_json(self) -> str:
        """The text, untouched; River checks it."""
        return self.text


@dataclass(frozen=True, slots=True)
class Translated:
    """A job as River's own client takes it."""

    args: WrittenArgs
    opts: RiverInsertOpts


def translate(args: JobArgs, insert_opts: InsertOpts | None) -> Translated:
    """What River's own client is asked for. Errors of the host's own methods pass through.

    Raises:
        InvalidJobError: *args* are no args of this layer, or options are of another class.
    """
    kind: object = getattr(args, "kind", None)
    name = type(args).__qualname__
    if isinstance(args, type):
        raise InvalidJobError(f"{args.__name__} is a class: insert an instance of it")
    if not isinstance(kind, str):
        raise InvalidJobError(f'{name} has no kind: declare `kind: str = "..."` in the class')
    if not callable(getattr(args, "to_json", None)):
        raise InvalidJobError(
            f"{name} has no to_json(): give it one, or insert it with river.Client, which writes dataclasses itself"
        )
    written = WrittenArgs(kind, args.to_json(), _declared(args, kind))
    return Translated(written, RiverInsertOpts() if insert_opts is None else _to_river(insert_opts, "insert_opts"))


def translate_many(batch: Iterable[JobArgs | InsertManyParams]) -> list[RiverInsertManyParams[WrittenArgs]]:
    """The jobs of an `insert_many`; none for an empty batch.

    Raises:
        InvalidJobError: As in `translate`; or a job is to be unique.
    """
    translated: list[RiverInsertManyParams[WrittenArgs]] = []
    for each in batch:
        params = each if isinstance(each, InsertManyParams) else InsertManyParams(each)
        job = translate(params.args, params.insert_opts)
        declared = job.args.insert_opts
        if job.opts.unique is not None or (declared is not None and declared.unique is not None):
            raise InvalidJobError(
                f"a job of kind {job.args.kind!r} is to be unique, and insert_many says only how many it has inserted: "
                "use insert, or the insert_many of river.Client, which says it of each job"
            )
        translated.append(RiverInsertManyParams(job.args, job.opts))
    return translated


def _declared(args: object, kind: str) -> RiverInsertOpts | None:
    declared: object = getattr(args, "insert_opts", None)
    if callable(declared):
        declared = declared()
    return None if declared is None else _to_river(declared, f"insert_opts of {kind!r}")


def _to_river(opts: object, where: str) -> RiverInsertOpts:
    if isinstance(opts, InsertOpts):
        return opts.to_river()
    if isinstance(opts, RiverInsertOpts):  # of an args class that river.Client inserts, too
        return opts
    raise InvalidJobError(
        f"{where} must be river.riverqueue.InsertOpts(...), not {opts!r} of the module {type(opts).__module__}"
    )


__all__ = [
    "InsertManyParams",
    "JobArgs",
    "JobArgsWithInsertOpts",
    "Translated",
    "WrittenArgs",
    "translate",
    "translate_many",
]
