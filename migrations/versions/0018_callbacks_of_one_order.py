"""An address is for one order of a step: done anew, a step asks for another one.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE callbacks ADD COLUMN type text")


def downgrade() -> None:
    op.execute("ALTER TABLE callbacks DROP COLUMN type")
