"""Addresses at which services call back.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE callbacks (
      digest bytea NOT NULL,
      tenant uuid NOT NULL,
      run_id uuid NOT NULL,
      path text NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT callbacks_pkey PRIMARY KEY (digest)
    )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE callbacks")
