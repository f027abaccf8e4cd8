"""What both colours share: statements, errors, and the checks of a host's connection or session."""

from __future__ import annotations

import functools
import os
import re
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, TextClause, exc, text
from sqlalchemy.engine import TwoPhaseTransaction
from sqlalchemy.ext.asyncio import AsyncEngine

from river.errors import (
    ConfigurationError,
    DatabaseError,
    ErrorClass,
    HandleClosedError,
    HandleError,
    TransactionRequiredError,
)
from river.operation import Database

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import IsolationLevel

_INERROR = 3
"""libpq's PQTRANS_INERROR, as psycopg and psycopg2 report it."""


@functools.lru_cache(maxsize=1024)
def to_text(sql: str) -> TextClause:
    """A statement's text as SQLAlchemy executes it: compiled once, cached by SQLAlchemy after that."""
    return text(sql)


# What pg8000 reads as it stands comes first: texts, quoted names, comments.
_TOKENS_OF_PG8000 = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|--[^\n]*|\$\$.*?\$\$|/\*.*?\*/|%""", re.DOTALL)


@functools.lru_cache(maxsize=1024)
def to_pg8000(sql: str) -> TextClause:
    """The same of a statement with parameters for pg8000, for which SQLAlchemy does not double percent signs."""
    return text(_TOKENS_OF_PG8000.sub(_for_pg8000, sql))


def _for_pg8000(token: re.Match[str]) -> str:
    if token[0].startswith("/*"):
        # It knows only the other kind of comments, and takes a quotation mark in this one for the begin of a text.
        return re.sub(r"['\"$%]", " ", token[0])
    return "%%" if token[0] == "%" else token[0]


def database_of(engine: Engine | AsyncEngine) -> Database:
    """The database behind an engine.

    Raises:
        ConfigurationError: River does not know it.
    """
    name = engine.dialect.name
    if name == "postgresql":
        return "postgresql"
    if name == "sqlite":
        return "sqlite"
    raise ConfigurationError(f"River works on PostgreSQL and SQLite, not on {name}")


@contextmanager
def errors() -> Generator[None]:
    """Turn SQLAlchemy's errors into River's."""
    try:
        yield
    except exc.SQLAlchemyError as error:
        raise database_error(error) from error


@contextmanager
def library_errors() -> Generator[None]:
    """Turn whatever comes out of SQLAlchemy into River's errors, where nothing but its own code runs.

    It lets pass what a DB-API does not call an error of its own: an OSError of asyncpg's when the server cannot be
    reached, what pg8000 stumbles over when a reply is cut short. All of that means that the connection is lost.
    """
    try:
        yield
    except exc.SQLAlchemyError as error:
        raise database_error(error) from error
    except Exception as error:
        raise DatabaseError(str(error) or type(error).__name__, error_class=ErrorClass.CONNECTION_LOST) from error


def begin_autocommit(connection: Connection) -> None:
    """Let each statement on a connection of River's own commit by itself, until `end_autocommit`.

    Not by SQLAlchemy's option isolation_level, which is undone inside the pool: where the server has ended the session,
    the DB-API's own error comes out of there, and the host's pool has one connection less from then on.

    Raises:
        DatabaseError: The connection is lost.
    """
    _set_isolation_level(connection, "AUTOCOMMIT")


def is_autocommit(connection: Connection) -> bool:
    """Whether each statement on a connection of River's own commits by itself, as on an engine in AUTOCOMMIT.

    There SQLAlchemy would begin and commit nothing.
    """
    return connection.dialect.detect_autocommit_setting(_dbapi_connection(connection))


def leave_autocommit(connection: Connection) -> None:
    """Make transactions on a connection of River's own real ones, until `end_autocommit`.

    Raises:
        DatabaseError: The connection is lost.
    """
    _set_isolation_level(connection, "READ COMMITTED")


def _set_isolation_level(connection: Connection, level: IsolationLevel) -> None:
    dialect, dbapi_connection = connection.dialect, _dbapi_connection(connection)
    try:
        try:
            dialect.set_isolation_level(dbapi_connection, level)
        except Exception:  # noqa: BLE001 - whatever a DB-API says
            # The host's own events may have begun a transaction, to set up the session; psycopg minds.
            dbapi_connection.commit()
            dialect.set_isolation_level(dbapi_connection, level)
    except Exception as error:
        connection.invalidate(error)
        raise DatabaseError(str(error) or type(error).__name__, error_class=ErrorClass.CONNECTION_LOST) from error


def _dbapi_connection(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def end_autocommit(connection: Connection) -> None:
    """Leave the connection as it was; a lost one to the pool, as lost."""
    if connection.invalidated:
        return
    try:
        connection.dialect.reset_isolation_level(_dbapi_connection(connection))
    except Exception as error:  # noqa: BLE001 - whatever a DB-API says, it cannot be used again
        connection.invalidate(error)
    except BaseException as error:
        connection.invalidate(error)  # cancelled half-way: the pool makes another
        raise


def database_error(error: exc.SQLAlchemyError) -> DatabaseError:
    """What River says of an error on a connection of its own; the DB-API's text, without the statement."""
    original = getattr(error, "orig", None)
    sqlstate = _sqlstate(original)
    return DatabaseError(
        str(original or error) or type(error).__name__,
        sqlstate=sqlstate,
        constraint=_constraint(original),
        error_class=_classify(error, sqlstate),
    )


