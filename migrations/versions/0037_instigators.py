"""The people behind a run beside its requester, and the senders of events."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN instigators text")
    op.execute("ALTER TABLE signals ADD COLUMN sender text")
    op.execute("ALTER TABLE relays ADD COLUMN sender text")


def downgrade() -> None:
    op.execute("ALTER TABLE relays DROP COLUMN sender")
    op.execute("ALTER TABLE signals DROP COLUMN sender")
    op.execute("ALTER TABLE runs DROP COLUMN instigators")
