"""The approvals and gates of a tenant by time, for figures of how they are decided."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    with op.autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS pendings_decisions")
        op.execute("""
        CREATE INDEX CONCURRENTLY pendings_decisions ON pendings (tenant, opened_at, id)
        WHERE kind IN ('approve', 'gate')
        """)


def downgrade() -> None:
    op.execute("DROP INDEX pendings_decisions")
