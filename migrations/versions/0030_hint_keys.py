"""What the processes of this database seal the hints with that go by Redis: one row, which the first of them makes.

Revision ID: 0030
Revises: 0029
"""

from __future__ import annotations

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE hint_keys (
      one boolean DEFAULT true NOT NULL,
      key bytea NOT NULL,
      CONSTRAINT hint_keys_pkey PRIMARY KEY (one),
      CONSTRAINT hint_keys_one CHECK (one)
    )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE hint_keys")
