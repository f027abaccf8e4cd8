"""What the suite must be able to do with a host's connection or session, in order to test its adopter."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeAlias

from ...driver import AsyncDriver, Driver


class Host(Protocol):
    """A blocking handle, and what its host does with it, in its library's own way."""

    @property
    def handle(self) -> Any:
        """The connection, cursor or session that is handed to River."""
        ...

    def begin(self) -> None:
        """Begin a transaction; nothing to do where the first statement does."""
        ...

    def execute(self, sql: str) -> Sequence[Any]:
        """Run a statement in the handle's transaction; its rows as the library gives them, empty without any."""
        ...

    def commit(self) -> None:
        """Commit the transaction."""
        ...

    def rollback(self) -> None:
        """Roll the transaction back, also if it has failed."""
        ...

    def close(self) -> None:
        """Close the handle, as a host that has done with it; rolls back what is open."""
        ...


class AsyncHost(Protocol):
    """An asyncio handle, and what its host does with it; otherwise as a `Host`."""

    @property
    def handle(self) -> Any:
        """The connection, cursor or session that is handed to River."""
        ...

    async def begin(self) -> None:
        """Begin a transaction; nothing to do where the first statement does."""
        ...

    async def execute(self, sql: str) -> Sequence[Any]:
        """Run a statement in the handle's transaction; its rows as the library gives them, empty without any."""
        ...

    async def commit(self) -> None:
        """Commit the transaction."""
        ...

    async def rollback(self) -> None:
        """Roll the transaction back, also if it has failed."""
        ...

    async def close(self) -> None:
        """Close the handle, as a host that has done with it; rolls back what is open."""
        ...


OpenedDriver: TypeAlias = AbstractContextManager[Driver]
OpenedAsyncDriver: TypeAlias = AbstractAsyncContextManager[AsyncDriver]
OpenedHost: TypeAlias = AbstractContextManager[Host]
OpenedAsyncHost: TypeAlias = AbstractAsyncContextManager[AsyncHost]
