"""Mutants of `pick`: who is picked, who decides then, and who is told."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_ENGINE: Final = "tests/engine/test_picks.py"
_RUNTIME: Final = "tests/runtime/test_picks.py"
_NOTIFIER: Final = "tests/runtime/test_notifier.py"

deciders = Room("hai_flow/engine/pendings/eligibility.py", _ENGINE)
deciders.bug("everybody decides before people are picked").edit("if rules.picked is None:\n", "if False:\n")
deciders.bug("others than the picked decide").edit("return _find_obstacle_of_pick(rules, principal)", "return None")
answering = Room("hai_flow/engine/handlers/answering.py", _ENGINE)
answering.bug("an excluded person is picked").edit("if barred:\n", "if False:\n")
answering.bug("a pick of another stage counts").edit(
    "(command.stages_left, command.before):", "(len(rules.escalations), command.before):"
)
votes = Room("hai_flow/engine/pendings/votes.py", _ENGINE)
votes.bug("the picked can always reach the quorum").edit(
    "if rules.picked else rules.people", "if False else rules.people"
)
policies = Room("hai_flow/engine/pendings/policies.py", _ENGINE)
policies.bug("fewer are picked than the quorum needs").edit("pick = max(stage.pick, stage.quorum)", "pick = stage.pick")
roster = Room("hai_flow/runtime/people/roster.py", _RUNTIME)
roster.bug("two ids of one person are two").edit("c.Principal(one,", "c.Principal(holder.id,")
notifying = Room("hai_flow/runtime/people/notifier.py", _NOTIFIER)
notifying.bug("both ids of a person are told").edit("(each.channel, each.person) in first", "True")
picking = Room("hai_flow/runtime/people/picks.py", _RUNTIME)
picking.bug("an agent is picked beside its person").edit("if rules.quorum == 1 else", "if True else")
picking.bug("the load does not count").edit("(load.get(id, 0), sha256", "(0, sha256")
picking.bug("an absent person is picked").edit("if id not in absent and ineligible", "if ineligible")
picking.bug("the requester sends others away").edit(
    "if not list_excluding_selectors(rules.exclude, roster",
    "if True or not list_excluding_selectors(rules.exclude, roster",
)
picking.bug("two ids of one person stay picked").edit(" or len(picked) < len(rules.picked)", "")
picking.bug("an absence holds for one id").edit("roster.all_ids(row.person)[0]", "row.person")
picking.bug("picks by a further id are not counted").edit(
    "sum(open_picks.get(id, 0) for id in all_ids(one))", "open_picks.get(one, 0)"
)
picking.bug("picked people stay for ever").edit("any(id not in able and id not in spent for id in picked)", "False")
picking.bug("two processes do not wait for each other").edit("            await picks.lock(connection, tenant)\n", "")
rows = Room("hai_flow/store/commit/projection.py", _RUNTIME)
rows.bug("all picked people are told again").edit("if person not in event.before and (notify", "if (notify")
picking.bug("who has an excluded role by another key is picked").edit(
    "aliases=each.aliases, through=through)", "aliases=each.aliases)"
).by(f"{_RUNTIME}::test_a_hundred_questions_in_three_processes_are_shared_evenly")
