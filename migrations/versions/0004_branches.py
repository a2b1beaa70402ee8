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
  ADD COLUMN branch_of uuid,
  ADD COLUMN follows uuid,
  ADD COLUMN copied bigint NOT NULL DEFAULT 0,
  ADD CONSTRAINT runs_branch CHECK (branch_of IS NOT NULL OR (follows IS NULL AND copied = 0))
""")


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN branch_of, DROP COLUMN follows, DROP COLUMN copied")
