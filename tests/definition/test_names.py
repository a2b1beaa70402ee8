"""What a name may be, and that whatever is said of a wrong one holds a right one."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.names.name_forms import LENGTH_MAX, NameKind, check_name, suggest_name
from tests.definition.support import compiled, findings, workflow

KINDS: tuple[NameKind, ...] = get_args(NameKind)


@pytest.mark.parametrize(
    ("kind", "sound", "wrong"),
    [
        ("identifier", ["a", "check_amount", "x9"], ["check-amount", "Check", "9x", "", "in", "input", "über"]),
        ("variable", ["a", "Total", "input", "reviewNotes"], ["review-notes", "9x", "for", ""]),
        ("workflow", ["a", "expense-approval", "a_b-c9", "input", "for"], ["Expense", "-a", "9x", "a b", "a.b", "a/b"]),
        ("handle", ["a", "confirmAction", "audit-log", "input"], ["-a", "9x", "a.b", "a:b", ""]),
    ],
)
def test_what_a_name_may_be(kind: NameKind, sound: list[str], wrong: list[str]) -> None:
    assert [name for name in sound if check_name(name, kind)] == []
    assert [name for name in wrong if not check_name(name, kind)] == []


@pytest.mark.parametrize(
    ("name", "kind", "better"),
    [
        ("check-amount", "identifier", "check_amount"),
        ("checkAmount", "identifier", "check_amount"),
        ("Expense Approval", "workflow", "expense-approval"),
        ("ExpenseApproval", "workflow", "expense-approval"),
        ("audit.log", "handle", "audit-log"),
        ("reviewNotes!", "variable", "reviewNotes"),
        ("prüfung", "identifier", "pruefung"),
        ("2nd", "identifier", "n2nd"),
        ("in", "identifier", "my_in"),
        ("审批", "workflow", "name_1"),
    ],
)
def test_the_nearest_right_name(name: str, kind: NameKind, better: str) -> None:
    assert suggest_name(name, kind) == better
    assert f"`{better}`" in (check_name(name, kind) or "")


@given(st.text(), st.sampled_from(KINDS))
def test_every_wrong_name_has_a_right_one(name: str, kind: NameKind) -> None:
    assert check_name(suggest_name(name, kind), kind) is None
    assert len(suggest_name(name, kind)) <= LENGTH_MAX


def test_workflows_tools_models_and_roles_may_have_hyphens() -> None:
    plan = compiled(
        """\
        models: {gpt-mini: {provider: openai, model: gpt-5-mini}}
        tools:
          audit-log: {python: acme.audit, effect: write}
          mcp-web: {mcp: "https://mcp.example.com/web", effect: read}
          pick-one: {frontend: {description: Pick, parameters: {type: object, properties: {}}}}
        roles: {finance-team: [user:ann, user:bob]}
        steps:
          - {id: chosen, call: pick-one}
          - {id: other, run: expense-approval@3}
          - id: written
            call: audit-log.write-line
            with: {n: 1}
            approval: {from: role:finance-team, quorum: {role:finance-team: 1}, exclude: [user:ann]}
          - agent:
              model: gpt-mini
              prompt: hi
              tools: [mcp-web.*, audit-log.write]
              approvals: {audit-log.write: {from: role:finance-team}}
        """
    )
    assert set(plan.tools) == {"audit-log", "mcp-web", "pick-one"}
    assert [step.path for step in plan.steps.values()] == [
        "chosen", "other", "written", "agent#1", "agent#1[]", "agent#1[]/model", "agent#1[]/call", "agent#1[]/call[]",
        "agent#1[]/call[]/mcp-web.*", "agent#1[]/call[]/audit-log.write",
    ]  # fmt: skip


def test_a_hyphen_in_a_step_id_is_one_finding_with_the_remedy_at_its_uses() -> None:
    found = findings(
        workflow(
            """\
            steps:
              - {id: check-amount, wait: {for: 1s}}
              - if: steps.check-amount.status == "finished"
                say: ${{ steps.check_amount.status }}
            """
        )
    )
    assert [line.partition(": ")[2] for line in found] == [
        "error shape.value: expected a lower-case letter, then letters, digits or _ (at most 63), "
        "found `check-amount`; write `check_amount`",
        "error expression.hyphen: `steps.check-amount` is read as a subtraction; ids have no hyphens; write "
        "`steps.check_amount`",
    ]


def test_a_property_with_a_hyphen_is_named_in_brackets() -> None:
    head = (
        "input: {type: object, required: [first-name], properties: {first-name: {type: string}, a: {type: number}}}\n"
    )
    (found,) = findings(workflow(head + "steps: [{say: '${{ input.first-name }}'}]\n"))
    assert 'write `input["first-name"]`' in found
    assert findings(workflow(head + "steps: [{say: '${{ input[\"first-name\"] }}'}]\n")) == []
    assert "expression.hyphen" not in findings(workflow(head + "steps: [{say: '${{ input.a-1.0 }}'}]\n"))
