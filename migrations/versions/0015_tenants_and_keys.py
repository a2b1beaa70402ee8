"""Tenants by name, and the keys that callers prove themselves with.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE tenants (
      id uuid NOT NULL,
      name text NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT tenants_pkey PRIMARY KEY (id),
      CONSTRAINT tenants_name UNIQUE (name)
    )
    """,
    "INSERT INTO tenants (id, name) VALUES ('00000000-0000-4000-8000-000000000001', 'default')",
    """
    CREATE TABLE keys (
      id text NOT NULL,
      tenant uuid NOT NULL,
      sha256 bytea NOT NULL,
      name text NOT NULL,
      principal text NOT NULL,
      roles text[] NOT NULL,
      groups text[] NOT NULL,
      created_by text NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now(),
      expires_at timestamptz,
      revoked_at timestamptz,
      used_at timestamptz,
      CONSTRAINT keys_pkey PRIMARY KEY (id),
      CONSTRAINT keys_sha256 CHECK (octet_length(sha256) = 32),
      CONSTRAINT keys_tenant FOREIGN KEY (tenant) REFERENCES tenants (id)
    )
    """,
    "CREATE INDEX keys_tenant_created ON keys (tenant, created_at, id)",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE keys")
    op.execute("DROP TABLE tenants")
