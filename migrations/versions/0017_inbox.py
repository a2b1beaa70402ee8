"""Who is asked by each open question, in the order of deadlines.

Questions that are open already get their rows by a sweep, a page at a time: a document says who has its roles.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE inbox (
      run_id uuid NOT NULL,
      pending_id text NOT NULL,
      selector text NOT NULL,
      tenant uuid NOT NULL,
      due timestamptz NOT NULL,
      CONSTRAINT inbox_pkey PRIMARY KEY (run_id, pending_id, selector)
    )
    """)
    op.execute(
        "ALTER TABLE pendings ADD COLUMN kind text, ADD COLUMN words text, ADD COLUMN claimed_by text, "
        "ADD COLUMN claimed_until timestamptz"
    )
    op.execute("CREATE INDEX inbox_in_order ON inbox (tenant, selector, due, pending_id)")


def downgrade() -> None:
    op.execute(
        "ALTER TABLE pendings DROP COLUMN kind, DROP COLUMN words, DROP COLUMN claimed_by, DROP COLUMN claimed_until"
    )
    op.execute("DROP TABLE inbox")
