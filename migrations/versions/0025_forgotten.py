"""People who were forgotten a short while ago: what was given to them before opens nothing."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("""
    CREATE TABLE forgotten (
      sha256 bytea NOT NULL,
      at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT forgotten_pkey PRIMARY KEY (sha256)
    )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE forgotten")
