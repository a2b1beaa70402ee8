"""docs/passing.md from the table that the tests try: `python -m docs.passing_page > docs/passing.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from tests.engine.passing import KINDS, PEOPLE, TABLE

_SHOWN: Final = {"y": "yes", "n": "no", "=": "=", "-": ""}
_HEAD: Final = """# What people decide is not walked around

<!-- Written by `make docs` from tests/engine/passing.py, and tried cell by cell by tests/engine/test_passing.py. -->

A skip, a retry, a fork, a rerun, a branch, a migration: each could lead around a question, or back in front of one
that was answered with no. One rule bounds all of them (`engine/pendings/passing.py`):

* A question is skipped by a person whose approval would decide it: one that its rules let decide, with whom its quorum
  is met, and never after a no. A gated call that is skipped is not performed, an `approve` takes no output.
* Behind a no it is asked anew by a person that its rules let decide: so never by the requester or who is behind the
  run, where these may not decide. Where others forked the run, its requester stays excluded in the fork.
* People approve for one run. Behind an `approve` (also one that was skipped, in an iteration that is over, or in a run
  below that has finished) nobody forks, but where the run waited, nothing is edited, and neither the run nor a relative
  has begun a call that acts on that approval since (409 `fork_approved`). Once a relative has, a run that failed behind
  the approval goes on neither by a retry nor by a skip (409 `retry_approved`). An answer to an `ask` is kept for
  another input, state or version by a person that its rules let answer.
* A step whose output decides whether people are asked, or whom (it is read by an `if` around the question, by
  `approval.when`, by the `with` of a call whose `when` or `from` reads `args`, by that of a run below in which it
  decides, or by what leads there), is not skipped by the requester or who is behind the run.
* The input and the variables on which that depends are not edited in a fork by the requester or who is behind the run:
  they start another run, or somebody else edits.
* A version that asks fewer people, or by other rules, is not moved or forked to by the requester or who is behind the
  run; nor is one in which the question stands behind other conditions, in a list that catches a no, or no longer in
  front of all that it is asked in front of here.

A block or a run below in which people decide is not skipped as a whole: they would be passed without having been
asked. Skip the question where it is asked, also in the run below, which has an id of its own. What asks the requester
alone is no decision of others: an operator may pass it by, and gives no answer in their place. Steps that ask nobody
are skipped as ever.

A new run of the same workflow is a new request, which is decided for itself. A deadline decides as the workflow says,
whoever lets time pass (`jump`, in development alone). `wait_for` asks no people: a signal is what its sender says, and
who sends it is behind the run.

In the tables everybody has the right to control runs, and all but the operator would have the role that is asked.
*yes*: it is done. *no*: it is refused with the rule and those who could do it (403 `skip.forbidden`,
`retry.forbidden`, `fork.forbidden`; 409 `skip.rejected`, `migration_refused`; 422 where there is nothing to skip).
*=*: it is done, and the question stays open. Empty: it does not come about, for an `ask` has no quorum and no no, what
an agent was refused is told to its model, and a run that has failed is not moved.
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
