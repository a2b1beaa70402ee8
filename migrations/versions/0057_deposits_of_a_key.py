"""Deposits: a key whose row a worker takes meanwhile is the same run, and a transaction may do without the hint.

The row that stood in the way of an insertion may be gone when it is read: its run has begun. That was taken for a row
with another body. With `SET LOCAL hai.hint = 'off'` there is no NOTIFY, which transactions that are prepared
(two-phase commit) may not have, and for which PostgreSQL commits one transaction behind the other.

Revision ID: 0057
Revises: 0056
"""

from __future__ import annotations

from alembic import op

revision = "0057"
down_revision = "0056"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE OR REPLACE FUNCTION hai_deposit(
      kind text, body text, tenant text DEFAULT 'default', key text DEFAULT NULL)
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
      LOOP
        INSERT INTO deposits (tenant, id, kind, body, principal)
        VALUES (caller.tenant, new_id, hai_deposit.kind, hai_deposit.body, caller.principal) ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        SELECT d.* INTO stored FROM deposits d WHERE d.tenant = caller.tenant AND d.id = new_id;
        IF FOUND AND stored.body IS DISTINCT FROM hai_deposit.body THEN
          RAISE EXCEPTION 'the key % was used before with another body', hai_deposit.key
            USING ERRCODE = 'unique_violation';
        END IF;
        EXIT WHEN FOUND;
      END LOOP;
      IF current_setting('hai.hint', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_notify('hai_runs', 'deposits');
      END IF;
      RETURN new_id;
    END $function$
    """)
    op.execute("""
    DO $$ BEGIN
      EXECUTE format(
        'ALTER FUNCTION hai_deposit(text, text, text, text) SET search_path = %I, pg_temp', current_schema());
    END $$
    """)


def downgrade() -> None:
    pass  # the release before works with this function, too
