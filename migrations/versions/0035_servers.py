"""Which servers there are, for whoever looks how a deployment stands.

Revision ID: 0035
Revises: 0034
"""

from __future__ import annotations

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE servers (
      id uuid NOT NULL,
      name text NOT NULL,
      release text NOT NULL,
      started_at timestamptz NOT NULL DEFAULT now(),
      seen_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT servers_pkey PRIMARY KEY (id)
    )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE servers")
