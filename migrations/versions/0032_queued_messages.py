"""Messages that wait until their thread's run has ended, for workflows with `on_message: enqueue`.

Revision ID: 0032
Revises: 0031
"""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE queued_messages (
      tenant uuid NOT NULL,
      run_id uuid NOT NULL,
      thread_id text NOT NULL,
      place bigint GENERATED ALWAYS AS IDENTITY,
      workflow bytea NOT NULL,
      principal text NOT NULL,
      start bytea NOT NULL,
      asked bytea NOT NULL,
      command_id text NOT NULL,
      body_sha bytea NOT NULL,
      queued_at timestamptz NOT NULL DEFAULT now(),
      refused bytea,
      refused_at timestamptz,
      CONSTRAINT queued_messages_pkey PRIMARY KEY (tenant, run_id)
    )
    """)
    op.execute("CREATE INDEX queued_messages_in_order ON queued_messages (tenant, thread_id, place)")
    op.execute("ALTER TABLE queued_messages ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE queued_messages FORCE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY owner ON queued_messages TO CURRENT_USER USING (true)")
    op.execute("""
    CREATE POLICY tenant ON queued_messages USING (
      current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
    """)


def downgrade() -> None:
    op.execute("DROP TABLE queued_messages")
