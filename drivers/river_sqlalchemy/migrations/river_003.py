"""river job tags non null"""

from alembic import op

from river_sqlalchemy import alembic as river_alembic

revision = "river_003"
down_revision = "river_002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    river_alembic.upgrade(op, version=3, from_version=2)


def downgrade() -> None:
    river_alembic.downgrade(op, version=2, from_version=3)
