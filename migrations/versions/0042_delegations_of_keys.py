"""A delegation ends with the key by which it was made. And `hai_engine` revokes keys and notes their use, no more.

Revision ID: 0042
Revises: 0041
"""

from __future__ import annotations

from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

_IF_THERE = "DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'hai_engine') THEN {} END IF; END $$"


def upgrade() -> None:
    op.execute("ALTER TABLE delegations ADD COLUMN key text")
    rights = "REVOKE UPDATE ON keys FROM hai_engine; GRANT UPDATE (revoked_at, used_at) ON keys TO hai_engine;"
    op.execute(_IF_THERE.format(rights))


def downgrade() -> None:
    op.execute(_IF_THERE.format("GRANT UPDATE ON keys TO hai_engine;"))
    op.execute("ALTER TABLE delegations DROP COLUMN key")
