"""The example of the reference (docs/testing.md), word for word, against a workflow that it could be about."""

from __future__ import annotations

from pathlib import Path

from tests.testing.support import messages, played

WORKFLOW = """\
hai: flow/v1
name: expense
version: 1
input: {type: object, required: [amount, reason], properties: {amount: {type: number}, reason: {type: string}}}
state: {status: {type: string, default: submitted}}
tools: {erp: {python: acme.erp}, mail: {python: acme.mail}}
steps:
  - id: review
    approve:
      title: "${{ input.reason }}: ${{ input.amount }}"
      from: role:controller
      quorum: 2
      form: {type: object, required: [cost_center], properties: {cost_center: {type: string}}}
      deadline: 2d
      on_deadline: [{escalate: {deadline: 1d}}, reject]
    on_reject:
      - call: mail.send
        with: {text: "${{ steps.review.output.reason }}"}
      - return: {rejected: true}
  - id: book
    call: erp.book
    with: {amount: "${{ input.amount }}", to: "${{ steps.review.output.values.cost_center }}"}
    retry: {max: 1}
  - set: {status: booked}
output: {booking: "${{ steps.book.output.booking }}"}
"""
TESTS = """\
hai: test/v1
workflow: expense.flow.yaml            # a path, or a published name@version
now: 2026-03-02T09:00:00Z              # the virtual clock; default 2026-01-01T00:00:00Z
people: {ann: [role:controller], bob: [role:controller], eve: []}    # user: selectors of them; run by eve unless `requester`
mock:                                  # every effect must be mocked; a list = successive calls
  erp.book: [{error: {code: tool.unavailable}}, {output: {booking: B1}}]
cases:
  - name: two of three
    requester: eve
    input: {amount: 900, reason: taxi}
    script:
      - expect: {status: waiting, pending: [review]}       # paths; exactly these
      - decide: {pending: review, by: eve, decision: approve, refused: 403}
      - decide: {pending: review, by: ann, decision: approve, values: {cost_center: CC-1000}}
      - advance: 2d
      - expect: {escalated: {review: 1}}
      - decide: {pending: review, by: bob, decision: approve, values: {cost_center: CC-1000}}
    expect: {status: finished, output: {booking: B1}, state: {status: booked}, calls: {erp.book: 2}, not_called: [mail.send]}
"""  # noqa: E501


def test_the_example_of_the_reference_passes(tmp_path: Path) -> None:
    (result,) = played(tmp_path, TESTS, WORKFLOW)
    assert messages(result) == []
