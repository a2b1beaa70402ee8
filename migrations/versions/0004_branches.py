"""Branches: runs that begin at an earlier turn of their thread.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
ALTER TABLE runs
  ADD COLUMN IF NOT EXISTS branch_of uuid,
  ADD COLUMN IF NOT EXISTS follows uuid,
  ADD COLUMN IF NOT EXISTS copied bigint NOT NULL DEFAULT 0
""")
    # Each a statement of its own: Citus, which may keep a cell, takes no constraint along with other changes.
    op.execute("ALTER TABLE runs DROP CONSTRAINT IF EXISTS runs_branch")
    op.execute("""
ALTER TABLE runs
  ADD CONSTRAINT runs_branch CHECK (branch_of IS NOT NULL OR (follows IS NULL AND copied = 0)) NOT VALID
""")
    with op.get_context().autocommit_block():
        op.execute("ALTER TABLE runs VALIDATE CONSTRAINT runs_branch")


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN branch_of, DROP COLUMN follows, DROP COLUMN copied")
