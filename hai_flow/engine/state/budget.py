"""The tokens and the money of a run (`limits`). An open attempt counts with an estimate until its cost is known, so
that models asked at the same time do not each find the same room; one that never reports is charged for its request and
for what it streamed. A child run's allowance is its even share of what its parent has left, reserved until the parent
hears of its end with the true numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.definition.paths import is_in_cleanup
from hai_flow.definition.plan import AgentTurn, Limits, Llm, Run, Step
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.state import LastChild, RunState, Spent
from hai_flow.engine.steps.agents import talk

Asks: TypeAlias = Llm | AgentTurn

CHARS_PER_TOKEN: Final = 4
ANSWER_TOKENS: Final = 500
"""How long an answer is expected to be of a model that declares no `max_tokens`, in a run that has seen no answer."""
_PER_PRICE: Final = 1_000_000


class _Expected(NamedTuple):
    """Tokens, and their cost in US dollars."""

    tokens: int
    cost: float


def demand(draft: Draft, step: Step, args: str) -> None:
    """Raises `Raised` where the run has no room for asking a model with the arguments `args` (JSON text). Steps that
    clean up are not counted."""
    verb = step.verb
    if not isinstance(verb, Asks):
        return
    limits = limits_of(draft)
    if (limits.tokens is None and limits.cost_usd is None) or is_in_cleanup(step.path):
        return
    spent = draft.state.spent
    others = _sum_reserved(draft)
    own = _least(verb, _prompt(draft, step, verb, args))
    used, cost = spent.input + spent.output, spent.cost or 0.0
    if limits.tokens is not None and used + others.tokens + own.tokens > limits.tokens:
        raise Raised(
            "limit.tokens",
            f"The run has used {used} tokens; {others.tokens} are reserved for the models that are being asked and for "
            f"runs below, and this one needs {own.tokens} at least. {_limit(draft, 'tokens')} {limits.tokens}.",
        )
    if limits.cost_usd is not None and (cost >= limits.cost_usd or cost + others.cost + own.cost > limits.cost_usd):
        raise Raised(
            "limit.cost",
            f"The run's models have cost {cost:.4f} USD; {others.cost:.4f} are reserved for those that are being asked "
            f"and for runs below, and this one costs {own.cost:.4f} at least. {_limit(draft, 'cost_usd')} "
            f"{limits.cost_usd:g}.",
        )


def demand_call(draft: Draft, limit: int) -> None:
    """Raises `Raised` where the run has no room for one more call of a tool."""
    count, reserved = draft.state.begun_calls, _sum_calls_granted(draft.state)
    if count + reserved >= limit:
        below = f", and {reserved} are reserved for runs below" if reserved else ""
        message = f"The run has made {count} tool calls{below}; {_limit(draft, 'tool_calls').lower()} {limit}."
        raise Raised("limit.tool_calls", message)


def limits_of(draft: Draft) -> Limits:
    """The limits of the run: those of its workflow, and its allowance from the run above."""
    own, allowance = draft.plan.limits, draft.state.allowance
    if allowance is None:
        return own
    return msgspec.structs.replace(
        own,
        tokens=_less(own.tokens, allowance.tokens),
        cost_usd=_less(own.cost_usd, allowance.cost_usd),
        tool_calls=_less(own.tool_calls, allowance.tool_calls),
    )


def _less(one: Any, other: Any) -> Any:
    return one if other is None else other if one is None else min(one, other)


def _limit(draft: Draft, name: str) -> str:
    allowed, own = getattr(draft.state.allowance, name, None), getattr(draft.plan.limits, name)
    return "Its limit is" if allowed is None or (own is not None and own <= allowed) else "The run above leaves it"


def compute_allowance(draft: Draft, step: Step) -> e.Allowance | None:
    """The allowance of the child run that the step, whose attempt has begun, starts; None: nothing limits it."""
    limits, state = limits_of(draft), draft.state
    if (limits.tokens, limits.cost_usd, limits.tool_calls) == (None, None, None) or is_in_cleanup(step.path):
        return None
    shares, reserved = 1 + _count_others_without(draft, step.path), _sum_reserved(draft)
    tokens, cost, calls = limits.tokens, limits.cost_usd, limits.tool_calls
    if tokens is not None:
        tokens = max(0, tokens - state.spent.input - state.spent.output - reserved.tokens) // shares
    if cost is not None:
        cost = max(0.0, cost - (state.spent.cost or 0.0) - reserved.cost) / shares
    if calls is not None:
        calls = max(0, calls - state.begun_calls - _sum_calls_granted(state)) // shares
    return e.Allowance(tokens, cost, calls)


def _sum_calls_granted(state: RunState) -> int:
    """How many calls of tools are reserved for the runs below."""
    return sum(each.tool_calls or 0 for each in state.granted.values())


def _count_others_without(draft: Draft, own: str) -> int:
    """How many other steps are open or ready for which nothing is reserved."""
    state = draft.state
    open = [path for path in state.attempts if not isinstance(draft.step(path).verb, Asks | Run)]
    return len({*open, *state.open_pendings, *state.ready} - {own, ""})


def charge(draft: Draft, step: Step, *, asked: bool = True) -> None:
    """The open attempt of the step ends without a report of its tokens: note an estimate. Call it before the messages
    of the attempt end. `asked`: its model was surely asked; else that is assumed only if it has streamed something."""
    attempt, verb = draft.state.attempts.get(step.path), step.verb
    if attempt is None or not isinstance(verb, Asks):
        return
    open = [id for id, path in draft.state.open_messages.items() if path == step.path]
    if not asked and not open:
        return
    prompt = _prompt(draft, step, verb, draft.state.steps[step.path].args or "")
    estimate = -(-sum(len(draft.state.messages[id].content) for id in open) // CHARS_PER_TOKEN)
    model = verb.models[0] if verb.models else None
    use = e.ModelUse(
        verb.model,
        "" if model is None else model.provider,
        "" if model is None else model.model,
        prompt,
        estimate,
        cost=_cost(verb, prompt, estimate),
        estimated=True,
    )
    draft.emit(e.ModelUsed, path=step.path, attempt=attempt, use=use)


def sum_use(state: RunState) -> list[e.ModelUse]:
    """The tokens and the money that the run has taken in all, by model. Its parent is charged for them."""
    return [_use_of_label(label, spent) for label, spent in sorted(state.spent_on.items())]


def raise_allowance(share: e.Allowance, last: LastChild) -> e.Allowance:
    """The allowance of a child that goes on: its new share, and what it has reported to have taken before."""
    tokens = sum(each.input + each.output for each in last.spent.values())
    cost = sum(each.cost or 0.0 for each in last.spent.values())
    return e.Allowance(
        None if share.tokens is None else share.tokens + tokens,
        None if share.cost_usd is None else share.cost_usd + cost,
        None if share.tool_calls is None else share.tool_calls + last.calls,
    )


def compute_use_to_report(used: Sequence[e.ModelUse], last: LastChild) -> list[e.ModelUse]:
    """What a child has taken since it reported the last time, of all that it took since it was born."""
    uses: list[e.ModelUse] = []
    for each in used:
        label = f"{each.provider}/{each.served}"
        before = last.spent.get(label)
        if before is None:
            uses.append(each)
            continue
        cost = None if each.cost is None else round(each.cost - (before.cost or 0.0), 10)
        rest = Spent(
            each.calls - before.calls,
            each.input - before.input,
            each.output - before.output,
            each.cached - before.cached,
            each.reasoning - before.reasoning,
            cost,
        )
        if rest.calls > 0:
            uses.append(_use_of_label(label, rest))
    return uses


def build_usage_report(use: e.ModelUse, last: LastChild) -> e.ModelUse:
    """The report of a child of which `compute_use_to_report` has made `use`."""
    label = f"{use.provider}/{use.served}"
    before = last.spent.get(label)
    return use if before is None else _use_of_label(label, before.plus(use))


def _use_of_label(label: str, spent: Spent) -> e.ModelUse:
    provider, _, served = label.partition("/")
    return e.ModelUse(
        "", provider, served, spent.input, spent.output, spent.cached, spent.reasoning, spent.cost, calls=spent.calls
    )


def _sum_reserved(draft: Draft) -> _Expected:
    """The estimates of all models that are being asked, and the allowances of the runs below."""
    tokens, cost = 0, 0.0
    for path in draft.state.attempts:
        step, step_state = draft.step(path), draft.state.steps.get(path)
        if isinstance(step.verb, Asks) and step_state is not None:
            each = _expect_use(draft.state, step.verb, _prompt(draft, step, step.verb, step_state.args or ""))
            tokens, cost = tokens + each.tokens, cost + each.cost
    for allowance in draft.state.granted.values():
        tokens, cost = tokens + (allowance.tokens or 0), cost + (allowance.cost_usd or 0.0)
    return _Expected(tokens, cost)


def _expect_use(state: RunState, verb: Asks, prompt: int) -> _Expected:
    calls = state.spent.calls
    usual = state.spent.output // calls if calls else ANSWER_TOKENS
    answer = _max_tokens(verb) or usual
    cost = _cost(verb, prompt, answer)
    if cost is None:
        cost = (state.spent.cost or 0.0) / calls if calls else 0.0
    return _Expected(prompt + answer, cost)


def _least(verb: Asks, prompt: int) -> _Expected:
    answer = _max_tokens(verb) or 1
    return _Expected(prompt + answer, _cost(verb, prompt, answer) or 0.0)


def _prompt(draft: Draft, step: Step, verb: Asks, args: str) -> int:
    """How many tokens the model is sent, about."""
    if isinstance(verb, Llm):
        return len(args) // CHARS_PER_TOKEN
    conversation = talk(draft.plan, draft.state, step.path)
    chars = len(conversation.asked)
    for exchange in conversation.exchanges:
        chars += len(values.dumps(exchange.answer)) + sum(len(result) for _, result in exchange.results)
    return chars // CHARS_PER_TOKEN


def _max_tokens(verb: Asks) -> int | None:
    """How long an answer may be, where the workflow says it."""
    declared = verb.models[0].params.get("max_tokens") if verb.models else None
    return declared if isinstance(declared, int) and declared > 0 else None


def _cost(verb: Asks, prompt: int, answer: int) -> float | None:
    price = verb.models[0].price if verb.models else None
    return (
        None if price is None else (prompt * price.get("input", 0.0) + answer * price.get("output", 0.0)) / _PER_PRICE
    )
