"""What both colours share: placeholders, errors, and the checks of a host's connection."""

from __future__ import annotations

import functools
import os
import re
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Composed, Identifier
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from river.errors import (
    ConfigurationError,
    DatabaseError,
    ErrorClass,
    HandleClosedError,
    HandleError,
    TransactionRequiredError,
)

_NAMED = re.compile(r"(?<![:\w]):(\w+)")


@functools.lru_cache(maxsize=1024)
def to_psycopg(sql: str) -> SQL:
    """A statement's text with psycopg's placeholders. The texts are River's own, and few."""
    # SQL() asks for a literal, which a cached text cannot be: nothing of a user's is ever in it.
    text: Any = _NAMED.sub(r"%(\1)s", sql.replace("%", "%%"))
    return SQL(text)


def database_error(error: psycopg.Error) -> DatabaseError:
    """What River says of an error on a connection of its own."""
    return DatabaseError(
        str(error) or type(error).__name__,
        sqlstate=error.sqlstate,
        constraint=error.diag.constraint_name,
        error_class=classify(error),
    )


@contextmanager
def errors() -> Generator[None]:
    """Turn psycopg's errors into River's."""
    try:
        yield
    except psycopg.Error as error:
        raise database_error(error) from error


def check_url(url: str) -> None:
    """Refuse a URL that cannot be meant, before libpq says so in words that may hold the password.

    Raises:
        ConfigurationError: It cannot be read, or a character of the password that must be quoted has cut it in two.
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        parts = {"port": "unreadable"}
    ports = str(parts.get("port") or "5432").split(",")
    # An @ in front is libpq's way to say that a socket has no file.
    if not all(port.isdigit() for port in ports if port) or "@" in str(parts.get("host") or "")[1:]:
        raise ConfigurationError(
            "the database URL cannot be read: write postgresql://user:password@host:5432/database, with the password "
            "as urllib.parse.quote(password, safe='') gives it"
        )


@contextmanager
def connecting() -> Generator[None]:
    """Turn whatever prevents a connection into River's error, also what the host's own callbacks raise."""
    try:
        yield
    except psycopg.Error as error:
        raise database_error(error) from error
    except Exception as error:
        raise DatabaseError(str(error) or type(error).__name__, error_class=ErrorClass.CONNECTION_LOST) from error


def classify(error: psycopg.Error) -> ErrorClass:
    """What kind of failure it is."""
    state = error.sqlstate
    if state is None:
        return ErrorClass.CONNECTION_LOST if isinstance(error, psycopg.OperationalError) else ErrorClass.OTHER
    return ErrorClass.of(state)


def check_usable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a host's connection on which a job could not be part of the host's transaction.

    Raises:
        HandleClosedError: It is closed.
        TransactionRequiredError: It is in autocommit without a transaction, or its transaction has failed.
        HandleError: It is in pipeline mode, or its encoding is none.
    """
    if connection.closed:
        raise HandleClosedError("the psycopg connection is closed: hand over an open one")
    if connection.pgconn.pipeline_status:
        raise HandleError(
            "the psycopg connection is in pipeline mode, in which rows and errors come later than they are asked for: "
            "hand it over outside of `with connection.pipeline():`"
        )
    complaint = encoding_complaint(connection)
    if complaint:
        raise HandleError(complaint)
    status = connection.info.transaction_status
    if status is TransactionStatus.INERROR:
        raise TransactionRequiredError(
            "the transaction of the psycopg connection has failed, so nothing can be written in it: "
            "roll it back and begin again"
        )
    if connection.autocommit and status is TransactionStatus.IDLE:
        raise TransactionRequiredError(
            "the psycopg connection is in autocommit and no transaction is open, so the job would be committed by "
            "itself: open one with `with connection.transaction():`"
        )


def encoding_complaint(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> str | None:
    """Why text cannot be read on a connection, or None."""
    if connection.pgconn.parameter_status(b"client_encoding") != b"SQL_ASCII":
        return None
    return (
        "the session's client_encoding is SQL_ASCII, under which psycopg gives bytes for text: set it to utf8, for "
        "example by ?client_encoding=utf8 in the URL"
    )


def check_encoding(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a connection of River's own on which text cannot be read.

    Raises:
        DatabaseError: Its encoding is none.
    """
    complaint = encoding_complaint(connection)
    if complaint:
        raise DatabaseError(complaint)


def connection_settings(pool: ConnectionPool[Any] | AsyncConnectionPool[Any]) -> tuple[str, dict[str, Any]]:
    """How the pool connects, for a connection outside of it that is to listen."""
    # From psycopg_pool 3.3 on, either may be a function, for credentials that change.
    conninfo: Any = pool.conninfo
    kwargs: Any = pool.kwargs
    settings: Any = kwargs() if callable(kwargs) else kwargs
    return (
        str(conninfo() if callable(conninfo) else conninfo),
        {**(settings or {}), "autocommit": True, "row_factory": tuple_row},
    )


def listen_statement(channel: str) -> Composed:
    """LISTEN, with the channel's name as it is."""
    return SQL("LISTEN {}").format(Identifier(channel))


def shut_down(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """End whatever waits on this connection's socket, from any thread. The connection is lost."""
    try:
        # A duplicate, because closing a file descriptor that libpq holds would not be ours to do.
        with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
    except (OSError, psycopg.Error):
        pass  # closed already: nothing waits on it
