"""A question is not asked for itself alone: steps before it decide whether it is, and of whom."""

from __future__ import annotations

import pytest

from hai_flow.definition.checks.guarding import question_behind, questions_that_read
from tests.support.runs import plan_of

_ASKED_IF = """
input: {{type: object, properties: {{n: {{type: integer}}}}}}
state: {{risk: {{type: integer, default: 9}}}}
tools: {{t: {{python: "acme:pay", effect: write}}, r: {{python: "acme:look", effect: read}}}}
steps:
  - {{id: score, call: r}}
  - {{id: unread, call: r}}
  - {{id: middle, call: r, with: {{x: "${{{{ steps.score.output.n }}}}"}}}}
  - {{id: note, set: {{risk: "${{{{ steps.score.output.n }}}}"}}}}
  - {asking}
"""


@pytest.mark.parametrize(
    ("asking", "leads"),
    [
        ('{id: pay, call: t, approval: {from: [role:boss], when: "steps.score.output.n > 1"}}', {"score"}),
        ('{id: pay, call: t, approval: {from: [role:boss], when: "steps.middle.output.n > 1"}}', {"score", "middle"}),
        ('{id: pay, call: t, approval: {from: [role:boss], when: "state.risk > 1"}}', {"score", "note"}),
        ('{id: ok, if: "steps.score.output.n > 1", approve: {title: Pay?, from: [role:boss]}}', {"score"}),
        (
            '{id: b, if: "steps.score.output.n > 1", try: [{id: ok, approve: {title: Pay?, from: [role:boss]}}]}',
            {"score"},
        ),
        ('{id: ok, approve: {title: Pay?, from: ["${{ steps.score.output.who }}"]}}', {"score"}),
        ('{id: below, if: "steps.score.output.n > 1", run: below}', {"score"}),
        ('{id: pay, call: t, approval: {from: [role:boss], when: "input.n > 1"}}', set()),
        ('{id: pay, call: t, approval: {from: requester, when: "steps.score.output.n > 1"}}', set()),
        ('{id: pay, call: t, if: "steps.score.output.n > 1"}', set()),
    ],
)
def test_a_step_leads_to_a_question_if_its_result_is_read_by_what_decides_whether_it_is_asked(
    asking: str, leads: set[str]
) -> None:
    plan = plan_of(_ASKED_IF.format(asking=asking))
    steps = ("score", "unread", "middle", "note")
    assert {path for path in steps if question_behind(plan, path) is not None} == leads


@pytest.mark.parametrize(
    ("asking", "roots"),
    [
        ('{id: pay, call: t, approval: {from: [role:boss], when: "state.risk > 1"}}', {"state"}),
        ('{id: pay, call: t, approval: {from: [role:boss], when: "input.n > 1"}}', {"input"}),
        ('{id: ok, if: "steps.derived.output.n > 1", approve: {title: Pay?, from: [role:boss]}}', {"input"}),
        ('{id: ok, approve: {title: "${{ input.n }}?", from: ["${{ state.risk }}"]}}', {"state"}),
        ('{id: pay, call: t, approval: {from: requester, when: "input.n > 1"}}', set()),
        ('{id: pay, call: t, if: "input.n > 1"}', set()),
    ],
)
def test_a_question_depends_on_what_its_conditions_read_also_by_way_of_a_step(asking: str, roots: set[str]) -> None:
    derived = '{id: derived, call: r, with: {x: "${{ input.n }}"}}\n  - '
    plan = plan_of(_ASKED_IF.format(asking=derived + asking))
    assert {root for root in ("input", "state") if list(questions_that_read(plan, {root}))} == roots
