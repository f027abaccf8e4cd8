"""The command ``river``: what is done to River's tables from a shell or a deployment script.

Results go to stdout, progress and errors to stderr. The exit code is 0 or 1, and an error is one line.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import platform
import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from importlib.metadata import version as installed_version
from typing import Any, TypedDict, TypeVar

import click
from rich.console import Console
from typing_extensions import Unpack

from .driver import driver_for, is_asyncio
from .errors import RiverError
from .migrator import AsyncMigrator, MigrationStep, Migrator
from .sql.migration import MAIN, Direction, Migration, migrations
from .sql.names import check_schema

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

_RULE = "-" * 80
_LIBPQ_VARIABLES = ("PGDATABASE", "PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE", "PGUSER")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")


class Place(TypedDict):
    """Which database, and what in it."""

    database_url: str | None
    line: str
    schema: str | None


class Options(Place):
    """Everything that a migration is asked with."""

    target_version: int | None
    max_steps: int | None
    dry_run: bool
    show_sql: bool
    statement_timeout: timedelta | None
    lock_timeout: timedelta


def main() -> None:
    """Run the command that the arguments of this process name, and exit with 0 or 1."""
    # What a person waits for must end; the variable, or the URL, may say otherwise.
    os.environ.setdefault("PGCONNECT_TIMEOUT", "10")
    os.environ.setdefault("PGAPPNAME", "river")
    # An error is one line; what libraries log besides would be two.
    logging.getLogger().addHandler(logging.NullHandler())
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        # It was reported, and Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command in this process; its exit code."""
    try:
        result: object = river.main(args=list(arguments), prog_name="river", standalone_mode=False)
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "river"
        return _fail(f"{error.format_message().rstrip('.')}; see {command} --help")
    except RiverError as error:
        return _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted: what was not finished has been rolled back")
    except OSError as error:
        # Whoever read the output may have seen enough, which is no error to speak of.
        return 1 if error.errno == errno.EPIPE else _fail(f"the output cannot be written: {error.strerror}")
    return result if isinstance(result, int) else 0


def _fail(message: str) -> int:
    click.echo(f"river: {' '.join(message.split())}", err=True)
    return 1


def _version_text() -> str:
    return f"River for Python {installed_version('river-jobs')}\nPython {platform.python_version()}"


def _duration(_context: click.Context, _parameter: click.Parameter, value: str) -> timedelta | None:
    if value == "none":
        return None
    text = f"{value}s" if re.fullmatch(r"\d+(\.\d+)?", value) else value
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise click.BadParameter(f"{value!r} is no duration: write 500ms, 10s, 1m30s, 2h, or none for no limit")
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    try:
        return timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
    except OverflowError:
        raise click.BadParameter(f"{value!r} is too long: write none for no limit") from None


def _limit(context: click.Context, parameter: click.Parameter, value: str) -> timedelta:
    duration = _duration(context, parameter, value)
    if duration is None:
        raise click.BadParameter("a wait needs a limit: write 500ms, 10s, 1m30s or 2h")
    return duration


