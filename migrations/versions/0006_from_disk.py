"""Workflows know whether they were read from disk: only such may name modules of the project that they lie in."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("ALTER TABLE workflows ADD COLUMN from_disk boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    op.execute("ALTER TABLE workflows DROP COLUMN from_disk")
