"""Keys that seal the states of calls over MCP, after the first, which each database derives from its secret.

Rows are only added: a key opens states until a time after the next key was made, or up to that key if `at_once`.

Revision ID: 0059
Revises: 0058
"""

from __future__ import annotations

from alembic import op

revision = "0059"
down_revision = "0058"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE IF NOT EXISTS state_keys (
      n integer NOT NULL,
      key bytea NOT NULL,
      created_at timestamp with time zone DEFAULT now() NOT NULL,
      at_once boolean NOT NULL,
      CONSTRAINT state_keys_pkey PRIMARY KEY (n)
    )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE IF EXISTS state_keys")
