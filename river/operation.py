"""Database work as data: what to ask is written once, who asks it is decided later.

    Statement      SQL text with :named parameters, and their values
    Query[T]       a Statement and the decoder of its rows         ``yield from query`` -> T
    Operation[T]   a generator of Statements that returns a T; it composes queries

An operation does no I/O, reads no clock and has no colour: `run` and `run_async`, the trampolines at the end
of this module, are the only two functions that differ between the blocking and the asyncio world.

The law of operations:

- An operation runs inside one transaction that somebody else opened. It never begins, commits or rolls back,
  and opens no savepoint.
- Whatever can be refused is refused before its first statement.
- An error of the database is thrown into it at its ``yield``.
- Only `int`, `bool`, `str` and `None` cross the seam, in both directions: everything else travels as text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")

Value: TypeAlias = int | str | bool | None
"""What may cross the seam, as a parameter or in a row."""

Row: TypeAlias = Sequence[Value]
Rows: TypeAlias = Sequence[Row]
Database: TypeAlias = Literal["postgresql", "sqlite"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL statement.

    Attributes:
        sql: The text. Parameters are written ``:name`` and cast where they stand, ``CAST(:id AS bigint)``, so
            that no library has to guess a type.
        parameters: A value for each name in the text.
        prepared: Whether a library may keep it prepared on the connection. False for what changes the tables, or asks
            about tables that change; it can then also go through a pooler that changes connections beneath.
    """

    sql: str
    parameters: Mapping[str, Value]
    prepared: bool = True


Operation: TypeAlias = Generator[Statement, Rows, T]


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """A statement, and how its rows are read."""

    statement: Statement
    decode: Callable[[Rows], T]

    def __iter__(self) -> Operation[T]:
        rows = yield self.statement
        return self.decode(rows)


class Executor(ABC):
    """Runs statements on one connection, in whatever transaction is open there; blocking."""

    database: Database

    @abstractmethod
    def execute(self, statement: Statement) -> Rows:
        """Run one statement and return all of its rows, as tuples; an empty list where it has none."""

    def abort(self) -> None:  # noqa: B027 - only for connections that River owns
        """Make a call in progress on this connection end soon, from any thread; the connection is lost.

        Only ever called on connections that River checked out itself. May block for no longer than a system
        call does.
        """


class AsyncExecutor(ABC):
    """Runs statements on one connection, in whatever transaction is open there; asyncio."""

    database: Database

    @abstractmethod
    async def execute(self, statement: Statement) -> Rows:
        """Run one statement and return all of its rows, as tuples; an empty list where it has none."""

    def abort(self) -> None:  # noqa: B027 - only for connections that River owns
        """Make a call in progress on this connection end soon; the connection is lost. Does not block."""


def run(executor: Executor, operation: Operation[T] | Query[T]) -> T:
    """Run *operation* to its end on a blocking connection, and return its result.

    Raises:
        Exception: Whatever the operation raises; an error of the executor passes through it first.
    """
    generator = iter(operation)
    try:
        statement = next(generator)
        while True:
            try:
                rows = executor.execute(statement)
            except Exception as error:  # noqa: BLE001 - it is the operation's
                statement = generator.throw(error)
            else:
                statement = generator.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        generator.close()


async def run_async(executor: AsyncExecutor, operation: Operation[T] | Query[T]) -> T:
    """Run *operation* to its end on an asyncio connection, and return its result.

    A cancellation is not shown to the operation: its generator is closed and the cancellation passes.
    """
    generator = iter(operation)
    try:
        statement = next(generator)
        while True:
            try:
                rows = await executor.execute(statement)
            except Exception as error:  # noqa: BLE001 - it is the operation's
                statement = generator.throw(error)
            else:
                statement = generator.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        generator.close()
