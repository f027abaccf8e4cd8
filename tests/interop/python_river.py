"""This River, behind the same methods as `GoRiver`; and what a test may ask of either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import psycopg

from river import Client, JobArgs, Migrator


class River(Protocol):
    """One implementation of River on one schema."""

    def up(self, target: int | None = None) -> list[int]:
        """Apply what is missing up to *target*, or all of it; the versions in the order of the steps."""
        ...

    def down(self, target: int | None = None) -> list[int]:
        """Revert all that is above *target*, or one version; the versions in the order of the steps."""
        ...

    def applied(self) -> list[int]:
        """The versions that are recorded."""
        ...

    def unapplied(self, target: int | None = None) -> list[int]:
        """The versions that its validation names as missing, up to *target*."""
        ...

    def insert(self, kind: str, args: Mapping[str, object]) -> int:
        """Insert a job, and return its id."""
        ...


@dataclass(frozen=True, slots=True)
class PythonRiver:
    """This River on one schema; None is the first one of the search path."""

    database_url: str
    schema: str | None

    @property
    def migrator(self) -> Migrator:
        """A migrator of the schema."""
        return Migrator(self.database_url, schema=self.schema)

    def up(self, target: int | None = None) -> list[int]:
        """As `River.up`."""
        return [step.version for step in self.migrator.up(target_version=target)]

    def down(self, target: int | None = None) -> list[int]:
        """As `River.down`."""
        return [step.version for step in self.migrator.down(target_version=target)]

    def applied(self) -> list[int]:
        """As `River.applied`."""
        return self.migrator.applied()

    def unapplied(self, target: int | None = None) -> list[int]:
        """As `River.unapplied`."""
        return self.migrator.validate(target_version=target)

    def insert(self, kind: str, args: Mapping[str, object]) -> int:
        """As `River.insert`."""
        client = Client(None, schema=self.schema)
        with psycopg.connect(self.database_url) as connection:
            return client.insert_tx(connection, JobArgs(kind, args)).job.id
