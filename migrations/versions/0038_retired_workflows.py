"""A version of a workflow can be retired: no run, child or fork begins with it any more.

Revision ID: 0038
Revises: 0037
"""

from __future__ import annotations

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE workflows ADD COLUMN retired_at timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE workflows DROP COLUMN retired_at")
