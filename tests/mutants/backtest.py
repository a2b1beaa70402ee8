"""Bugs of backtests: differences that are not seen, and some that are none."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_ENGINE: Final = "tests/engine/test_backtest.py"
_RUNTIME: Final = "tests/runtime/test_backtest.py"

rehearsal = Room("hai_flow/engine/runs/rehearsal.py", _ENGINE)
rehearsal.bug("the digest of a question is a difference").edit("if text is None or not self._digests:\n", "if True:\n")
rehearsal.bug("a result is taken for a call with other arguments").edit(
    "elif self._recorded.normalize(before.args) != self.trace.normalize(after.args):\n", "elif False:\n"
)
rehearsal.bug("a result is taken for another tool's").edit(
    "if not self._pairing.is_same_effect(was, now):\n", "if False:\n"
)
rehearsal.bug("answers and results come at the recorded times, however early their question opens").edit(
    "return None if began_at is None else began_at + each.now - each.since",
    "return None if began_at is None else each.now",
)
rehearsal.bug("a time-out before a late result is passed over").edit(
    "if is_due(self.state, at) and self._decide", "if False and self._decide"
)
rehearsal.bug("a step with another id has no recorded result").edit(
    "diff(old, new).same.items() if was != now}", "diff(old, new).same.items() if False}"
)
rehearsal.bug("what followed from a fork in the same commit is not decided again").edit(
    "        if rest:\n            self.add(rest, 0, decides=True)\n", ""
).by(f"{_ENGINE}::test_a_fork_and_the_rest_of_its_first_commit_are_decided_again")
rehearsal.bug("a migrated run begins in a state that the new text could not have").edit(
    "    if migration.obstacles:\n        return None, migration.obstacles[0].message\n", ""
).by(f"{_ENGINE}::test_a_run_that_was_migrated_is_decided_again_from_its_last_migration")
judging = Room("hai_flow/engine/runs/backtest.py", _ENGINE)
judging.bug("the version is a difference").edit(
    "replace(new, name=old.name, version=old.version)", "replace(new, name=old.name, version=old.version + 1)"
).by(f"{_ENGINE}::test_a_version_or_a_name_of_its_own_is_no_difference")
judging.bug("inputs that do not lead where the log does are trusted").edit(
    "return recording.exact or rehearse(", "return True or rehearse("
)
judging.bug("a question that the run has not come to is asked no more").edit(
    "if state.ended or question.path in places or _is_passed(", "if True or _is_passed("
).by(f"{_ENGINE}::test_a_question_behind_something_unknown_is_not_asked_no_more")
reading = Room("hai_flow/runtime/ops/backtest.py", _RUNTIME)
reading.bug("a run of a newer release is decided").edit('if row["abi"] > e.ABI:\n', "if False:\n")
reading.bug("waiting runs that could not migrate are no finding").edit(
    "return bool(self.stuck) or any(", "return any("
).by("tests/cli/test_backtest.py::test_a_run_that_could_not_migrate_alone_is_a_finding")
reading.bug("a text shows the personal values of others by its way").edit(
    'if await is_personal(row["id"]):\n', "if False:\n"
).by("tests/attacks/test_personal_values.py")

_PUBLISHING: Final = "tests/api/test_rehearsed_publication.py"
demands = Room("hai_flow/runtime/catalog/publication_requirements.py", _PUBLISHING)
demands.bug("a rehearsal against an older version counts").edit("if rehearsal.base != latest.sha256:\n", "if False:\n")
demands.bug("a rehearsal counts for ever").edit("if age > timedelta(hours=self.hours):\n", "if False:\n")
demands.bug("a rehearsal of a part of the runs counts").edit("if not rehearsal.complete:\n", "if False:\n")
demands.bug("a rehearsal of the runs of one day counts for a month").edit(
    "if rehearsal.age < timedelta(days=self.days):\n", "if False:\n"
)
demands.bug("a rehearsal counts however many runs differ").edit(
    "if rehearsal.differences > self.differences:\n", "if False:\n"
)
demands.bug("a dev copy is a publication of its text").edit(
    "stored is not None and not stored.dev", "stored is not None"
)
demands.bug("the text of the latest dev copy is published without").edit(
    "latest.sha256 == plan.sha256 and not latest.dev", "latest.sha256 == plan.sha256"
)
demands.bug("runs in another database do not count").edit("if not self.everywhere and not await", "if not await")
deployed = Room("hai_flow/runtime/settings.py", _PUBLISHING)
deployed.bug("cells change nothing").edit("everywhere = settings.cells is not None", "everywhere = False")
_CUT: Final = f"{_PUBLISHING}::test_a_rehearsal_that_one_request_can_not_finish_says_so"
reading.bug("runs beyond the bound are all").edit("return result, False\n", "return result, True\n").by(_CUT)
reading.bug("a request takes as long as it likes").edit("or time.monotonic() > until:", "or until < 0:").by(_CUT)
publishing = Room("hai_flow/runtime/catalog/catalog.py", _PUBLISHING)
publishing.bug("a dev copy demands a rehearsal").edit(
    "if self.demand is not None and not dev and not unrehearsed:", "if self.demand is not None and not unrehearsed:"
)
overriding = Room("hai_flow/api/rest/workflows.py", _PUBLISHING)
overriding.bug("every publisher passes over the rehearsal").edit(
    "if unrehearsed is not None and not access.", "if False and not access."
)
keeping = Room("hai_flow/api/rest/versions.py", _PUBLISHING)
keeping.bug("a rehearsal of another workflow's text is kept").edit("if keep and plan.name != name:\n", "if False:\n")
keeping.bug("a rehearsal of one cell's runs is one of all").edit(
    "for cell in access.everywhere:\n        request", "for cell in list(access.everywhere)[:1]:\n        request"
).by("tests/api/test_cells.py::test_a_rehearsal_decides_the_runs_of_every_cell_and_is_demanded_of_all")
