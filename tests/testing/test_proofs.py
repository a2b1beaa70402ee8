"""What tests can prove of a run: its calls with their arguments, its messages, its notifications, its trigger."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.testing.coverage import Coverage
from hai_flow.testing.runner import Result
from hai_flow.testing.sequences import is_like, is_sequence
from tests.testing.support import loaded, messages, played

SHOP = """\
hai: flow/v1
name: shop
version: 1
roles: {nurse: [group:nurses], chief: [user:carl]}
input: {type: object, required: [order], properties: {order: {type: string}, amount: {type: integer, default: 5}}}
tools: {shop: {python: acme.shop}}
triggers:
  - api: {}
  - webhook:
      path: shop/orders
      secret: ${{ secrets.SHOP }}
      match: event.headers["x-kind"] == "paid"
      dedupe: ${{ event.data.id }}
      input: {order: "${{ event.data.id }}", amount: 7}
  - event: {type: order.paid, match: event.data.amount > 1.0, input: {order: "${{ event.data.order }}"}}
  - schedule: {cron: "0 6 * * *", timezone: UTC, input: {order: "${{ event.at }}"}}
  - run: {workflow: pay, on: [failed], input: {order: "${{ event.data.output.order }}"}}
steps:
  - id: all
    for_each:
      items: [north, south]
      as: region
      key: ${{ region }}
      max_parallel: 2
      steps:
        - id: look
          approve:
            title: Look at ${{ region }}
            from: role:nurse
            notify: ["oncall:${{ region }}"]
            deadline: 2d
            remind: [1d]
          on_reject: [{continue: true}]
        - id: pay
          call: shop.pay
          with: {order: "${{ input.order }}", region: "${{ region }}", amount: "${{ input.amount }}"}
          approval: {from: role:nurse, edit: [amount], when: input.amount > 100}
          on_reject: [{continue: true}]
  - switch:
      - when: input.amount > 100
        steps: [{say: "Much: ${{ input.amount }}"}]
      - default: true
        steps: [{say: "Little: ${{ input.amount }}"}]
  - say: Ready at ${{ run.scheduled_at == null ? "any time" : run.scheduled_at }}, by ${{ run.trigger }}
"""
HEAD = """\
hai: test/v1
workflow: expense.flow.yaml
people: {ann: [role:nurse], eve: []}
mock: {shop.pay: {output: null}}
"""
LOOKED = """\
    script:
      - decide: {pending: "look[north]", by: ann, decision: approve}
      - decide: {pending: look, by: ann, decision: approve}
"""


def result(folder: Path, body: str, head: str = HEAD) -> Result:
    """The result of one case of the workflow SHOP."""
    (one,) = played(folder, f"{head}cases:\n  - name: a case\n{body}", SHOP)
    return one


def test_an_edit_is_proven_to_have_reached_the_call(tmp_path: Path) -> None:
    body = f"""\
    input: {{order: A1, amount: 600}}
{LOOKED}\
      - decide: {{pending: "pay[south]", by: ann, decision: approve, edits: {{amount: 400}}}}
      - decide: {{pending: pay, by: ann, decision: approve}}
    expect:
      called:
        shop.pay: [{{region: south, amount: 400, order: "A*"}}, {{region: north, amount: 600}}]
        pay[north]: ["*"]
      said: ["Much: 600", ...]
"""
    assert messages(result(tmp_path, body)) == []
    (failure,) = result(tmp_path, body.replace("amount: 400, order", "amount: 401, order")).failures
    assert failure.message == "called.shop.pay"
    assert failure.actual[0]["amount"] == 400


@pytest.mark.parametrize(
    ("expected", "right"),
    [
        ('["Little: 5", "Ready at any time, by api"]', True),
        ('["Little: *", ...]', True),
        ('[..., "Ready*"]', True),
        ('["Ready*"]', False),
        ('["Ready*", "Little*"]', False),
        ("[]", False),
    ],
)
def test_messages_are_compared_in_order(tmp_path: Path, expected: str, right: bool) -> None:
    body = f"    input: {{order: A1}}\n{LOOKED}    expect: {{said: {expected}}}\n"
    assert result(tmp_path, body).passed is right


def test_notifications_are_those_that_were_due(tmp_path: Path) -> None:
    body = """\
    input: {order: A1}
    script:
      - expect: {notified: ["oncall:north", "oncall:south"]}
      - decide: {pending: "look[south]", by: ann, decision: approve}
      - advance: 1d
    expect:
      notified: [..., {pending: "look[north]", channel: "oncall:*", because: reminded}]
      pending: ["look[north]"]
