"""bulk unique"""

from alembic import op

from river_sqlalchemy import alembic as river_alembic

revision = "river_006"
down_revision = "river_005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    river_alembic.upgrade(op, version=6, from_version=5)


def downgrade() -> None:
    river_alembic.downgrade(op, version=5, from_version=6)
