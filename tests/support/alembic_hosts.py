"""Applications with Alembic environments of their own, for tests: files in a folder, tables in a schema.

A `Host` runs Alembic's real commands on them, in this process. Its ``env.py`` is one of ``ENVIRONMENTS``; what a test
wants of ``context.configure`` it puts into ``options``.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Connection, create_engine
from sqlalchemy.pool import NullPool

from tests.support import catalogue
from tests.support.schemas import Scratch
from tests.support.urls import with_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

INI = """\
[alembic]
script_location = %(here)s/migrations
version_locations = %(here)s/migrations/versions river_sqlalchemy:migrations
path_separator = space
"""

_OFFLINE = """\
if context.is_offline_mode():
    context.configure(url=attributes["url"], literal_binds=True, **attributes["options"])
    with context.begin_transaction():
        context.run_migrations()
"""

_PLAIN_RUN = """\
def run(connection):
    context.configure(connection=connection, **attributes["options"])
    with context.begin_transaction():
        context.run_migrations()
"""

_GUARDED_RUN = """\
def run(connection):
    context.configure(connection=connection, **attributes["options"])
    with river_alembic.migrating(context), context.begin_transaction():
        context.run_migrations()
"""

_BLOCKING = """\
elif "connection" in attributes:
    run(attributes["connection"])
else:
    with create_engine(attributes["url"], poolclass=NullPool).connect() as connection:
        run(connection)
"""

_ASYNCIO = """\
else:
    async def main():
        async with create_async_engine(attributes["url"], poolclass=NullPool).connect() as connection:
            await connection.run_sync(run)

    asyncio.run(main())
"""

_IMPORTS = """\
import asyncio

from alembic import context
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from river_sqlalchemy import alembic as river_alembic

attributes = context.config.attributes

"""

ENVIRONMENTS = {
    "plain": _IMPORTS + _PLAIN_RUN + _OFFLINE + _BLOCKING,
    "guarded": _IMPORTS + _GUARDED_RUN + _OFFLINE + _BLOCKING,
    "asyncio": _IMPORTS + _GUARDED_RUN + _OFFLINE + _ASYNCIO,
}
"""As ``alembic init`` writes it; with `migrating` around; the same in asyncio."""

REVISION = """\
import sqlalchemy as sa
from alembic import op
from river_sqlalchemy import alembic as river_alembic

revision = {revision!r}
down_revision = {down_revision!r}
branch_labels = {branch_labels!r}
depends_on = {depends_on!r}


def upgrade():
    {upgrade}


def downgrade():
    {downgrade}
"""

MAKO = """\
from alembic import op
import sqlalchemy as sa

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}

def upgrade():
    ${upgrades if upgrades else "pass"}

def downgrade():
    ${downgrades if downgrades else "pass"}
"""


class Host:
    """An application with an Alembic environment.

    Attributes:
        place: The schema on its sessions' search path, for its tables and Alembic's, and River's unless it says more.
        folder: Where its files are.
        options: Keywords of ``context.configure``.
        attributes: What its ``env.py`` finds in ``context.config.attributes``.
        ini: Its alembic.ini.
    """

    def __init__(self, folder: Path, url: URL, place: Scratch, *, environment: str = "guarded", **options: Any) -> None:
        self.place = place
        self.folder = folder
        self.options = options
        self.attributes: dict[str, Any] = {"url": url, "options": options}
        self.ini = folder / "alembic.ini"
        (folder / "migrations" / "versions").mkdir(parents=True)
        self.ini.write_text(INI)
        (folder / "migrations" / "env.py").write_text(ENVIRONMENTS[environment])
        (folder / "migrations" / "script.py.mako").write_text(MAKO)

    def config(self, output: io.StringIO | None = None) -> Config:
        """What Alembic's commands work with."""
        if self.ini.exists():
            config = Config(str(self.ini), stdout=output or io.StringIO(), output_buffer=output)
        else:
            config = Config(toml_file=self.folder / "pyproject.toml", stdout=output or io.StringIO())
        config.attributes.update(self.attributes)
        return config

    def set_main_option(self, name: str, value: str) -> None:
        """Add a line to the main section of its alembic.ini."""
        self.ini.write_text(f"{self.ini.read_text()}{name} = {value}\n")

    def without_the_branch(self) -> None:
        """Have only its own revisions."""
        lines = self.ini.read_text().splitlines(keepends=True)
        self.ini.write_text("".join(line for line in lines if not line.startswith("version_locations")))

    def before_migrations(self, line: str) -> None:
        """Have another line in its env.py, in front of each ``context.run_migrations()``."""
        env = self.folder / "migrations" / "env.py"
        run = "        context.run_migrations()"
        env.write_text(env.read_text().replace(run, f"        {line}\n{run}"))

    def guard_everything(self) -> None:
        """Have River's guard around offline mode, too."""
        env = self.folder / "migrations" / "env.py"
        guarded = "    with river_alembic.migrating(context), context.begin_transaction():"
        env.write_text(env.read_text().replace("    with context.begin_transaction():", guarded))

    def revision(
        self,
        revision: str,
        *,
        after: str | tuple[str, ...] | None = None,
        upgrade: str = "pass",
        downgrade: str = "pass",
        depends_on: str | None = None,
        label: str | None = None,
    ) -> None:
        """Write a revision of its own."""
        text = REVISION.format(
            revision=revision,
            down_revision=after,
            branch_labels=None if label is None else (label,),
            depends_on=depends_on,
            upgrade=upgrade,
            downgrade=downgrade,
        )
        (self.folder / "migrations" / "versions" / f"{revision}.py").write_text(text)

    def run(self, name: str, *arguments: Any, **options: Any) -> str:
        """Run one of Alembic's commands; what it printed."""
        output = io.StringIO()
        getattr(command, name)(self.config(output), *arguments, **options)
        return output.getvalue()

    def upgrade(self, revision: str = "heads") -> None:
        """Run ``alembic upgrade``."""
        self.run("upgrade", revision)

    def downgrade(self, revision: str) -> None:
        """Run ``alembic downgrade``."""
        self.run("downgrade", revision)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection as its sessions are."""
        engine = create_engine(self.attributes["url"], poolclass=NullPool)
        with engine.connect() as connection:
            yield connection

    @property
    def recorded(self) -> set[str]:
        """What Alembic's own table says is applied; empty without it."""
        exists = self.place.execute(
            "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'alembic_version'", self.place.name
        )
        return (
            {row for (row,) in self.place.execute("SELECT version_num FROM {at}.alembic_version")} if exists else set()
        )

    @property
    def tables(self) -> set[str]:
        """The tables of its schema that are neither River's nor Alembic's."""
        rows = self.place.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", self.place.name)
        return {name for (name,) in rows if not name.startswith("river_") and name != "alembic_version"}


def host_url(database_url: str, place: Scratch, drivername: str = "postgresql+psycopg") -> URL:
    """The SQLAlchemy URL of sessions whose search path is one schema."""
    return with_driver(database_url.replace("search_path%3D", f"search_path%3D%22{place.name}%22"), drivername)


def rivers(place: Scratch) -> catalogue.Catalogue:
    """The part of a schema's catalogue that is River's."""
    found = catalogue.read(place.connection, place.name)
    return {
        "tables": {name: table for name, table in found["tables"].items() if name.startswith("river_")},
        "enums": found["enums"],
        "functions": found["functions"],
        "sequences": [each for each in found["sequences"] if each["name"].startswith("river_")],
    }


NOTHING: catalogue.Catalogue = {"tables": {}, "enums": {}, "functions": [], "sequences": []}
