"""With what a browser's session is renewed at who signed it in, when that is due, and when it ends in any case. NULL in
all of them: a session of before, which is not renewed.

Revision ID: 0034
Revises: 0033
"""

from __future__ import annotations

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

COLUMNS = {
    "version": "integer NOT NULL DEFAULT 0",
    "ends_at": "timestamptz",
    "sealed": "bytea",
    "renew_at": "timestamptz",
    "good_until": "timestamptz",
}


def upgrade() -> None:
    for column, kind in COLUMNS.items():
        op.execute(f"ALTER TABLE sessions ADD COLUMN {column} {kind}")


def downgrade() -> None:
    for column in COLUMNS:
        op.execute(f"ALTER TABLE sessions DROP COLUMN {column}")
