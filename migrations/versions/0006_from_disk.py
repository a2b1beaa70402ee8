"""Workflows know whether they were read from disk: only such may name modules of the project that they lie in.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE workflows ADD COLUMN from_disk boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    op.execute("ALTER TABLE workflows DROP COLUMN from_disk")
