"""In which cells each tenant lives, by number; null: at home. Read at home alone."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("ALTER TABLE tenants ADD COLUMN cells integer[]")


def downgrade() -> None:
    op.execute("ALTER TABLE tenants DROP COLUMN cells")
