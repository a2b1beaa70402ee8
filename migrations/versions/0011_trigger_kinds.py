"""Event triggers have a kind: events of a type, the ends of another workflow's runs, a webhook's path.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

INDEX = """
CREATE UNIQUE INDEX CONCURRENTLY webhooks_by_path ON event_triggers (tenant, type) WHERE kind = 'webhook'
"""


def upgrade() -> None:
    op.execute("ALTER TABLE event_triggers ADD COLUMN IF NOT EXISTS kind text NOT NULL DEFAULT 'event'")
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS webhooks_by_path")
        op.execute(INDEX)


def downgrade() -> None:
    op.execute("DROP INDEX webhooks_by_path")
    op.execute("DELETE FROM event_triggers WHERE kind <> 'event'")  # nobody could tell them from triggers of events
    op.execute("ALTER TABLE event_triggers DROP COLUMN kind")
