"""create river migration"""

from alembic import op

from river_sqlalchemy import alembic as river_alembic

revision = "river_001"
down_revision = None
branch_labels = ("river",)
depends_on = None


def upgrade() -> None:
    river_alembic.upgrade(op, version=1)


def downgrade() -> None:
    river_alembic.downgrade(op, version=0, from_version=1)
