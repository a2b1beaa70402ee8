"""The keys of a person, whose roles and groups exclude them whichever key they decide with.

Revision ID: 0056
Revises: 0055
"""

from __future__ import annotations

from alembic import op

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS keys_person")
        op.execute("CREATE INDEX CONCURRENTLY keys_person ON keys (tenant, principal)")


def downgrade() -> None:
    op.execute("DROP INDEX keys_person")
