"""The conversation of an agent with its model, read from the state of its run. Emits no events. The output of an
answer's attempt is `{text, calls: [{id, name, args, effect, fault?}], parts?, thinking?, opaque?, by?, output?,
read?}`, where `by` is the only provider that understands `opaque`, and `read` the tokens of the question; or, where the
conversation had grown too long, `{summary, through}`, in place of the iterations before `through`. Results of calls are
those of their steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import is_
from sys import getsizeof
from typing import Any, Final

import msgspec

from hai_flow import values
from hai_flow.definition import paths
from hai_flow.definition.plan import Iteration, Plan
from hai_flow.definition.tools.effect_classes import ASKS_NOBODY, Effect, gravest
from hai_flow.engine.state.ids import derive_model_call_id
from hai_flow.engine.state.state import LoopState, MessageState, RunState, StepState
from hai_flow.values import Json

RESULT_CHARS_MAX: Final = 50_000  # of one result, in a request to a model
DENIED: Final = "approval."
RESPONDED: Final = "approval.responded"
NOT_PERFORMED: Final = "Not performed: another call of the same answer was wrong. Nothing of it has happened."


class Exchange(msgspec.Struct, frozen=True):
    """One answer of a model, and the results of its calls by their ids, as the next request shows them to the model.
    `before`: messages that people wrote since the answer before this one, beside their decisions. `sources`: the states
    that it was read from (None: the step has none), in the order of the steps' `paths`. `size`: bytes of the results in
    memory."""

    number: int  # of its iteration
    answer: Mapping[str, Json]
    results: tuple[tuple[str, str], ...]
    before: tuple[ModelMessage, ...] = ()
    paths: tuple[str, ...] = ()
    sources: tuple[StepState | None, ...] = ()
    size: int = 0

    def is_current(self, state: RunState) -> bool:
        """Whether it would be read from the state as it is: states of steps are never changed, but replaced."""
        return all(map(is_, map(state.steps.get, self.paths), self.sources))


class ModelMessage(msgspec.Struct, frozen=True):
    """A message of the thread: text, or a list of content parts."""

    role: str
    content: Json


class Talk(msgspec.Struct, frozen=True):
    """The conversation of an agent up to an answer: `asked` are the agent's arguments as JSON text, `said` are the
    messages of the run before it, `summary` stands for the exchanges that are not here any more, and was made in the
    iteration `summarised` (-1: there is none). `latest`: messages that people wrote since the last answer. `closing`:
    the model only has to give the object that `output` describes."""

    asked: str
    exchanges: tuple[Exchange, ...] = ()
    said: tuple[ModelMessage, ...] = ()
    summary: str = ""
    closing: bool = False
    latest: tuple[ModelMessage, ...] = ()
    summarised: int = -1


# --- answers ----------------------------------------------------------------------------------------------------------


def answer_in(state: RunState, iteration: str) -> Any:
    """The answer that the model has given in the iteration."""
    return state.steps[f"{iteration}/model"].output


def is_summary(answer: Json) -> bool:
    """Whether it is no answer: the conversation so far was made shorter, and the model is asked once more."""
    return "summary" in answer


def count_answers(state: RunState, agent: str, loop: LoopState, *, since: int = 0) -> int:
    """How often the model has answered, from the iteration `since` on."""
    numbers = range(max(loop.begun, since), loop.last + 1)
    return sum(not is_summary(answer_in(state, paths.iteration(agent, number))) for number in numbers)


def has_answered(state: RunState, agent: str, loop: LoopState, times: int) -> bool:
    """Whether the model has answered so many times since the agent began, or went on by a Retry. Answers are counted
    only where there have been as many iterations."""
    iterations = loop.last + 1 - max(loop.begun, loop.since)
    return iterations >= times and count_answers(state, agent, loop, since=loop.since) >= times


def calls_of(answer: Json) -> list[Any]:
    return answer.get("calls", [])


def is_in_vain(state: RunState, iteration: str) -> bool:
    """Whether an answer that others follow should have been the last, but was not the object that `output` asks for: it
    has no calls, or none of them was made."""
    answer, calls = answer_in(state, iteration), state.steps.get(f"{iteration}/call")
    if not calls_of(answer):
        return True
    return not is_wrong(answer) and calls is not None and calls.loop is not None and not calls.loop.keys


def is_wrong(answer: Json) -> bool:
    """Whether a call of the answer can't be made as the model wrote it: then none is."""
    for call in calls_of(answer):  # noqa: SIM110 - asked of every answer so far at each question
        if call.get("fault"):
            return True
    return False


def keys_of(answer: Json) -> tuple[str, ...]:
    """The key of each call: the function, and how often this answer has called it."""
    counts: dict[str, int] = {}
    keys = []
    for call in calls_of(answer):
        name = call["name"]
        counts[name] = number = counts.get(name, 0) + 1
        keys.append(paths.call_key(name, number))
    return tuple(keys)


