"""Workers say which queues they serve and what they do; runs of dead ones are found by queue, and lists by queue.

Revision ID: 0033
Revises: 0032
"""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

COLUMNS = {
    "queues": "text[]",
    "release": "text",
    "started_at": "timestamptz",
    "beat_at": "timestamptz",
    "draining_since": "timestamptz",
    "places": "integer",
    "held": "integer",
    "attempts": "integer",
    "waiting": "integer",
}
HELD = "CREATE INDEX CONCURRENTLY runs_held_by_queue ON runs (worker, queue) WHERE worker IS NOT NULL"
LISTED = """
CREATE INDEX CONCURRENTLY runs_by_queue ON runs (tenant, queue, created_at, id) WHERE queue <> 'default'
"""


def upgrade() -> None:
    for column, kind in COLUMNS.items():
        op.execute(f"ALTER TABLE workers ADD COLUMN IF NOT EXISTS {column} {kind}")
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS runs_held_by_queue")
        op.execute(HELD)
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS runs_held")
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS runs_by_queue")
        op.execute(LISTED)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS runs_by_queue")
        op.execute("CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_held ON runs (worker) WHERE worker IS NOT NULL")
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS runs_held_by_queue")
    for column in COLUMNS:
        op.execute(f"ALTER TABLE workers DROP COLUMN {column}")
