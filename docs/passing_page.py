"""docs/passing.md from the table that the tests try: `python -m docs.passing_page > docs/passing.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from tests.engine.passing import KINDS, PEOPLE, TABLE

_SHOWN: Final = {"y": "yes", "n": "no", "=": "=", "-": ""}
_HEAD: Final = """# Skip, retry, fork and migrate at a question

<!-- Written by `make docs` from tests/engine/passing.py, and tried cell by cell by tests/engine/test_bypass.py. -->

A skip, a retry, a fork, a rerun, a branch or a migration could bypass a question, or ask one again that was answered
with no. This page tells operators and auditors who may do what (`engine/pendings/bypass.py` has the code). *Those
behind the run* are its requester and its [instigators](security.md#requesters-and-instigators).

* **Skip.** Only a person whose approval would decide the question, with its quorum, can skip it, and never after a no.
  A gated call that is skipped is not performed; a skipped `approve` takes no output.
* **Again after a no.** Only a person whom the question's rules let decide can have it asked again. If others forked the
  run, its requester stays excluded in the fork.
* **Behind an approval.** People approve for one run. After an `approve` (also one that was skipped, in a finished
  iteration, or in a finished child run) the run can be forked only where it waited, without edits, and until it or a
  relative has begun a call that acts on the approval (409 `fork_approved`). Once a relative has, a run that failed
  after the approval can't be continued by a retry or a skip (409 `retry_approved`). An answer to an `ask` is kept for
  another input, state or version only if the forking person may answer the question.
* **Steps that decide who is asked.** Those behind the run can't skip a step whose output decides whether people are
  asked, or whom: one that is read by an `if` around the question, by `approval.when`, by the `with` of a call whose
  `when` or `from` reads `args`, by the `with` of a child run in which it decides, or by any step on which these depend.
* **Inputs that decide who is asked.** Those behind the run can't edit such an input or variable in a fork. They start
  another run, or somebody else edits.
* **Versions.** Those behind the run can't migrate or fork it to a version that asks fewer people or has other rules, or
  in which the question has other conditions, is in a list that catches a no, or no longer precedes every step that it
  precedes here.

A block or a child run in which people decide can't be skipped as a whole. Skip the question itself; that of a child run
by the child's id. A question to the requester alone is no decision of others: an operator may skip it, without an
answer in the requester's place. Steps that ask nobody can be skipped as usual.

A new run of the same workflow is a new request with decisions of its own. A deadline has the effect that the workflow
defines, whoever lets time pass (`jump`, only in development). `wait_for` asks nobody: the sender of its signal is an
instigator of the run.

In the tables everybody has the right to control runs, and everybody but the operator would have the role that is asked.
Refusals are 403 `skip.forbidden`, `retry.forbidden` and `fork.forbidden`, 409 `skip.rejected` and `migration_refused`.

| cell | meaning |
|---|---|
| yes | it is done |
| no | it is refused, with the rule and the people who could do it (403, 409, or 422 if there is nothing to skip) |
| = | it is done, and the question stays open |
| empty | impossible: an `ask` has neither quorum nor no, an agent's model gets a no, a failed run can't be migrated |
"""


def page() -> str:
    """The text of docs/passing.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD.rstrip("\n")
    for way, rows in TABLE.items():
        yield f"\n## {way[0].upper()}{way[1:]}\n"
        yield f"| | {' | '.join(PEOPLE)} |"
        yield "|---" * (1 + len(PEOPLE)) + "|"
        assert list(rows) == list(KINDS)
        for kind, cells in rows.items():
            yield f"| {kind} | {' | '.join(_SHOWN[each] for each in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(page())
