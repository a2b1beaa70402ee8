"""Deposits: starts and events that another program writes in a transaction of its own, by one function.

Revision ID: 0046
Revises: 0045
"""

from __future__ import annotations

from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

_WALLED = ("deposits", "depositors")
_DEPOSIT = "hai_deposit(text, text, text, text)"
_ALLOW = "hai_allow_deposits(text, text, text)"


def upgrade() -> None:
    op.execute("""
    CREATE TABLE deposits (
      tenant uuid NOT NULL,
      id uuid NOT NULL,
      kind text NOT NULL,
      body text NOT NULL,
      principal text NOT NULL,
      deposited_at timestamptz NOT NULL DEFAULT now(),
      due_at timestamptz DEFAULT now(),
      tries integer NOT NULL DEFAULT 0,
      refused text,
      CONSTRAINT deposits_pkey PRIMARY KEY (tenant, id)
    )
    """)
    op.execute("CREATE INDEX deposits_due ON deposits (due_at)")
    op.execute("""
    CREATE TABLE depositors (
      role text NOT NULL,
      tenant uuid NOT NULL,
      principal text NOT NULL,
      CONSTRAINT depositors_pkey PRIMARY KEY (role, tenant)
    )
    """)
    for table in _WALLED:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY owner ON {table} TO CURRENT_USER USING (true)")
        op.execute(f"""
        CREATE POLICY tenant ON {table} USING (
          current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
        """)
    # The caller is the role of the session: within a function of another owner, `current_user` is that owner.
    op.execute("""
    CREATE FUNCTION hai_deposit(kind text, body text, tenant text DEFAULT 'default', key text DEFAULT NULL)
    RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER AS $function$
    DECLARE
      caller depositors;
      new_id uuid := gen_random_uuid();
      stored deposits;
    BEGIN
      SELECT d.* INTO caller FROM depositors d JOIN tenants t ON t.id = d.tenant
      WHERE t.name = hai_deposit.tenant AND d.role = session_user;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'the role % may not deposit for the tenant %', session_user, hai_deposit.tenant
          USING ERRCODE = 'insufficient_privilege', HINT = 'The owner lets it: SELECT hai_allow_deposits(...)';
      END IF;
      IF hai_deposit.kind NOT IN ('start', 'send') OR hai_deposit.kind IS NULL THEN
        RAISE EXCEPTION 'expected the kind start or send, found %', hai_deposit.kind
          USING ERRCODE = 'invalid_parameter_value';
      END IF;
      IF hai_deposit.body IS NULL OR octet_length(hai_deposit.body) > 1048576 THEN
        RAISE EXCEPTION 'a body has at most 1048576 bytes' USING ERRCODE = 'invalid_parameter_value';
      END IF;
      IF jsonb_typeof(hai_deposit.body::jsonb) <> 'object' THEN
        RAISE EXCEPTION 'expected the body as a JSON object' USING ERRCODE = 'invalid_parameter_value';
      END IF;
      IF hai_deposit.key IS NOT NULL THEN
        new_id := overlay(overlay(left(encode(sha256(convert_to(
          concat_ws(chr(31), 'deposit', caller.tenant, caller.principal, hai_deposit.kind, hai_deposit.key), 'UTF8'
        )), 'hex'), 32) PLACING '4' FROM 13) PLACING '8' FROM 17)::uuid;
      END IF;
      INSERT INTO deposits (tenant, id, kind, body, principal)
      VALUES (caller.tenant, new_id, hai_deposit.kind, hai_deposit.body, caller.principal) ON CONFLICT DO NOTHING;
      IF NOT FOUND THEN
        SELECT d.* INTO stored FROM deposits d WHERE d.tenant = caller.tenant AND d.id = new_id;
        IF stored.body IS DISTINCT FROM hai_deposit.body THEN
          RAISE EXCEPTION 'the key % was used before with another body', hai_deposit.key
            USING ERRCODE = 'unique_violation';
        END IF;
      END IF;
      PERFORM pg_notify('hai_runs', 'deposits');
      RETURN new_id;
    END $function$
    """)
    op.execute("""
    CREATE FUNCTION hai_allow_deposits(role text, tenant text, principal text) RETURNS void
    LANGUAGE plpgsql AS $function$
    BEGIN
      INSERT INTO depositors (role, tenant, principal)
      SELECT hai_allow_deposits.role, t.id, hai_allow_deposits.principal FROM tenants t
      WHERE t.name = hai_allow_deposits.tenant
      ON CONFLICT ON CONSTRAINT depositors_pkey DO UPDATE SET principal = excluded.principal;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no tenant %', hai_allow_deposits.tenant USING ERRCODE = 'no_data_found';
      END IF;
      EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), hai_allow_deposits.role);
      EXECUTE format('GRANT EXECUTE ON FUNCTION hai_deposit(text, text, text, text) TO %I', hai_allow_deposits.role);
    END $function$
    """)
    for function in (_DEPOSIT, _ALLOW):
        op.execute(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
        op.execute(f"""
        DO $$ BEGIN
          EXECUTE format('ALTER FUNCTION {function} SET search_path = %I, pg_temp', current_schema());
        END $$
        """)


def downgrade() -> None:
    op.execute(f"DROP FUNCTION {_ALLOW}")
    op.execute(f"DROP FUNCTION {_DEPOSIT}")
    op.execute("DROP TABLE depositors")
    op.execute("DROP TABLE deposits")
