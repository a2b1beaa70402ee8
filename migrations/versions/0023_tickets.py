"""What backends give their pages: tokens that a key signs, and tickets that are good once.

Revision ID: 0023
Revises: 0022
"""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE keys ADD COLUMN verifies bytea",
    """
    CREATE TABLE tickets (
      sha256 bytea NOT NULL,
      tenant uuid NOT NULL,
      principal text NOT NULL,
      expires_at timestamptz NOT NULL,
      CONSTRAINT tickets_pkey PRIMARY KEY (sha256),
      CONSTRAINT tickets_tenant FOREIGN KEY (tenant) REFERENCES tenants (id)
    )
    """,
    "CREATE INDEX tickets_expires ON tickets (expires_at)",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE tickets")
    op.execute("ALTER TABLE keys DROP COLUMN verifies")