def map_calls_requested(state: RunState, path: str, answer: Json) -> dict[str, tuple[str, str | None]]:
    """The calls that the answer at this path asks for, by the ids under which it has shown them: the arguments, and why
    the call is not made, or None."""
    calls, attempt, wrong = f"{paths.list_of(path)}/call", state.steps[path].attempt, is_wrong(answer)
    requests: dict[str, tuple[str, str | None]] = {}
    for key, call in zip(keys_of(answer), calls_of(answer), strict=True):
        refusal = (call.get("fault") or NOT_PERFORMED) if wrong else None
        requests[derive_model_call_id(state.run_id, paths.iteration(calls, key), attempt)] = call["args"], refusal
    return requests


def call_path(plan: Plan, iteration: str, key: str) -> str:
    call = paths.iteration(f"{iteration}/call", key)
    body = plan.steps[paths.plan_path(call)].verb
    assert isinstance(body, Iteration)
    return body.at(paths.keys_of(call)).first


def call_at(state: RunState, calls: str, key: str) -> dict[str, Json]:
    """The call with this key among those of the step `calls`, as the expressions of its step see it."""
    answer = answer_in(state, paths.list_of(calls))
    call = calls_of(answer)[keys_of(answer).index(key)]
    effect = call.get("effect")
    if effect != "read":
        effect = _judge_chain(state, calls) or effect
    return {"args": values.loads(call["args"]), "writes": effect not in ASKS_NOBODY, "effect": effect}


def _judge_chain(state: RunState, calls: str) -> Effect | None:
    """The gravest class among the calls that one answer asks for together, and those of the answers in which the agent
    itself was called. None: none of them says its class."""
    effects: list[Effect] = []
    while calls:
        model = state.steps.get(f"{paths.list_of(calls)}/model")
        if model is None or not isinstance(model.output, dict):
            break  # a loop of that name, and no agent
        effects += [call["effect"] for call in calls_of(model.output) if call.get("effect")]
        calls = paths.calls_around(calls)
    return gravest(effects) if effects else None


# --- results ----------------------------------------------------------------------------------------------------------


def call_records(plan: Plan, state: RunState, iteration: str) -> list[Json]:
    """The calls of an answer with their results, as `stop_when` sees them."""
    answer = answer_in(state, iteration)
    records: list[Json] = []
    for call, step_state in zip(calls_of(answer), _call_steps(plan, state, iteration), strict=True):
        error = None if step_state is None else step_state.error
        denied = error is not None and error.code.startswith(DENIED) and error.code != RESPONDED
        output = step_state.output if step_state is not None and step_state.outcome == "finished" else None
        failure = None if error is None else {"code": error.code, "message": error.message}
        args = values.loads(call["args"])
        records.append({"name": call["name"], "args": args, "output": output, "error": failure, "denied": denied})
    return records


def find_agent_in_charge(plan: Plan, state: RunState, iteration: str, to: tuple[str, ...]) -> StepState | None:
    """The agent that has answered in place of the one which called it, of those that may; None: none has."""
    answer = answer_in(state, iteration)
    for call, step_state in zip(calls_of(answer), _call_steps(plan, state, iteration), strict=True):
        if call["name"] in to and step_state is not None and step_state.outcome == "finished":
            return step_state
    return None


def talk(plan: Plan, state: RunState, answer: str, earlier: Talk | None = None) -> Talk:
    """The conversation up to the answer at this path. `earlier`: another one of the same agent under the same plan,
    whose exchanges are taken over as far as they are current: a conversation grows, and is not put together anew."""
    iteration = paths.list_of(answer)
    agent = paths.loop_of(iteration)
    step_state = state.steps[agent]
    assert step_state.loop is not None
    first, summary, summarised = step_state.loop.begun, "", -1
    numbers = range(step_state.loop.begun, int(paths.key_of(iteration)))
    current = {} if earlier is None else {each.number: each for each in earlier.exchanges if each.is_current(state)}
    answers = {number: answer_in(state, paths.iteration(agent, number)) for number in numbers if number not in current}
    for number, each in answers.items():
        if is_summary(each):
            first, summary, summarised = each["through"], each["summary"], number
    words = _list_messages_since(state, step_state.loop.entries)
    exchanges: list[Exchange] = []
    unanswered: tuple[ModelMessage, ...] = ()
    for number in numbers:
        if words:
            unanswered = (*unanswered, *_take_until(words, state.steps[paths.iteration(agent, number)].turn))
        if number < first:
            unanswered = () if summary else unanswered
            continue
        exchange = current.get(number)
        if exchange is None and not is_summary(answers[number]):
            path = paths.iteration(agent, number)
            exchange = None if is_in_vain(state, path) else _exchange(plan, state, path, number)
        if exchange is not None:
            is_same = exchange.before == unanswered
            exchanges.append(exchange if is_same else msgspec.structs.replace(exchange, before=unanswered))
            unanswered = ()
    opening = tuple(_iter_messages_before(state, step_state.loop.entries))
    latest = (*unanswered, *(each for _, each in words))
    return Talk(
        step_state.args or "{}", tuple(exchanges), opening, summary, step_state.loop.closing, latest, summarised
    )


