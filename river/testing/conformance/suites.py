"""The classes that a test module subclasses: one for a driver and one for handles, of each colour."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager

import pytest

from ..server import database_server
from .adoption import AdoptionClaims, Handle
from .claiming import ClaimClaims
from .clients import ClientClaims
from .deletes import DeleteClaims
from .ending import EndClaims
from .failures import CancellationClaims, FailureClaims
from .hosts import OpenedAsyncDriver, OpenedAsyncHost, OpenedDriver, OpenedHost
from .inserts import InsertClaims
from .listening import ListeningClaims
from .maintaining import MaintenanceClaims
from .managing import ManageClaims
from .playing import AsyncPlayer, BlockingPlayer
from .queues import QueueClaims
from .reads import ReadClaims
from .rows import Table
from .schemas import SchemaClaims
from .seam import SeamClaims
from .stage import Stage, staged
from .transactions import OwnClaims, TransactionClaims

_SERVER_URL = pytest.StashKey[str]()
_STAGE = pytest.StashKey[Stage]()


class _Suite(ABC):
    @pytest.fixture
    def conformance_url(self, request: pytest.FixtureRequest) -> str:
        """Where the database is; override it to say so. Otherwise as `river.testing.server` finds one."""
        stash = request.config.stash
        if _SERVER_URL not in stash:
            run = ExitStack()
            request.config.add_cleanup(run.close)
            stash[_SERVER_URL] = run.enter_context(database_server()).url
        return stash[_SERVER_URL]

    @pytest.fixture
    def stage(self, request: pytest.FixtureRequest, conformance_url: str) -> Stage:
        """The driver, and a schema for all tests of this class."""
        # Not a fixture of the class's scope: those are not made by a method of an instance.
        node = request.node.getparent(pytest.Class)
        assert node is not None
        if _STAGE not in node.stash:
            run = ExitStack()
            node.addfinalizer(run.close)
            node.stash[_STAGE] = run.enter_context(self.staging(conformance_url))
        stage: Stage = node.stash[_STAGE]
        return stage

    @pytest.fixture
    def table(self, stage: Stage) -> Table:
        """River's tables, empty."""
        table = Table(stage)
        stage.player.play(table.empty())
        return table

    @abstractmethod
    def staging(self, url: str) -> AbstractContextManager[Stage]:
        """A stage for the tests of a class; theirs is in the fixture `stage`."""


class _Blocking(_Suite):
    @abstractmethod
    def driver(self, url: str) -> OpenedDriver:
        """A driver for the database at *url*, as a host would open it, that may have eight connections at once.

        It is opened once for all tests of the class, in one thread, and used in others.
        """

    @contextmanager
    def staging(self, url: str) -> Generator[Stage]:
        """A stage for the tests of a class."""
        player = BlockingPlayer()
        with self.driver(url) as driver, player.around(staged(player, driver, url)) as stage:
            yield stage


class _Asynchronous(_Suite):
    @abstractmethod
    def driver(self, url: str) -> OpenedAsyncDriver:
        """A driver for the database at *url*, as a host would open it, that may have eight connections at once.

        It is opened once for all tests of the class, in a task of the event loop in which the tests run.
        """

    @contextmanager
    def staging(self, url: str) -> Generator[Stage]:
        """A stage for the tests of a class."""
        with asyncio.Runner() as runner:
            player = AsyncPlayer(runner)
            with player.around(self._staged(player, url)) as stage:
                yield stage

    @asynccontextmanager
    async def _staged(self, player: AsyncPlayer, url: str) -> AsyncGenerator[Stage]:
        async with self.driver(url) as driver, staged(player, driver, url) as stage:
            yield stage


class _DriverClaims(
    SeamClaims,
    TransactionClaims,
    OwnClaims,
    FailureClaims,
    ListeningClaims,
    SchemaClaims,
    InsertClaims,
    ReadClaims,
    ClaimClaims,
    EndClaims,
    ManageClaims,
    DeleteClaims,
    MaintenanceClaims,
    QueueClaims,
    ClientClaims,
):
    pass


class DriverSuite(_DriverClaims, _Blocking):
    """All that a blocking driver must do. Subclass it as ``Test...`` and say how to open the driver."""


class AsyncDriverSuite(CancellationClaims, _DriverClaims, _Asynchronous):
    """All that an asyncio driver must do. Subclass it as ``Test...`` and say how to open the driver."""


class HandleSuite(AdoptionClaims, _Blocking):
    """All that the adopter of blocking handles must do; a driver sets up and looks on."""

    @abstractmethod
    def host(self, url: str, *, autocommit: bool) -> OpenedHost:
        """A new connection, cursor or session of a host's, without a transaction, closed afterwards.

        Args:
            url: Where the database is.
            autocommit: Whether statements are to commit by themselves; otherwise the library's usual mode.
        """

    @asynccontextmanager
    async def hosted(self, stage: Stage, *, autocommit: bool = False) -> AsyncGenerator[Handle]:
        """A new handle without a transaction."""
        with self.host(stage.url, autocommit=autocommit) as host:
            yield Handle(host)


class AsyncHandleSuite(AdoptionClaims, _Asynchronous):
    """All that the adopter of asyncio handles must do; a driver sets up and looks on."""

    @abstractmethod
    def host(self, url: str, *, autocommit: bool) -> OpenedAsyncHost:
        """A new connection, cursor or session of a host's, without a transaction, closed afterwards.

        Args:
            url: Where the database is.
            autocommit: Whether statements are to commit by themselves; otherwise the library's usual mode.
        """

    @asynccontextmanager
    async def hosted(self, stage: Stage, *, autocommit: bool = False) -> AsyncGenerator[Handle]:
        """A new handle without a transaction."""
        async with self.host(stage.url, autocommit=autocommit) as host:
            yield Handle(host)


__all__ = ["AsyncDriverSuite", "AsyncHandleSuite", "DriverSuite", "HandleSuite"]
