"""What people approved is looked at when the effect begins, by the worker that performs it."""

from __future__ import annotations

import asyncio
import dataclasses
from types import FunctionType
from typing import Any, cast
from uuid import UUID

import pytest

from hai_flow import values
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.steps.still import ASKED_ANEW_MAX, VALUE_CHARS_MAX
from hai_flow.errors import AsksPerson, StepError
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.worker import attempt as worker_attempt
from hai_flow.runtime.worker.gate_check import check_gate
from hai_flow.steps.pins import ToolIdentity
from hai_flow.steps.runner import Attempt, Registry
from hai_flow.steps.tools import hash_source, registered
from tests.runtime.conftest import TOOLS, Connection, Make, is_now, open_pending, start, state_of
from tests.support import effects
from tests.support.ledger import log_of
from tests.support.mcp_server import http_server, server
from tests.support.runs import Play
from tests.support.waiting import until

LOOKS = "  look: {python: tests.support.effects, effect: read}\n"
PAYING = (
    TOOLS + LOOKS + "steps:\n  - {id: pay, call: fx.note, with: {n: 1}, approval: {from: anyone, still: "
    '{call: look.fetch, with: {url: "a${{ args.n }}"}, expect: response == "What is written at a1"}}}\n'
)
DELIVERY = "with: {n: 1}, delivery: at_least_once, approval"
PLAIN = TOOLS + "steps:\n  - {id: pay, call: fx.note, with: {n: 1}, approval: {from: anyone}}\n"


async def question(runtime: Runtime, run_id: UUID, before: str = "") -> e.PendingOpened:
    """The question that the run asks behind the one `before`."""

    async def is_there() -> bool:
        state = await state_of(runtime, run_id)
        return state.ended or any(id != before for id in state.open_pendings.values())

    await until(is_there)
    state = await state_of(runtime, run_id)
    assert not state.ended, state.error
    return state.pendings[await open_pending(runtime, run_id)].opened


async def approve(runtime: Runtime, run_id: UUID, pending: str) -> None:
    answer = c.Answer(answers=(c.PendingAnswer(id=pending, decision="approve"),), by=c.LOCAL_PRINCIPAL)
    await runtime.committer.submit(run_id, LOCAL_TENANT, answer)


async def test_a_tool_that_reports_otherwise_than_at_the_question_asks_anew(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, PAYING)).run_id
    first = await question(runtime, run_id)
    assert values.loads(first.evidence or "null")["values"] == {"response": "What is written at a1"}
    effects.hostile.append("sold out")
    await approve(runtime, run_id, first.id)
    second = await question(runtime, run_id, first.id)
    assert values.loads(second.evidence or "null")["changed"] == {
        "response": {"then": "What is written at a1", "now": "sold out"}
    }
    await approve(runtime, run_id, second.id)
    await until(lambda: is_now(runtime, run_id, "finished"))
    began = [each for each in await log_of(eye, run_id) if isinstance(each, e.AttemptStarted)]
    assert [each.attempt for each in began] == [2, 3]


