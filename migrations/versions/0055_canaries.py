"""Seeded questions that have to be refused, and who opened a question before deciding it.

Revision ID: 0055
Revises: 0054
"""

from __future__ import annotations

from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None

_TABLES = ("canaries", "openings")


def upgrade() -> None:
    op.execute("""
    CREATE TABLE canaries (
      run_id uuid NOT NULL,
      tenant uuid NOT NULL,
      workflow text NOT NULL,
      path text NOT NULL,
      tool text,
      started_by text NOT NULL,
      reason text NOT NULL,
      seeded_by text NOT NULL,
      at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT canaries_pkey PRIMARY KEY (run_id)
    )
    """)
    op.execute("CREATE INDEX canaries_at ON canaries (tenant, at, run_id)")
    op.execute("""
    CREATE TABLE openings (
      run_id uuid NOT NULL,
      pending_id text NOT NULL,
      principal text NOT NULL,
      part text NOT NULL,
      tenant uuid NOT NULL,
      at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT openings_pkey PRIMARY KEY (run_id, pending_id, principal, part)
    )
    """)
    op.execute("CREATE INDEX openings_person ON openings (tenant, principal)")
    for table in _TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY owner ON {table} TO CURRENT_USER USING (true)")
        op.execute(f"""
        CREATE POLICY tenant ON {table} USING (
          current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
        """)


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.execute(f"DROP TABLE {table}")
