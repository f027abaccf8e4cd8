"""initial schema"""

from alembic import op

from river_sqlalchemy import alembic as river_alembic

revision = "river_002"
down_revision = "river_001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    river_alembic.upgrade(op, version=2, from_version=1)


def downgrade() -> None:
    river_alembic.downgrade(op, version=1, from_version=2)
