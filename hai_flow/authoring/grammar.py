"""The whole language on one page, for a language model that shall write workflows (`hai-flow grammar`).

The keys come from the table; the rest is about mistakes that models make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from hai_flow.authoring.scaffold import TemplateName, template
from hai_flow.definition.yaml.key_table import COMMON_KEYS
from hai_flow.definition.yaml.keys import Key, Shape
from hai_flow.definition.yaml.language import SHAPES, VERBS

_HEAD: Final = """\
# hai: flow/v1

A workflow is one YAML file. Write only what is listed here: an unknown key, verb, tool, step or name is an error.
Check what you wrote with `hai-flow validate FILE`; every finding has a line, a column and the remedy.

Types: lit = literal · text = string with holes `${{ cel }}` · hole = one hole, no more · any = any YAML, holes at any
depth · cel = bare expression, no `${{ }}` · id = `[a-z][a-z0-9_]*` (of steps, branches, options, `as`, state) · name =
as an id, with `-`: `expense-approval` (of workflows, tools, models, roles; ids have no `-`) · dur = `90s`, `1h30m`,
`2d`; in a step also one hole · schema = JSON Schema, literal · steps = list of steps · sel = selector or list:
`user:id role:name group:name requester anyone` · `!` = must be there · `= x` = default.
"""

_SECOND_CASE: Final = "\n  - name: shipped in the second round"

_RULES: Final = """\
## Names in expressions

| name | where |
|---|---|
| `input` `state` `run` `thread` `now` | everywhere; `thread.message`: the user's text; `run.requester`: who started |
| `steps.ID.output` `.status` `.error` `.approval` | after the step; not into a `for_each`, not into a sibling branch |
| `item` (or `as`), `index` | in the loop; `index` counts from 0 |
| `error` | in `catch` and `on_reject`: `error.code`, `error.message` |
| `args` | in `approval`: the arguments of the call |
| `response` | in `http.expect`: `status headers json text url` |
| `event` | in `match` and in triggers: `id type data at`, of a `webhook` also `headers` |
| `secrets.NAME` | only in `webhook.secret`, `tools.*.auth headers env`, `models.*.api_key`, `http.headers auth` |

Status of a step: `pending running waiting finished skipped failed stopped undone`.

## Expressions are CEL

- A value that is one hole keeps its type: `amount: ${{ input.amount }}`. Otherwise it becomes text.
- A hole needs no quotes: `{a: ${{ x }}, b: ${{ y ? "1" : "2" }}}`. A text needs them that has `: ` or ` #` outside of
  its holes, or that begins with `! " ' [ { * & @ %`; or write it under `|`.
- `integer` is int and `number` is double, and they do not mix: `double(i)`, `int(d)`. Only a whole literal goes with
  both: `input.amount < 100`.
- What may be absent must be guarded: `has(input.note) ? input.note : ""`, `steps.x.?output.?id.orValue("none")`,
  `steps.x.status == "finished" && steps.x.output.ok`. Absent may be: an optional property without default, and
  a step that has `if`, or is inside a `switch`, a handler, a `while` loop or a `join: any`. The same `if` proves it.
- There are: `&& || ! == != < in ?:`, `size contains startsWith endsWith matches`, `has all exists exists_one filter
  map`, `int double string bool timestamp duration type`, `split join replace trim lowerAscii upperAscii substring
  format`, `math.*`, `rows.map(r, r.amount).sum()`, `rows.sort_by(r, r.name)`, `rows.group_by(r, r.team)` (a list of
  `{key, items}`), `now.format_time("%d.%m.%Y %H:%M", "Europe/Berlin")`.
- There are not: `and or not`, `??`, `length`, `sort`, `len`, `is`, filters with `|`, Jinja's `{{ }}`.

## What else one has to know

- **Error codes** for `catch` and `retry`: `tool.failed tool.unavailable tool.invalid_arguments tool.invalid_result
  tool.expired tool.declined http.status http.connection http.expect llm.rate_limited llm.timeout llm.invalid_output
  agent.max_turns approval.rejected approval.expired ask.expired wait_for.expired repeat.exhausted step.timeout
  step.lost state.invalid run.failed run.stopped limit.*`; `tool.*` is all of a kind, `*` all. Your own come from
  `fail: {code: stock.empty, message: ...}`.
- **A Python tool** is a module: with `tools: {shop: {python: acme.shop}}`, `call: shop.refund` calls `acme.shop.refund`
  with `with` as keyword arguments; what it returns (JSON) is the output; `raise StepError("why", code="shop.limit",
  retriable=False)` from `hai_flow` is an error of that code. It reads the environment itself.
- **Who may decide**: those whom `from` matches, but not the requester of the run, unless `from` names `requester` or
  `anyone` (or `exclude: []` says so). `quorum: 2` are two different people. The first rejection ends it.
