"""Mutants of standing rules: which one votes, with whose votes, and how often."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_ENGINE: Final = "tests/engine/test_standing_rules.py"
_API: Final = "tests/api/test_rules.py"

standing = Room("hai_flow/engine/standing_rules.py", _ENGINE)
standing.bug("an allow goes before a never").edit('(each.kind != "never", each', '(each.kind == "never", each')
standing.bug("a gate can't opt out").edit("if not rules.rules:", "if False:")
standing.bug("a rule approves what people have edited").edit("if pending.edits:", "if False:")
standing.bug("a rule approves what is asked anew").edit("step.asked > 1:", "step.asked > 9:")
standing.bug("a rule approves a form").edit("if pending.opened.schema is not None:", "if False:")
standing.bug("a rule is for its proposer's runs").edit("if behind:", "if False:")
standing.bug("a rule approves what is frozen").edit("if freeze is not None:", "if False:")
standing.bug("a rule of another description applies").edit("if rule.tool_digest != tool_digest:", "if False:")
standing.bug("a rule that is used up applies").edit("if rule.used_up:", "if False:")
standing.bug("a rule decides a canary").edit("if find_disguise(state) is not None:", "if False:")
standing.bug("an approver has two votes").edit("            spent.update(ids)\n", "")

approving = Room("hai_flow/runtime/people/standing_rules.py", _API)
approving.bug("rules that were revoked since are not looked at").edit(
    "await store.lock_in_force(connection, tenant, tool) != read", "False"
).by("tests/runtime/test_standing_rules.py")
approving.bug("another spelling of an excluded id approves").edit(
    "set(map(compose, (*row.proposer_ids, *row.excluded_ids)))", "{*row.proposer_ids, *row.excluded_ids}"
).by("tests/runtime/test_standing_rules.py")
voting = Room("hai_flow/engine/pendings/decide.py", _ENGINE)
voting.bug("a rule votes for somebody with an excluded role").edit("if opened.tool == ESTABLISH:", "if False:")
rows = Room("hai_flow/store/people/rules.py", _API)
rows.bug("a rule is used more often than it may be").edit(
    "AND id = $2 AND {_IN_FORCE} AND {_LEFT} RETURNING 1", "AND id = $2 AND {_IN_FORCE} RETURNING 1"
)

_CELLS: Final = "tests/api/test_large_tenants.py::test_a_rule_votes_in_every_cell_and_in_none_once_it_is_revoked"
cells = Room("hai_flow/store/cells/replication.py", _CELLS)
cells.bug("a revoked rule goes on in other cells").edit('"extract(epoch FROM ended_at)", "ended_why"', '"digest"')
asking = Room("hai_flow/api/rest/people/rules.py", _CELLS)
asking.bug("a service ends the proposal of a rule for its own call").edit("instigators=others", "instigators=()").by(
    "tests/api/test_rules.py::test_a_rule_is_approved_by_neither_proposer_nor_requester"
)
asking.bug("each cell counts the uses of a rule for itself").edit(
    "if body.uses is not None and access.living.is_large:", "if False:"
)
asking.bug("the uses of other cells are not told").edit(
    "uses=row.uses + sum(each.uses for each in others)", "uses=row.uses"
)
_HOLLOW: Final = f"{_API}::test_a_workflow_that_asks_less_puts_no_rule_in_force"
approving.bug("who profits from a rule approves it").edit("and kept_out.isdisjoint(", "and set[str]().isdisjoint(").by(
    _HOLLOW
)
approving.bug("an agent approves a rule").edit("        and not is_agent(c.Principal(vote.by))\n", "").by(_HOLLOW)
approving.bug("another rule than the proposed one is approved").edit(
    "same = digest_of_rule(document) == row.digest\n", "same = True\n"
).by(_HOLLOW)
_DOORS: Final = f"{_API}::test_a_rule_decides_alike_what_comes_through_each_door"
receipts = Room("hai_flow/wire/receipt.py", _DOORS)
receipts.bug("a receipt does not name the rule").edit("if event.rule is not None:", "if event.rule is None and False:")
standing.bug("a condition that can't be evaluated is none").edit(
    'return Considered(None, f"the condition of', 'continue\n            return Considered(None, f"the condition of'
)