"""
    assert messages(result(tmp_path, body)) == []
    assert not result(tmp_path, body.replace("reminded", "escalated")).passed


@pytest.mark.parametrize(
    ("start", "expect"),
    [
        (
            "{webhook: {data: {id: A7}, headers: {X-Kind: paid}}}",
            "{started: true, dedupe: A7, called: {pay: [{order: A7, amount: 7}, '*']}}",
        ),
        (
            "{event: {data: {order: E1, amount: 2}, by: eve}}",
            "{called: {pay: [{order: E1}, ...]}, said: [..., 'Ready at any time, by event']}",
        ),
        (
            "{schedule: {at: 2026-03-02T06:00:00Z}}",
            "{called: {pay: [{order: '2026-03-02T06:00:00*'}, ...]}, said: [..., 'Ready at 2026-03-02T06*']}",
        ),
        ("{run: {status: failed, output: {order: R1}}}", "{called: {pay: [{order: R1}, ...]}}"),
    ],
)  # fmt: skip
def test_a_trigger_starts_the_run_as_it_would_on_a_server(tmp_path: Path, start: str, expect: str) -> None:
    assert messages(result(tmp_path, f"    start: {start}\n{LOOKED}    expect: {expect}\n")) == []


@pytest.mark.parametrize(
    "start",
    [
        "{webhook: {data: {id: A7}, headers: {X-Kind: draft}}}",
        "{event: {data: {order: E1, amount: 1}}}",
        "{run: {status: finished, output: {order: R1}}}",
    ],
)
def test_what_does_not_match_starts_nothing(tmp_path: Path, start: str) -> None:
    assert messages(result(tmp_path, f"    start: {start}\n    expect: {{started: false}}\n")) == []
    assert not result(tmp_path, f"    start: {start}\n    expect: {{started: true}}\n").passed


def test_the_input_of_a_trigger_that_fails_fails_the_case(tmp_path: Path) -> None:
    (failure,) = result(tmp_path, "    start: {event: {data: {order: E1}}}\n").failures
    assert "refused with 422" in failure.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    start: {webhok: {}}\n", "did you mean `webhook`"),
        ("    start: {webhook: {}, event: {}}\n", "one of"),
        ("    start: {webhook: {path: other}}\n", "no `webhook` trigger has the path `other`"),
        ("    start: {schedule: {at: soon}}\n", "expected an instant"),
        ("    start: {event: {by: nobody}}\n", "nobody `nobody`"),
        ("    start: {webhook: {}}\n    input: {order: A1}\n", "`input` is what a request has"),
        ("    input: {order: A1}\n    expect: {called: {pay: {amount: 1}}}\n", "the calls in a list"),
        ("    input: {order: A1}\n    expect: {called: {shop.pya: []}}\n", "shop.pay"),
        ("    input: {order: A1}\n    expect: {notified: [{pending: lok}]}\n", "look"),
        ("    input: {order: A1}\n    expect: {pending: ['al/look']}\n", "write `look`"),
        (
            "    input: {order: A1}\n    script: [{decide: {pending: 'other[0]/look', decision: approve}}]\n",
            "`all[]/look`",
        ),
    ],
)  # fmt: skip
def test_a_name_that_nothing_has_is_a_finding_that_offers_the_right_one(tmp_path: Path, body: str, words: str) -> None:
    findings = loaded(tmp_path, f"{HEAD}cases:\n  - name: a case\n{body}", SHOP).findings
    assert any(words in finding.message for finding in findings), findings


def test_an_id_that_several_rounds_ask_for_must_say_which(tmp_path: Path) -> None:
    body = "    input: {order: A1}\n    script: [{decide: {pending: look, by: ann, decision: approve}}]\n"
    (failure,) = result(tmp_path, body).failures
    assert "`look[KEY]`" in failure.message


def test_a_person_has_a_role_as_the_workflow_gives_it(tmp_path: Path) -> None:
    head = HEAD.replace("ann: [role:nurse]", "ann: [group:nurses]")
    assert messages(result(tmp_path, f"    input: {{order: A1}}\n{LOOKED}", head)) == []
    head = HEAD.replace("ann: [role:nurse]", "ann: [role:chief]")
    (finding,) = loaded(tmp_path, f"{head}cases:\n  - name: a case\n    input: {{order: A1}}\n", SHOP).findings
    assert "`carl` alone" in finding.message


def test_coverage_names_what_no_case_takes(tmp_path: Path) -> None:
    body = f"{HEAD}cases:\n  - name: a case\n    input: {{order: A1}}\n{LOOKED}"
    document = loaded(tmp_path, body, SHOP)
    assert document.plan is not None
    coverage = Coverage(document.plan)
    for case in document.cases:
        document.run(case, coverage)
    told = [each.text for each in coverage.find_gaps()]
    assert told == [
        "`reject` is never the answer at `all[]/look`",
        "`approve` is never the answer at `all[]/pay`",
        "`reject` is never the answer at `all[]/pay`",
        "case 1 of `switch#1` is never taken",
    ]
    covered, total = coverage.counts()
    assert covered == total - len(told) - 3  # and the steps of the case, and of both handlers
    assert "switch#1/0/say#1" in coverage.unreached


@given(st.lists(st.sampled_from("ab*")), st.lists(st.sampled_from("ab")))
def test_a_sequence_is_that_of_an_expression(expected: list[str], found: list[str]) -> None:
    assert is_sequence(expected, found) is (
        len(expected) == len(found) and all(one in ("*", other) for one, other in zip(expected, found, strict=True))
    )
    assert is_sequence([*expected, "..."], [*found, "a"]) or not is_sequence(expected, found)


def test_a_star_is_no_pattern_of_its_own() -> None:
    assert is_like("a.c*", "a.cde")
    assert not is_like("a.c*", "abcde")
    assert not is_like(True, 1)
    assert is_like({"a": [1, "*"]}, {"a": [1, {"b": 2}], "c": 3})
    assert not is_like({"a": None}, {})