- **A decision** has a `reason` that may be null: guard it, `if: steps.x.approval.reason != null`.
- **An agent** asks the requester before a call, but not if the tool's `effect` is `read` or `reversible`, or its
  `approvals` say otherwise: `{mail.send: none}` asks nobody, `{mail.send: {from: role:lead}}` others.
- **Forms** (`ask.form`, `approve.form`) are JSON Schema with `properties`; holes only in `default enum const title
  description minimum maximum`. The answer is `steps.ID.output` of an `ask`, `steps.ID.approval.values` else.
- **Wait until** something is so: `repeat` with `max`, `until` and a `wait` in its steps; for an event `wait_for`.

## Do

- Give an `id` to each step that another one refers to. Ids are unique in the whole document.
- Put `approval:` on the step with the effect: people then decide over exactly its arguments. `approve:` is for
  decisions that no single call carries out.
- Declare tools under `tools`. `call: tool.function` with `with` (`a2a`: `text`, `data`); the client's are `frontend`.
- Handle a rejection in `on_reject` and end it with `return`; otherwise it is raised as `approval.rejected`.
- Carry values from one iteration of `repeat` to the next in `state`.
- Give cases of a `switch`, and branches, a `result`; name a value that two steps need by `let`. Neither is `state`.

## Don't

- No `goto`, `else`, `depends_on`, `next`, `type`: steps run in their order. `break` and `continue` stand in loops.
- No holes in keys, ids, `call`, `run`, `as`, nor in `if when until while match expect` (they are expressions already).
- No `retry` on blocks or on people, no `timeout` on people (`deadline`), no `deadline` on calls (`timeout`).
- No `catch` without `errors` to catch a rejection: it takes everything but `approval.*` and `limit.*`. Name it.
- No `ask approve approval wait wait_for return` inside `undo` and `finally`. No secrets in prompts, state or texts.
- No `on_decision.approve`: write the next step. No YAML tags, merge keys (`<<`) or tabs.
"""


def grammar() -> str:
    return "\n".join([_HEAD, *_document(), *_steps(), *_shapes(), _RULES, *_examples()])


def _line(key: Key) -> str:
    word = key.name + ("!" if key.required else "")
    default = f" = {key.default}" if key.default else ""
    instead = f" (or {key.instead})" if key.instead else ""
    return f"{word}: {key.type.word}{default}{instead}".replace("`", "")


def _keys(keys: Iterable[Key]) -> str:
    return " · ".join(_line(key) for key in keys)


def _document() -> Iterator[str]:
    yield "## The document\n"
    for key in SHAPES["document"].keys:
        yield f"- `{_line(key)}`: {key.does}"
    yield ""


def _steps() -> Iterator[str]:
    yield f"## A step: any of `{' '.join(COMMON_KEYS)}`, exactly one verb, and what goes with it\n"
    yield "| verb | does | output | goes with |"
    yield "|---|---|---|---|"
    for verb in VERBS.values():
        keys = " ".join(f"`{key}`" for key in verb.keys)
        yield f"| `{verb.name}: {_plain(verb.type.word)}` | {verb.does} | {verb.output} | {keys} |"
    yield ""
    for key in SHAPES["step"].keys:
        yield f"- `{_line(key)}`: {key.does}"
    yield ""


def _plain(word: str) -> str:
    return word.replace("`", "")


_SHOWN: Final = tuple(
    name
    for name in SHAPES
    if name not in ("document", "step", "api", "nothing", "thinking", "fold", "output", "task", "quirks", "price")
)


def _shapes() -> Iterator[str]:
    yield "## Mappings\n"
    for name in _SHOWN:
        shape = SHAPES[name]
        yield f"- **{name}**{_choice(shape)}: {_keys(shape.keys)}"
    yield ""


def _choice(shape: Shape) -> str:
    if not shape.exactly_one:
        return ""
    return f" (one of {' '.join(shape.exactly_one[0])})"


def _examples() -> Iterator[str]:
    yield "## Two whole workflows\n"
    names: tuple[TemplateName, ...] = ("revise", "loop")
    for name in names:
        yield f"```yaml\n{template(name).workflow}```\n"
    yield "## Tests\n"
    yield (
        "`revise.test.yaml` beside `revise.flow.yaml`; `hai-flow test` plays it, effects mocked, people scripted. "
        "`answer: {pending: size, by: ann, value: {size: M}}` answers a form, `signal: {type: paid, data: {}}` brings "
        "an event, `advance: 2d` time.\n"
    )
    tests = template(names[0]).tests
    yield f"```yaml\n{tests[: tests.index(_SECOND_CASE)].rstrip()}\n```\n"
