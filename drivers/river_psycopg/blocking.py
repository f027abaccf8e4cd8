"""The blocking driver: a `ConnectionPool`, or connections that the host holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool

from river.driver import Listener, Notification
from river.operation import Database, Executor, Rows, Statement

from ._common import (
    check_encoding,
    check_url,
    connecting,
    connection_settings,
    database_error,
    errors,
    listen_statement,
    shut_down,
    to_psycopg,
)


class ConnectionExecutor(Executor):
    """Runs statements on a connection through a cursor of its own.

    The cursor is made here and not by ``connection.cursor()``, so that the host's row factory, cursor class and
    binary setting do not decide what River reads.
    """

    database: Database = "postgresql"

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: Statement) -> Rows:
        """Run one statement; errors are psycopg's own."""
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(
                to_psycopg(statement.sql), dict(statement.parameters), prepare=None if statement.prepared else False
            )
            return cursor.fetchall() if cursor.description else []


class OwnedExecutor(ConnectionExecutor):
    """Runs statements on a connection that River checked out itself."""

    def execute(self, statement: Statement) -> Rows:
        """Run one statement; errors are River's."""
        try:
            return super().execute(statement)
        except psycopg.Error as error:
            raise database_error(error) from error

    def abort(self) -> None:
        """Shut the connection's socket down."""
        shut_down(self._connection)


class PsycopgDriver:
    """River on a psycopg connection pool.

    Args:
        pool: The host's pool; the host opens and closes it.
    """

    database: Database = "postgresql"
    supports_listen = True

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool
        self._make_pool: Callable[[], ConnectionPool[Any]] | None = None
        self._process_id = os.getpid()

    @classmethod
    def connect(cls, url: str, *, max_size: int = 10) -> Self:
        """A driver with a pool of its own, opened when first used and closed by `close`.

        Args:
            url: A libpq URL or connection string.
            max_size: How many connections it may hold.

        Raises:
            ConfigurationError: The URL cannot be read.
        """
        check_url(url)

        def make() -> ConnectionPool[Any]:
            return ConnectionPool(url, min_size=0, max_size=max_size, open=False, name="river")

        driver = cls(make())
        driver._make_pool = make
        return driver

    @contextmanager
    def transaction(self) -> Generator[Executor]:
        """One transaction: committed when left, rolled back when left by an exception."""
        with errors(), self._checkout() as connection:
            with connection.transaction():
                yield OwnedExecutor(connection)

    @contextmanager
    def autocommit(self) -> Generator[Executor]:
        """A connection on which each statement commits by itself, in one round trip."""
        with errors(), self._checkout() as connection:
            before = connection.autocommit
            try:
                connection.autocommit = True
                yield OwnedExecutor(connection)
            finally:
                _restore(connection, before)

    @contextmanager
    def listen(self, channels: Sequence[str]) -> Generator[Listener]:
        """A connection of its own that listens to *channels*, opened like those of the pool."""
        with connecting():
            conninfo, kwargs = connection_settings(self._pool)
            connection = psycopg.Connection.connect(conninfo, **kwargs)
        with errors(), connection:
            for channel in channels:
                connection.execute(listen_statement(channel))
            yield _PsycopgListener(connection)

    def close(self) -> None:
        """Close the pool, if it was made by `connect`; the next use opens another."""
        if self._make_pool is not None:
            self._leave_another_process(self._make_pool)
            closing, self._pool = self._pool, self._make_pool()
            closing.close()

    @contextmanager
    def _checkout(self) -> Generator[psycopg.Connection[Any]]:
        with ExitStack() as stack:
            with connecting():
                if self._make_pool is not None:
                    self._leave_another_process(self._make_pool)
                    if self._pool.closed:
                        # A pool says only that it has no connection; this one says why not.
                        conninfo, _ = connection_settings(self._pool)
                        psycopg.Connection.connect(conninfo).close()
                        self._pool.open()
                connection = stack.enter_context(self._pool.connection())
            check_encoding(connection)
            yield connection

    def _leave_another_process(self, make_pool: Callable[[], ConnectionPool[Any]]) -> None:
        """Begin a pool in this process: after a fork, the parent goes on to use the connections of the other."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            # psycopg does not close, when it forgets them, connections that another process has made.
            self._pool = make_pool()


def _restore(connection: psycopg.Connection[Any], autocommit: bool) -> None:
    """Give a connection back as it was, or closed, which the pool replaces."""
    if connection.closed:
        return
    try:
        connection.autocommit = autocommit
    except psycopg.Error:
        connection.pgconn.finish()
    except BaseException:
        connection.pgconn.finish()
        raise


class _PsycopgListener:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def wait(self, seconds: float) -> list[Notification]:
        with errors():
            return [
                Notification(notify.channel, notify.payload)
                for notify in self._connection.notifies(timeout=seconds, stop_after=1)
            ]

    def check(self) -> None:
        with errors():
            self._connection.execute("SELECT 1", prepare=False)

    def abort(self) -> None:
        shut_down(self._connection)
