"""Since when the database has the vocabulary that a release writes: decisions from before are another one's."""

from __future__ import annotations

from hai_flow.store.postgres import op

ABI = 12  # of `hai_flow/engine/events`; a revision for the next one adds its row


def upgrade() -> None:
    op.execute("""
    CREATE TABLE vocabularies (
      abi integer NOT NULL,
      since timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT vocabularies_pkey PRIMARY KEY (abi)
    )
    """)
    op.execute(f"INSERT INTO vocabularies (abi) VALUES ({ABI})")


def downgrade() -> None:
    op.execute("DROP TABLE vocabularies")
