"""A key says for whom the tokens that it makes may decide."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("ALTER TABLE keys ADD COLUMN speaks_for text[]")


def downgrade() -> None:
    op.execute("ALTER TABLE keys DROP COLUMN speaks_for")
