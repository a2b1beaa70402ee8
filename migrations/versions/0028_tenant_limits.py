"""What each tenant may have. NULL: as much as the settings give to all; 0: no limit.

Revision ID: 0028
Revises: 0027
"""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

COLUMNS = {"runs_per_minute": "integer", "open_runs": "integer", "followers": "integer", "log_bytes": "bigint"}


def upgrade() -> None:
    for column, kind in COLUMNS.items():
        op.execute(f"ALTER TABLE tenants ADD COLUMN {column} {kind}")


def downgrade() -> None:
    for column in COLUMNS:
        op.execute(f"ALTER TABLE tenants DROP COLUMN {column}")
