"""Runs that are archived or removed, and rows of the log that hold several commits.

Revision ID: 0027
Revises: 0026
"""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE log ADD COLUMN parts bytea",
    """
    CREATE TABLE retired_runs (
      run_id uuid NOT NULL,
      tenant uuid NOT NULL,
      thread_id text NOT NULL,
      workflow_name text NOT NULL,
      seq bigint NOT NULL,
      head bytea NOT NULL,
      ended_at timestamptz NOT NULL,
      place text,
      sha256 bytea,
      archived_at timestamptz,
      removed_at timestamptz,
      cleared_at timestamptz,
      CONSTRAINT retired_runs_pkey PRIMARY KEY (run_id),
      CONSTRAINT retired_runs_archive CHECK ((place IS NULL) = (sha256 IS NULL))
    )
    """,
    """
    CREATE INDEX retired_runs_uncleared ON retired_runs (removed_at)
    WHERE removed_at IS NOT NULL AND cleared_at IS NULL
    """,
    "ALTER TABLE retired_runs ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE retired_runs FORCE ROW LEVEL SECURITY",
    "CREATE POLICY owner ON retired_runs TO CURRENT_USER USING (true)",
    """
    CREATE POLICY tenant ON retired_runs USING (
      current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE retired_runs")
    op.execute("ALTER TABLE log DROP COLUMN parts")
