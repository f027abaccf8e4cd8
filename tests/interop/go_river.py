"""The real River, behind methods: each is one run of the Go program on a schema of a database."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")

ANSWER_SECONDS = 60.0
"""How long a run may take; only a failing test waits that long."""


class GoRiverError(Exception):
    """The Go program refused or failed; the message is what it said."""


class Version(msgspec.Struct, frozen=True):
    """A migration that River knows."""

    version: int
    name: str


class Validation(msgspec.Struct, frozen=True):
    """What River says about the versions of a schema."""

    ok: bool
    messages: list[str]


class InsertedJob(msgspec.Struct, frozen=True):
    """A job that River has inserted."""

    id: int


@dataclass(frozen=True, slots=True)
class GoRiver:
    """River on one schema; None is the first one of the search path."""

    binary: Path
    database_url: str
    schema: str | None

    def versions(self) -> list[Version]:
        """All versions that it knows."""
        return self._ask(list[Version], "versions")

    def up(self, target: int | None = None) -> list[int]:
        """Apply what is missing up to *target*, or all of it; the versions in the order of the steps."""
        return self._migrate("up", target)

    def down(self, target: int | None = None) -> list[int]:
        """Revert all that is above *target*, or one version; the versions in the order of the steps."""
        # River's command line and library disagree on how to say "all of them"; here it is 0, as in Python.
        return self._migrate("down", -1 if target == 0 else target)

    def applied(self) -> list[int]:
        """The versions that are recorded."""
        return [each.version for each in self._ask(list[Version], "applied")]

    def unapplied(self, target: int | None = None) -> list[int]:
        """The versions that its validation names as missing, up to *target*; empty where it finds nothing wrong."""
        found = self._ask(Validation, "validate", *_target(target))
        missing = [int(number) for number in re.findall(r"\d+", " ".join(found.messages))]
        if found.ok == bool(missing):
            raise GoRiverError(f"a validation that contradicts itself: {found}")
        return missing

    def insert(self, kind: str, args: Mapping[str, object]) -> int:
        """Insert a job, and return its id."""
        document = msgspec.json.encode(args).decode()
        return self._ask(InsertedJob, "insert", "-kind", kind, "-args", document).id

    def _migrate(self, direction: str, target: int | None) -> list[int]:
        steps = self._ask(list[Version], "migrate", "-direction", direction, *_target(target))
        return [step.version for step in steps]

    def _ask(self, answer: type[T], command: str, *flags: str) -> T:
        run = subprocess.run(
            [self.binary, command, "-schema", self.schema or "", *flags],
            env={**os.environ, "DATABASE_URL": self.database_url},
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
        if run.returncode != 0:
            raise GoRiverError(run.stderr.strip())
        return msgspec.json.decode(run.stdout, type=answer)


def _target(version: int | None) -> list[str]:
    return [] if version is None else ["-target", str(version)]
