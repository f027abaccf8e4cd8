"""What a list asks for, and what a deletion of many jobs takes: options, checked before any statement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from ..errors import InvalidCursorError, InvalidOptionError, near
from ..job import JobRow, JobState
from . import values
from .cursor import SORT_FIELDS, YEAR_ONE, JobListCursor, SortField, rfc3339
from .where import Where, where_of

T = TypeVar("T")

FINALIZED = tuple(state for state in JobState if state.finalized)
_BIGINT = 1 << 63

Column: TypeAlias = Literal["id", "scheduled_at", "attempted_at", "finalized_at"]


class JobListOptions(TypedDict, total=False):
    """Which jobs a list holds, and in which order. A filter that is left out, or None, lets every job through.

    An empty list lets none through, but for ``tags_all``. All filters must hold.

    Keys:
        ids, kinds, priorities, queues: Jobs with one of these.
        states: Jobs in one of these states, as `JobState` or text.
        tags_all: Jobs that have every one of these tags.
        tags_any: Jobs that have at least one of these tags.
        metadata: Jobs whose metadata contains this JSON object, as PostgreSQL's ``@>`` says.
        where: A condition in SQL on the columns of ``river_job``, with parameters written ``:name``.
        where_parameters: Their values: texts, numbers, bools, None, dates, aware datetimes, timedeltas, UUIDs, lists
            of texts or of whole numbers, mappings (jsonb).
        order_by: "id"; "scheduled_at"; "finalized_at", which lists finalized jobs only; or "time": the time that fits
            the first of *states*, which is ``attempted_at`` for running jobs, ``finalized_at`` for finalized ones and
            else ``scheduled_at``. Jobs without that time come last. Ties are broken by id. Without it, "id".
        descending: The other way round.
        first: At most so many jobs to a page; 1 to 10,000, without it 100.
        after: Go on after this: the cursor of a page, its text, or a job.
    """

    ids: Collection[int] | None
    kinds: Collection[str] | None
    priorities: Collection[int] | None
    queues: Collection[str] | None
    states: Sequence[JobState | str] | None
    tags_all: Collection[str] | None
    tags_any: Collection[str] | None
    metadata: Mapping[str, Any] | None
    where: str | None
    where_parameters: Mapping[str, Any] | None
    order_by: SortField
    descending: bool
    first: int
    after: JobListCursor | JobRow | str | None


class JobDeleteOptions(TypedDict, total=False):
    """Which jobs to delete. A filter that is left out, or None, lets every job through; an empty list lets none.

    Keys:
        ids, kinds, priorities, queues: Jobs with one of these.
        states: Jobs in one of these states, as `JobState` or text.
        all_jobs: True instead of any filter: jobs of every kind, queue and state.
        first: At most so many jobs, those with the lowest ids; 1 to 10,000, without it 100.
    """

    ids: Collection[int] | None
    kinds: Collection[str] | None
    priorities: Collection[int] | None
    queues: Collection[str] | None
    states: Sequence[JobState | str] | None
    all_jobs: bool
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilters:
    """Which jobs; None where a filter is not set."""

    ids: tuple[int, ...] | None = None
    kinds: tuple[str, ...] | None = None
    priorities: tuple[int, ...] | None = None
    queues: tuple[str, ...] | None = None
    states: tuple[JobState, ...] | None = None
    tags_all: tuple[str, ...] | None = None
    tags_any: tuple[str, ...] | None = None
    metadata: str | None = None
    where: Where | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListing:
    """One page of a list, as it is asked for.

    Attributes:
        filters: Which jobs.
        order_by: As what the order was asked for.
        column: What that comes to; ties are broken by id.
        descending: The other way round.
        first: At most so many jobs.
        after: Where the page before has ended.
        after_odd: The time of that end as the database writes it, if it is one that no cursor can hold.
    """

    filters: JobFilters
    order_by: SortField
    column: Column
    descending: bool
    first: int
    after: JobListCursor | None
    after_odd: str | None = None

    @classmethod
    def of(cls, options: JobListOptions) -> JobListing:
        """The page that *options* ask for.

        Raises:
            InvalidOptionError: An option is unknown or breaks a rule.
            InvalidCursorError: *after* is no cursor, or one of another order.
        """
        _known("job_list", options, _LIST_OPTIONS)
        order_by = _order(options.get("order_by", "id"))
        filters = _filters(options)
        if order_by == "finalized_at":
            filters = replace(filters, states=_finalized_only(filters.states))
        if order_by == "time" and isinstance(options.get("states"), AbstractSet):
            raise InvalidOptionError(
                'states must be a list or tuple for order_by="time", in which the first one decides, not a set'
            )
        listing = cls(
            filters=filters,
            order_by=order_by,
            column=_time_of(filters.states) if order_by == "time" else order_by,
            descending=values.flag("descending", options.get("descending", False)),
            first=values.first(options.get("first", values.FIRST_DEFAULT)),
            after=None,
        )
        return listing.going_on(options.get("after"))

    @property
    def nullable(self) -> bool:
        """Whether a listed job may lack the time of the order."""
        if self.column == "finalized_at":
            states = self.filters.states
            return states is None or not all(state.finalized for state in states)
        return self.column == "attempted_at"

    @property
    def after_time(self) -> str | None:
        """The time after which the page begins, as text; None after a job without one."""
        if self.after is None or self.column == "id":
            return None
        if self.after_odd is not None:
            return self.after_odd
        # A cursor has one text for no time and for the first instant of all, which only a column without nulls settles.
        time = self.after.time if self.nullable else self.after.time or YEAR_ONE
        return None if time is None else rfc3339(time)

    def cursor_of(self, job: JobRow) -> JobListCursor:
        """The place after *job* in this list."""
        time: datetime | None = None if self.column == "id" else getattr(job, self.column)
        return JobListCursor(id=job.id, kind=job.kind, queue=job.queue, sort_field=self.order_by, time=time)

    def going_on(self, after: JobListCursor | JobRow | str | None) -> JobListing:
        """The page after a cursor, its text, or a job.

        Raises:
            InvalidCursorError: It is none, or a cursor of another order.
        """
        if after is None:
            return self
        if isinstance(after, JobRow):
            cursor = self._cursor_of_any(after)
        else:
            cursor = after if isinstance(after, JobListCursor) else JobListCursor.parse(after)
        if cursor.sort_field != self.order_by:
            raise InvalidCursorError(
                f"after is a cursor of the order {cursor.sort_field!r}, and this list has the order {self.order_by!r}: "
                f"pass order_by={cursor.sort_field!r}, or begin without it"
            )
        return replace(self, after=cursor, after_odd=None)

    def following(self, last: JobRow, odd_end: str | None) -> JobListing:
        """The page after *last*, the last job of this list's page, and its time as text if it cannot be read."""
        return replace(self, after=self.cursor_of(last), after_odd=odd_end)

    def _cursor_of_any(self, job: JobRow) -> JobListCursor:
        cursor = self.cursor_of(job)
        if cursor.time is None and self.column != "id" and not self.nullable:
            raise InvalidCursorError(
                f"after is job {job.id}, which is {job.state.value} and has no {self.column}: pass a job of this list"
            )
        return cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeletion:
    """Which jobs are to be deleted.

    Attributes:
        filters: Which jobs.
        first: At most so many, those with the lowest ids.
    """

    filters: JobFilters
    first: int

    @classmethod
    def of(cls, options: JobDeleteOptions) -> JobDeletion:
        """What *options* ask for.

        Raises:
            InvalidOptionError: An option is unknown or breaks a rule, or there is neither a filter nor ``all_jobs``.
        """
        _known("job_delete_many", options, _DELETE_OPTIONS)
        filters = _filters(options)
        every = values.flag("all_jobs", options.get("all_jobs", False))
        if every and filters != JobFilters():
            raise InvalidOptionError("all_jobs=True stands for no filter, and there is one: leave one of them out")
        if not every and filters == JobFilters():
            raise InvalidOptionError(
                "job_delete_many has no filter, which would delete any job: give ids, kinds, priorities, queues or "
                "states, or all_jobs=True"
            )
        return cls(filters=filters, first=values.first(options.get("first", values.FIRST_DEFAULT)))


