"""The measured workflows, as text that the compiler reads like anybody's."""

from __future__ import annotations

from typing import Final

STEPS: Final = 10


def chain(steps: int = STEPS) -> bytes:
    """A workflow of `steps` calls of Python tools, each on the output of the one before."""
    lines = [
        "hai: flow/v1",
        "name: bench_chain",
        "version: 1",
        "input: {type: object, properties: {n: {type: integer, default: 0}}}",
        'tools: {plus_one: {python: "bench.tools:plus_one", effect: read}}',
        "steps:",
    ]
    before = "input.n"
    for number in range(1, steps + 1):
        lines.append(f'  - {{id: s{number}, call: plus_one, with: {{n: "${{{{ {before} }}}}"}}}}')
        before = f"steps.s{number}.output"
    lines.append(f'output: {{n: "${{{{ {before} }}}}"}}')
    return "\n".join(lines).encode()


QUESTION: Final = b"""\
hai: flow/v1
name: bench_question
version: 1
tools:
  plus_one: {python: "bench.tools:plus_one", effect: read}
  confirm:
    frontend:
      description: Asks the client
      parameters: {type: object, required: [action], properties: {action: {type: string}}}
steps:
  - id: before
    say: One moment.
  - id: confirm
    call: confirm
    with: {action: continue}
  - id: after
    call: plus_one
    with: {n: 1}
output: {answer: "${{ steps.confirm.output }}"}
"""
