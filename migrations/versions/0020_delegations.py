"""Delegations; and of each vote what it said, for whom and when, so that people find what they have decided.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

INDEXES = """
DROP INDEX CONCURRENTLY IF EXISTS votes_of_each;
CREATE INDEX CONCURRENTLY votes_of_each ON votes (tenant, principal, at, pending_id) WHERE at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS votes_for_others;
CREATE INDEX CONCURRENTLY votes_for_others ON votes (tenant, on_behalf_of, at, pending_id)
  WHERE on_behalf_of IS NOT NULL
"""


def upgrade() -> None:
    op.execute(
        "ALTER TABLE votes ADD COLUMN IF NOT EXISTS decision text, ADD COLUMN IF NOT EXISTS on_behalf_of text, "
        "ADD COLUMN IF NOT EXISTS at timestamptz"
    )
    op.execute("""
    CREATE TABLE IF NOT EXISTS delegations (
      id uuid NOT NULL,
      tenant uuid NOT NULL,
      from_id text NOT NULL,
      to_id text NOT NULL,
      roles text[] NOT NULL,
      groups text[] NOT NULL,
      since timestamptz NOT NULL,
      until timestamptz NOT NULL,
      note text,
      created_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT delegations_pkey PRIMARY KEY (id),
      CONSTRAINT delegations_to_another CHECK (from_id <> to_id),
      CONSTRAINT delegations_last CHECK (since < until)
    )
    """)
    op.execute("CREATE INDEX IF NOT EXISTS delegations_to ON delegations (tenant, to_id, until)")
    op.execute("CREATE INDEX IF NOT EXISTS delegations_from ON delegations (tenant, from_id, until)")
    with op.get_context().autocommit_block():
        for statement in INDEXES.split(";\n"):
            op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE delegations")
    op.execute("ALTER TABLE votes DROP COLUMN decision, DROP COLUMN on_behalf_of, DROP COLUMN at")
