"""The people behind a run beside its requester, and the senders of events.

Revision ID: 0037
Revises: 0036
"""

from __future__ import annotations

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN instigators text")
    op.execute("ALTER TABLE signals ADD COLUMN sender text")
    op.execute("ALTER TABLE relays ADD COLUMN sender text")


def downgrade() -> None:
    op.execute("ALTER TABLE relays DROP COLUMN sender")
    op.execute("ALTER TABLE signals DROP COLUMN sender")
    op.execute("ALTER TABLE runs DROP COLUMN instigators")
