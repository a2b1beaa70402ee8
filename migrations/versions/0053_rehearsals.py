"""Results of backtests that publications demand.

Revision ID: 0053
Revises: 0052
"""

from __future__ import annotations

from alembic import op

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE rehearsals (
      tenant uuid NOT NULL,
      name text NOT NULL,
      sha256 bytea NOT NULL,
      base bytea NOT NULL,
      age interval NOT NULL,
      complete boolean NOT NULL,
      runs integer NOT NULL,
      differences integer NOT NULL,
      counts bytea NOT NULL,
      kept_by text NOT NULL,
      at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT rehearsals_pkey PRIMARY KEY (tenant, name, sha256, base)
    )
    """)
    op.execute("ALTER TABLE rehearsals ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE rehearsals FORCE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY owner ON rehearsals TO CURRENT_USER USING (true)")
    op.execute("""
    CREATE POLICY tenant ON rehearsals USING (
      current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
    """)


def downgrade() -> None:
    op.execute("DROP TABLE rehearsals")