def _versions(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> list[int]:
    try:
        return [int(part) for value in values for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{', '.join(values)!r} is no list of versions: write 4, or 1,2,3") from None


def _all_of(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator; the help shows them in this order."""

    def decorate(command: F) -> F:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


_place = _all_of(
    click.option(
        "--database-url",
        envvar="DATABASE_URL",
        metavar="URL",
        help="postgresql://user@host/database; else DATABASE_URL, else libpq's variables (PGHOST, PGDATABASE...).",
    ),
    click.option("--schema", metavar="NAME", help="Where River's tables are; else what the search path says."),
    click.option("--line", metavar="NAME", default=MAIN, show_default=True, help="Which line of versions."),
)

_extent = _all_of(
    _place,
    click.option("--target-version", type=int, metavar="N", help="The last version that is applied afterwards."),
    click.option("--max-steps", type=int, metavar="N", help="How many versions to go at most."),
    click.option("--dry-run", is_flag=True, help="Only print what would be done."),
    click.option("--show-sql", is_flag=True, help="Print each version's SQL."),
    click.option(
        "--statement-timeout",
        default="10s",
        show_default=True,
        metavar="DURATION",
        callback=_duration,
        help="How long one statement may take: 500ms, 10s, 1m30s, 2h, or none.",
    ),
    click.option(
        "--lock-timeout",
        default="60s",
        show_default=True,
        metavar="DURATION",
        callback=_limit,
        help="How long to wait for another process that migrates the same schema.",
    ),
)


@click.group(
    invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(message=_version_text(), package_name="river-jobs")
@click.pass_context
def river(context: click.Context) -> None:
    """River for Python: a job queue inside your PostgreSQL database."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@river.command("migrate-up")
@_extent
def migrate_up(**options: Unpack[Options]) -> int:
    """Create River's tables, or bring them to the newest version.

    Each version is a transaction of its own. Versions that are applied already, by whichever of River's tools, are
    left alone, so that the command may run at every deployment, and on several machines at once.
    """
    return _migrate("up", options)


@river.command("migrate-down")
@_extent
def migrate_down(**options: Unpack[Options]) -> int:
    """Revert the last version, or with --target-version all above it; 0 removes River's tables and all jobs."""
    return _migrate("down", options)


@river.command("migrate-list")
@_place
def migrate_list(**place: Unpack[Place]) -> None:
    """List all versions; a star marks the one that the database is at."""
    migrator = _migrator(place)
    applied = _await(migrator.applied())
    for migration in migrator.migrations:
        mark = "" if not applied else "* " if migration.version == applied[-1] else "  "
        click.echo(f"{mark}{migration.version:03} {migration.name}")
    if not applied:
        click.echo("no version is applied", err=True)
    elif applied[-1] > migrator.migrations[-1].version:
        click.echo(f"the database is at version {applied[-1]}, which this river does not know", err=True)


@river.command("migrate-get")
@click.option("--version", "wanted", multiple=True, callback=_versions, metavar="N,...", help="Which versions.")
@click.option("--all", "everything", is_flag=True, help="All versions.")
@click.option(
    "--exclude-version", "excluded", multiple=True, callback=_versions, metavar="N,...", help="But not these."
)
@click.option("--up", "is_up", is_flag=True, help="The SQL that applies them.")
@click.option("--down", "is_down", is_flag=True, help="The SQL that reverts them.")
@click.option("--record", is_flag=True, help="Also the statements that record it for River's migrators.")
@_place
def migrate_get(
    wanted: list[int],
    everything: bool,
    excluded: list[int],
    is_up: bool,
    is_down: bool,
    record: bool,
    **place: Unpack[Place],
) -> None:
    """Print the SQL of versions, to be run by other means; no database is asked.

    Without --record nobody is told: River's migrators would apply the same versions again, and fail.
    """
    if bool(wanted) == everything:
        raise click.UsageError("give either --version or --all")
    if is_up == is_down:
        raise click.UsageError("give either --up or --down")
    check_schema(place["schema"])
    direction: Direction = "up" if is_up else "down"
    known = {each.version: each for each in migrations("postgresql", place["line"])}
    for version in (*wanted, *excluded):
        if version not in known:
            raise click.UsageError(f"there is no version {version}: they are 1 to {max(known)}")
    chosen = wanted or sorted(known, reverse=is_down)
    for version in chosen:
        if version not in excluded:
            click.echo(f"{_script(known[version], direction, place['schema'])}\n")
            for statement in known[version].record(direction, place["schema"]) if record else ():
                click.echo(f"{statement};\n")


@river.command()
@_place
@click.option("--target-version", type=int, metavar="N", help="Check only versions up to this one.")
def validate(target_version: int | None, **place: Unpack[Place]) -> int:
    """Exit with 0 if every version is applied that this river knows, else with 1."""
    migrator = _migrator(place)
    missing = _await(migrator.validate(target_version=target_version))
    if missing:
        schema = f" --schema {place['schema']}" if place["schema"] else ""
        versions = ", ".join(map(str, missing))
        return _fail(f"versions that are not applied: {versions}; run river migrate-up{schema}")
    click.echo("all versions are applied")
    return 0


@river.command()
def version() -> None:
    """Print the versions of River and of Python."""
    click.echo(_version_text())


def _migrate(direction: Direction, options: Options) -> int:
    """Do, or with --dry-run show, the steps of one direction, each as soon as it is done."""
    migrator = _migrator(options, statement_timeout=options["statement_timeout"], lock_timeout=options["lock_timeout"])
    move = migrator.up if direction == "up" else migrator.down
    # -1 is what River's other command line takes for "everything", too.
    target = 0 if direction == "down" and options["target_version"] == -1 else options["target_version"]
    max_steps = options["max_steps"]
    plan = _await(move(target_version=target, max_steps=max_steps, dry_run=True))
    if not plan:
        click.echo("no migrations to apply")
        return 0
    show = _Report(plan, show_sql=options["show_sql"])
    if options["dry_run"]:
        for step in plan:
            show.planned(step)
    else:
        with show.progress:
            done = _await(move(target_version=target, max_steps=max_steps, on_step=show.done))
        if show.error is not None:
            return _fail(f"the migration is done, but its report cannot be written: {show.error.strerror}")
        if len(done) < len(plan):
            click.echo(f"{len(plan) - len(done)} more were done by another process meanwhile")
    if max_steps is not None and len(plan) < max_steps:
        click.echo("no more migrations to apply")
    return 0


class _Report:
    """What a migration tells whoever started it."""

    def __init__(self, plan: Sequence[MigrationStep], *, show_sql: bool) -> None:
        self._width = max(len(step.name) for step in plan)
        self._coming = {step.version: following for step, following in itertools.pairwise(plan)}
        self._show_sql = show_sql
        self.error: OSError | None = None
        # On a terminal only: a version may take minutes. Elsewhere it writes nothing.
        self.progress = Console(stderr=True).status(self._running(plan[0]))

    def planned(self, step: MigrationStep) -> None:
        click.echo(f"migration {step.version:03} [{step.direction}] {step.name} [DRY RUN]")
        self._sql(step)

    def done(self, step: MigrationStep) -> None:
        if self.error is None:
            try:
                self._done(step)
            except OSError as error:
                self.error = error  # whoever reads it is gone; the migration is not to stop half-way for that
        if step.version in self._coming:
            self.progress.update(self._running(self._coming[step.version]))

    def _done(self, step: MigrationStep) -> None:
        took = "" if step.duration is None else f" [{_rounded(step.duration)}]"
        click.echo(f"applied migration {step.version:03} [{step.direction}] {step.name:{self._width}}{took}")
        self._sql(step)

    def _running(self, step: MigrationStep) -> str:
        return f"migration {step.version:03} ({step.direction}) {step.name}"

    def _sql(self, step: MigrationStep) -> None:
        if self._show_sql:
            click.echo(f"{_RULE}\n{_script(step.migration, step.direction, step.schema)}\n")


def _script(migration: Migration, direction: Direction, schema: str | None) -> str:
    script = migration.script(direction, schema)
    return f"-- River {migration.line} migration {migration.version:03} [{direction}]\n{script}"


def _rounded(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    return f"{seconds:.2f}s" if seconds >= 1 else f"{seconds * 1000:.2f}ms"


def _migrator(place: Place, **timeouts: Any) -> Migrator | AsyncMigrator:
    url = (place["database_url"] or "").strip()
    if not url:
        if not any(os.environ.get(name) for name in _LIBPQ_VARIABLES):
            raise click.UsageError("no database: give --database-url, or set DATABASE_URL or libpq's PGDATABASE")
        url = "postgresql://"
    scheme = url.partition("://")[0]
    if not re.fullmatch(r"postgres(ql)?(\+\w+)?|sqlite(\+\w+)?", scheme):
        # Nothing of it is shown: it may be a connection string with a password.
        raise click.UsageError("the database URL must be like postgresql://user:password@host:5432/database")
    migrator = AsyncMigrator if is_asyncio(driver_for(url, "blocking")) else Migrator
    return migrator(url, line=place["line"], schema=place["schema"], **timeouts)


def _await(result: list[T] | Coroutine[Any, Any, list[T]]) -> list[T]:
    """A result, of a migrator of either colour."""
    return result if isinstance(result, list) else asyncio.run(result)


if __name__ == "__main__":
    main()
