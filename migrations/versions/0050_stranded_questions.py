"""Open questions that nobody can decide, and since when.

Revision ID: 0050
Revises: 0049
"""

from __future__ import annotations

from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE pendings ADD COLUMN nobody text, ADD COLUMN nobody_since timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE pendings DROP COLUMN nobody, DROP COLUMN nobody_since")
