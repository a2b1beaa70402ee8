"""Signals: places, in the order in which they become visible; and who has yet to hear of them.

What was stored before gets the places below `FIRST`, by its time, without holding the table.

The sequence gets its owner before it is used: Citus, which may keep a cell, changes none that is.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

FIRST = 1_000_000_000
BATCH = 10_000
COLUMNS = f"""
CREATE SEQUENCE IF NOT EXISTS signals_place START {FIRST};
ALTER TABLE signals
  ADD COLUMN IF NOT EXISTS place bigint,
  ADD COLUMN IF NOT EXISTS tries integer NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS undelivered text[];
ALTER SEQUENCE signals_place OWNED BY signals.place;
ALTER TABLE signals ALTER COLUMN place SET DEFAULT nextval('signals_place');
ALTER TABLE subscriptions ADD COLUMN IF NOT EXISTS offered bytea
"""
PLACES = f"""
WITH given AS (
  SELECT coalesce(max(place), 0) AS n FROM signals WHERE place < {FIRST}
), next AS (
  SELECT tenant, id, row_number() OVER (ORDER BY sent_at, id) AS n
  FROM signals WHERE place IS NULL ORDER BY sent_at, id LIMIT {BATCH}
)
UPDATE signals s SET place = given.n + next.n FROM given, next WHERE s.tenant = next.tenant AND s.id = next.id
"""
INDEXES = """
DROP INDEX CONCURRENTLY IF EXISTS signals_unsettled;
CREATE INDEX CONCURRENTLY signals_unsettled ON signals (tenant, type, place)
  WHERE due_at IS NOT NULL AND undelivered IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS signals_to_all;
CREATE INDEX CONCURRENTLY signals_to_all ON signals (tenant, type, place) WHERE run_id IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS signals_to_one;
CREATE INDEX CONCURRENTLY signals_to_one ON signals (run_id, type, place) WHERE run_id IS NOT NULL
"""


def upgrade() -> None:
    for statement in COLUMNS.split(";\n"):
        op.execute(statement)
    context = op.get_context()
    with context.autocommit_block():
        assert context.connection is not None, "revisions are carried out, not written down"
        while context.connection.exec_driver_sql(PLACES).rowcount:
            pass
        for statement in INDEXES.split(";\n"):
            op.execute(statement)


def downgrade() -> None:
    op.execute("ALTER TABLE subscriptions DROP COLUMN offered")
    op.execute("ALTER TABLE signals DROP COLUMN place, DROP COLUMN tries, DROP COLUMN undelivered")
