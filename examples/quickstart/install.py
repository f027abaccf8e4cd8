"""Makes the tables, River's and the application's, in an empty database. Run once, before everything else."""

from __future__ import annotations

import river
from examples.quickstart.models import Base, engine


def main() -> None:
    """Make all tables; those that are there already stay as they are."""
    river.Migrator(engine).up()
    Base.metadata.create_all(engine)


if __name__ == "__main__":
    main()
