"""Finds operations of a revision that would stop a database in use: in its text, and in the locks of its
transactions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa

_CREATED: Final = re.compile(r"\bCREATE TABLE (?:IF NOT EXISTS )?(\w+)")
_INDEX: Final = re.compile(
    r"\bCREATE (?:UNIQUE )?INDEX (?P<concurrently>CONCURRENTLY )?(?:IF NOT EXISTS )?(?P<index>\w+)\s+ON (?P<table>\w+)"
)
_ALTER: Final = re.compile(
    r"\bALTER TABLE (?:IF EXISTS )?(?:ONLY )?(?P<table>\w+)(?P<what>.*?)(?:;|\"\"\"|\"\)|\Z)", re.S
)
_READS_ALL: Final = {
    r"\bADD CONSTRAINT\b(?!.*\bNOT VALID\b)(?!.*\bUSING INDEX\b)": "adds a constraint without NOT VALID",
    r"\bSET NOT NULL\b": "sets NOT NULL, which reads the table: validate a CHECK (... IS NOT NULL) first",
    r"\bTYPE\b": "changes a column's type, which writes the table anew",
    r"\bUNIQUE\b|\bPRIMARY KEY\b(?!.*\bUSING INDEX\b)": "builds an index while it holds the table",
}
_OTHER_WORDS: Final = re.compile(r"\bop\.(?!execute\b|get_context\b)(\w+)")


def faults_in(source: str) -> list[str]:
    """Operations in the text of a revision that would lock, or break for others, tables from before it, a sentence
    each."""
    upgrade = source.split("def downgrade")[0]
    new = set(_CREATED.findall(upgrade))
    found = [f"op.{word}: say it in SQL, which is what is looked through" for word in _OTHER_WORDS.findall(upgrade)]
    found += [
        f"index {match['index']} on {match['table']} is built without CONCURRENTLY"
        for match in _INDEX.finditer(upgrade)
        if match["table"] not in new and not match["concurrently"]
    ]
    if "CONCURRENTLY" in upgrade and "autocommit_block()" not in upgrade:
        found.append("CONCURRENTLY needs an autocommit_block()")
    for match in _ALTER.finditer(upgrade):
        if match["table"] not in new:
            found += [
                f"ALTER TABLE {match['table']} {why}"
                for pattern, why in _READS_ALL.items()
                if re.search(pattern, match["what"], re.S)
            ]
    return found


_READ: Final = "SELECT relname, seq_tup_read FROM pg_stat_xact_user_tables"  # also what is not yet in its statistics
_READ_WHILE_HELD: Final = """
SELECT s.relname, s.seq_tup_read, string_agg(DISTINCT l.mode, ', ')
FROM pg_stat_xact_user_tables s JOIN pg_locks l ON l.relation = s.relid AND l.pid = pg_backend_pid() AND l.granted
WHERE l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
GROUP BY 1, 2 ORDER BY 1
"""


def watch_transactions(engine: sa.Engine, tell: Callable[[str], Any]) -> None:
    """Call `tell` with a sentence for each table that a transaction of `engine` read while it locked out all others."""
    before: dict[str, int] = {}  # rows that the session's transactions before this one read

    def begin(connection: sa.Connection) -> None:
        before.clear()
        before.update((name, rows) for name, rows in connection.exec_driver_sql(_READ).fetchall())

    def look(connection: sa.Connection) -> None:
        for table, rows, modes in connection.exec_driver_sql(_READ_WHILE_HELD).fetchall():
            if rows > before.get(table, 0):
                tell(f"table {table} was read under {modes}")

    sa.event.listen(engine, "begin", begin)
    sa.event.listen(engine, "commit", look)
