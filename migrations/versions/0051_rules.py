"""Standing rules: decisions that people have given ahead, and the votes by them.

Revision ID: 0051
Revises: 0050
"""

from __future__ import annotations

from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None

_WALLED = ("rules", "rule_uses")


def upgrade() -> None:
    op.execute("""
    CREATE TABLE rules (
      id uuid NOT NULL,
      tenant uuid NOT NULL,
      kind text NOT NULL,
      tool text NOT NULL,
      workflow text,
      body bytea NOT NULL,
      digest text NOT NULL,
      until timestamptz NOT NULL,
      uses_max integer,
      period interval,
      uses bigint NOT NULL DEFAULT 0,
      period_uses integer NOT NULL DEFAULT 0,
      period_began timestamptz,
      proposed_by text NOT NULL,
      proposer_ids text[] NOT NULL,
      excluded_ids text[] NOT NULL,
      run_id uuid,
      pending_id text,
      created_at timestamptz NOT NULL DEFAULT now(),
      voters bytea,
      people text[],
      approved_at timestamptz,
      ended_at timestamptz,
      ended_by text,
      ended_why text,
      CONSTRAINT rules_pkey PRIMARY KEY (id)
    )
    """)
    op.execute("CREATE INDEX rules_in_force ON rules (tenant, tool) WHERE approved_at IS NOT NULL AND ended_at IS NULL")
    op.execute("CREATE INDEX rules_listed ON rules (tenant, created_at, id)")
    op.execute("""
    CREATE TABLE rule_uses (
      tenant uuid NOT NULL,
      rule uuid NOT NULL,
      run_id uuid NOT NULL,
      pending_id text NOT NULL,
      at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT rule_uses_pkey PRIMARY KEY (rule, run_id, pending_id)
    )
    """)
    op.execute("CREATE INDEX rule_uses_at ON rule_uses (tenant, rule, at)")
    op.execute("CREATE INDEX rule_uses_run ON rule_uses (run_id)")
    for table in _WALLED:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY owner ON {table} TO CURRENT_USER USING (true)")
        op.execute(f"""
        CREATE POLICY tenant ON {table} USING (
          current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
        """)


def downgrade() -> None:
    for table in _WALLED:
        op.execute(f"DROP TABLE {table}")
