"""In which cells each tenant lives, by number; null: at home. Read at home alone.

Revision ID: 0029
Revises: 0028
"""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE tenants ADD COLUMN cells integer[]")


def downgrade() -> None:
    op.execute("ALTER TABLE tenants DROP COLUMN cells")
