"""Bugs of gates that are looked at when their effect begins: what is not so any more is done all the same."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_ENGINE: Final = "tests/engine/test_still.py"
_RUNTIME: Final = "tests/runtime/test_still.py"
_DEFINITION: Final = "tests/definition/test_still.py"

still = Room("hai_flow/engine/steps/still.py", _ENGINE, _RUNTIME)
still.bug("a condition that nobody can tell lets the effect begin").edit(
    'return "unknown" if verdict.fault else None if', "return None if verdict.fault else None if"
)
still.bug("people are asked anew for ever").edit("is_last = number >= ASKED_ANEW_MAX\n", "is_last = False\n")
still.bug("an attempt after a retry is not looked at").edit(
    'return step.delivery == "resumed" and state.steps[step.path].lost > 0\n',
    "return state.steps[step.path].failures > 0\n",
)
still.bug("a look of a process that has ended counts for the next attempt").edit(
    "return None if _may_have_begun(state, step) else _find_gate(state, step)\n",
    "return None if state.steps[step.path].lost > 0 else _find_gate(state, step)\n",
)
still.bug("the difference is not shown").edit('return {"changed": changed, **evidence}\n', "return evidence\n")
still.bug("a call that is shown stays open when people are asked anew").edit(
    "if is_last or not step.of_agent:", "if is_last:"
)

still.bug("an agent's task that a lost attempt has not begun is begun without a look").edit(
    "return _find_gate(state, step) if _may_have_begun(state, step) else None\n", "return None\n"
)

outcomes = Room("hai_flow/engine/handlers/outcomes.py", _ENGINE)
outcomes.bug("an attempt that only reads is a doubt when it is lost").edit(
    "draft.state.steps[step.path].reading or _is_repeated(step, command)", "_is_repeated(step, command)"
)

effects = Room("hai_flow/engine/verbs/effects.py", _ENGINE)
effects.bug("a child run begins before its gate was looked at").edit(
    "if still.find_gate_to_check(draft.state, step) is None:\n", "if True:\n"
)

pendings = Room("hai_flow/engine/evolve/pendings.py", _ENGINE)
pendings.bug("an attempt that only reads counts as the approved one").edit(
    '"approval": None, "reading": False}', '"approval": None}'
)

gates = Room("hai_flow/engine/pendings/gates.py", _ENGINE)
gates.bug("an operator's retry takes the last yes of those that did not count").edit(
    "== args and not is_spent\n", "== args\n"
)

receipt = Room("hai_flow/wire/receipt.py", _ENGINE)
receipt.bug("a receipt says that a spent approval was executed").edit(
    '        self._executions = [each for each in self._executions if each["attempt"] != anew.attempt]\n', ""
)

for _what, _text, _bug in (
    (
        "what was decided before a fork is proven by the fork",
        "        if self.decided:\n            self._question",
        "        if False:\n            self._question",
    ),
    (
        "an attempt whose tool asked is under way for ever",
        'event.kind in ("ask", "doubt"):',
        'event.kind in ("doubt",):',
    ),
):
    receipt.bug(_what).edit(_text, _bug)
receipt.bug("the question to a client's tool ends what its gate let begin").edit(
    'case e.PendingOpened(kind="gate") if event.path', "case e.PendingOpened() if event.path"
).by("tests/engine/test_agents.py::test_a_client_sees_a_call_with_an_effect_when_it_is_approved")
_WAYS: Final = "tests/api/test_every_receipt.py::test_the_receipt_of_each_way_agrees_with_the_ledger"
for _what, _text, _bug, _row in (
    ("the way of a vote names a person", 'return via.partition(" (for ")[0]', "return via", "delegate"),
    (
        "votes of another run count in a fork",
        "self._votes, self._executions = [], []",
        "self._executions = []",
        "fork from before the decision",
    ),
    (
        "a fork tells texts that nobody signed",
        "for key in self._signed & set(self._texts)",
        "for key in self._texts",
        "fork from before the decision",
    ),
    (
        "nobody is told that a question moved",
        "case e.PendingRestamped() if event.id == self._id:",
        "case e.PendingRestamped() if not event.id:",
        "migrated",
    ),
):
    receipt.bug(_what).edit(_text, _bug).by(f"{_WAYS}[{_row}]")
remote = Room("hai_flow/api/a2a/operations.py", "tests/api/test_every_receipt.py")
remote.bug("answers over A2A are MCP's").edit(', way="a2a")', ")").by(f"{_WAYS}[over a2a]")
worker = Room("hai_flow/runtime/worker/attempt.py", _RUNTIME)
worker.bug("what was found out does not keep the effect from beginning").edit(
    "if step_state.reading or checked.why is not None or isinstance(step.verb, RunVerb):\n",
    "if step_state.reading or isinstance(step.verb, RunVerb):\n",
)

look = Room(
    "hai_flow/runtime/worker/gate_check.py",
    f"{_RUNTIME}::test_what_a_tool_does_not_tell_asks_a_person_and_performs_nothing",
)
look.bug("a tool that tells nothing is believed where the rest is true").edit(
    "if fault:\n        verdict", "if fault and verdict.fault:\n        verdict"
)
look.bug("a look is a repetition of the call").edit('key=f"{attempt.idempotency_key}#still"', "key=attempt.key")
look.bug("a look takes all of the call's time").edit(
    "_seconds_left(state, attempt.path, now) / 2", "_seconds_left(state, attempt.path, now)"
)
look.bug("a look takes its tool's time").edit("most,\n    )\n    try:", "READ_SECONDS,\n    )\n    try:")
look.bug("a fault of a look tells a secret").edit(
    "registry.hidden(values.storable(verdict.fault))", "values.storable(verdict.fault)"
)
_HIDDEN: Final = f"{_RUNTIME}::test_a_secret_among_the_evidence_is_hidden"
look.bug("a secret of a tool is cut in two before it is hidden").edit(
    'registry.hidden(await registry.runner_of(step).perform(reading, Unheard())), ""',
    'await registry.runner_of(step).perform(reading, Unheard()), ""',
).by(_HIDDEN)
look.bug("a secret of the run is shown among the evidence").edit(
    "values=registry.hidden(verdict.values)", "values=verdict.values"
).by(f"{_RUNTIME}::test_a_secret_of_the_run_itself_is_hidden_among_the_evidence")
digests = Room("hai_flow/steps/tools.py", f"{_RUNTIME}::test_the_digest_of_a_function_is_that_of_its_name_and_its_file")
digests.bug("a tool that moved to another module is the same").edit('f"{original.__module__}\\0', 'f"')
still.bug("a fork does not look at its gates").edit(
    "if step.approval is None:\n        return None\n    gate,",
    "if step.approval is None or state.forked:\n        return None\n    gate,",
)

definition = Room("hai_flow/definition/verbs/still.py", _DEFINITION)
definition.bug("a tool that writes may say whether an approval counts").edit('if effect != "read":\n', "if False:\n")
definition.bug("a condition that can't change is taken").edit(
    "if condition is not None and not condition.roots & _CHANGING",
    "if condition is None and not condition.roots & _CHANGING",
)
