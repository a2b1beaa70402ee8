"""Push notifications of A2A: the addresses that clients want to be called at when a run changes.

Revision ID: 0047
Revises: 0046
"""

from __future__ import annotations

from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE pushes (
      tenant uuid NOT NULL,
      run_id uuid NOT NULL,
      principal text NOT NULL,
      id text NOT NULL,
      config bytea NOT NULL,
      who bytea NOT NULL,
      may boolean NOT NULL,
      seen bigint NOT NULL DEFAULT 0,
      sent text,
      tries integer NOT NULL DEFAULT 0,
      error text,
      due_at timestamptz DEFAULT now(),
      CONSTRAINT pushes_pkey PRIMARY KEY (run_id, principal, id)
    )
    """)
    op.execute("CREATE INDEX pushes_due ON pushes (due_at) WHERE due_at IS NOT NULL")
    op.execute("ALTER TABLE pushes ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE pushes FORCE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY owner ON pushes TO CURRENT_USER USING (true)")
    op.execute("""
    CREATE POLICY tenant ON pushes USING (
      current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
    """)


def downgrade() -> None:
    op.execute("DROP TABLE pushes")
