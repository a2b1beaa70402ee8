"""Runs: places, in the order of their birth, and the indexes by which a thread is walked.

Runs that are there have the place 0 and go on being ordered by their time.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

COLUMNS = """
CREATE SEQUENCE IF NOT EXISTS runs_place;
ALTER TABLE runs ADD COLUMN IF NOT EXISTS place bigint NOT NULL DEFAULT 0;
ALTER SEQUENCE runs_place OWNED BY runs.place;
ALTER TABLE runs ALTER COLUMN place SET DEFAULT nextval('runs_place')
"""
INDEXES = """
DROP INDEX CONCURRENTLY IF EXISTS runs_in_thread;
CREATE INDEX CONCURRENTLY runs_in_thread ON runs (tenant, thread_id, place, created_at, id) WHERE parent_id IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS runs_by_parent;
CREATE INDEX CONCURRENTLY runs_by_parent ON runs (parent_id) WHERE parent_id IS NOT NULL
"""


def upgrade() -> None:
    for statement in COLUMNS.split(";\n"):
        op.execute(statement)
    with op.get_context().autocommit_block():
        for statement in INDEXES.split(";\n"):
            op.execute(statement)


def downgrade() -> None:
    op.execute("DROP INDEX runs_by_parent")
    op.execute("ALTER TABLE runs DROP COLUMN place")
