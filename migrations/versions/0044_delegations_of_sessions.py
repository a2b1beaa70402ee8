"""A delegation ends with the session or the issuer's token by which it was made. Earlier ones last a
quarter at most, too, and links in mails 72 hours.
"""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("ALTER TABLE delegations ADD COLUMN session bytea, ADD COLUMN token text")
    limit = "greatest(since, created_at) + interval '92 days'"
    op.execute(f"UPDATE delegations SET until = {limit} WHERE until > {limit}")
    longest = "now() + interval '72 hours'"
    op.execute(f"UPDATE links SET expires_at = {longest} WHERE expires_at > {longest}")


def downgrade() -> None:
    op.execute("ALTER TABLE delegations DROP COLUMN session, DROP COLUMN token")
