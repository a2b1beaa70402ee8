"""Open questions that nobody can decide, and since when."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("ALTER TABLE pendings ADD COLUMN nobody text, ADD COLUMN nobody_since timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE pendings DROP COLUMN nobody, DROP COLUMN nobody_since")
