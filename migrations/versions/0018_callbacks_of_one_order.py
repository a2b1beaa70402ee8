"""An address is for one order of a step: done anew, a step asks for another one."""

from __future__ import annotations

from hai_flow.store.postgres import op


def upgrade() -> None:
    op.execute("ALTER TABLE callbacks ADD COLUMN type text")


def downgrade() -> None:
    op.execute("ALTER TABLE callbacks DROP COLUMN type")
