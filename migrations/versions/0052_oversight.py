"""The approvals and gates of a tenant by time, for figures of how they are decided.

Revision ID: 0052
Revises: 0051
"""

from __future__ import annotations

from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS pendings_decisions")
        op.execute("""
        CREATE INDEX CONCURRENTLY pendings_decisions ON pendings (tenant, opened_at, id)
        WHERE kind IN ('approve', 'gate')
        """)


def downgrade() -> None:
    op.execute("DROP INDEX pendings_decisions")
