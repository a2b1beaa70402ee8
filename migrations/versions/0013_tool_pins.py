"""What the functions of servers looked like when a workflow that calls them was published."""

from __future__ import annotations

from hai_flow.store.postgres import op


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
