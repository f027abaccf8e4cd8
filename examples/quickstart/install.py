"""Makes the tables, River's and the application's, in an empty database. Run once, before everything else."""

from __future__ import annotations

from examples.quickstart.models import Base, engine
from river.sql.migration.postgres import install_sql


def main() -> None:
    """Make all tables in one transaction."""
    with engine.begin() as connection:
        # None: in the first schema of the search path, which is `public` unless somebody says otherwise.
        for statement in install_sql(None):
            connection.exec_driver_sql(statement)
        Base.metadata.create_all(connection)


if __name__ == "__main__":
    main()
