"""Chat, both ways: the cards that show questions, their buttons, and the accounts of people.

Revision ID: 0048
Revises: 0047
"""

from __future__ import annotations

from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None

_WALLED = ("chat_cards", "chat_buttons", "chat_accounts")


def upgrade() -> None:
    op.execute("""
    CREATE TABLE chat_cards (
      id text NOT NULL,
      tenant uuid NOT NULL,
      run_id uuid NOT NULL,
      pending_id text NOT NULL,
      channel text NOT NULL,
      person text,
      place text NOT NULL,
      message text,
      shown bytea,
      seen bigint NOT NULL DEFAULT 0,
      tries integer NOT NULL DEFAULT 0,
      error text,
      due_at timestamptz,
      created_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT chat_cards_pkey PRIMARY KEY (id)
    )
    """)
    op.execute("CREATE INDEX chat_cards_due ON chat_cards (due_at) WHERE due_at IS NOT NULL")
    op.execute("CREATE INDEX chat_cards_run ON chat_cards (run_id)")
    op.execute("""
    CREATE TABLE chat_buttons (
      digest bytea NOT NULL,
      tenant uuid NOT NULL,
      run_id uuid NOT NULL,
      card text NOT NULL,
      option text NOT NULL,
      question bytea NOT NULL,
      content bytea NOT NULL,
      account text,
      expires_at timestamptz NOT NULL,
      taken_by text,
      taken_at timestamptz,
      used_at timestamptz,
      CONSTRAINT chat_buttons_pkey PRIMARY KEY (digest)
    )
    """)
    op.execute("CREATE INDEX chat_buttons_card ON chat_buttons (card)")
    op.execute("CREATE INDEX chat_buttons_run ON chat_buttons (run_id)")
    op.execute("""
    CREATE TABLE chat_accounts (
      id uuid NOT NULL,
      tenant uuid NOT NULL,
      channel text NOT NULL,
      account text,
      code bytea,
      code_until timestamptz,
      principal text NOT NULL,
      roles text[] NOT NULL,
      groups text[] NOT NULL,
      until timestamptz NOT NULL,
      key text,
      session bytea,
      token text,
      created_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT chat_accounts_pkey PRIMARY KEY (id)
    )
    """)
    op.execute("CREATE UNIQUE INDEX chat_accounts_account ON chat_accounts (tenant, channel, account)")
    op.execute("CREATE UNIQUE INDEX chat_accounts_code ON chat_accounts (code)")
    op.execute("CREATE INDEX chat_accounts_principal ON chat_accounts (tenant, principal)")
    for table in _WALLED:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY owner ON {table} TO CURRENT_USER USING (true)")
        op.execute(f"""
        CREATE POLICY tenant ON {table} USING (
          current_user <> 'hai_api' OR tenant = nullif(current_setting('hai.tenant', true), '')::uuid)
        """)


def downgrade() -> None:
    for table in _WALLED:
        op.execute(f"DROP TABLE {table}")