def _list_messages_since(state: RunState, entries: int) -> list[tuple[int, ModelMessage]]:
    """The messages that people have posted behind the first `entries` of the run, in their order, each with its
    turn."""
    messages = sorted((each for each in state.messages.values() if each.n >= entries), key=lambda each: each.n)
    posted = (each for each in messages if each.path is None and each.role == "user")
    return [(each.turn, message) for each in posted if (message := build_model_message(each)) is not None]


def _take_until(words: list[tuple[int, ModelMessage]], turn: int) -> tuple[ModelMessage, ...]:
    """Takes from `words` those that were posted in a turn up to this one. A message stands at the beginning of its
    turn, in front of all that the run does in it."""
    count = sum(1 for posted, _ in words if posted <= turn)
    messages = tuple(message for _, message in words[:count])
    del words[:count]
    return messages


def _iter_messages_before(state: RunState, entries: int) -> Iterator[ModelMessage]:
    """The messages of the run among its first `entries`, in their order."""
    messages = sorted((each for each in state.messages.values() if each.n < entries), key=lambda each: each.n)
    yield from (message for each in messages if (message := build_model_message(each)) is not None)


def build_model_message(message: MessageState) -> ModelMessage | None:
    """A message of the thread as a model sees it; None for a thought, for data, and for a message that broke off."""
    if message.kind != "text" or message.aborted or message.open or message.role not in ("user", "assistant"):
        return None
    return ModelMessage(message.role, message.content) if message.content else None


def _exchange(plan: Plan, state: RunState, iteration: str, number: int) -> Exchange:
    answer = answer_in(state, iteration)
    calls, wrong = calls_of(answer), is_wrong(answer)
    if wrong:
        results = [(call["id"], _json({"error": call.get("fault") or NOT_PERFORMED})) for call in calls]
        called = []
    else:
        called = [call_path(plan, iteration, key) for key in keys_of(answer)]
        results = [(call["id"], _result(call, state.steps.get(path))) for call, path in zip(calls, called, strict=True)]
    read = (f"{iteration}/model", f"{iteration}/call", *called)
    size = sum(getsizeof(text) for _, text in results)
    return Exchange(number, answer, tuple(results), paths=read, sources=tuple(map(state.steps.get, read)), size=size)


def _call_steps(plan: Plan, state: RunState, iteration: str) -> Iterator[StepState | None]:
    answer = answer_in(state, iteration)
    if is_wrong(answer):
        yield from (None for _ in calls_of(answer))
        return
    for key in keys_of(answer):
        yield state.steps.get(call_path(plan, iteration, key))


def _result(call: Mapping[str, Json], known: StepState | None) -> str:
    """The result of a call, as text for the model."""
    if known is None or known.outcome is None or known.outcome == "stopped":
        return _json({"error": "The call was cut off; nobody knows whether it has happened."})
    changed = ""
    if known.verb == "call":
        changed = _describe_changes(values.loads(call["args"]), values.loads(known.args or "null"))
    error = known.error
    if error is not None and error.code == RESPONDED:
        return _json({"performed": False, "response": error.message})
    if error is not None and error.code.startswith(DENIED):
        return _json({"denied": True, "reason": error.message})
    if error is not None:
        failure: dict[str, Json] = {"error": error.message, "code": error.code}
        return _json({"changed": changed, **failure} if changed else failure)
    if changed:
        return _json({"changed": changed, "result": known.output})
    return _limit_result(known.output if isinstance(known.output, str) else _text(known.output))


def _describe_changes(asked: Json, performed: Json) -> str:
    """A sentence for the model on the arguments that people have changed; "" if they changed none."""
    if not isinstance(asked, dict) or not isinstance(performed, dict) or asked == performed:
        return ""
    names = [name for name in dict.fromkeys((*asked, *performed)) if asked.get(name) != performed.get(name)]
    parts = [f"`{name}` from {_text(asked.get(name))} to {_text(performed.get(name))}" for name in names]
    return f"A person changed {', '.join(parts)} before it was performed."


def _json(value: Json) -> str:
    return _limit_result(_text(value))


def _text(value: Json) -> str:
    return values.dumps(value).decode()


def _limit_result(text: str) -> str:
    if len(text) <= RESULT_CHARS_MAX:
        return text
    return f"{text[:RESULT_CHARS_MAX]}… [cut: {len(text)} characters, {RESULT_CHARS_MAX} of them shown]"
