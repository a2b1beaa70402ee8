"""Slots that a run which is stopped leaves to the one in whose place it begins."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("ALTER TABLE slots ADD COLUMN IF NOT EXISTS left_by uuid")


def downgrade() -> None:
    op.execute("ALTER TABLE slots DROP COLUMN left_by")
