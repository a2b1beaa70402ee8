"""Which servers there are, for whoever looks how a deployment stands."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("""
    CREATE TABLE servers (
      id uuid NOT NULL,
      name text NOT NULL,
      release text NOT NULL,
      started_at timestamptz NOT NULL DEFAULT now(),
      seen_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT servers_pkey PRIMARY KEY (id)
    )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE servers")
