"""Freezes: what operators let nobody begin, and the runs with steps that one of them holds.

Revision ID: 0045
Revises: 0044
"""

from __future__ import annotations

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE IF NOT EXISTS freezes (
      id uuid NOT NULL,
      of_tenant uuid,
      owner uuid,
      mode text NOT NULL,
      scope text NOT NULL,
      name text NOT NULL,
      reason text NOT NULL,
      created_by text NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now(),
      thawed_by text,
      thawed_at timestamptz,
      CONSTRAINT freezes_pkey PRIMARY KEY (id),
      CONSTRAINT freezes_thawed CHECK ((thawed_by IS NULL) = (thawed_at IS NULL))
    )
    """)
    op.execute("""
    CREATE TABLE IF NOT EXISTS freeze_switch (
      single boolean NOT NULL DEFAULT true,
      version bigint NOT NULL,
      CONSTRAINT freeze_switch_pkey PRIMARY KEY (single),
      CONSTRAINT freeze_switch_single CHECK (single)
    )
    """)
    op.execute("ALTER TABLE runs ADD COLUMN IF NOT EXISTS held text")
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS runs_held")
        op.execute("CREATE INDEX CONCURRENTLY runs_held ON runs (held, id) WHERE held <> ''")


def downgrade() -> None:
    op.execute("DROP INDEX runs_held")
    op.execute("ALTER TABLE runs DROP COLUMN held")
    op.execute("DROP TABLE freeze_switch")
    op.execute("DROP TABLE freezes")
