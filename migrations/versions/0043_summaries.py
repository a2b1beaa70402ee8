"""Runs have a summary: the line by which lists show them."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN summary text")


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN summary")
