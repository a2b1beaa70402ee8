"""Questions that nobody can decide, and the notifications of a question, are found without those beside them.

Both were read out of all open questions, and out of all notifications of a run.

Revision ID: 0060
Revises: 0059
"""

from __future__ import annotations

from alembic import op

revision = "0060"
down_revision = "0059"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS pendings_stranded")
        op.execute("""
        CREATE INDEX CONCURRENTLY pendings_stranded ON pendings (run_id, id)
        WHERE status = 'open' AND nobody IS NOT NULL
        """)
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS notifications_of_question")
        op.execute("CREATE INDEX CONCURRENTLY notifications_of_question ON notifications (run_id, pending_id)")
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS notifications_by_run")


def downgrade() -> None:
    op.execute("CREATE INDEX IF NOT EXISTS notifications_by_run ON notifications (run_id)")
    op.execute("DROP INDEX IF EXISTS notifications_of_question")
    op.execute("DROP INDEX IF EXISTS pendings_stranded")
