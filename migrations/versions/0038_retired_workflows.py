"""A version of a workflow can be retired: no run, child or fork begins with it any more."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("ALTER TABLE workflows ADD COLUMN retired_at timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE workflows DROP COLUMN retired_at")