async def test_a_condition_that_never_held_lets_no_number_of_yeses_begin_a_call(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    never = PAYING.replace('expect: response == "What is written at a1"', "expect: response == null && args.n > 5")
    run_id, before = (await start(runtime, never)).run_id, ""
    for _ in range(ASKED_ANEW_MAX + 1):
        before = (await question(runtime, run_id, before)).id
        await approve(runtime, run_id, before)
    await until(lambda: is_now(runtime, run_id, "failed"))
    state = await state_of(runtime, run_id)
    assert state.error is not None
    assert state.error.code == "approval.stale"
    assert await eye.fetchval("SELECT count(*) FROM effects WHERE path = 'pay'") == 0


async def test_a_process_that_ends_between_look_and_call_leaves_no_valid_look(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str | None] = []
    ends = asyncio.Event()

    async def look(*arguments: Any) -> c.GateChecked:
        checked = await check_gate(*arguments)
        looks.append(checked.why)
        if len(looks) == 2:  # the first look is that in front of the question
            ends.set()
            await asyncio.Event().wait()  # nothing of this process comes any more
        return checked

    monkeypatch.setattr(worker_attempt, "check_gate", look)
    first = await make(performs=True, shutdown_seconds=0.1)
    run_id = (await start(first, PAYING.replace("with: {n: 1}, approval", DELIVERY))).run_id
    before = await question(first, run_id)
    await approve(first, run_id, before.id)
    await ends.wait()
    await first.stop()
    effects.hostile.append("sold out")
    second = await make(performs=True)
    anew = await question(second, run_id, before.id)
    assert (anew.kind, anew.anew and anew.anew.why, looks) == ("gate", "still", [None, None, "still"])
    assert await eye.fetchval("SELECT count(*) FROM effects WHERE path = 'pay'") == 0


async def test_code_that_changed_between_yes_and_call_asks_anew(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, PLAIN)).run_id
    first = await question(runtime, run_id)
    assert first.source is not None
    assert first.evidence is None
    key = ("tests.support.effects", "note")
    deployed = dataclasses.replace(registered.of(key[0])["note"], source="other")
    monkeypatch.setitem(registered._functions, key, deployed)
    monkeypatch.setattr(registered, "changes", registered.changes + 1)
    await approve(runtime, run_id, first.id)
    second = await question(runtime, run_id, first.id)
    assert (second.anew and second.anew.why, second.source) == ("source", "other")
    await approve(runtime, run_id, second.id)
    await until(lambda: is_now(runtime, run_id, "finished"))


async def test_a_servers_description_is_in_the_question_and_a_new_one_asks_anew(make: Make) -> None:
    source = "tools: {t: {mcp: '%s'}}\nsteps:\n  - {id: a, call: t.add, with: {a: 1, b: 2}, approval: {from: anyone}}\n"
    async with http_server(server(title="# Add\n" + "up" * 200)) as http:
        runtime = await make(performs=True, http_hosts=("127.0.0.1",))
        run_id = (await start(runtime, source % http.url)).run_id
        first = await question(runtime, run_id)
        title = ("# Add\n" + "up" * 200)[:200]
        assert values.loads(first.evidence or "null") == {"title": title, "description": "Adds two numbers."}
        assert (first.title, first.heading) == ("t.add?", "Add “# Add " + "up" * 27 + "…”: 1, 2?")
        port = http.port
    async with http_server(server("Sends two numbers away."), port=port):
        await approve(runtime, run_id, first.id)
        second = await question(runtime, run_id, first.id)
        changed = values.loads(second.evidence or "null")["changed"]
        assert (second.anew and second.anew.why) == "description"
        assert changed["description"] == {"then": "Adds two numbers.", "now": "Sends two numbers away."}
        await approve(runtime, run_id, second.id)
        await until(lambda: is_now(runtime, run_id, "finished", "failed"))
        assert (await state_of(runtime, run_id)).status == "finished"


# --- what can't be told -----------------------------------------------------------------------------------------------


class Tool:
    """A runner whose only call comes to `outcome`."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.keys: list[str] = []

    async def perform(self, attempt: Attempt, stream: Any) -> Any:
        self.keys.append(attempt.idempotency_key)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome is None:
            await asyncio.Event().wait()
        return self.outcome

    def source_of(self, step: Any, *, from_disk: bool = False) -> str | None:
        return None

    async def identify(self, attempt: Attempt) -> ToolIdentity:
        return ToolIdentity(None)


GATED = """\
state: {note: {type: string, default: the hush-hush}}
tools: {shop: {python: acme.shop}, look: {python: acme.shop, effect: read, timeout: 1s}}
steps:
  - {id: pay, call: shop.pay, timeout: 1s, approval: {from: anyone, still: {call: look.order, expect: response.open}}}
