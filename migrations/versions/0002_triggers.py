"""Triggers and queues: schedules and their firings, the index of event triggers, runs that wait for a slot.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE schedules (
  id uuid NOT NULL,
  tenant uuid NOT NULL,
  workflow_name text NOT NULL,
  position integer NOT NULL,
  workflow bytea NOT NULL,
  dev boolean NOT NULL,
  cron text,
  timezone text NOT NULL,
  every_ms bigint,
  missed text NOT NULL,
  overlap text NOT NULL,
  input bytea NOT NULL,
  paused boolean NOT NULL DEFAULT false,
  next_fire_at timestamptz,
  last_fire_at timestamptz,
  last_run_id uuid,
  claimed_until timestamptz,
  wake_at timestamptz,
  CONSTRAINT schedules_pkey PRIMARY KEY (id),
  CONSTRAINT schedules_one_timing CHECK ((cron IS NULL) <> (every_ms IS NULL))
);
CREATE UNIQUE INDEX schedules_by_workflow ON schedules (tenant, workflow_name, position);
CREATE INDEX schedules_due ON schedules (wake_at) WHERE wake_at IS NOT NULL;
CREATE TABLE fires (
  schedule_id uuid NOT NULL,
  fire_at timestamptz NOT NULL,
  tenant uuid NOT NULL,
  outcome text,
  run_id uuid,
  CONSTRAINT fires_pkey PRIMARY KEY (schedule_id, fire_at)
);
CREATE INDEX fires_open ON fires (schedule_id, fire_at) WHERE outcome IS NULL;
CREATE TABLE event_triggers (
  tenant uuid NOT NULL,
  workflow_name text NOT NULL,
  position integer NOT NULL,
  workflow bytea NOT NULL,
  dev boolean NOT NULL,
  type text NOT NULL,
  CONSTRAINT event_triggers_pkey PRIMARY KEY (tenant, workflow_name, position)
);
CREATE INDEX event_triggers_by_type ON event_triggers (tenant, type);
CREATE TABLE slot_waiters (
  tenant uuid NOT NULL,
  key text NOT NULL,
  run_id uuid NOT NULL,
  seats integer NOT NULL,
  queued_at timestamptz NOT NULL DEFAULT statement_timestamp(),
  CONSTRAINT slot_waiters_pkey PRIMARY KEY (tenant, key, run_id)
);
ALTER TABLE slots ADD COLUMN taken_at timestamptz NOT NULL DEFAULT now();
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";\n"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    op.execute("ALTER TABLE slots DROP COLUMN taken_at")
    for table in ("slot_waiters", "event_triggers", "fires", "schedules"):
        op.execute(f"DROP TABLE {table}")
