"""job id autoincrement"""

from alembic import op

from river_sqlalchemy import alembic as river_alembic

revision = "river_008"
down_revision = "river_007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    river_alembic.upgrade(op, version=8, from_version=7)


def downgrade() -> None:
    river_alembic.downgrade(op, version=7, from_version=8)
