"""Promises: which slots are taken for runs that have not begun with them. And who looks for what is left behind, when.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# Existing slots are no promises, but for those that the last release left behind: the run has ended, or never was.
LEFT_BEHIND = """
UPDATE slots s SET promised_until = now() + interval '1 minute' WHERE promised_until IS NULL AND NOT EXISTS (
  SELECT FROM runs r WHERE r.id = s.run_id AND r.status NOT IN ('queued', 'finished', 'failed', 'stopped'))
"""


def upgrade() -> None:
    op.execute("ALTER TABLE slots ADD COLUMN IF NOT EXISTS promised_until timestamptz")
    op.execute("ALTER TABLE slots ALTER COLUMN promised_until SET DEFAULT now() + interval '1 minute'")
    op.execute("""
CREATE TABLE IF NOT EXISTS sweeps (
  name text NOT NULL,
  due_at timestamptz NOT NULL,
  position text,
  CONSTRAINT sweeps_pkey PRIMARY KEY (name)
)
""")
    with op.get_context().autocommit_block():
        for index in ("slots_promised", "slot_waiters_in_order"):
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")  # one that was not finished is of no use
        op.execute(
            "CREATE INDEX CONCURRENTLY slots_promised ON slots (promised_until) WHERE promised_until IS NOT NULL"
        )
        op.execute("CREATE INDEX CONCURRENTLY slot_waiters_in_order ON slot_waiters (tenant, key, queued_at, run_id)")
        op.execute(LEFT_BEHIND)


def downgrade() -> None:
    op.execute("DROP TABLE sweeps")
    op.execute("DROP INDEX slot_waiters_in_order")
    op.execute("ALTER TABLE slots DROP COLUMN promised_until")
