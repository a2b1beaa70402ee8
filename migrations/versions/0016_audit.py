"""The audit: records of who did what, their details, and the chain over them.

A record and its seal are only ever inserted. The details of a record are replaced once the person is forgotten, which
says so in `erased_at`. What waits for its seal is queued by the database itself, whoever inserts it.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

from alembic import op

from hai_flow.store.postgres.migrations import is_sharded

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    CREATE TABLE audit (
      tenant uuid NOT NULL,
      id uuid NOT NULL,
      at timestamptz NOT NULL DEFAULT clock_timestamp(),
      act text NOT NULL,
      run_id uuid,
      seq bigint,
      head bytea,
      subject text,
      digest bytea,
      commitment bytea NOT NULL,
      CONSTRAINT audit_pkey PRIMARY KEY (tenant, id)
    )
    """)
    op.execute("""
    CREATE INDEX audit_by_run ON audit (tenant, run_id, id) WHERE run_id IS NOT NULL
    """)
    op.execute("""
    CREATE INDEX audit_by_subject ON audit (tenant, subject, id) WHERE subject IS NOT NULL
    """)
    op.execute("""
    CREATE TABLE audit_details (
      tenant uuid NOT NULL,
      id uuid NOT NULL,
      principal text NOT NULL,
      salt bytea NOT NULL,
      body bytea NOT NULL,
      erased_at timestamptz,
      CONSTRAINT audit_details_pkey PRIMARY KEY (tenant, id)
    )
    """)
    op.execute("""
    CREATE INDEX audit_details_by_principal ON audit_details (tenant, principal, id)
    """)
    op.execute("""
    CREATE TABLE audit_seals (
      tenant uuid NOT NULL,
      n bigint NOT NULL,
      id uuid NOT NULL,
      hash bytea NOT NULL,
      CONSTRAINT audit_seals_pkey PRIMARY KEY (tenant, n),
      CONSTRAINT audit_seals_positive CHECK (n > 0)
    )
    """)
    op.execute("""
    CREATE UNIQUE INDEX audit_seals_by_record ON audit_seals (tenant, id)
    """)
    op.execute("""
    CREATE TABLE audit_unsealed (
      tenant uuid NOT NULL,
      id uuid NOT NULL,
      CONSTRAINT audit_unsealed_pkey PRIMARY KEY (tenant, id)
    )
    """)
    if not is_sharded(op.get_context().connection):
        _guard()


def _guard() -> None:
    """Citus, which may keep a cell, has no triggers: there nothing but rights keeps records as they are, and the sealer
    looks for those that have no seal."""
    op.execute("""
    CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      RAISE EXCEPTION 'the audit is append-only: % of % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
    END $$
    """)
    op.execute("""
    CREATE FUNCTION audit_refuse_details() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF NEW.erased_at IS NULL OR NEW.tenant <> OLD.tenant OR NEW.id <> OLD.id THEN
        RAISE EXCEPTION 'the details of an audit record change only when they are erased'
          USING ERRCODE = 'restrict_violation';
      END IF;
      RETURN NEW;
    END $$
    """)
    op.execute("""
    CREATE FUNCTION audit_queue() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO audit_unsealed (tenant, id) VALUES (NEW.tenant, NEW.id);
      RETURN NULL;
    END $$
    """)
    op.execute("""
    CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit
      FOR EACH ROW EXECUTE FUNCTION audit_refuse()
    """)
    op.execute("""
    CREATE TRIGGER audit_kept BEFORE TRUNCATE ON audit
      FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse()
    """)
    op.execute("""
    CREATE TRIGGER audit_queued AFTER INSERT ON audit
      FOR EACH ROW EXECUTE FUNCTION audit_queue()
    """)
    op.execute("""
    CREATE TRIGGER audit_seals_append_only BEFORE UPDATE OR DELETE ON audit_seals
      FOR EACH ROW EXECUTE FUNCTION audit_refuse()
    """)
    op.execute("""
    CREATE TRIGGER audit_seals_kept BEFORE TRUNCATE ON audit_seals
      FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse()
    """)
    op.execute("""
    CREATE TRIGGER audit_details_erased BEFORE UPDATE ON audit_details
      FOR EACH ROW EXECUTE FUNCTION audit_refuse_details()
    """)
    op.execute("""
    CREATE TRIGGER audit_details_append_only BEFORE DELETE ON audit_details
      FOR EACH ROW EXECUTE FUNCTION audit_refuse()
    """)
    op.execute("""
    CREATE TRIGGER audit_details_kept BEFORE TRUNCATE ON audit_details
      FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse()
    """)


def downgrade() -> None:
    op.execute("DROP TABLE audit_unsealed, audit_seals, audit_details, audit")
    op.execute("DROP FUNCTION IF EXISTS audit_queue, audit_refuse_details, audit_refuse")
