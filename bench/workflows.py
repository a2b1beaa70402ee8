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


def calculating(steps: int) -> bytes:
    """`steps` steps that calculate: calls with a condition and arithmetic in their arguments, and changes of state."""
    lines = [
        "hai: flow/v1",
        "name: bench_calculating",
        "version: 1",
        "input: {type: object, properties: {n: {type: number, default: 1}}}",
        "state:",
        "  total: {type: number, default: 0}",
        'tools: {plus_one: {python: "bench.tools:plus_one", effect: read}}',
        "steps:",
    ]
    for number in range(1, steps + 1):
        if number % 3:
            condition, n = "state.total >= 0.0 && input.n < 100.0", "${{ state.total * 2.0 + input.n }}"
            lines.append(f'  - {{id: s{number}, if: "{condition}", call: plus_one, with: {{n: "{n}"}}}}')
        else:
            lines.append(f'  - {{id: s{number}, set: {{total: "${{{{ state.total + input.n }}}}"}}}}')
    lines.append("output: {total: '${{ state.total }}'}")
    return "\n".join(lines).encode()


def listing() -> bytes:
    """A `for_each` over the list of the input."""
    return b"""\
hai: flow/v1
name: bench_listing
version: 1
input: {type: object, properties: {items: {type: array, items: {type: integer}, default: []}}}
state: {last: {type: integer, default: 0}}
steps:
  - id: each
    for_each:
      items: ${{ input.items }}
      output: ${{ item }}
      steps:
        - set: {last: "${{ item }}"}
output: ${{ size(steps.each.output) }}
"""


TIMER: Final = b"""\
hai: flow/v1
name: bench_timer
version: 1
input: {type: object, required: [until], properties: {until: {type: string}}}
tools: {plus_one: {python: "bench.tools:plus_one", effect: read}}
steps:
  - wait: {until: "${{ input.until }}"}
  - {id: after, call: plus_one, with: {n: 1}}
"""
"""Waits until an instant, and then has one thing to do."""


def going_round(most: int) -> bytes:
    """A `repeat` of one step, as often as the input says."""
    return f"""\
hai: flow/v1
name: bench_going_round
version: 1
input: {{type: object, properties: {{n: {{type: integer, default: 1}}}}}}
tools: {{plus_one: {{python: "bench.tools:plus_one", effect: read}}}}
steps:
  - repeat:
      max: {most}
      until: index + 1 >= input.n
      steps:
        - {{id: step, call: plus_one, with: {{n: "${{{{ index }}}}"}}}}
""".encode()


def long_document(steps: int) -> bytes:
    """A document of `steps` steps of many kinds, as an author would write it."""
    lines = [
        "hai: flow/v1",
        "name: bench_long",
        "version: 1",
        "input:",
        "  type: object",
        "  required: [order]",
        "  properties:",
        "    order: {type: string}",
        "    amount: {type: number, default: 1}",
        "state:",
        "  log: {type: array, items: {type: string}, default: [], reduce: append}",
        "  total: {type: number, default: 0}",
        "tools:",
        '  shop: {python: "bench.tools", effect: write}',
        "steps:",
    ]
    for number in range(steps // 5):
        lines += [
            f"  - id: call_{number}",
            f"    title: Order part {number}",
            "    call: shop.order",
            "    with:",
            "      order: ${{ input.order }}",
            f"      part: {number}",
            '      note: "part of ${{ input.order }} for ${{ run.requester }}"',
            "    retry: {max: 3, backoff: exponential}",
            f"  - id: sum_{number}",
            "    set: {total: '${{ state.total + input.amount }}'}",
            f"  - id: choose_{number}",
            "    switch:",
            f"      - when: state.total > {number}.5",
            "        steps:",
            f"          - id: say_{number}",
            f'            say: "Part {number} of ${{{{ input.order }}}} is ordered."',
            f"  - id: noted_{number}",
            "    if: input.amount < 1000",
            f'    set: {{log: "${{{{ steps.call_{number}.status }}}}"}}',
        ]
    return "\n".join(lines).encode()


TURNS: Final = 20

AGENT: Final = f"""\
hai: flow/v1
name: bench_agent
version: 1
models:
  counting: {{use: counting}}
tools:
  plus_one: {{python: "bench.tools:plus_one", effect: read}}
steps:
  - id: agent
    agent: {{model: counting, prompt: Count., tools: [plus_one], max_turns: {TURNS + 1}, memory: none, stream: none}}
""".encode()
"""A model calls one tool in each of so many turns, and is done."""

BOOKKEEPING: Final = b"""\
hai: flow/v1
name: bench_bookkeeping
version: 1
tools:
  book: {python: "bench.tools:book", effect: write}
steps:
""" + b"".join(b"  - {id: s%d, call: book, with: {n: %d}}\n" % (n, n) for n in range(10))
"""Ten steps, each of which writes a row in a transaction of its own."""

SPEECH: Final = b"""\
hai: flow/v1
name: bench_speech
version: 1
input:
  type: object
  properties:
    count: {type: integer}
    seconds: {type: number}
tools:
  spoken: {python: "bench.tools:timed", effect: read}
steps:
  - {id: speech, call: spoken, stream: text, with: {count: "${{ input.count }}", seconds: "${{ input.seconds }}"}}
"""
"""A text of `count` pieces, one every `seconds`. Each says when it was made."""


def audience() -> bytes:
    """A workflow of rounds, each begun by a signal: of events that come one at a time, then of events that come by
    tens."""
    return b"""\
hai: flow/v1
name: bench_audience
version: 1
input:
  type: object
  required: [events, events_seconds, bursts, bursts_seconds, silence_seconds]
  properties:
    events: {type: integer}
    events_seconds: {type: number}
    bursts: {type: array, items: {type: integer}}
    bursts_seconds: {type: number}
    silence_seconds: {type: number}
tools:
  pace: {python: "bench.tools", effect: read}
  begin:
    frontend: {description: Begin, parameters: {type: object, properties: {}}}
steps:
  - id: rounds
    repeat:
      max: 100
      steps:
        - {id: begin_events, call: begin}
        - id: events
          call: pace.spoken
          stream: text
          with:
            count: ${{ input.events }}
            seconds: ${{ input.events_seconds }}
            silence: ${{ input.silence_seconds }}
        - {id: begin_bursts, call: begin}
        - {id: silence, call: pace.tick, with: {seconds: "${{ input.silence_seconds }}"}}
        - id: bursts
          for_each:
            items: ${{ input.bursts }}
            steps:
              - {id: tick, call: pace.tick, with: {seconds: "${{ input.bursts_seconds }}"}}
              - {id: seen, emit: {custom: {name: seen, value: 1}}}
              - {id: heard, emit: {custom: {name: heard, value: 2}}}
"""
