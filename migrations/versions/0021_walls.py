"""A role that sees one tenant's rows, for what requests read.

`hai_api` may read the tables below, and sees of them the rows of the tenant that is set for its transaction. For every
other role nothing changes: the policy lets it through, and the owner's own policy costs it nothing. A role that may not
create roles leaves that to others (docs/security.md#row-security-between-tenants); the policies stand all the same.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

TABLES = (
    "runs", "log", "snapshots", "pendings", "votes", "turns", "messages", "workflows", "schedules", "signals",
    "feedback", "files", "uploads", "file_uses",
)  # fmt: skip
# Several databases of a server may be migrated at once, and roles are the server's.
ROLE = f"""
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'hai_api') THEN
    BEGIN
      CREATE ROLE hai_api NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
    END;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'hai_api') THEN
    BEGIN
      IF NOT pg_has_role('hai_api', 'MEMBER') THEN
        EXECUTE format('GRANT hai_api TO %I', current_user);
      END IF;
    EXCEPTION WHEN insufficient_privilege OR unique_violation THEN NULL;
    END;
    GRANT SELECT ON {", ".join(TABLES)} TO hai_api;
  END IF;
END $$
"""


def upgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY owner ON {table} TO CURRENT_USER USING (true)")
        op.execute(f"""
        CREATE POLICY tenant ON {table} USING (
          current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
        """)
    op.execute(ROLE)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP POLICY tenant ON {table}")
        op.execute(f"DROP POLICY owner ON {table}")
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    op.execute("""
    DO $$ BEGIN
      IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'hai_api') THEN
        REVOKE ALL ON ALL TABLES IN SCHEMA public FROM hai_api;
      END IF;
    END $$
    """)
