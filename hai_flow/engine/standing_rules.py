"""Standing rules: decisions that people have given ahead, for calls of a tool whose arguments meet conditions
(docs/approvals.md#standing-rules). Pure. `choose` takes the rule that applies, and `find_obstacle` says again in the
deciding commit why one does not. An `allow` casts the votes of those who approved it; a `never` decides alone. In doubt
no rule applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from hai_flow import values
from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.definition.people.rule_conditions import ARGUMENTS, ConditionError, compile_conditions
from hai_flow.definition.plan import Plan, Step
from hai_flow.engine import commands as c
from hai_flow.engine.canaries import find_disguise
from hai_flow.engine.draft import Draft
from hai_flow.engine.events import RuleUse
from hai_flow.engine.pendings import votes
from hai_flow.engine.pendings.eligibility import world_of
from hai_flow.engine.pendings.selectors import World, is_agent, list_excluding_selectors, list_matching_selectors
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.steps.held_steps import Freeze, freeze_of
from hai_flow.primitives.beside_loop import spend
from hai_flow.primitives.invisible_characters import compose
from hai_flow.values import Json

CONSULT: Final = "consult_rules"
"""The message of a run that has opened a gate for whose tool there are rules."""
RULE_DECIDED: Final = "rule_decided"
"""The message of a run whose gate in front of `ESTABLISH` was decided."""
_COMPILE_WORK: Final = 200  # microseconds of a condition, on the average of those that are kept and those that are not
ESTABLISH: Final = "built_in.establish"
"""The call whose gate approves a rule."""


def consult_rules(draft: Draft, step: Step) -> None:
    """Have the standing rules for the tool held against the gate, behind this commit, if there are any."""
    id = draft.state.open_pendings.get(step.path)
    tool = None if id is None else draft.state.pendings[id].opened.tool
    if tool is not None and tool in draft.context.ruled:
        draft.send(CONSULT, draft.state.run_id, {"id": id})


class StandingRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in force. `tool_digest` is that of the tool's description when the rule was proposed. `voters` have
    approved it, with the roles and groups by which they were asked; `people` are all ids of these and of the proposer:
    the rule does not approve what one of them asks for. `used_up`: it was used as often as it may be."""

    id: str
    digest: str
    kind: Literal["allow", "never"]
    tool: str
    tool_digest: str
    workflow: str | None = None
    when: str | None = None
    bounds: dict[str, dict[str, Json]] = {}
    reason: str = ""
    voters: tuple[c.Principal, ...] = ()
    people: tuple[str, ...] = ()
    used_up: bool = False

    def make_command(self, pending: PendingState) -> c.ApplyRule:
        return c.ApplyRule(
            id=pending.opened.id,
            digest=pending.opened.digest,
            rule=RuleUse(self.id, self.digest, self.kind == "never"),
            voters=self.voters,
            people=self.people,
            reason=self.reason,
        )


class Considered(NamedTuple):
    """The rule that applies, if one does; else why none does, in a few words."""

    rule: StandingRule | None
    obstacle: str


def choose(
    plan: Plan,
    state: RunState,
    pending: PendingState,
    tool_digest: str | None,
    rules: Sequence[StandingRule],
    freezes: Sequence[Freeze] = (),
) -> Considered:
    """The rule that votes on the gate, of those in force for its tool. `tool_digest`: of the tool's description now;
    None: it is not known.

    A `never` goes first, always; of several, the first by its id. Of those that allow, one that names the workflow goes
    before one that does not, then the first by its id. Where the condition of one can't be evaluated, none applies."""
    of_call = [
        rule
        for rule in sorted(rules, key=lambda each: (each.kind != "never", each.workflow is None, each.id))
        if rule.tool == pending.opened.tool and rule.workflow in (None, state.workflow)
    ]
    args = values.loads(pending.opened.args or "null")
    obstacle = "no rule is about this call"
    met = []
    for rule in of_call:
        try:
            if _is_met(rule, args):
                met.append(rule)
        except (ExpressionError, ConditionError) as error:
            return Considered(None, f"the condition of rule {rule.id} can't be evaluated: {error}")
    for rule in met:
        fault = find_obstacle(plan, state, pending, rule.make_command(pending), freezes)
        if fault is None and rule.kind == "allow":
            fault = _find_obstacle_to_use(rule, tool_digest)
        if fault is None:
            return Considered(rule, "")
        obstacle = fault
    return Considered(None, obstacle)


def _is_met(rule: StandingRule, args: Json) -> bool:
    spend(_COMPILE_WORK)
    condition = compile_conditions(rule.when, rule.bounds)
    return condition is None or condition.evaluate({ARGUMENTS: args}) is True


def _find_obstacle_to_use(rule: StandingRule, tool_digest: str | None) -> str | None:
    if rule.used_up:
        return f"rule {rule.id} was used as often as it may be"
    if rule.tool_digest != tool_digest:
        return f"the description of {rule.tool} is another one than rule {rule.id} was made for"
    return None


def find_obstacle(
    plan: Plan, state: RunState, pending: PendingState | None, command: c.ApplyRule, freezes: Sequence[Freeze] = ()
) -> str | None:
    """Why the rule does not vote on the question; None: it does."""
    if pending is None or pending.status != "open" or pending.opened.kind != "gate":
        return f"{command.id} is no open gate"
    if pending.opened.digest != command.digest:
        return f"{command.id} is another question than the one that the rule was held against"
    if any(vote.rule is not None and vote.rule.id == command.rule.id for vote in pending.votes):
        return f"rule {command.rule.id} has voted on {command.id}"
    if pending.opened.tool == ESTABLISH:
        return "rules are approved by people alone"
    if find_disguise(state) is not None:
        return "canaries are decided by people alone"
    if command.rule.never:
        return None
    return _find_obstacle_to_allow(plan, state, pending, command, freezes)


def _find_obstacle_to_allow(
    plan: Plan, state: RunState, pending: PendingState, command: c.ApplyRule, freezes: Sequence[Freeze]
) -> str | None:
    rules, world = derive_rules(pending), world_of(plan, state)
    if not rules.rules:
        return "this gate takes no approval by a rule"
    if pending.edits:
        return "people have edited the arguments"
    step = state.steps.get(pending.opened.path)
    if step is not None and step.asked > 1:
        return "the question is asked anew, which people answer"
    if pending.opened.schema is not None:
        return "the gate asks for values, which a rule has not"
    behind = set(map(compose, (world.requester, *world.instigators))).intersection(map(compose, command.people))
    if behind:
        return f"{min(behind)} has proposed or approved the rule, and is behind this run"
    freeze = freeze_of(plan, state, pending.opened.path, freezes)
    if freeze is not None:
        return f"the freeze {freeze.id} holds the call"
    if not list_voters(pending, command, world):
        return "nobody who has approved the rule may decide this, or they have voted"
    return None


def list_voters(pending: PendingState, command: c.ApplyRule, world: World) -> list[c.Principal]:
    """Those of the rule's people whose votes count here, in the order in which they approved it."""
    rules = derive_rules(pending)
    spent = votes.voters(pending.votes)
    voters = []
    for voter in command.voters:
        barred = list_excluding_selectors(rules.exclusions(), voter, world)
        asks = list_matching_selectors(rules.from_, voter, world)
        ids = votes.ids_of_voter(voter)
        if asks and not barred and not is_agent(voter) and voter.issuer is None and spent.isdisjoint(ids):
            voters.append(voter)
            spent.update(ids)
    return voters
