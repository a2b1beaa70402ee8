"""Every table with rows of tenants is behind row-level security, also those that no request reads.

As in revision 0021: `hai_api` sees the rows of the tenant that is set, every other role what it saw before. Each table
in a statement of its own: nobody waits for more than one of them. `tenants` has the tenant as its id. What the roles
may do is granted behind all revisions (`hai_flow.store.postgres.database_roles`).

Revision ID: 0026
Revises: 0025
"""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

TABLES = (
    "commands", "delegations", "inbox", "notifications", "links", "outbox", "slots", "slot_waiters", "fires",
    "event_triggers", "subscriptions", "callbacks", "blobs", "file_leftovers", "tool_pins", "tenants", "keys",
    "tickets", "sessions", "audit", "audit_details", "audit_seals", "audit_unsealed",
)  # fmt: skip


def upgrade() -> None:
    with op.get_context().autocommit_block():
        for table in TABLES:
            tenant = "id" if table == "tenants" else "tenant"
            op.execute(f"""
            DO $$
            BEGIN
              PERFORM set_config('lock_timeout', '200ms', true);
              IF NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = '{table}'::regclass AND polname = 'tenant') THEN
                ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
                ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
                CREATE POLICY owner ON {table} TO CURRENT_USER USING (true);
                CREATE POLICY tenant ON {table} USING (
                  current_user <> 'hai_api' OR {tenant} = nullif(current_setting('hai.tenant', true), '')::uuid);
              END IF;
            END $$
            """)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP POLICY tenant ON {table}")
        op.execute(f"DROP POLICY owner ON {table}")
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
