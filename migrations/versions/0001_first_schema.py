"""The first schema: runs and what their commits write, workflows, blobs, workers, slots.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# toast_tuple_target: a run row is rewritten by every commit; a long input or result must not be copied each time.
RUNS = """
CREATE TABLE runs (
  id uuid NOT NULL,
  tenant uuid NOT NULL,
  workflow bytea NOT NULL,
  workflow_name text NOT NULL,
  workflow_version integer NOT NULL,
  dev boolean NOT NULL DEFAULT false,
  thread_id text NOT NULL,
  parent_id uuid,
  parent_path text,
  queue text NOT NULL DEFAULT 'default',
  slot text,
  status text NOT NULL,
  seq bigint NOT NULL,
  version bigint NOT NULL,
  fence integer NOT NULL DEFAULT 0,
  head bytea NOT NULL,
  worker bigint,
  wake_at timestamptz,
  snapshot_seq bigint NOT NULL DEFAULT 0,
  log_bytes bigint NOT NULL DEFAULT 0,
  started_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz,
  input bytea,
  result bytea,
  CONSTRAINT runs_pkey PRIMARY KEY (id),
  CONSTRAINT runs_held_or_due CHECK (worker IS NULL OR wake_at IS NULL),
  CONSTRAINT runs_seq_counts_more CHECK (seq >= version)
) WITH (fillfactor = 70, toast_tuple_target = 512);
CREATE INDEX runs_due ON runs (queue, wake_at) WHERE worker IS NULL AND wake_at IS NOT NULL;
CREATE INDEX runs_held ON runs (worker) WHERE worker IS NOT NULL;
CREATE INDEX runs_newest ON runs (tenant, created_at, id);
CREATE INDEX runs_by_status ON runs (tenant, status, created_at, id);
CREATE INDEX runs_by_workflow ON runs (tenant, workflow_name, created_at, id);
CREATE INDEX runs_by_thread ON runs (tenant, thread_id, created_at, id);
"""

OF_A_RUN = """
CREATE TABLE log (
  run_id uuid NOT NULL,
  last_seq bigint NOT NULL,
  first_seq bigint NOT NULL,
  tenant uuid NOT NULL,
  version bigint NOT NULL,
  at timestamptz NOT NULL,
  events bytea NOT NULL,
  CONSTRAINT log_pkey PRIMARY KEY (run_id, last_seq),
  CONSTRAINT log_range CHECK (first_seq >= 1 AND first_seq <= last_seq)
);
CREATE TABLE commands (
  run_id uuid NOT NULL,
  command_id text NOT NULL,
  tenant uuid NOT NULL,
  last_seq bigint NOT NULL,
  body_sha bytea NOT NULL,
  outcome bytea NOT NULL,
  CONSTRAINT commands_pkey PRIMARY KEY (run_id, command_id)
);
CREATE TABLE pendings (
  run_id uuid NOT NULL,
  id text NOT NULL,
  tenant uuid NOT NULL,
  status text NOT NULL,
  path text NOT NULL,
  digest bytea NOT NULL,
  deadline timestamptz,
  opened_seq bigint NOT NULL,
  opened_at timestamptz NOT NULL,
  body bytea NOT NULL,
  CONSTRAINT pendings_pkey PRIMARY KEY (run_id, id)
);
CREATE INDEX pendings_open ON pendings (tenant, opened_at, id) WHERE status = 'open';
CREATE TABLE votes (
  run_id uuid NOT NULL,
  pending_id text NOT NULL,
  principal text NOT NULL,
  tenant uuid NOT NULL,
  last_seq bigint NOT NULL,
  body bytea NOT NULL,
  CONSTRAINT votes_pkey PRIMARY KEY (run_id, pending_id, principal)
);
CREATE TABLE outbox (
  run_id uuid NOT NULL,
  last_seq bigint NOT NULL,
  n integer NOT NULL,
  tenant uuid NOT NULL,
  kind text NOT NULL,
  target text NOT NULL,
  body bytea NOT NULL,
  due_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT outbox_pkey PRIMARY KEY (run_id, last_seq, n)
);
CREATE INDEX outbox_due ON outbox (due_at);
CREATE TABLE turns (
  run_id uuid NOT NULL,
  n integer NOT NULL,
  tenant uuid NOT NULL,
  thread_id text NOT NULL,
  wire_run_id text,
  body_sha bytea,
  first_seq bigint NOT NULL,
  last_seq bigint,
  CONSTRAINT turns_pkey PRIMARY KEY (run_id, n),
  CONSTRAINT turns_range CHECK (first_seq >= 1 AND first_seq <= last_seq)
);
CREATE INDEX turns_by_wire_run ON turns (tenant, thread_id, wire_run_id) WHERE wire_run_id IS NOT NULL;
CREATE TABLE messages (
  run_id uuid NOT NULL,
  n integer NOT NULL,
  tenant uuid NOT NULL,
  thread_id text NOT NULL,
  id text NOT NULL,
  role text NOT NULL,
  body bytea NOT NULL,
  seq bigint NOT NULL,
  CONSTRAINT messages_pkey PRIMARY KEY (run_id, n)
);
CREATE INDEX messages_by_id ON messages (tenant, thread_id, id);
CREATE TABLE snapshots (
  run_id uuid NOT NULL,
  seq bigint NOT NULL,
  tenant uuid NOT NULL,
  abi integer NOT NULL,
  state bytea NOT NULL,
  CONSTRAINT snapshots_pkey PRIMARY KEY (run_id, seq)
);
"""

AROUND_RUNS = """
CREATE TABLE slots (
  tenant uuid NOT NULL,
  slot text NOT NULL,
  run_id uuid NOT NULL,
  CONSTRAINT slots_pkey PRIMARY KEY (tenant, slot)
);
CREATE INDEX slots_by_run ON slots (run_id);
CREATE TABLE workflows (
  tenant uuid NOT NULL,
  sha256 bytea NOT NULL,
  name text NOT NULL,
  version integer NOT NULL,
  dev boolean NOT NULL,
  title text,
  source bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT workflows_pkey PRIMARY KEY (tenant, sha256)
);
CREATE UNIQUE INDEX workflows_published ON workflows (tenant, name, version) WHERE NOT dev;
CREATE INDEX workflows_by_name ON workflows (tenant, name, created_at);
CREATE TABLE blobs (
  tenant uuid NOT NULL,
  sha256 bytea NOT NULL,
  body bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT blobs_pkey PRIMARY KEY (tenant, sha256)
);
CREATE TABLE workers (
  id bigint GENERATED ALWAYS AS IDENTITY,
  name text NOT NULL,
  alive_until timestamptz NOT NULL,
  CONSTRAINT workers_pkey PRIMARY KEY (id)
);
"""

# lz4 halves the time of an append (docs/design/store.md#the-log), but a server may be built without it.
COMPRESSION = """
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
    ALTER TABLE log ALTER events SET COMPRESSION lz4;
    ALTER TABLE snapshots ALTER state SET COMPRESSION lz4;
  END IF;
END $$;
"""

# What people read with psql: the log's bytes are JSON text in UTF-8.
VIEW = """
CREATE VIEW log_text AS
  SELECT run_id, first_seq, last_seq, tenant, version, at, convert_from(events, 'UTF8') AS events FROM log;
"""

TABLES = (
    "runs",
    "log",
    "commands",
    "pendings",
    "votes",
    "outbox",
    "turns",
    "messages",
    "snapshots",
    "slots",
    "workflows",
    "blobs",
    "workers",
)


def upgrade() -> None:
    for script in (RUNS, OF_A_RUN, AROUND_RUNS):
        for statement in script.split(";\n"):
            if statement.strip():
                op.execute(statement)
    op.execute(COMPRESSION)
    op.execute(VIEW)


def downgrade() -> None:
    op.execute("DROP VIEW log_text")
    for table in reversed(TABLES):
        op.execute(f"DROP TABLE {table}")
