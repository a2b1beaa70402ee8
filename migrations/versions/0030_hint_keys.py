"""What the processes of this database seal the hints with that go by Redis: one row, which the first of them makes."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("""
    CREATE TABLE hint_keys (
      one boolean DEFAULT true NOT NULL,
      key bytea NOT NULL,
      CONSTRAINT hint_keys_pkey PRIMARY KEY (one),
      CONSTRAINT hint_keys_one CHECK (one)
    )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE hint_keys")
