"""What an error of the database means."""

from __future__ import annotations

import asyncpg

from hai_flow.store.postgres.error_classes import is_unstorable


def test_a_character_that_the_database_has_no_form_for_is_a_definite_error() -> None:
    assert is_unstorable(asyncpg.exceptions.CharacterNotInRepertoireError("\x00"))
    assert is_unstorable(asyncpg.exceptions.UntranslatableCharacterError("\\u0000"))
    assert not is_unstorable(asyncpg.exceptions.UniqueViolationError("x"))
    assert not is_unstorable(OSError())
