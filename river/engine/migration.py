"""Which versions a migration applies or reverts, and in what order; pure, on numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from ..errors import ConfigurationError, MigrationError, NewerSchemaError

Direction: TypeAlias = Literal["up", "down"]


def plan_up(
    known: Sequence[int], applied: Collection[int], *, target: int | None = None, max_steps: int | None = None
) -> list[int]:
    """The versions to apply, in order: all that are missing, up to *target* and at most *max_steps* of them.

    A database that is newer than *known* misses nothing.

    Raises:
        ConfigurationError: *target* is no known version, or *max_steps* is not positive.
    """
    _check(known, target, max_steps, lowest=1)
    missing = [version for version in known if version not in applied and (target is None or version <= target)]
    return missing[:max_steps]


def plan_down(
    line: str,
    known: Sequence[int],
    applied: Collection[int],
    *,
    target: int | None = None,
    max_steps: int | None = None,
) -> list[int]:
    """The versions to revert, in order: those above *target*, at most *max_steps*; without either, the last one.

    Args:
        target: The version that stays applied as the last one; 0 reverts all.

    Raises:
        ConfigurationError: *target* is neither known nor 0, or is not applied; or *max_steps* is not positive.
        NewerSchemaError: A version is applied that is not known here, and so cannot be reverted.
    """
    _check(known, target, max_steps, lowest=0)
    refuse_newer(line, known, applied)
    if target and target not in applied:
        last = max(applied, default=0)
        raise ConfigurationError(
            f"version {target} is not applied, so nothing can be reverted down to it: the database is at {last}"
        )
    if target is None and max_steps is None:
        max_steps = 1
    above = [version for version in reversed(known) if version in applied and version > (target or 0)]
    return above[:max_steps]


def unapplied(line: str, known: Sequence[int], applied: Collection[int], *, target: int | None = None) -> list[int]:
    """The versions that are missing, up to *target*.

    Raises:
        ConfigurationError: *target* is no known version.
        NewerSchemaError: A version is applied that is not known here.
    """
    refuse_newer(line, known, applied)
    return plan_up(known, applied, target=target)


def refuse_out_of_turn(direction: Direction, version: int, applied: Collection[int]) -> None:
    """Refuse a step for which the versions around it are not as they have to be.

    They were when it was planned, if nobody has migrated the other way since, and no row was removed by hand.

    Raises:
        MigrationError: An earlier version is not applied; or, on the way down, a later one is.
    """
    missing = [earlier for earlier in range(1, version) if earlier not in applied]
    later = [other for other in applied if other > version] if direction == "down" else []
    if missing or later:
        verb, state = ("applied", "is not") if direction == "up" else ("reverted", "is" if later else "is not")
        raise MigrationError(
            f"version {version} cannot be {verb} while version {(later or missing)[-1]} {state} recorded as applied: "
            "another process has migrated the other way meanwhile, or a row of river_migration was removed. See river "
            "migrate-list, and try again",
            version=version,
        )


def refuse_newer(line: str, known: Sequence[int], applied: Collection[int]) -> None:
    """Refuse a database that a newer River has migrated.

    Raises:
        NewerSchemaError: A version is applied that is not known here.
    """
    newest = max(applied, default=0)
    if newest > known[-1]:
        raise NewerSchemaError(line, newest, known[-1])


def _check(known: Sequence[int], target: int | None, max_steps: int | None, *, lowest: int) -> None:
    if target is not None and not lowest <= target <= known[-1]:
        raise ConfigurationError(f"version {target} is none of the line's versions: {lowest} to {known[-1]}")
    if max_steps is not None and max_steps < 1:
        raise ConfigurationError(f"max_steps must be a whole number from 1, not {max_steps!r}")