def _known(method: str, options: Iterable[str], known: Iterable[str]) -> None:
    for name in options:
        if name not in known:
            raise InvalidOptionError(f"{method} has no option {name!r}; {near(name, known)}")


def _filters(options: Mapping[str, object]) -> JobFilters:
    metadata = options.get("metadata")
    return JobFilters(
        ids=_each("ids", options, _id),
        kinds=_each("kinds", options, _text),
        priorities=_each("priorities", options, _priority),
        queues=_each("queues", options, _text),
        states=_each("states", options, _state),
        tags_all=_each("tags_all", options, _text),
        tags_any=_each("tags_any", options, _text),
        metadata=None if metadata is None else values.json_object("metadata", metadata),
        where=where_of(options.get("where"), options.get("where_parameters")),
    )


def _each(option: str, options: Mapping[str, object], checked: Callable[[str, object], T]) -> tuple[T, ...] | None:
    given = values.several(option, options.get(option))
    return None if given is None else tuple(dict.fromkeys(checked(f"each of {option}", value) for value in given))


def _id(option: str, value: object) -> int:
    return values.integer(option, value, -_BIGINT, _BIGINT - 1)


def _priority(option: str, value: object) -> int:
    return values.integer(option, value, 1, 4)


def _text(option: str, value: object) -> str:
    return values.text(option, value)


def _state(option: str, value: object) -> JobState:
    for state in JobState:
        if value == state:
            return state
    known = [state.value for state in JobState]
    raise InvalidOptionError(f"{option} must be a state, not {value!r}; {near(str(value), known)}")


def _order(value: object) -> SortField:
    for order in SORT_FIELDS:
        if order == value:
            return order
    raise InvalidOptionError(f"order_by must be one of {', '.join(map(repr, SORT_FIELDS))}, not {value!r}")


def _finalized_only(states: tuple[JobState, ...] | None) -> tuple[JobState, ...]:
    unfinished = [state.value for state in states or () if not state.finalized]
    if unfinished:
        raise InvalidOptionError(
            f'order_by="finalized_at" lists finalized jobs, and {", ".join(unfinished)} in states are not: leave them '
            'out, or order by "time"'
        )
    return FINALIZED if states is None else states


def _time_of(states: tuple[JobState, ...] | None) -> Column:
    first = states[0] if states else None
    if first is JobState.RUNNING:
        return "attempted_at"
    return "finalized_at" if first and first.finalized else "scheduled_at"


_LIST_OPTIONS = frozenset(JobListOptions.__annotations__)
_DELETE_OPTIONS = frozenset(JobDeleteOptions.__annotations__)
