"""Signals: what was sent, and which runs wait for what.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE signals (
  tenant uuid NOT NULL,
  id text NOT NULL,
  type text NOT NULL,
  run_id uuid,
  data bytea NOT NULL,
  sent_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  due_at timestamptz DEFAULT now(),
  CONSTRAINT signals_pkey PRIMARY KEY (tenant, id)
);
CREATE INDEX signals_by_type ON signals (tenant, type, sent_at);
CREATE INDEX signals_due ON signals (due_at) WHERE due_at IS NOT NULL;
CREATE TABLE subscriptions (
  run_id uuid NOT NULL,
  path text NOT NULL,
  type text NOT NULL,
  tenant uuid NOT NULL,
  opened_seq bigint NOT NULL,
  CONSTRAINT subscriptions_pkey PRIMARY KEY (run_id, path, type)
);
CREATE INDEX subscriptions_by_type ON subscriptions (tenant, type);
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";\n"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    for table in ("subscriptions", "signals"):
        op.execute(f"DROP TABLE {table}")
