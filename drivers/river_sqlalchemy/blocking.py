"""The blocking driver: an `Engine`, or connections that the host holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from sqlalchemy import Connection, Engine

from river.driver import Listener
from river.operation import Database, Executor, Rows, Statement

from ._common import (
    begin_autocommit,
    database_of,
    end_autocommit,
    errors,
    is_autocommit,
    leave_autocommit,
    library_errors,
    shut_down,
    to_pg8000,
    to_text,
)
from ._listen import blocking_listener, can_listen


class ConnectionExecutor(Executor):
    """Runs statements on a SQLAlchemy connection, through SQLAlchemy."""

    def __init__(self, connection: Connection, database: Database) -> None:
        self.database = database
        self._connection = connection

    def execute(self, statement: Statement) -> Rows:
        """Run one statement; errors are SQLAlchemy's own."""
        pg8000 = bool(statement.parameters) and self._connection.dialect.driver == "pg8000"
        sql = to_pg8000(statement.sql) if pg8000 else to_text(statement.sql)
        result = self._connection.execute(sql, statement.parameters)
        return result.fetchall() if result.returns_rows else []


class OwnedExecutor(ConnectionExecutor):
    """Runs statements on a connection that River checked out itself."""

    def __init__(self, connection: Connection, database: Database) -> None:
        super().__init__(connection, database)
        self._driver_connection = connection.connection.driver_connection

    def execute(self, statement: Statement) -> Rows:
        """Run one statement; errors are River's."""
        with library_errors():
            return super().execute(statement)

    def abort(self) -> None:
        """Shut the connection's socket down."""
        shut_down(self._driver_connection)


class SQLAlchemyDriver:
    """River on a SQLAlchemy engine.

    Args:
        engine: The host's engine; the host disposes of it.
    """

    def __init__(self, engine: Engine) -> None:
        self.database: Database = database_of(engine)
        self.supports_listen = can_listen(engine.dialect)
        self._engine = engine
        self._owns_engine = False
        self._process_id = os.getpid()

    @classmethod
    def owning(cls, engine: Engine) -> SQLAlchemyDriver:
        """A driver whose `close` disposes of the engine."""
        driver = cls(engine)
        driver._owns_engine = True
        return driver

    @contextmanager
    def transaction(self) -> Generator[Executor]:
        """One transaction: committed when left, rolled back when left by an exception."""
        with self._connected(self._engine.connect) as connection:
            if not is_autocommit(connection):
                with _begun(connection):
                    yield OwnedExecutor(connection, self.database)
                return
            try:
                leave_autocommit(connection)
                with _begun(connection):
                    yield OwnedExecutor(connection, self.database)
            finally:
                end_autocommit(connection)

    @contextmanager
    def autocommit(self) -> Generator[Executor]:
        """A connection on which each statement commits by itself, in one round trip."""
        with self._connected(self._engine.connect) as connection:
            try:
                begin_autocommit(connection)
                yield OwnedExecutor(connection, self.database)
            finally:
                end_autocommit(connection)

    @contextmanager
    def listen(self, channels: Sequence[str]) -> Generator[Listener]:
        """A connection of its own that listens to *channels*, opened by the engine and detached from its pool."""
        with self._connected(self._engine.connect) as connection:
            driver_connection = connection.connection.driver_connection
            connection.detach()
            try:
                with blocking_listener(driver_connection, channels) as listener:
                    yield listener
            finally:
                connection.invalidate()  # it is closed, so there is nothing to reset

    def close(self) -> None:
        """Dispose of the engine, if River made it."""
        if self._owns_engine:
            self._leave_another_process()
            self._engine.dispose()

    @contextmanager
    def _connected(self, connect: Callable[[], AbstractContextManager[Connection]]) -> Generator[Connection]:
        """A connection, from its checkout to its end; errors are River's."""
        with errors(), ExitStack() as stack:
            with library_errors():
                self._leave_another_process()
                connection = stack.enter_context(connect())
            # Not around this: an insert's hooks run in here, and may have sockets of their own.
            yield connection

    def _leave_another_process(self) -> None:
        """Forget an own engine's connections after a fork: the parent goes on to use them."""
        if self._owns_engine and self._process_id != os.getpid():
            self._process_id = os.getpid()
            self._engine.dispose(close=False)


@contextmanager
def _begun(connection: Connection) -> Generator[None]:
    """A transaction. What a DB-API does not call an error of its own may come out of its end, too."""
    with library_errors():
        transaction = connection.begin()
    try:
        yield
    except BaseException as error:
        with library_errors():
            transaction.__exit__(type(error), error, error.__traceback__)
        raise
    with library_errors():
        transaction.__exit__(None, None, None)


__all__ = ["ConnectionExecutor", "OwnedExecutor", "SQLAlchemyDriver"]
