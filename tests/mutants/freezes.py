"""Bugs of freezes: what begins all the same, and what never goes on."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_ENGINE: Final = "tests/engine/test_freezes.py"
_RUNTIME: Final = "tests/runtime/test_freezes.py"

held = Room("hai_flow/engine/steps/held_steps.py", _ENGINE)
held.bug("a freeze holds the runs of every workflow").edit("return freeze.name == state.workflow", "return True")
held.bug("a freeze of a person holds only what they started").edit(
    "map(compose, (state.requester, *state.all_instigators))", "(state.requester,)"
)
held.bug("read-only lets a client perform what writes").edit("return verb.tool.writes\n", "return False\n")
held.bug("an agent that others call is held by no freeze of it").edit(
    "and step.of_agent:  # an agent", "and False:  # an agent"
)
held.bug("read-only holds what is only read before a call").edit(
    '_tool_names(step, reads=freeze.mode != "read_only")', "_tool_names(step, reads=True)"
)
shown = Room("hai_flow/runtime/worker/attempt.py", "tests/runtime/test_agents.py")
_CONDITION: Final = "if step.approval is not None or holds(of.run, step.path):"
for _what, _left in (("a gate", "if holds(of.run, step.path):"), ("a freeze", "if step.approval is not None:")):
    shown.bug(f"a client sees a call that {_what} holds").edit(_CONDITION, _left).by(
        "tests/runtime/test_agents.py::test_a_client_sees_no_call_that_a_gate_or_a_freeze_still_holds"
    )
held.bug("read-only lets a call that writes begin").edit('return effect != "read"\n', 'return effect == "write"\n')
held.bug("read-only lets every request begin").edit('return method not in ("GET", "HEAD")', "return False")
held.bug("read-only lets a workflow write by a child run").edit(
    ' or (freeze.scope == "workflow" and isinstance(step.verb, Run))', ""
)
held.bug("no agents: their calls begin").edit("body = list_of(step.path)\n", 'body = ""\n')
_FORKS: Final = "tests/attacks/test_forks.py::test_what_would_wait_for_a_thaw_stops_nothing"
held.bug("a freeze of an undo lets a fork stop the run first").edit(
    "ending = (*filter(", "ending = () and (*filter("
).by(_FORKS)
held.bug("a freeze holds a fork that would undo nothing").edit(" and path not in inherited}", "}").by(_FORKS)
_ENDS: Final = f"{_ENGINE}::test_a_freeze_holds_a_stop_by_what_the_end_of_the_run_would_begin"
for _what, _text, _bug in (
    ("no freeze holds the `finally` of a stop", "for path in finished)), *cleanups)", "for path in finished)),)"),
    ("a freeze holds a `finally` that never begins", '.rstrip("/") in entered]', '.rstrip("/") is not None]'),
    ("no freeze holds the end of a child run", "for freeze in freezes if verbs else ():", "for freeze in ():"),
    ("a freeze of another workflow holds the end of a child run", " and freeze.name in names)", ")"),
    ("no agents: a child run does not end", 'if freeze.mode != "no_agents" and (is_wide', "if (is_wide"),
):
    held.bug(_what).edit(_text, _bug).by(_ENDS)
advance = Room("hai_flow/engine/advance.py", _ENGINE)
advance.bug("what becomes ready under a freeze begins").edit(
    "withdraw_unwanted(draft)\n            _hold(draft)\n", "withdraw_unwanted(draft)\n"
)
advance.bug("a stop under a freeze undoes").edit(
    'while draft.state.status == "stopping":\n        _hold(draft)\n', 'while draft.state.status == "stopping":\n'
)
advance.bug("a run with held steps keeps its turn open").edit("and not has_ready(state):", "and not state.ready:")
left = Room("hai_flow/engine/advance.py", "tests/engine/test_redeciding.py")
left.bug("a process begins in a run that another holds what may happen once").edit(
    "if not draft.held_elsewhere:\n", "if True:\n"
)
left.bug("a process that does not hold the run leaves everything to its holder").edit(
    "if draft.step(path).delivery in ONCE_ONLY", "if draft.step(path)"
)
left.bug("a process that does not hold the run begins what people are asked about if its outcome is lost").edit(
    'ONCE_ONLY: Final = ("asked", "at_most_once")', 'ONCE_ONLY: Final = ("at_most_once",)'
)
left.bug("a process that does not hold the run ends a stop whose finally is left to the holder").edit(
    'elif is_open_inside(draft, ""):', "elif False:"
)
committing_elsewhere = Room("hai_flow/store/commit/commit_sql.py", "tests/runtime/test_worker.py")
committing_elsewhere.bug("a claim between a decision and its commit is not looked at").edit(
    "AND (entries.free IS NOT TRUE OR r.worker IS NULL)", ""
).by("tests/runtime/test_worker.py::test_a_claim_between_a_decision_and_its_commit_leaves_no_doubt")
deciding_elsewhere = Room("hai_flow/runtime/commit/cached_run.py", "tests/runtime/test_worker.py")
deciding_elsewhere.bug("nobody knows that another process holds the run").edit(
    "return self._worker is not None and not self._owned", "return False"
).by("tests/runtime/test_worker.py::test_a_call_approved_in_another_process_is_made_once_without_doubt")
freezes = Room("hai_flow/runtime/commit/freeze_cache.py", _RUNTIME)
freezes.bug("a process that knows of a newer version begins all the same").edit(
    "return self._newest != self._version or (", "return ("
).by(f"{_RUNTIME}::test_a_process_that_knows_of_newer_freezes_reads_them_before_it_begins")
freezes.bug("a commit's version of the freezes is not looked at").edit(
    "if version > self._newest and self.running:", "if False:"
)
freezes.bug("a freeze of a tenant holds the runs of all").edit("if row.tenant in (None, tenant)]", "if True]")
thaws = Room("hai_flow/runtime/worker/thaws.py", _RUNTIME)
thaws.bug("a held run that could not be decided once stays where it is").edit(
    "if due is None or due.to_release:", "if due is None:"
).by(f"{_RUNTIME}::test_a_held_run_that_was_refused_once_goes_on_later")
thaws.bug("a run that can't go on yet keeps the others waiting").edit(
    'self._spawn(self._go_on(run), "a run held by a freeze")', "await self._go_on(run)"
).by(f"{_RUNTIME}::test_a_locked_run_that_is_to_go_on_keeps_no_other_waiting")
thaws.bug("a run that has gone on keeps its place").edit("self._in_hand.discard(run.id)\n", "pass\n").by(
    f"{_RUNTIME}::test_a_locked_run_that_is_to_go_on_keeps_no_other_waiting"
)
freezes.bug("an older read of the freezes takes the place of a newer one").edit(
    "async with self._reading:\n", "if True:\n"
).by(f"{_RUNTIME}::test_a_slow_read_of_freezes_does_not_undo_a_newer_one")
freezes.bug("freezes of a restored database are not noticed").edit(
    "version if self._newest == noted else max(version, self._newest)", "max(version, self._newest)"
).by(f"{_RUNTIME}::test_the_freezes_of_a_restored_database_are_noticed")

outcomes = Room("hai_flow/engine/handlers/outcomes.py", _ENGINE)
outcomes.bug("an attempt that a freeze held counts as lost").edit("if command.held:\n", "if False:\n").by(
    f"{_ENGINE}::test_an_attempt_not_begun_is_given_back_neither_lost_nor_failed"
)
worker = Room("hai_flow/runtime/worker/worker.py", _RUNTIME)
worker.bug("attempts that a freeze holds stay in the memory of their process").edit(
    "self.committer.freezes.changed.append(self._heed_freezes)",
    "self.committer.freezes.changed.append(self._begin_waiting)",
).by(f"{_RUNTIME}::test_attempts_that_wait_for_a_place_do_not_begin_under_a_freeze")

held.bug("a freeze of a model knows its name in the document alone").edit(
    "filter(None, (model.name, model.model, model.use))", "(model.name,)"
)
held.bug("a person whose name is written in another form is not held").edit(
    "in map(compose, (state.requester, *state.all_instigators))", "in (state.requester, *state.all_instigators)"
)
freezes.bug("freezes that could not be read are read no more").edit(
    "await asyncio.sleep(READ_AGAIN_SECONDS)\n                self._stale.set()\n",
    "await asyncio.sleep(READ_AGAIN_SECONDS)\n",
).by(f"{_RUNTIME}::test_freezes_that_could_not_be_read_are_read_again")

freezers = Room("hai_flow/api/rest/admin/freezes.py", "tests/api/test_freezes.py")
freezers.bug("whose runs are frozen thaws them").edit('is_own = row.scope == "principal" and', "is_own = False and")
freezers.bug("a namesake of who is frozen in another tenant can't thaw").edit(" and row.tenant == access.tenant", "")
freezers.bug("who froze their own runs can't thaw them").edit(" and row.created_by not in own:", ":")
