"""The keys of a person, whose roles and groups exclude them whichever key they decide with."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    with op.autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS keys_person")
        op.execute("CREATE INDEX CONCURRENTLY keys_person ON keys (tenant, principal)")


def downgrade() -> None:
    op.execute("DROP INDEX keys_person")
