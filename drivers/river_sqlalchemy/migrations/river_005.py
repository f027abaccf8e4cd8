"""migration unique client"""

from alembic import op

from river_sqlalchemy import alembic as river_alembic

revision = "river_005"
down_revision = "river_004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    river_alembic.upgrade(op, version=5, from_version=4)


def downgrade() -> None:
    river_alembic.downgrade(op, version=4, from_version=5)
