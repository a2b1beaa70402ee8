"""Sessions of browsers.

Revision ID: 0024
Revises: 0023
"""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE sessions (
      sha256 bytea NOT NULL,
      tenant uuid NOT NULL,
      principal text NOT NULL,
      expires_at timestamptz NOT NULL,
      CONSTRAINT sessions_pkey PRIMARY KEY (sha256),
      CONSTRAINT sessions_tenant FOREIGN KEY (tenant) REFERENCES tenants (id)
    )
    """,
    "CREATE INDEX sessions_expires ON sessions (expires_at)",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE sessions")
