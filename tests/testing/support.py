"""Test documents as texts: read, held against a workflow, played."""

from __future__ import annotations

import textwrap
from pathlib import Path

from hai_flow.errors import Finding
from hai_flow.testing.documents.reader import read_suite
from hai_flow.testing.loading import DocumentLoader, LoadedDocument
from hai_flow.testing.runner import Result

EXPENSE = """\
hai: flow/v1
name: expense
version: 1
input:
  type: object
  required: [amount]
  properties: {amount: {type: number, minimum: 0}, note: {type: string, default: ""}}
state:
  status: {type: string, default: submitted}
  log: {type: array, items: {type: string}, default: []}
tools:
  erp: {python: acme.erp}
  pick: {frontend: {description: Pick one., parameters: {type: object}, result: {type: string}}}
steps:
  - id: details
    if: input.amount > 1000.0
    ask: {title: Why so much?, form: {type: object, required: [why], properties: {why: {type: string}}}}
  - id: account
    call: pick
    with: {}
  - id: review
    approve: {title: "Pay ${{ input.amount }}?", from: anyone, deadline: 2d}
  - id: book
    call: erp.book
    with: {amount: "${{ input.amount }}", account: "${{ steps.account.output }}"}
    retry: {max: 2, every: 10s}
  - wait: {for: 1h}
  - set: {status: booked}
output: {booking: "${{ steps.book.output.id }}", status: "${{ state.status }}"}
"""
HEAD = """\
hai: test/v1
workflow: expense.flow.yaml
people: {ann: [role:boss], eve: []}
mock:
  erp.book: {output: {id: B1}}
"""
ASKED = """\
      - answer: {pending: account, value: main}
"""
PAID = (
    ASKED
    + """\
      - decide: {pending: review, by: ann, decision: approve}
"""
)


def flow(text: str) -> str:
    """A workflow without its first lines, which it begins on a line of its own."""
    return f"hai: flow/v1\nname: a\nversion: 1{text}"


def findings_of(text: str) -> list[Finding]:
    """What the reader has to say about a document alone."""
    return read_suite(textwrap.dedent(text).encode(), "t.test.yaml")[1]


def loaded(folder: Path, tests: str, workflow: str = EXPENSE) -> LoadedDocument:
    """The document read and held against a workflow, which stands beside it as `expense.flow.yaml`."""
    (folder / "expense.flow.yaml").write_text(workflow)
    path = folder / "t.test.yaml"
    path.write_text(tests)
    return DocumentLoader().load(path, "t.test.yaml")


def played(folder: Path, tests: str, workflow: str = EXPENSE) -> list[Result]:
    """The results of all its cases, which has no findings."""
    document = loaded(folder, tests, workflow)
    assert document.findings == (), "\n".join(map(str, document.findings))
    return [document.run(case) for case in document.cases]


def case(folder: Path, body: str, head: str = HEAD, workflow: str = EXPENSE) -> Result:
    """The result of one case of the expense workflow: what stands behind its name."""
    (result,) = played(folder, f"{head}cases:\n  - name: a case\n    input: {{amount: 900}}\n{body}", workflow)
    return result


def messages(result: Result) -> list[str]:
    """What a case that failed says: `line:column message`."""
    return [f"{failure.line}:{failure.column} {failure.message}" for failure in result.failures]
