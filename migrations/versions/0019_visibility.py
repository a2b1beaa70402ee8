"""Workflows say who may read their runs; runs are found by who asked for them."""

from __future__ import annotations

from hai_flow.store.postgres import op

INDEX = "CREATE INDEX CONCURRENTLY runs_by_requester ON runs (tenant, started_by, created_at, id)"


def upgrade() -> None:
    op.execute("ALTER TABLE workflows ADD COLUMN IF NOT EXISTS visibility text[] NOT NULL DEFAULT '{}'")
    with op.autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS runs_by_requester")
        op.execute(INDEX)


def downgrade() -> None:
    op.execute("DROP INDEX runs_by_requester")
    op.execute("ALTER TABLE workflows DROP COLUMN visibility")