"""


async def check_approved(outcome: Any, expect: str = "response.open") -> tuple[Play, Tool, c.GateChecked]:
    """The look at the gate of a call that was approved, where the tool that it reads comes to `outcome`."""
    run = Play(GATED.replace("response.open", expect))
    run.do(c.GateChecked(path="pay", attempt=1, values={"response.open": True}))
    run.answer("pay", decision="approve")
    gate, step = run.state.pendings[run.pending("pay")], run.plan.steps["pay"]
    attempt, tool = Attempt(run.state.run_id, "pay", run.open["pay"], "{}", step), Tool(outcome)
    registry = Registry({"python": cast("Any", tool)}, hide=lambda value: values.loads(hide(values.dumps(value))))
    return run, tool, await check_gate(registry, run.plan, run.state, attempt, run.now, gate)


def hide(text: bytes) -> bytes:
    return text.replace(b"hush-hush", b"***")


FAULTS = {
    "fails": (StepError("gone: hush-hush", code="tool.unavailable"), "failed: gone: ***"),
    "asks": (AsksPerson("Which one?", {}, state=None), "asks a person itself"),
    "raises": (ValueError("no number of hush-hush"), "failed: ValueError: no number of ***"),
    "is silent": (None, "gave no answer within 0.5 s"),  # half of the time-out of the call
}
NO_TRUTH = {"says no truth": {"open": 1}, "says nothing": {}, "says something else": "closed"}


@pytest.mark.parametrize(
    ("outcome", "expect", "fault"),
    [
        *[pytest.param(outcome, "response.open", fault, id=name) for name, (outcome, fault) in FAULTS.items()],
        *[
            pytest.param(outcome, 'state.note != ""', fault, id=f"{name}, and the condition is true without")
            for name, (outcome, fault) in FAULTS.items()
        ],
        *[pytest.param(outcome, "response.open", "", id=name) for name, outcome in NO_TRUTH.items()],
    ],
)
async def test_what_a_tool_does_not_tell_asks_a_person_and_performs_nothing(
    outcome: Any, expect: str, fault: str
) -> None:
    run, tool, check = await check_approved(outcome, expect)
    assert check.why == "unknown"
    assert check.fault.endswith(fault)
    assert check.fault
    assert tool.keys == [f"{run.state.run_id}/pay#still"], "no repetition of the call that was approved"
    run.do(check)
    assert (run.open, run.status) == ({}, "waiting")


@pytest.mark.parametrize(
    "text",
    ["the hush-hush", "x" * (VALUE_CHARS_MAX - 5) + "hush-hush"],
    ids=["short", "longer than the bound, but for what is hidden"],
)
async def test_a_secret_among_the_evidence_is_hidden(text: str) -> None:
    _, _, check = await check_approved({"open": text}, 'response.open == ""')
    assert (check.why, check.values["response.open"]) == ("still", text.replace("hush-hush", "***"))


async def test_a_secret_of_the_run_itself_is_hidden_among_the_evidence() -> None:
    _, _, check = await check_approved({"open": True}, 'state.note == "" || !response.open')
    assert check.values["state.note"] == "the ***"


def test_a_large_value_is_cut_in_the_evidence() -> None:
    text = "state: {text: {type: string, default: %s}}\ntools: {shop: {python: acme.shop}}\nsteps:\n" % ("x" * 9000)
    run = Play(text + '  - {id: pay, call: shop.pay, approval: {from: anyone, still: state.text != ""}}\n')
    evidence = values.loads(run.state.pendings[run.pending("pay")].opened.evidence or "null")
    assert len(evidence["values"]["state.text"]) < VALUE_CHARS_MAX + 50


def test_the_digest_of_a_function_is_that_of_its_name_and_its_file() -> None:
    assert hash_source(effects.note) != hash_source(effects.keyed)
    moved = FunctionType(effects.note.__code__, {"__name__": "tests.elsewhere"})
    moved.__qualname__ = effects.note.__qualname__
    assert hash_source(moved) != hash_source(effects.note), "another module of the same text"
    assert hash_source(len) is None
