"""What an error of the database means: may the statement be sent again, and may it have happened all the same?"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from enum import Enum
from typing import Final

import asyncpg

from hai_flow.errors import StoreError


class CommitUnknown(StoreError):
    """The connection broke while a statement ran: it may have happened, or not, or *may still happen*.

    A client that hangs up does not stop the server: a load right after may not see a commit yet that lands in a moment.
    So whoever holds the run raises its fence before anything else (`leases.refence_runs`): then a late decision of the
    holder loses, as late chunks do. One in three commits that a client saw fail in a crash had been committed
    (docs/design/store.md#unknown-outcomes)."""


# The errors of a statement. InternalClientError: the server closed an idle connection in this very moment.
FAILURES: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, CommitUnknown)


class ErrorClass(Enum):
    """How the sender of a failed statement should go on."""

    # Some row of it can never be stored: halve the batch until the culprit is alone
    # (docs/design/store.md#refused-batches).
    DATA = "data"
    RETRY = "retry"  # nothing happened and nothing is wrong: send the same statement again
    UNKNOWN = "unknown"  # it may have happened, or this connection is no good: load over another before deciding again
    INSTALLATION = (
        "installation"  # no room, no rights, a table that is not there: the same for every run, until somebody mends it
    )
    OTHER = "other"  # a fault of ours: let it be seen


# By SQLSTATE, or by its class (the first two characters). A state in neither is the installation's: 28 and 42501
# say that we may not, 3D, 3F and the rest of 42 that something is not there, 53 and 58 that there is no room or that a
# disk fails, 0A, 55 and XX statements that no other run could make either, and an unknown state of some product is no
# reason to condemn a run.
_FAULT_OF_STATE: Final[Mapping[str, ErrorClass]] = {
    "40003": ErrorClass.UNKNOWN,  # statement completion unknown: the only one of its class that may have happened
    "55P03": ErrorClass.RETRY,  # lock_timeout
    "57014": ErrorClass.RETRY,  # cancelled by statement_timeout, which is never after the commit
    "42P03": ErrorClass.UNKNOWN,  # a cursor or a prepared statement of that name exists: somebody shares the session
    "42P05": ErrorClass.UNKNOWN,
}

_FAULT_OF_CLASS: Final[Mapping[str, ErrorClass]] = {
    # some row
    "21": ErrorClass.DATA,
    "22": ErrorClass.DATA,
    "23": ErrorClass.DATA,
    "44": ErrorClass.DATA,  # the condition of a view or a policy
    "54": ErrorClass.DATA,
    "P0": ErrorClass.DATA,  # a trigger of the installation's own refuses it
    # rolled back for others' sake
    "40": ErrorClass.RETRY,
    # this connection: it broke (08, 57P..), or every statement on it will end like this one
    "08": ErrorClass.UNKNOWN,
    "24": ErrorClass.UNKNOWN,
    "25": ErrorClass.UNKNOWN,  # 25006: read-only since a switchover; 25P02: a failed transaction; 25P03: cut for idling
    "26": ErrorClass.UNKNOWN,  # our prepared statements are gone: a pooler gave us another session
    "34": ErrorClass.UNKNOWN,
    "57": ErrorClass.UNKNOWN,  # shutdown, crash, starting up, database dropped, idle for too long
}

# Citus lost the node while that committed: it may have, and the error says no more than that it is internal.
_INTERNAL: Final = "XX000"

_CITUS_COMMIT: Final = "could not commit transaction"


def sqlstate_of(error: BaseException | None) -> str | None:
    """The SQLSTATE that `error` (asyncpg's, or SQLAlchemy's wrapper of it) carries; None when it carries none."""
    while error is not None:
        state = getattr(error, "sqlstate", None)
        if isinstance(state, str):
            return state
        error = error.__cause__
    return None


def classify(error: BaseException) -> ErrorClass:
    """How to go on after a failed statement. `asyncpg.InterfaceError` on bad data counts as data, not as a broken line:
    text that has no UTF-8 form (a lone surrogate) is refused by the driver before anything is sent."""
    if isinstance(error, CommitUnknown):
        return ErrorClass.UNKNOWN
    state = sqlstate_of(error)
    if state == _INTERNAL and any(_CITUS_COMMIT in str(argument) for argument in error.args):
        return ErrorClass.UNKNOWN
    if state is not None:
        return _FAULT_OF_STATE.get(state) or _FAULT_OF_CLASS.get(state[:2], ErrorClass.INSTALLATION)
    if isinstance(error, (asyncpg.DataError, UnicodeError, OverflowError)):
        return ErrorClass.DATA
    if isinstance(error, (OSError, EOFError, asyncpg.InterfaceError, asyncpg.InternalClientError)):
        return ErrorClass.UNKNOWN
    return ErrorClass.OTHER


def passing(error: BaseException) -> bool:
    """Whether the database is away or overburdened, so that the statement itself is not at fault."""
    return classify(error) in (ErrorClass.RETRY, ErrorClass.UNKNOWN, ErrorClass.INSTALLATION)


def is_away(error: BaseException) -> bool:
    """Whether the database can't be reached, or takes no connections for now, as while it is started anew."""
    state = sqlstate_of(error)
    if state is None:
        return isinstance(error, OSError) and not isinstance(error, TimeoutError)
    return state.startswith(("08", "57P"))


_NOT_STORED: Final = frozenset({"53100", "58030", "25006"})  # no space, a disk that fails, a standby


def is_not_stored(error: BaseException) -> bool:
    """Whether the database stores nothing at all, until somebody mends it."""
    return sqlstate_of(error) in _NOT_STORED


UNSTORABLE: Final = "a text holds a character that can't be stored, as NUL; remove it, for a repetition fails as well."
_UNSTORABLE: Final = frozenset({"22021", "22P05"})  # a character that the database has no form for, as NUL


def is_unstorable(error: BaseException) -> bool:
    """Whether the database refuses a character of a text: the same statement can never succeed."""
    return sqlstate_of(error) in _UNSTORABLE


@contextlib.contextmanager
def raise_outcome_unknown() -> Generator[None]:
    """Turn every way in which asyncpg reports a broken connection into `CommitUnknown`."""
    try:
        yield
    except CommitUnknown:
        raise
    except Exception as error:
        if classify(error) is ErrorClass.UNKNOWN:
            raise CommitUnknown(f"the connection broke while a statement ran: {error}") from error
        raise
