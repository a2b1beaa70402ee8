"""Runs know up to where an earlier release wrote their log, so `verify` does not take its decisions for faults.

The first commit under another vocabulary sets it. NULL: one release wrote all of it, or the run is from before.

Revision ID: 0058
Revises: 0057
"""

from __future__ import annotations

from alembic import op

revision = "0058"
down_revision = "0057"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN IF NOT EXISTS older_seq bigint")


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN IF EXISTS older_seq")
