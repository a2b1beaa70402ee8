"""Since when the database has the vocabulary of the log that a release writes: decisions from before are another one's.

Revision ID: 0054
Revises: 0053
"""

from __future__ import annotations

from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None

ABI = 12  # of `hai_flow/engine/events`; a revision for the next one adds its row


def upgrade() -> None:
    op.execute("""
    CREATE TABLE vocabularies (
      abi integer NOT NULL,
      since timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT vocabularies_pkey PRIMARY KEY (abi)
    )
    """)
    op.execute(f"INSERT INTO vocabularies (abi) VALUES ({ABI})")


def downgrade() -> None:
    op.execute("DROP TABLE vocabularies")
