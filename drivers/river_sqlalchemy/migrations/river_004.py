"""pending and more"""

from alembic import op

from river_sqlalchemy import alembic as river_alembic

revision = "river_004"
down_revision = "river_003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    river_alembic.upgrade(op, version=4, from_version=3)


def downgrade() -> None:
    river_alembic.downgrade(op, version=3, from_version=4)
