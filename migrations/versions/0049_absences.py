"""Absences: who is away on which days, and who decides for them.

Revision ID: 0049
Revises: 0048
"""

from __future__ import annotations

from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE absences (
      id uuid NOT NULL,
      tenant uuid NOT NULL,
      person text NOT NULL,
      delegate text,
      first_day date NOT NULL,
      last_day date NOT NULL,
      zone text NOT NULL,
      since timestamptz NOT NULL,
      until timestamptz NOT NULL,
      roles text[] NOT NULL,
      groups text[] NOT NULL,
      note text,
      entered_by text NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now(),
      stage text NOT NULL DEFAULT 'ahead',
      CONSTRAINT absences_pkey PRIMARY KEY (id),
      CONSTRAINT absences_of_another CHECK (person <> delegate),
      CONSTRAINT absences_last CHECK (since < until)
    )
    """)
    op.execute("CREATE INDEX absences_delegate ON absences (tenant, delegate, until)")
    op.execute("CREATE INDEX absences_person ON absences (tenant, person, until)")
    op.execute("CREATE INDEX absences_ahead ON absences (since) WHERE stage = 'ahead'")
    op.execute("CREATE INDEX absences_begun ON absences (until) WHERE stage = 'begun'")
    op.execute("ALTER TABLE absences ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE absences FORCE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY owner ON absences TO CURRENT_USER USING (true)")
    op.execute("""
    CREATE POLICY tenant ON absences USING (
      current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
    """)


def downgrade() -> None:
    op.execute("DROP TABLE absences")
