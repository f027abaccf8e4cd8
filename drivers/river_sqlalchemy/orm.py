# ruff: noqa: ARG002 - the signatures are SQLAlchemy's
"""River's jobs and queues as classes of SQLAlchemy's ORM: typed, to be joined and queried, never to be written.

    session.scalars(select(RiverJob).where(RiverJob.state == JobState.RUNNING))
    select(RiverJob.id, User.email).join(User, RiverJob.args["user_id"].as_integer() == User.id)

`RiverJob` and `RiverQueue` are mapped to the tables of `river_sqlalchemy.schema`, in a registry of their own. For River
in another schema, or for classes in a registry and MetaData of its own, a host declares them over the same columns:

    class RiverJob(JobColumns, Base):
        __table__ = tables("jobs", Base.metadata).river_job

The column ``metadata`` is the attribute ``metadata_``: the ``metadata`` of a declarative class is its MetaData.

Rows are written by River's clients. A line that tries it here gets a `ReadOnlyError`: to set an attribute, to delete
one, to make an instance, ``session.delete`` of a row or of another whose deletion cascades to it, ``flag_modified``,
``session.merge`` but for ``load=False``. Nothing is noted by then, so session and transaction go on. A type checker
refuses the first and the third. Two things are different:

- What only the flush can find is refused there, and then SQLAlchemy rolls the transaction back, as after any failed
  flush. It takes a relationship that writes River's columns, because it is not ``viewonly``, or a row that was made
  transient and added again.
- Statements for many rows are not refused: ``update(RiverJob)``, ``session.bulk_save_objects``. SQLAlchemy tells the
  listeners of the session about them, and that is the host's; the mapped class hears nothing.

A change inside a dict or list is noticed by nobody, and never written.

Aggregate states with the Core column, ``array_agg(RiverJob.__table__.c.state)``: over the attribute SQLAlchemy does not
know that the array is one of an enum.

On SQLite raw values come back, as `river_sqlalchemy.schema` says, but for ``state`` and ``unique_states``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import Text, cast, event, type_coerce
from sqlalchemy.orm import ColumnProperty, DeclarativeBase, Mapper, column_property, declared_attr
from sqlalchemy.types import TypeDecorator

from river.errors import ConfigurationError, RiverError
from river.job import JobState

from . import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet
    from datetime import datetime
    from typing import Never, Protocol, TypeVar, overload

    from sqlalchemy import Dialect, FromClause
    from sqlalchemy.orm import InstrumentedAttribute
    from sqlalchemy.orm.attributes import AttributeEventToken
    from sqlalchemy.orm.state import InstanceState
    from sqlalchemy.types import TypeEngine

    T_co = TypeVar("T_co", covariant=True)

    class Attribute(Protocol[T_co]):
        """What ``Mapped`` is to a type checker, but not to be set."""

        @overload
        def __get__(self, instance: None, owner: object) -> InstrumentedAttribute[T_co]: ...
        @overload
        def __get__(self, instance: object, owner: object) -> T_co: ...
        def __set__(self, instance: object, value: Never) -> None: ...


class ReadOnlyError(RiverError, TypeError):
    """A mapped class of River's was asked to write; nothing was written.

    Insert jobs with ``client.insert_tx(session, ...)``, and change them and queues with the methods of River's clients.
    A correction by hand is a Core statement on the class's ``__table__``, and has River's rules to keep.

    It is no AttributeError: one that comes out of an autoflush would be lost in a ``hasattr``.
    """


class _Row:
    """What both classes are: read-only, and shown by what is loaded."""

    _shown: ClassVar[tuple[str, ...]]

    if TYPE_CHECKING:
        __table__: ClassVar[FromClause]

        def __init__(self, rows_come_from_queries: Never, /) -> None: ...

    def __repr__(self) -> str:
        # Nothing is loaded for it: the session may be closed, or asyncio's.
        loaded = [f"{name}={self.__dict__[name]}" for name in self._shown if name in self.__dict__]
        return f"<{' '.join([type(self).__name__, *loaded])}>"


class JobColumns(_Row):
    """The columns of ``river_job``, for a class with that ``__table__``; its first base class.

    Attributes:
        state: A plain str where it is none of `JobState`, as after the migration of a newer River.
        errors: The failed attempts, oldest first, as River stores them: ``at``, ``attempt``, ``error``, ``trace``.
        metadata_: The column ``metadata``.
        unique_states: The states in which the job blocks others with its unique key, as eight bits. It is text in SQL
            too; the bits are ``__table__.c.unique_states``.
    """

    _shown = ("id", "kind", "state", "queue")

    if TYPE_CHECKING:
        id: Attribute[int]
        state: Attribute[JobState]
        attempt: Attribute[int]
        max_attempts: Attribute[int]
        attempted_at: Attribute[datetime | None]
        created_at: Attribute[datetime]
        finalized_at: Attribute[datetime | None]
        scheduled_at: Attribute[datetime]
        priority: Attribute[int]
        args: Attribute[dict[str, Any]]
        attempted_by: Attribute[list[str] | None]
        errors: Attribute[list[dict[str, Any]] | None]
        kind: Attribute[str]
        metadata_: Attribute[dict[str, Any]]
        queue: Attribute[str]
        tags: Attribute[list[str]]
        unique_key: Attribute[bytes | None]
        unique_states: Attribute[str | None]

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        c = cls.__table__.c
        return {
            "properties": {
                "id": _Kept(c.id),
                "state": column_property(type_coerce(c.state, _State(c.state.type))),
                "metadata_": c.metadata,
                # Each DB-API has an own type for bits.
                "unique_states": column_property(cast(c.unique_states, Text())),
            },
            "exclude_properties": [c.state, c.unique_states],
        }


class QueueColumns(_Row):
    """The columns of ``river_queue``, for a class with that ``__table__``; its first base class.

    Attributes:
        metadata_: The column ``metadata``.
        paused_at: None unless the queue is paused.
        updated_at: When a client that works the queue last said so.
    """

    _shown = ("name", "paused_at")

    if TYPE_CHECKING:
        name: Attribute[str]
        created_at: Attribute[datetime]
        metadata_: Attribute[dict[str, Any]]
        paused_at: Attribute[datetime | None]
        updated_at: Attribute[datetime]

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        c = cls.__table__.c
        return {"properties": {"name": _Kept(c.name), "metadata_": c.metadata}}


class _State(TypeDecorator[JobState]):
    """The column's own type, but that values come back as `JobState`, and unknown ones at all."""

    impl = Text
    cache_ok = True

    def __init__(self, stored: TypeEngine[Any]) -> None:
        super().__init__()
        self.stored = stored

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return self.stored

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        # Not process_result_value, which is called after the enum's own processor, and that one knows eight values.
        def process(value: Any) -> Any:
            return _STATES.get(value, value)

        return process


