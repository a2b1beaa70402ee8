"""Runs say under which ABI their events were written, and why workers gave them back.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
ALTER TABLE runs
  ADD COLUMN IF NOT EXISTS abi integer NOT NULL DEFAULT 1,
  ADD COLUMN IF NOT EXISTS given_back integer NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS unreadable text
""")
    with op.get_context().autocommit_block():
        op.execute("""
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_unreadable ON runs (tenant, created_at, id) WHERE unreadable IS NOT NULL
""")


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN abi, DROP COLUMN given_back, DROP COLUMN unreadable")
