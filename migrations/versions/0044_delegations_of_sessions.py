"""A delegation ends with the session or the issuer's token by which it was made. Earlier ones last a
quarter at most, too, and links in mails 72 hours.

Revision ID: 0044
Revises: 0043
"""

from __future__ import annotations

from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE delegations ADD COLUMN session bytea, ADD COLUMN token text")
    limit = "greatest(since, created_at) + interval '92 days'"
    op.execute(f"UPDATE delegations SET until = {limit} WHERE until > {limit}")
    longest = "now() + interval '72 hours'"
    op.execute(f"UPDATE links SET expires_at = {longest} WHERE expires_at > {longest}")


def downgrade() -> None:
    op.execute("ALTER TABLE delegations DROP COLUMN session, DROP COLUMN token")