_STATES = {state.value: state for state in JobState}


class _Kept(ColumnProperty[Any]):
    """The attribute of the primary key; it refuses that its row is deleted.

    ``session.delete`` begins by asking each attribute of the row for what the deletion cascades to, and then the
    attributes of that. It is the only word that a mapped class has before the flush.
    """

    inherit_cache = True
    cascade: ClassVar[frozenset[str]] = frozenset(["delete"])

    def cascade_iterator(
        self,
        type_: str,
        state: InstanceState[Any],
        dict_: dict[str, Any],
        visited_states: AbstractSet[InstanceState[Any]],
        halt_on: Callable[[InstanceState[Any]], bool] | None = None,
    ) -> Iterator[tuple[object, Mapper[Any], InstanceState[Any], dict[str, Any]]]:
        raise _refusal(state.class_, "its rows cannot be deleted")


@event.listens_for(_Row, "after_mapper_constructed", propagate=True)
def _guard(mapper: Mapper[Any], class_: type[_Row]) -> None:
    if "metadata_" not in mapper.columns:
        raise ConfigurationError(
            f"{class_.__name__} has other __mapper_args__ than River's: its first base class must be JobColumns or "
            "QueueColumns, and it can have none of its own"
        )
    names = mapper.columns.keys()
    for name in names:
        attribute = getattr(class_, name)
        event.listen(attribute, "set", _refuse_value)
        event.listen(attribute, "remove", _refuse_removal)
        event.listen(attribute, "modified", _refuse_modified)


def _refuse_value(row: _Row, _value: Any, _old: Any, initiator: AttributeEventToken) -> None:
    raise _refusal(type(row), f"its attribute {initiator.key!r} cannot be set")


def _refuse_removal(row: _Row, _value: Any, initiator: AttributeEventToken) -> None:
    raise _refusal(type(row), f"its attribute {initiator.key!r} cannot be deleted")


def _refuse_modified(row: _Row, initiator: AttributeEventToken) -> None:
    raise _refusal(type(row), f"its attribute {initiator.key!r} cannot be marked as modified")


@event.listens_for(_Row, "init", propagate=True)
def _refuse_instance(row: _Row, _args: Any, _kwargs: Any) -> None:
    raise _refusal(type(row), "no instance of it can be made")


@event.listens_for(_Row, "before_insert", propagate=True)
def _refuse_in_flush(_mapper: Mapper[Any], _connection: Any, row: _Row) -> None:
    raise _refusal(type(row), "its rows cannot be written")


def _refusal(class_: type[_Row], what: str) -> ReadOnlyError:
    name = class_.__name__
    remedy = (
        "Insert jobs with client.insert_tx(session, ...), and change them with the client's methods"
        if issubclass(class_, JobColumns)
        else "Queues are made and changed by River's clients"
    )
    return ReadOnlyError(
        f"{name} is read-only: {what}. {remedy}; a correction by hand is a Core statement on {name}.__table__"
    )


class _Base(DeclarativeBase):
    metadata = schema.metadata


class RiverJob(JobColumns, _Base):
    """A job, in the ``river_job`` that the search path finds."""

    __table__ = schema.river_job


class RiverQueue(QueueColumns, _Base):
    """A queue, in the ``river_queue`` that the search path finds."""

    __table__ = schema.river_queue
