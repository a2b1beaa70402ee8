"""A question is not asked for itself alone: steps before it decide whether it is, and of whom."""

from __future__ import annotations

from typing import Final

import pytest

from hai_flow.definition.checks.question_guards import find_questions_that_read, question_behind
from tests.support.runs import plan_of

_ASKED_IF = """
input: {{type: object, properties: {{n: {{type: integer}}}}}}
state: {{risk: {{type: integer, default: 9}}}}
tools: {{t: {{python: "acme:pay", effect: write}}, r: {{python: "acme:look", effect: read}}}}
models: {{m: {{use: smart}}}}
steps:
  - {{id: score, call: r}}
  - {{id: unread, call: r}}
  - {{id: middle, call: r, with: {{x: "${{{{ steps.score.output.n }}}}"}}}}
  - {{id: note, set: {{risk: "${{{{ steps.score.output.n }}}}"}}}}
  - {asking}
"""


_OF_T: Final = 'from: [role:boss], when: "args.n > 1"'
_BY_ARGS: Final = 'approval: {from: [role:boss], when: "args.n > 1"}}'


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
        ('{id: pay, call: t, with: {n: "${{ steps.score.output.n }}"}, ' + _BY_ARGS, {"score"}),
        ('{id: pay, call: t, with: {n: "${{ steps.middle.output.n }}"}, ' + _BY_ARGS, {"score", "middle"}),
        ('{id: pay, call: t, with: {n: "${{ state.risk }}"}, ' + _BY_ARGS, {"score", "note"}),
        (
            '{let: {x: "${{ steps.score.output.n }}"}}\n  - {id: pay, call: t, with: {n: "${{ x }}"}, ' + _BY_ARGS,
            {"score"},
        ),
        ('{id: pay, call: t, with: {n: "${{ steps.score.output.n }}"}, approval: {from: [role:boss]}}', set()),
        ('{id: pay, call: t, with: {n: 1}, approval: {from: ["${{ args.n }}"]}}', set()),
        (
            '{id: pay, call: t, with: {n: "${{ steps.score.output.n }}"}, approval: {from: ["${{ args.n }}"]}}',
            {"score"},
        ),
        ('{id: below, run: below, with: {n: "${{ steps.score.output.n }}"}}', {"score"}),
        ('{id: below, run: below, detach: true, with: {n: "${{ steps.score.output.n }}"}}', set()),
        ('{id: pay, call: t, approval: {from: [role:boss], when: "input.n > 1"}}', set()),
        ('{id: pay, call: t, approval: {from: requester, when: "steps.score.output.n > 1"}}', set()),
        ('{id: pay, call: t, if: "steps.score.output.n > 1"}', set()),
    ],
)
def test_a_step_leads_to_a_question_whose_condition_reads_its_result(asking: str, leads: set[str]) -> None:
    plan = plan_of(_ASKED_IF.format(asking=asking))
    steps = ("score", "unread", "middle", "note")
    assert {path for path in steps if question_behind(plan, path) is not None} == leads


@pytest.mark.parametrize(
    ("asking", "roots"),
    [
        ('{id: pay, call: t, approval: {from: [role:boss], when: "state.risk > 1"}}', {"state"}),
        ('{id: pay, call: t, approval: {from: [role:boss], when: "input.n > 1"}}', {"input"}),
        ('{id: pay, call: t, with: {n: "${{ input.n }}"}, ' + _BY_ARGS, {"input"}),
        ('{id: pay, call: t, with: {n: "${{ steps.derived.output.n }}"}, ' + _BY_ARGS, {"input"}),
        ('{let: {x: "${{ input.n }}"}}\n  - {id: pay, call: t, with: {n: "${{ x }}"}, ' + _BY_ARGS, {"input"}),
        ('{id: pay, call: t, with: {n: "${{ input.n }}"}, approval: {from: [role:boss]}}', set()),
        (
            '{id: a, agent: {model: m, prompt: "${{ input.n }}", tools: [t], approvals: {t: {' + _OF_T + "}}}}",
            {"input"},
        ),
        (
            '{id: a, agent: {model: m, prompt: "${{ input.n }}", tools: [t], approvals: {t: {from: [role:boss]}}}}',
            set(),
        ),
        ('{id: below, run: below, with: {n: "${{ state.risk }}"}}', {"state"}),
        ('{id: ok, if: "steps.derived.output.n > 1", approve: {title: Pay?, from: [role:boss]}}', {"input"}),
        ('{id: ok, approve: {title: "${{ input.n }}?", from: ["user:${{ state.risk }}"]}}', {"state"}),
        ('{id: pay, call: t, approval: {from: requester, when: "input.n > 1"}}', set()),
        ('{id: pay, call: t, if: "input.n > 1"}', set()),
    ],
)
def test_a_question_depends_on_what_its_conditions_read_through_steps(asking: str, roots: set[str]) -> None:
    derived = '{id: derived, call: r, with: {x: "${{ input.n }}"}}\n  - '
    plan = plan_of(_ASKED_IF.format(asking=derived + asking))
    assert {root for root in ("input", "state") if list(find_questions_that_read(plan, {root}))} == roots


def test_what_a_run_below_is_given_decides_where_it_is_said_to() -> None:
    plan = plan_of(
        _ASKED_IF.format(asking='{id: below, run: below, with: {n: "${{ input.n + steps.score.output.n }}"}}')
    )
    assert list(find_questions_that_read(plan, {"input"}, ("below",))) == ["below"]
    assert list(find_questions_that_read(plan, {"input"}, ())) == []
    assert question_behind(plan, "score", ()) is None
