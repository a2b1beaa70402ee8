"""Slots that a run which is stopped leaves to the one in whose place it begins.

Revision ID: 0039
Revises: 0038
"""

from __future__ import annotations

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE slots ADD COLUMN IF NOT EXISTS left_by uuid")


def downgrade() -> None:
    op.execute("ALTER TABLE slots DROP COLUMN left_by")