def _classify(error: exc.SQLAlchemyError, sqlstate: str | None) -> ErrorClass:
    if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return ErrorClass.CONNECTION_LOST
    if sqlstate is None:
        lost = isinstance(error, exc.OperationalError | exc.InterfaceError | exc.TimeoutError)
        return ErrorClass.CONNECTION_LOST if lost else ErrorClass.OTHER
    return ErrorClass.of(sqlstate)


def _sqlstate(original: Any) -> str | None:
    """Each DB-API keeps it elsewhere: psycopg and asyncpg, psycopg2, pg8000."""
    for name in ("sqlstate", "pgcode"):
        state = getattr(original, name, None)
        if isinstance(state, str):
            return state
    return _pg8000_field(original, "C")


def _constraint(original: Any) -> str | None:
    name = getattr(getattr(original, "diag", None), "constraint_name", None)
    name = name or getattr(getattr(original, "__cause__", None), "constraint_name", None)
    return name if isinstance(name, str) else _pg8000_field(original, "n")


def _pg8000_field(original: Any, field: str) -> str | None:
    arguments: Any = getattr(original, "args", None)
    value = arguments[0].get(field) if arguments and isinstance(arguments[0], dict) else None
    return value if isinstance(value, str) else None


def check_usable(connection: Connection) -> None:
    """Refuse a host's connection on which a job could not be part of the host's transaction.

    Raises:
        HandleClosedError: It is closed.
        TransactionRequiredError: It is in autocommit, or its transaction has failed.
        HandleError: Its transaction is a two-phase one.
    """
    if connection.closed:
        raise HandleClosedError("the SQLAlchemy connection is closed: hand over an open one")
    if isinstance(connection.get_transaction(), TwoPhaseTransaction):
        refuse_two_phase()
    if connection.invalidated:
        if connection.get_transaction() is None:
            # It would connect again at River's statement, and then it is too late to ask about autocommit.
            raise HandleClosedError("the SQLAlchemy connection was lost: begin a transaction, which connects it again")
        return  # SQLAlchemy says so better, at the first statement
    dbapi_connection: Any = connection.connection.dbapi_connection
    # in_transaction() and get_isolation_level() say what was asked for; this asks the connection, whoever set it.
    if connection.dialect.detect_autocommit_setting(dbapi_connection):
        raise TransactionRequiredError(
            "the SQLAlchemy connection is in autocommit, so what River writes would be committed by itself: use an "
            "engine or connection without isolation_level='AUTOCOMMIT'"
        )
    # Only psycopg and psycopg2 can tell without asking the server.
    info = getattr(connection.connection.driver_connection, "info", None)
    if getattr(info, "transaction_status", None) == _INERROR:
        raise TransactionRequiredError(
            "the transaction of the SQLAlchemy connection has failed, so nothing can be written in it: roll it back "
            "and begin again"
        )


def refuse_two_phase() -> None:
    """Refuse a two-phase transaction.

    Raises:
        HandleError: Always.
    """
    raise HandleError(
        "a two-phase transaction cannot take jobs: PostgreSQL refuses to prepare one that sends notifications. "
        "Use a session without twophase=True"
    )


def shut_down(driver_connection: Any) -> None:
    """End whatever waits on a DB-API connection's socket, from any thread. The connection is lost."""
    try:
        with socket.socket(fileno=os.dup(_fileno(driver_connection))) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
    except Exception:  # noqa: BLE001 - each library says "closed already" in its own way
        pass


def _fileno(driver_connection: Any) -> int:
    fileno: Any = getattr(driver_connection, "fileno", None)
    if fileno is not None:  # psycopg, psycopg2
        return int(fileno())
    transport = getattr(driver_connection, "_transport", None)
    if transport is not None:  # asyncpg has no public way to its socket
        return int(transport.get_extra_info("socket").fileno())
    return int(driver_connection._usock.fileno())  # noqa: SLF001 - nor has pg8000
