"""Addresses at which services call back."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("""
    CREATE TABLE callbacks (
      digest bytea NOT NULL,
      tenant uuid NOT NULL,
      run_id uuid NOT NULL,
      path text NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT callbacks_pkey PRIMARY KEY (digest)
    )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE callbacks")
