"""Notifications to people and systems, and links at which one person may decide.

Revision ID: 0022
Revises: 0021
"""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE notifications (
      id text NOT NULL,
      tenant uuid NOT NULL,
      run_id uuid NOT NULL,
      pending_id text NOT NULL,
      what text NOT NULL,
      notify text[] NOT NULL,
      channel text,
      person text,
      whom text NOT NULL DEFAULT '',
      status text NOT NULL,
      tries integer NOT NULL DEFAULT 0,
      error text,
      created_at timestamptz NOT NULL DEFAULT now(),
      due_at timestamptz,
      ended_at timestamptz,
      CONSTRAINT notifications_pkey PRIMARY KEY (id)
    )
    """)
    op.execute("CREATE INDEX notifications_due ON notifications (due_at) WHERE due_at IS NOT NULL")
    op.execute("CREATE INDEX notifications_newest ON notifications (tenant, created_at, id)")
    op.execute("CREATE INDEX notifications_by_run ON notifications (run_id)")
    op.execute("CREATE INDEX notifications_oldest ON notifications (created_at)")
    op.execute("""
    CREATE TABLE links (
      digest bytea NOT NULL,
      tenant uuid NOT NULL,
      run_id uuid NOT NULL,
      pending_id text NOT NULL,
      principal text NOT NULL,
      roles text[] NOT NULL,
      groups text[] NOT NULL,
      expires_at timestamptz NOT NULL,
      used_at timestamptz,
      CONSTRAINT links_pkey PRIMARY KEY (digest)
    )
    """)
    op.execute("CREATE INDEX links_over ON links (expires_at)")


def downgrade() -> None:
    op.execute("DROP TABLE links")
    op.execute("DROP TABLE notifications")
