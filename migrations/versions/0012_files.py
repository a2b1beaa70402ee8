"""Files: what people upload and tools make, by its sha256, in pieces; who uploaded it, which runs refer to it.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

STATEMENTS = (
    # No release has ever written or read there, so nothing is lost, and an older one beside this one does not notice.
    "DROP TABLE blobs",
    """
    CREATE TABLE blobs (
      place text NOT NULL,
      n integer NOT NULL,
      tenant uuid NOT NULL,
      body bytea NOT NULL,
      CONSTRAINT blobs_pkey PRIMARY KEY (place, n)
    )
    """,
    # Most files are compressed already. Citus, which may keep a cell, can't be told so: there it is tried in vain.
    """
    DO $$
    BEGIN
      ALTER TABLE blobs ALTER COLUMN body SET STORAGE EXTERNAL;
    EXCEPTION WHEN feature_not_supported THEN NULL;
    END $$
    """,
    """
    CREATE TABLE files (
      tenant uuid NOT NULL,
      sha256 bytea NOT NULL,
      place text NOT NULL,
      size bigint NOT NULL,
      touched_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT files_pkey PRIMARY KEY (tenant, sha256),
      CONSTRAINT files_size CHECK (size >= 0)
    )
    """,
    """
    CREATE TABLE uploads (
      tenant uuid NOT NULL,
      sha256 bytea NOT NULL,
      principal text NOT NULL,
      name text NOT NULL,
      media_type text NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT uploads_pkey PRIMARY KEY (tenant, sha256, principal)
    )
    """,
    """
    CREATE TABLE file_uses (
      tenant uuid NOT NULL,
      sha256 bytea NOT NULL,
      run_id uuid NOT NULL,
      CONSTRAINT file_uses_pkey PRIMARY KEY (tenant, sha256, run_id)
    )
    """,
    """
    CREATE TABLE file_leftovers (
      place text NOT NULL,
      tenant uuid NOT NULL,
      due_at timestamptz NOT NULL,
      CONSTRAINT file_leftovers_pkey PRIMARY KEY (place)
    )
    """,
    "CREATE INDEX file_leftovers_due ON file_leftovers (due_at)",
)

BEFORE = """
CREATE TABLE blobs (
  tenant uuid NOT NULL,
  sha256 bytea NOT NULL,
  body bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT blobs_pkey PRIMARY KEY (tenant, sha256)
)
"""


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    for table in ("file_leftovers", "file_uses", "uploads", "files", "blobs"):
        op.execute(f"DROP TABLE {table}")
    op.execute(BEFORE)
