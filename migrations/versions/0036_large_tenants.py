"""A tenant may live in several cells: in which it began, in which nothing begins any more, and the events that are on
their way to all of them.

Revision ID: 0036
Revises: 0035
"""

from __future__ import annotations

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE tenants ADD COLUMN anchors integer[], ADD COLUMN closed integer[], ADD COLUMN opening integer[],
      ADD COLUMN opens_at timestamptz
    """)
    op.execute("""
    CREATE TABLE relays (
      tenant uuid NOT NULL,
      id text NOT NULL,
      type text NOT NULL,
      data bytea NOT NULL,
      sent_at timestamptz NOT NULL DEFAULT now(),
      cells integer[] NOT NULL,
      due_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT relays_pkey PRIMARY KEY (tenant, id)
    )
    """)
    op.execute("CREATE INDEX relays_due ON relays (due_at)")
    op.execute("ALTER TABLE relays ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE relays FORCE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY owner ON relays TO CURRENT_USER USING (true)")
    op.execute("""
    CREATE POLICY tenant ON relays USING (
      current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
    """)


def downgrade() -> None:
    op.execute("DROP TABLE relays")
    op.execute("""
    ALTER TABLE tenants DROP COLUMN anchors, DROP COLUMN closed, DROP COLUMN opening, DROP COLUMN opens_at
    """)
