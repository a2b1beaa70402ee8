"""In which history a database is: its eras, and the beats by which a restore to an earlier time is noticed.

Revision ID: 0031
Revises: 0030
"""

from __future__ import annotations

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE eras (
      n integer NOT NULL,
      database uuid NOT NULL,
      system bigint,
      base bigint,
      timeline integer,
      written bigint NOT NULL,
      began_at timestamptz NOT NULL DEFAULT now(),
      note text NOT NULL,
      held_at timestamptz,
      held_why text,
      CONSTRAINT eras_pkey PRIMARY KEY (n)
    )
    """,
    """
    CREATE TABLE beats (
      n bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
      era integer NOT NULL,
      token uuid NOT NULL DEFAULT gen_random_uuid(),
      at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT beats_pkey PRIMARY KEY (n)
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE beats")
    op.execute("DROP TABLE eras")
