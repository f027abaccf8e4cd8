"""notification outbox sqlite jsonb and sql cleanup"""

from alembic import op

from river_sqlalchemy import alembic as river_alembic

revision = "river_007"
down_revision = "river_006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    river_alembic.upgrade(op, version=7, from_version=6)


def downgrade() -> None:
    river_alembic.downgrade(op, version=6, from_version=7)
