"""Feedback: what people think of what a thread has said, and of what was decided in it.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE feedback (
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  tenant uuid NOT NULL,
  thread_id text NOT NULL,
  kind text NOT NULL,
  subject_id text NOT NULL,
  run_id uuid NOT NULL,
  principal text NOT NULL,
  via text NOT NULL,
  rating text,
  comment text,
  labels text[] NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT feedback_pkey PRIMARY KEY (id),
  CONSTRAINT feedback_kind CHECK (kind IN ('message', 'pending')),
  CONSTRAINT feedback_rating CHECK (rating IN ('up', 'down', '1', '2', '3', '4', '5')),
  CONSTRAINT feedback_says_something CHECK (rating IS NOT NULL OR comment IS NOT NULL OR labels <> '{}')
);
CREATE UNIQUE INDEX feedback_of_each ON feedback (tenant, thread_id, kind, subject_id, principal);
CREATE INDEX feedback_newest ON feedback (tenant, thread_id, created_at, id);
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";\n"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE feedback")
