"""Runs have a summary: the line by which lists show them.

Revision ID: 0043
Revises: 0042
"""

from __future__ import annotations

from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN summary text")


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN summary")
