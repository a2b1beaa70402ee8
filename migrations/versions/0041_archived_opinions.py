"""Archives know which opinions they have, and restoring one forgets again who was forgotten since.

Revision ID: 0041
Revises: 0040
"""

from __future__ import annotations

from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE retired_runs ADD COLUMN opinions bytea")
    op.execute("""
    CREATE TABLE erased_people (
      tenant uuid NOT NULL,
      salt bytea NOT NULL,
      sha256 bytea NOT NULL,
      at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT erased_people_pkey PRIMARY KEY (tenant, salt)
    )
    """)
    op.execute("ALTER TABLE erased_people ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE erased_people FORCE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY owner ON erased_people TO CURRENT_USER USING (true)")
    op.execute("""
    CREATE POLICY tenant ON erased_people USING (
      current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
    """)


def downgrade() -> None:
    op.execute("DROP TABLE erased_people")
    op.execute("ALTER TABLE retired_runs DROP COLUMN opinions")
