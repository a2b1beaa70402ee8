"""People who were forgotten a short while ago: what was given to them before opens nothing.

Revision ID: 0025
Revises: 0024
"""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE forgotten (
      sha256 bytea NOT NULL,
      at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT forgotten_pkey PRIMARY KEY (sha256)
    )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE forgotten")
