"""Whether a failed attempt is tried again, when, and which `catch` takes an error.
docs/language.md#retry-catch-undo."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hai_flow.definition.plan import CatchClause, Retry
from hai_flow.engine.state.ids import jitter

RETRIABLE: Final = frozenset(
    {
        "step.timeout",
        "step.lost",
        "step.file_unavailable",
        "tool.failed",
        "tool.unavailable",
        "http.connection",
        "http.expect",
        "mcp.unavailable",
        "llm.rate_limited",
        "llm.timeout",
        "llm.unavailable",
        "llm.truncated",
        "llm.empty",
        "llm.invalid_output",
    }
)
UNDO_RETRY: Final = Retry(max=5, backoff="exponential")
LOST_IN_A_ROW_MAX: Final = 5
SUSPECT_AFTER_LOST: Final = 3
_NEVER_BY_DEFAULT: Final = ("approval.", "limit.")
LOG_FULL: Final = "limit.log"
UNDO_FAILED: Final = "undo.failed"
_NEVER: Final = frozenset({UNDO_FAILED, LOG_FULL})  # a failed undo ends the run, and so does a full log


def matches(pattern: str, code: str) -> bool:
    """Whether an error's code fits a pattern: a code, `prefix.*`, or `*`."""
    if pattern == "*":
        return True
    return code.startswith(pattern[:-1]) if pattern.endswith(".*") else code == pattern


def catching(clauses: Iterable[CatchClause], code: str) -> tuple[int, CatchClause] | None:
    """The first clause that takes the error, with its number. One without patterns takes no rejection and no limit."""
    if code in _NEVER:
        return None
    for number, clause in enumerate(clauses):
        if not clause.errors:
            if not code.startswith(_NEVER_BY_DEFAULT):
                return number, clause
        elif any(matches(pattern, code) for pattern in clause.errors):
            return number, clause
    return None


def delay(
    policy: Retry | None, failures: int, code: str, retriable: bool, retry_after: int | None, seed: tuple[str, str, int]
) -> int | None:
    """Milliseconds until the next attempt after `failures` failed ones before this, or None: no further attempt.

    `seed` = (run, path, attempt) makes the jitter the same for every decider. A server's Retry-After (`retry_after`)
    is obeyed up to the policy's `max_delay`."""
    if policy is None or failures >= policy.max:
        return None
    is_retried = retriable if policy.errors is None else any(matches(p, code) for p in policy.errors)
    if not is_retried:
        return None
    every, longest = policy.every, policy.max_delay
    assert isinstance(every, int), "durations are rendered before"
    assert isinstance(longest, int), "durations are rendered before"
    wait = min(every * (2**failures if policy.backoff == "exponential" else 1), longest)
    if policy.jitter:
        wait = int(wait * jitter(*seed))
    if retry_after is not None:
        wait = max(wait, min(retry_after, longest))
    return wait
