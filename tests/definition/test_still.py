"""`still` in a document: what it may say, what is wrong with it, and how a test mocks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.plan import find_reading_step
from hai_flow.definition.readiness import lacking
from tests.testing.support import messages, played

HEAD = """\
hai: flow/v1
name: a
version: 1
input: {type: object, required: [order], properties: {order: {type: string}}}
state: {open: {type: boolean, default: true}}
tools:
  shop: {python: acme.shop}
  look: {python: acme.shop, effect: read}
  pick: {frontend: {description: Pick one., parameters: {type: object}}}
models: {smart: {provider: openai, model: m}}
steps:
"""
GATE = '  - {id: pay, call: shop.pay, approval: {from: "role:boss", still: %s}}\n'


def findings(still: str, gate: str = GATE) -> list[tuple[str, str]]:
    return [(each.severity, each.code) for each in check_workflow((HEAD + gate % still).encode(), "a")]


@pytest.mark.parametrize(
    "still",
    [
        "state.open",
        "'now < timestamp(\"2026-01-01T00:00:00Z\")'",
        '{call: look.order, with: {order: "${{ input.order }}"}, expect: response.open}',
        "{call: look.order, expect: response.open && state.open}",
    ],
)
def test_a_condition_that_may_change_is_taken(still: str) -> None:
    assert findings(still) == []


@pytest.mark.parametrize(
    ("still", "finding"),
    [
        ("true", ("error", "still.never")),
        ('input.order == "A"', ("error", "still.never")),
        ('{call: look.order, expect: input.order == "A"}', ("error", "still.never")),
        ("{call: shop.order, expect: response.open}", ("error", "still.tool")),
        ("{call: pick, expect: response.open}", ("error", "still.tool")),
        ("{call: nothing.order, expect: response.open}", ("error", "tool.unknown")),
        ("[state.open]", ("error", "still.kind")),
        ("{call: look.order}", ("error", "shape.missing_key")),
        ("response.open", ("error", "expression.unknown_name")),
    ],
)
def test_what_can_not_change_or_change_nothing_is_a_finding(still: str, finding: tuple[str, str]) -> None:
    assert finding in findings(still)


def test_a_gate_in_front_of_a_tool_that_only_reads_guards_nothing() -> None:
    assert findings("state.open", GATE.replace("shop.pay", "look.order")) == [("warning", "still.guards_nothing")]


def test_an_agents_gate_has_it_as_any_other() -> None:
    gate = (
        "  - id: work\n    agent:\n      {model: smart, prompt: Go., tools: [shop.pay], "
        "approvals: {shop.pay: {from: requester, still: {call: look.order, expect: response.open}}}}\n"
    )
    plan = compile_workflow((HEAD + gate).encode(), "a")
    reading = find_reading_step(plan.steps["work[]/call[]/shop.pay"])
    assert reading is not None
    assert lacking(plan, frozenset({"llm"})) == [
        "the python tool `shop`", "the python tool `look`"
    ]  # fmt: skip


def test_a_test_mocks_the_tool_once_for_each_look(tmp_path: Path) -> None:
    source = """\
hai: test/v1
workflow: expense.flow.yaml
people: {ann: [role:boss], eve: []}
mock:
  shop.pay: {output: done}
cases:
  - name: closed meanwhile, then open again
    requester: eve
    input: {order: A1}
    mock:
      look.order:
        - {output: {open: true}}
        - {output: {open: false}}
        - {error: {code: tool.failed, message: Not there.}}
        - {output: {open: true}}
    script:
      - decide: {pending: pay, by: ann, decision: approve}
      - expect: {pending: [pay], not_called: [shop.pay], calls: {look.order: 2}}
      - restart
      - decide: {pending: pay, by: ann, decision: approve}
      - decide: {pending: pay, by: ann, decision: approve}
    expect: {status: finished, calls: {shop.pay: 1, look.order: 4}}
"""
    (result,) = played(tmp_path, source, HEAD + GATE % "{call: look.order, expect: response.open}")
    assert messages(result) == []
