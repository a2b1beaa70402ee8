"""The rights of the built-in roles: the only table of roles and rights.

A route names the rights of which its caller needs one (`principals.requires`); which runs and threads they then see is
decided where those are loaded. A role that is not listed here belongs to the workflows (`role:controller`): it opens no
route."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final


class Right(StrEnum):
    """A right of a caller. The value is its name in documents and refusals."""

    SEE_OWN = "see_own"  # one's own runs and threads, and those that a workflow's `visibility` shows
    SEE_RUNS = "see_runs"  # all runs, pendings and threads of the tenant
    SPEAK = "speak"  # begin threads, speak in one's own, start runs of workflows that are open to requesters
    ANSWER = "answer"  # answer the questions that ask the requester
    START_RUNS = "start_runs"  # start runs of every workflow; send events
    CONTROL_RUNS = "control_runs"  # pause, resume, stop, terminate, retry, skip, fork, migrate; signals and schedules
    SEE_INBOX = "see_inbox"  # the questions that are one's own to answer, with their evidence
    DECIDE = "decide"  # answer them
    READ_WORKFLOWS = "read_workflows"
    CHECK_WORKFLOWS = "check_workflows"  # validate, format and draw documents, play their tests
    PUBLISH = "publish"
    READ_AUDIT = "read_audit"
    MANAGE_KEYS = "manage_keys"  # create, list and revoke keys; settings of the tenant; publish without a rehearsal
    ISSUE_TOKENS = "issue_tokens"  # give frontends tokens with no more than one's own rights


SCOPED: Final = frozenset({Right.SEE_OWN, Right.SPEAK, Right.ANSWER, Right.SEE_INBOX, Right.DECIDE})
"""The rights that a credential for some threads or workflows can have: what they open is asked for its thread and its
workflow. The others reach beyond."""

REQUESTER: Final = "requester"

_REQUESTER: Final = frozenset({Right.SEE_OWN, Right.SPEAK, Right.ANSWER})
_VIEWER: Final = frozenset({Right.SEE_OWN, Right.SEE_RUNS, Right.READ_WORKFLOWS})
_AUTHOR: Final = frozenset({Right.READ_WORKFLOWS, Right.CHECK_WORKFLOWS})

ROLES: Final[Mapping[str, frozenset[Right]]] = MappingProxyType(
    {
        REQUESTER: _REQUESTER,
        "viewer": _VIEWER,
        "author": _AUTHOR,
        "publisher": _AUTHOR | {Right.PUBLISH},
        "operator": _VIEWER | {Right.SPEAK, Right.ANSWER, Right.START_RUNS, Right.CONTROL_RUNS},
        "decider": frozenset({Right.SEE_OWN, Right.ANSWER, Right.SEE_INBOX, Right.DECIDE}),
        "auditor": frozenset({Right.READ_AUDIT}),
        "admin": frozenset({Right.MANAGE_KEYS, Right.ISSUE_TOKENS}),
        "issuer": _REQUESTER | {Right.ISSUE_TOKENS},
    }
)
"""The built-in roles. `requester` is what everybody is who has no other of them; it may be given beside others.
`issuer` is for a backend that gives its pages tokens, which are requesters if it holds nothing else."""


def rights_of(roles: Iterable[str]) -> frozenset[Right]:
    return _rights_of(tuple(roles))


def may_decide(roles: Iterable[str]) -> bool:
    """Whether these roles let somebody decide questions."""
    return Right.DECIDE in rights_of(roles)


@lru_cache(maxsize=1024)
def _rights_of(roles: tuple[str, ...]) -> frozenset[Right]:
    rights = [ROLES[role] for role in roles if role in ROLES]
    return frozenset().union(*rights) if rights else _REQUESTER
