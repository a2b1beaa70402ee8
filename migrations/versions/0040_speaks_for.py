"""A key says for whom the tokens that it makes may decide.

Revision ID: 0040
Revises: 0039
"""

from __future__ import annotations

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE keys ADD COLUMN speaks_for text[]")


def downgrade() -> None:
    op.execute("ALTER TABLE keys DROP COLUMN speaks_for")
