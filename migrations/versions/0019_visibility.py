"""Workflows say who may read their runs; runs are found by who asked for them.

Revision ID: 0019
Revises: 0018
"""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

INDEX = "CREATE INDEX CONCURRENTLY runs_by_requester ON runs (tenant, started_by, created_at, id)"


def upgrade() -> None:
    op.execute("ALTER TABLE workflows ADD COLUMN IF NOT EXISTS visibility text[] NOT NULL DEFAULT '{}'")
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS runs_by_requester")
        op.execute(INDEX)


def downgrade() -> None:
    op.execute("DROP INDEX runs_by_requester")
    op.execute("ALTER TABLE workflows DROP COLUMN visibility")
