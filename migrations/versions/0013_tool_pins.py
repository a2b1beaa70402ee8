"""What the functions of servers looked like when a workflow that calls them was published.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE tool_pins (
          tenant uuid NOT NULL,
          workflow bytea NOT NULL,
          name text NOT NULL,
          digest text NOT NULL,
          CONSTRAINT tool_pins_pkey PRIMARY KEY (tenant, workflow, name)
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE tool_pins")
