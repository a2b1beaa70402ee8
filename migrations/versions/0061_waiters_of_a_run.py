"""Whether a run waits for a slot is told without reading all that do: for each thread that is removed.

Revision ID: 0061
Revises: 0060
"""

from __future__ import annotations

from alembic import op

revision = "0061"
down_revision = "0060"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS slot_waiters_of_run")
        op.execute("CREATE INDEX CONCURRENTLY slot_waiters_of_run ON slot_waiters (run_id)")


def downgrade() -> None:
    op.execute("DROP INDEX IF EXISTS slot_waiters_of_run")
