"""An environment for River's revisions, and an example for applications; see docs/alembic.md.

It runs in every `alembic` command that looks at a database, with the commands' settings in `alembic.context`.
"""

import os
from logging.config import fileConfig

from alembic import context
from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.pool import NullPool

import river_sqlalchemy
from river_sqlalchemy import alembic as river_alembic

RIVER_SCHEMA = context.config.get_main_option("river_schema")

# An application has its own MetaData here. River's tables need not be in it: include_object, below, keeps `alembic
# check` from missing them. To have them compared, too: river_sqlalchemy.tables(RIVER_SCHEMA, metadata).
target_metadata = river_sqlalchemy.tables(RIVER_SCHEMA).river_job.metadata


def database_url() -> URL:
    """DATABASE_URL, for psycopg. Without it libpq's variables say where: PGHOST, PGDATABASE and so on."""
    return make_url(os.environ.get("DATABASE_URL") or "postgresql://").set(drivername="postgresql+psycopg")


def include_name(name: str | None, type_: str, _parents: object) -> bool:
    """Of all schemas, look at the default one, and at River's."""
    return type_ != "schema" or name in {None, RIVER_SCHEMA}


def run_offline() -> None:
    """Print SQL: `alembic upgrade heads --sql`."""
    context.configure(url=database_url(), target_metadata=target_metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


def run_online(connection: Connection) -> None:
    """Work on a database."""
    context.configure(
        connection=connection,
        target_metadata=target_metadata,
        include_schemas=RIVER_SCHEMA is not None,
        include_name=include_name,
        include_object=river_alembic.include_object,
    )
    with river_alembic.migrating(context), context.begin_transaction():
        context.run_migrations()


def main() -> None:
    """Use what a test or a program has put into the attributes, an engine or a connection; else what the URL names."""
    given = context.config.attributes.get("connection")
    if isinstance(given, Connection):
        run_online(given)
    elif isinstance(given, Engine):
        with given.connect() as connection:
            run_online(connection)
    else:
        if context.config.config_file_name is not None:
            fileConfig(context.config.config_file_name, disable_existing_loggers=False)
        if context.is_offline_mode():
            run_offline()
        else:
            with create_engine(database_url(), poolclass=NullPool).connect() as connection:
                run_online(connection)


main()
