# ruff: noqa: E501  (a case is a line)
"""Wrong files: one mistake each, of the kind that authors and language models make, and what is said about it.

`«` stands where the finding has to point; it is taken out before the file is read. A case that begins with `hai:` is a
whole file; any other follows BASE."""

from __future__ import annotations

import textwrap
from typing import Final

import pytest

from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.errors import DefinitionError

BASE: Final = """\
hai: flow/v1
name: sample
version: 1
input:
  type: object
  required: [amount, items, kind]
  properties:
    amount: {type: number}
    count: {type: integer, default: 1}
    kind: {type: string, enum: [taxi, hotel]}
    note: {type: string}
    items: {type: array, items: {type: object, required: [name], properties: {name: {type: string}}}}
state:
  log: {type: array, items: {type: string}, default: [], reduce: append}
  status: {type: string, default: new}
  plan: {type: array, items: {type: object}, default: []}
models:
  smart: {provider: openai, model: gpt-5}
tools:
  mail: {python: acme.mail, effect: write}
  one: {python: "acme.one:run", effect: read}
  vague: {python: acme.vague}
  wipe: {python: acme.wipe, effect: irreversible}
  web: {mcp: "https://mcp.example.com/web", effect: read, allow: [search, fetch]}
  pick:
    frontend:
      description: Pick one
      parameters: {type: object, required: [question], properties: {question: {type: string}, many: {type: boolean}}}
      result: {type: string}
roles:
  boss: [user:ann, user:bob]
  clerk: [group:office]
"""

HEAD: Final = "hai: flow/v1\nname: a\nversion: 1\n"

SHOW: Final = "tools: {show: {frontend: {description: S, parameters: {type: object}, answer: none}}}\n"
SENDS: Final = SHOW.replace("show: {", "t: {python: acme.t}, show: {effect: external, ").replace(
    "{type: object}", "{type: object, properties: {document: {type: string}}}"
)

GROW: Final = """\
tools:
  t: {python: acme.t}
  show:
    frontend:
      description: S
      parameters: {type: object, properties: {document: {type: string}, size: {type: integer}}}
      answer: none
"""

Case = tuple[str, str, str]  # the file; code (with a leading "?" for a warning); words of the message

YAML: Final[list[Case]] = [
    ("steps:\n  - say: hi\n    «say: ho\n", "yaml.duplicate_key", "written twice"),
    ("steps:\n«\t- say: hi\n", "yaml.syntax", "indent with spaces"),
    ("steps:\n  - say: hi\n    if: «!input.note\n", "yaml.tag", "must be quoted"),
    ("steps:\n  - say: hi\n«---\nsteps: []\n", "yaml.second_document", "remove it"),
    ("steps:\n  - &base {say: hi}\n  - {«<<: *base}\n", "yaml.merge_key", "write the keys out"),
    ("steps:\n  - say: «*base\n", "yaml.alias_unknown", "must be quoted"),
    ("steps:\n  - return: «.nan\n", "yaml.number", "quote it"),
    ("steps:\n  - return: «12345678901234567890\n", "yaml.number", "quote it"),
    ("steps:\n  - say: Kind«: ${{ input.kind }}\n", "yaml.syntax", 'write say: "Kind: ${{ input.kind }}"'),
    ("steps:\n  - say: «@all hello\n", "yaml.syntax", "must be quoted"),
    ("steps:\n  - {say: Kind«: ${{ input.kind }}}\n", "yaml.syntax", "quote text that holds `: `"),
    ("steps:\n  - say: ${{ input.kind «# the kind }}\n", "expression.syntax", "comment"),
    ("steps:\n  - say: «${{ input.kind # the kind\n", "expression.open_hole", "quote it"),
    ("«hai: flow/v1\nname: a\nversion: 1\n", "shape.missing_key", "`steps` is missing"),
]

DOCUMENT: Final[list[Case]] = [
    ("hai: «test/v1\nworkflow: a.flow.yaml\ncases: []\n", "document.kind", "`hai-flow test`"),
    ("hai: «flow/v2\nname: a\nversion: 1\nsteps: [{say: hi}]\n", "shape.value", "'flow/v1'"),
    ("hai: flow/v1\nname: «My-Flow\nversion: 1\nsteps: [{say: hi}]\n", "shape.value", "write `my-flow`"),
    ("hai: flow/v1\nname: a\nversion: «'1'\nsteps: [{say: hi}]\n", "shape.value", "without quotes: 1"),
    ("hai: flow/v1\nname: a\nversion: «1.0\nsteps: [{say: hi}]\n", "shape.value", "a whole number"),
    ("«hai: flow/v1\nname: a\nsteps: [{say: hi}]\n", "shape.missing_key", "`version` is missing"),
    ("«desciption: x\nsteps: [{say: hi}]\n", "shape.unknown_key", "did you mean `description`?"),
    ("«secrets: [A]\nsteps: [{say: hi}]\n", "shape.unknown_key", "${{ secrets.NAME }}"),
    ("«tests: []\nsteps: [{say: hi}]\n", "shape.unknown_key", "NAME.test.yaml"),
    ("steps: «[]\n", "shape.value", "at least 1"),
    ("steps:\n  «greet: {say: hi}\n", "shape.value", "a list"),
    (HEAD + "input: «{order: {type: string}}\nsteps: [{say: hi}]\n", "input.type", "`properties`"),
    (
        HEAD + "input: {type: object, properties: {a: {type: «str}}}\nsteps: [{say: hi}]\n",
        "schema.invalid",
        "did you mean `string`?",
    ),
    (
        HEAD + "input: {type: object, required: [«b], properties: {a: {}}}\nsteps: [{say: hi}]\n",
        "schema.required",
        "`b` is required",
    ),
    (HEAD + "state: {count: «0}\nsteps: [{say: hi}]\n", "shape.type", "default: ..."),
    (HEAD + "state: {n: {type: integer, «initial: 0}}\nsteps: [{say: hi}]\n", "schema.unknown_keyword", "no keyword"),
    (
        HEAD + "input: {type: object, «order: {type: string}}\nsteps: [{say: hi}]\n",
        "schema.unknown_keyword",
        "write it under `properties`",
    ),
    ("steps: [{ask: {title: t, form: {«street: string}}}]\n", "schema.unknown_keyword", "write it under `properties`"),
    (HEAD + "state: {n: {type: integer, default: 0, reduce: «sum}}\nsteps: [{say: hi}]\n", "shape.value", "'max'"),
    ("defaults: {«retries: 3}\nsteps: [{say: hi}]\n", "shape.unknown_key", "did you mean `retry`?"),
    ("defaults: {deadline: «tomorrow}\nsteps: [{say: hi}]\n", "duration.invalid", "1h30m"),
    ("defaults: {model: «smrt}\nsteps: [{say: hi}]\n", "model.unknown", "did you mean `smart`?"),
    ("limits: {«token: 5}\nsteps: [{say: hi}]\n", "shape.unknown_key", "did you mean `tokens`?"),
    ("limits: {cost_usd: «-1}\nsteps: [{say: hi}]\n", "shape.value", "more than 0"),
    ("limits: {duration: «30}\nsteps: [{say: hi}]\n", "shape.value", "a duration such as"),
    ("«concurrency: {limit: 1}\nsteps: [{say: hi}]\n", "shape.missing_key", "`key` is missing"),
    ("concurrency: {key: 'a ${{ «state.status }}'}\nsteps: [{say: hi}]\n", "expression.unknown_name", "state"),
    ("concurrency: {key: a, on_conflict: «abort}\nsteps: [{say: hi}]\n", "shape.value", "'cancel_running'"),
    ("output: ${{ «status }}\nsteps: [{say: hi}]\n", "expression.unknown_name", "did you mean `state.status`?"),
]

TRIGGERS: Final[list[Case]] = [
    ("triggers: [«api]\nsteps: [{say: hi}]\n", "trigger.kind", "write `api: {}`"),
    ("triggers: [{«cron: '0 6 * * *', timezone: UTC}]\nsteps: [{say: hi}]\n", "trigger.kind", "under `schedule`"),
    ("triggers: [{«mail: {}}]\nsteps: [{say: hi}]\n", "trigger.kind", "`api`, `event`, `schedule`, `run`, `webhook`"),
    ("triggers: [{webhook: {path: a, secret: «s3cr3t}}]\nsteps: [{say: hi}]\n", "webhook.secret", "named, never written"),
    ("triggers: [{webhook: {path: «/a, secret: '${{ secrets.A }}'}}]\nsteps: [{say: hi}]\n", "webhook.path", "shop/orders"),
    ("triggers: [{webhook: {path: a, secret: '${{ secrets.A }}', scheme: standard, «header: X}}]\nsteps: [{say: hi}]\n",
     "webhook.header", "fixed names"),
    ("triggers: [{webhook: {path: a, secret: '${{ secrets.A }}', dedupe: «'${{ event.headers[\"x-github-delivery\"] }}'}}]\n"
     "steps: [{say: hi}]\n", "?webhook.dedupe", "no header is signed"),
    ("triggers: [{webhook: {path: a, secret: '${{ secrets.A }}'}}, {webhook: {path: «a, secret: '${{ secrets.A }}'}}]\n"
     "steps: [{say: hi}]\n", "webhook.path", "already"),
    ("triggers: [{webhook: {path: a, secret: '${{ secrets.A }}', match: event.«hedders.x == 'a'}}]\nsteps: [{say: hi}]\n",
     "expression.unknown_property", "did you mean `headers`?"),
    ("triggers: [{run: {«workfow: a}}]\nsteps: [{say: hi}]\n", "shape.unknown_key", "did you mean `workflow`?"),
    ("triggers: [{run: {workflow: a, on: [«ended]}}]\nsteps: [{say: hi}]\n", "shape.value", "'finished', 'failed' or 'stopped'"),
    ("triggers: [{run: {workflow: a, match: «input.x}}]\nsteps: [{say: hi}]\n", "expression.unknown_name", "before there is a run"),
    ("triggers: [{event: {«typ: a}}]\nsteps: [{say: hi}]\n", "shape.unknown_key", "did you mean `type`?"),
    ("triggers: [{event: {type: a, dedupe: '${{ «input.kind }}'}}]\nsteps: [{say: hi}]\n", "expression.unknown_name", "before there is a run"),
    (HEAD + "triggers: [{schedule: {cron: «'0 0 6 * * *', timezone: UTC}}]\nsteps: [{say: hi}]\n",
     "schedule.cron", "leave the seconds out"),
    (HEAD + "triggers: [{schedule: {cron: «'0 25 * * *', timezone: UTC}}]\nsteps: [{say: hi}]\n",
     "schedule.cron", "correct that field"),
    (HEAD + "triggers: [{schedule: {cron: '0 6 * * *', timezone: «Berlin}}]\nsteps: [{say: hi}]\n",
     "schedule.timezone", "did you mean `Europe/Berlin`?"),
    ("triggers: [{schedule: {cron: '0 6 * * *', timezone: UTC, «input: {amount: 5}}}]\nsteps: [{say: hi}]\n",
     "schedule.input", "does not fit"),
    (HEAD + "triggers: [{«schedule: {cron: '0 6 * * *'}}]\nsteps: [{say: hi}]\n",
     "shape.missing_key", "`timezone` is missing"),
]  # fmt: skip

DECLARATIONS: Final[list[Case]] = [
    (HEAD + "tools: {mail: «acme.mail}\nsteps: [{say: hi}]\n", "shape.type", "{python: acme.mail}"),
    (HEAD + "tools: {«mail: {effect: write}}\nsteps: [{say: hi}]\n", "tool.kind", "`python`"),
    (HEAD + "tools: {mail: {python: a, «mcp: b}}\nsteps: [{say: hi}]\n", "tool.kind", "`python` and `mcp`"),
    (HEAD + "tools: {mail: {python: «acme/mail.py}}\nsteps: [{say: hi}]\n", "tool.python", "pkg.mod"),
    (HEAD + "tools: {mail: {python: a, effect: «readonly}}\nsteps: [{say: hi}]\n", "shape.value", "did you mean `read`?"),
    (HEAD + "tools: {erp: {mcp: 'https://x', auth: '${{ «env.TOKEN }}'}}\nsteps: [{say: hi}]\n",
     "expression.unknown_name", "env"),
    (HEAD + "tools: {p: {«frontend: {parameters: {}}}}\nsteps: [{say: hi}]\n",
     "shape.missing_key", "`description` is missing"),
    (HEAD + "models: {«smart: {provider: openai}}\nsteps: [{say: hi}]\n", "shape.missing_key", "`model` is missing"),
    (HEAD + "models: {smart: {provider: openai, model: m, temperature: «hot}}\nsteps: [{say: hi}]\n",
     "shape.value", "a number"),
    (HEAD + "roles: {boss: [«ann]}\nsteps: [{say: hi}]\n", "role.member", "did you mean `user:ann`?"),
    (HEAD + SHOW.replace("answer", "«result: {type: string}, answer") + "steps: [{call: show}]\n", "tool.no_answer", "remove one of them"),
    (HEAD + SHOW.replace("answer", "«deadline: 1h, answer") + "steps: [{call: show}]\n", "tool.no_answer", "remove one of them"),
    (HEAD + SHOW.replace("none", "«never") + "steps: [{call: show}]\n", "shape.value", "'required' or 'none'"),
    (HEAD + SHOW.replace("answer", "predict: {«doc: text}, answer") + "steps: [{call: show}]\n", "tool.predict", "declare it under `state`"),
    (HEAD + "state: {doc: {type: string, default: ''}}\n" + SHOW.replace("answer", "predict: {doc: «text}, answer") + "steps: [{call: show}]\n", "tool.predict", "has to be one of the tool's `parameters`"),
    (HEAD + "state: {a: {type: string, default: '', client: «'yes'}}\nsteps: [{say: a}]\n", "shape.value", "true or false"),
    (HEAD + "state: {a: {type: string, default: '', keep: «always}}\nsteps: [{say: a}]\n", "shape.value", "'run' or 'thread'"),
    (HEAD + "state: {a: {default: '', «client: true}}\nsteps: [{say: a}]\n", "?state.client", "say its `type`"),
    (HEAD + "roles: {boss: [«role:chief]}\nsteps: [{say: hi}]\n", "role.member", "user:ID or group:NAME"),
]  # fmt: skip

STEPS: Final[list[Case]] = [
    ("steps: [{«sya: hi}]\n", "step.no_verb", "did you mean `say`?"),
    ("steps: [{«foreach: {items: [1], steps: [{say: hi}]}}]\n", "step.no_verb", "did you mean `for_each`?"),
    ("steps: [{«sleep: 5s}]\n", "step.no_verb", "did you mean `wait`?"),
    ("steps: [{id: a, «name: b, say: hi}]\n", "shape.unknown_key", "people see the `title`"),
    ("steps: [{say: hi, «call: mail.send}]\n", "step.two_verbs", "`say` and `call`"),
    ("steps: [«{id: a, title: b}]\n", "step.no_verb", "only `id`, `title`"),
    ("steps: [{approve: {title: t, from: anyone, «on_reject: [{return: 1}]}}]\n", "shape.unknown_key", "it stands beside `approve`"),
    ("steps: [{approve: {title: t, from: anyone}, «deadline: 2d}]\n", "shape.unknown_key", "it stands inside of `approve`"),
    ("steps: [{call: mail.send, approval: {from: anyone, «on_reject: [{return: 1}]}}]\n", "shape.unknown_key", "it stands beside `approval`"),
    ("steps: [{http: {get: 'https://a.example', «retry: {max: 3}}}]\n", "shape.unknown_key", "it stands beside `http`"),
    ("steps: [{for_each: {items: [1], «if: true, steps: [{say: a}]}}]\n", "shape.unknown_key", "it stands beside `for_each`"),
    ("steps: [{approve: {title: t, from: anyone, «timeout: 2d}}]\n", "shape.unknown_key", "did you mean `deadline`?"),
    ("steps: [«say]\n", "step.type", "write `- say: ...`"),
    ("steps: [{id: «sendMail, say: hi}]\n", "shape.value", "write `send_mail`"),
    ("steps: [{id: «in, say: hi}]\n", "shape.value", "a word of CEL"),
    ("steps: [{id: a, say: hi}, {id: «a, say: ho}]\n", "id.duplicate", "rename one"),
    ("steps: [{say: hi, «timeout: 5s}]\n", "shape.unknown_key", "does not apply to a `say` step"),
    ("steps: [{wait: {for: 5s}, «retry: {max: 1}}]\n", "shape.unknown_key", "does not apply"),
    ("steps: [{return: 1, «finally: [{say: a}]}]\n", "shape.unknown_key", "does not apply"),
    ("steps: [{say: hi, «when: 'true'}]\n", "shape.unknown_key", "did you mean `if`?"),
    ("steps: [{say: hi, if: 'steps.«a.status'}, {id: a, say: x}]\n", "expression.later_step", "comes later"),
    ("steps: [{call: mail.send, retry: «3}]\n", "shape.value", "write `retry: {max: 3}`"),
    ("steps: [{call: mail.send, retry: {«attempts: 3}}]\n", "shape.unknown_key", "did you mean `max`?"),
    ("steps: [{call: mail.send, retry: {max: 3, backoff: «linear}}]\n", "shape.value", "'exponential'"),
    ("steps: [{call: mail.send, retry: {max: 3, every: «5 seconds}}]\n", "duration.invalid", "did you mean `5s`?"),
    ("steps: [{call: mail.send, timeout: «30}]\n", "shape.value", "a duration such as"),
    ("steps: [{call: mail.send, retry: {max: 1, errors: [«tool.unavailabel]}}]\n", "?errors.unknown_code", "did you mean `tool.unavailable`?"),
    ("steps: [{call: mail.send, delivery: at_most_once, «retry: {max: 1}}]\n", "delivery.retry", "remove one"),
    ("steps: [{call: mail.send, delivery: «exactly_once}]\n", "shape.value", "'at_most_once'"),
    ("steps: [{say: a, catch: [«{say: b}]}]\n", "catch.step", "put it under `steps`"),
    ("steps: [{say: a, catch: «{steps: [{say: b}]}}]\n", "shape.value", "a list"),
    ("steps: [{fail: {message: a, code: «http.teapot}}]\n", "fail.reserved_code", "choose another"),
]  # fmt: skip

EFFECTS: Final[list[Case]] = [
    ("steps: [{call: «mial.send}]\n", "tool.unknown", "did you mean `mail`?"),
    ("steps: [{call: «send_email}]\n", "tool.unknown", "declare it under `tools`"),
    ("steps: [{call: «mail}]\n", "tool.function", "`call: mail.function`"),
    ("steps: [{call: «one.run}]\n", "tool.function", "write `call: one`"),
    ("steps: [{call: «web.serach}]\n", "tool.function", "did you mean `search`?"),
    ("steps: [{call: «'${{ input.kind }}.send'}]\n", "tool.hole", "use a `switch`"),
    ("steps: [{say: '${{ «secrets.A }}'}]\n", "expression.unknown_name", "`auth` and `headers` of `http`"),
    ("steps: [{«agent: {prompt: hi}}]\n", "shape.missing_key", "add `tools: [tool.*]`"),
    ("steps: [{call: «{tool: mail.send}}]\n", "shape.value", "write `call: NAME`, and `with:` beside it"),
    ("steps: [{call: mail.send, «args: {to: a}}]\n", "shape.unknown_key", "did you mean `with`?"),
    ("steps: [{call: pick, «with: {many: true}}]\n", "call.missing_argument", "`question`"),
    ("steps: [{call: pick, with: {«qestion: a}}]\n", "call.unknown_argument", "did you mean `question`?"),
    ("steps: [{call: pick, with: {question: «5}}]\n", "call.argument", "does not fit"),
    ("steps: [{call: pick, with: {question: a}, «timeout: 5s}]\n", "call.people", "`deadline`"),
    ("steps: [{call: mail.send, stream: {to: «pick, argument: question}}]\n", "stream.tool", "`answer: none`"),
    ("steps: [{call: mail.send, stream: {to: «web, argument: question}}]\n", "stream.tool", "has to be a `frontend` tool"),
    ("steps: [{call: mail.send, stream: {to: «pik, argument: question}}]\n", "tool.unknown", "did you mean `pick`?"),
    ("steps: [{call: mail.send, «stream: {argument: question}}]\n", "shape.missing_key", "`to` is missing"),
    ("steps: [{call: mail.send, stream: «texts}]\n", "shape.value", "'text' or 'none'"),
    ("steps: [{call: pick, with: {question: a}, «stream: {to: pick, argument: question}}]\n", "stream.tool", "nothing of it streams"),
    (HEAD + GROW + "steps: [{call: t.f, stream: {to: show, argument: «documnt}}]\n", "stream.argument", "did you mean `document`?"),
    (HEAD + GROW + "steps: [{call: t.f, stream: {to: show, argument: «size}}]\n", "stream.argument", "has to be a string"),
    (HEAD + GROW.replace("type: object", "type: object, required: [size]") + "steps: [{call: t.f, stream: {to: show, argument: «document}}]\n", "stream.argument", "needs `size` as well"),
    (HEAD + SENDS + "steps: [{call: show, approval: {from: anyone, «still: 'state.x'}}]\n", "still.client", "performed by the client"),
    (HEAD + SENDS + "steps: [{call: t.f, stream: {to: «show, argument: document}}]\n", "stream.tool", "no `effect`"),
    (HEAD + SHOW + "steps: [{call: show, «retry: {max: 3}}]\n", "call.people", "only shown"),
    ("steps: [{http: {«url: 'https://x'}}]\n", "shape.unknown_key", "did you mean `get`?"),
    ("steps: [{«http: {query: {a: b}}}]\n", "http.method", "write `get: https://...`"),
    ("steps: [{http: {get: 'https://x', «post: 'https://y'}}]\n", "http.method", "make it 2 steps"),
    ("steps: [{http: {post: 'https://x', body: {}, «text: a}}]\n", "http.bodies", "remove one"),
    ("steps: [{http: {get: 'https://x', expect: response.«code == 200}}]\n", "expression.unknown_property", "response"),
    ("steps: [{http: {get: 'https://x/${{ «secrets.KEY }}'}}]\n", "expression.unknown_name", "settings of tools"),
    ("steps: [{llm: {model: «gpt-5, prompt: hi}}]\n", "model.unknown", "declare it under `models`"),
    ("steps: [{«llm: {prompt: hi}}]\n", "model.missing", "write `model: smart`"),
    ("steps: [{«llm: {model: smart}}]\n", "llm.prompt", "`prompt`"),
    ("steps: [{llm: {model: smart, prompt: hi, «messages: [{role: user, content: a}]}}]\n", "llm.prompt", "found both"),
    ("steps: [{llm: {model: smart, prompt: hi, «temperatur: 1}}]\n", "shape.unknown_key", "unknown key"),
    ("steps: [{llm: {model: smart, prompt: hi, output: {type: «json}}}]\n", "schema.invalid", "expected a type"),
    ("steps: [{«agent: {model: smart, prompt: hi}}]\n", "shape.missing_key", "`tools` is missing"),
    ("steps: [{agent: {model: smart, prompt: hi, tools: [«wbe.search]}}]\n", "tool.unknown", "did you mean `web`?"),
    ("steps: [{agent: {model: smart, prompt: hi, tools: [web.*, «vague.*]}}]\n", "?agent.effect", "`effect: read`"),
    ("steps: [{agent: {model: smart, prompt: hi, tools: [«vague.*], approvals: {vague.send: none}}}]\n", "?agent.effect", "each call that `approvals` doesn't name"),
    ("steps: [{agent: {model: smart, prompt: hi, tools: [wipe.*], approvals: {wipe.all: «none}}}]\n", "?agent.ungated", "can't be taken back"),
    ("steps: [{agent: {model: smart, prompt: hi, tools: [mail.*], approvals: {«mial.*: none}}}]\n", "agent.approval", "did you mean `mail.*`?"),
    ("steps: [{agent: {model: smart, prompt: hi, tools: [mail.*], approvals: {mail.*: «never}}}]\n", "shape.type", "`none`"),
    ("steps: [{run: «Child Flow}]\n", "run.name", "name@version"),
    ("steps: [{run: child, with: «[1]}]\n", "shape.value", "a mapping"),
    ("steps: [{say: {«txt: hi}}]\n", "shape.unknown_key", "did you mean `text`?"),
    ("steps: [{emit: {«custm: {name: a}}}]\n", "shape.unknown_key", "did you mean `custom`?"),
    ("steps: [{emit: {«custom: {value: a}}}]\n", "shape.missing_key", "`name` is missing"),
]  # fmt: skip

STATE_AND_TIME: Final[list[Case]] = [
    ("steps: [{set: {«stauts: done}}]\n", "set.unknown", "did you mean `status`?"),
    ("steps: [{set: {«other: done}}]\n", "set.unknown", "declare it under `state`"),
    ("steps: [{set: {status: «5}}]\n", "set.type", "does not fit"),
    ("steps: [{set: {«/log/0: a}}]\n", "set.reduce", "not by a pointer"),
    ("steps: [{set: [{op: «append, path: /log/-, value: a}]}]\n", "shape.value", "'add'"),
    ("steps: [{set: «status}]\n", "shape.value", "a mapping or a list"),
    ("steps: [{wait: «5s}]\n", "shape.value", "`wait: {for: 5s}`"),
    ("steps: [{wait: {for: «5}}]\n", "shape.value", "`5s`"),
    ("steps: [{wait: {for: «1 day}}]\n", "duration.invalid", "did you mean `1d`?"),
    ("steps: [{wait: {for: «100ms}}]\n", "duration.invalid", "from 1s"),
    ("steps: [{wait: {until: «2026-03-02}}]\n", "wait.until", "2026-03-02T09:00:00Z"),
    ("steps: [{wait: {for: «'${{ 5 }}'}}]\n", "duration.invalid", "${{ string(int(5)) + 's' }}"),
    ("steps: [{wait: {for: «'${{ [now] }}'}}]\n", "duration.invalid", "a list"),
    ("steps: [{wait: {for: «'${{ null }}'}}]\n", "duration.invalid", "found null"),
    ("steps: [{wait: {until: «'${{ 5 }}'}}]\n", "wait.until", "a number"),
    ("steps: [{wait: {«seconds: 5}}]\n", "shape.unknown_key", "did you mean `for`?"),
    ("steps: [{wait_for: {«type: paid}}]\n", "shape.unknown_key", "did you mean `event`?"),
    ("steps: [{wait_for: {event: paid, match: event.«payload.id == 'a'}}]\n", "expression.unknown_property", "event"),
    ("steps: [{wait_for: {event: paid, «any: [{event: b}]}}]\n", "wait_for.kind", "found `event` and `any`"),
    ("steps: [{wait_for: {event: paid, on_deadline: «reject}}]\n", "deadline.outcome", "`fail` or `default`"),
    ("steps: [{wait_for: {event: paid, on_deadline: «default}}]\n", "deadline.outcome", "default: {...}"),
]  # fmt: skip

BLOCKS: Final[list[Case]] = [
    ("steps: [{switch: «{when: 'true', steps: [{say: a}]}}]\n", "shape.value", "a list"),
    ("steps: [{switch: [{«if: 'true', steps: [{say: a}]}]}]\n", "shape.unknown_key", "did you mean `when`?"),
    ("steps: [{switch: [{«default: true, steps: [{say: a}]}, {when: 'true', steps: [{say: b}]}]}]\n", "switch.default", "move it to the end"),
    ("steps: [{switch: [{when: input.kind == «'train', steps: [{say: a}]}]}]\n", "expression.enum", "it is one of"),
    ("steps: [{parallel: «[{say: a}, {say: b}]}]\n", "shape.value", "a mapping"),
    ("steps: [{parallel: {a: «{say: a}, b: [{say: b}]}}]\n", "shape.type", "begin each step with `- `"),
    ("steps: [{parallel: {a: [{say: a}], b: [{say: b}]}, join: «first}]\n", "parallel.join", "`any`"),
    ("steps: [{parallel: {a: [{set: {status: a}}], b: [{set: {«status: b}}]}}]\n", "?set.parallel", "`reduce`"),
    ("steps: [{for_each: {items: «input.items, steps: [{say: a}]}}]\n", "for_each.items", "write it as a hole"),
    ("steps: [{for_each: {items: «'${{ input.kind }}', steps: [{say: a}]}}]\n", "for_each.items", "of type string"),
    ("steps: [{«for_each: {items: [1]}}]\n", "shape.missing_key", "`steps` is missing"),
    ("steps: [{for_each: {«in: [1], items: [1], steps: [{say: a}]}}]\n", "shape.unknown_key", "unknown key `in`"),
    ("steps: [{for_each: {items: [1], as: «Item, steps: [{say: a}]}}]\n", "shape.value", "lower-case"),
    ("steps: [{for_each: {items: [1], as: «state, steps: [{say: a}]}}]\n", "shape.value", "already names something"),
    ("steps: [{for_each: {items: [{a: 1}], as: «response, key: '${{ response.a }}', steps: [{say: '${{ response.a }}'}]}}]\n",
     "shape.value", "already names something"),
    ("steps: [{for_each: {items: [1], max_parallel: «500, steps: [{say: a}]}}]\n", "shape.value", "at most 256"),
    ("steps: [{for_each: {items: [1], on_failure: «continue, steps: [{say: a}]}}]\n", "shape.value", "'isolate'"),
    ("steps: [{for_each: {items: [1], steps: [{«for_each: {items: [2], steps: [{say: a}]}}]}}]\n", "for_each.as", "name this one with `as`"),
    ("steps: [{for_each: {items: [1], steps: [{«return: 1}]}}]\n", "?return.in_for_each", "not the iteration"),
    ("steps: [{for_each: {items: [1], max_parallel: 4, steps: [{set: {«status: a}}]}}]\n", "?set.parallel", "the last one wins"),
    ("steps: [{«repeat: {until: 'true', steps: [{say: a}]}}]\n", "shape.missing_key", "`max` is missing"),
    ("steps: [{repeat: {max: 3, while: 'true', «until: 'true', steps: [{say: a}]}}]\n", "repeat.conditions", "found both"),
    ("steps: [{repeat: {max: «0, steps: [{say: a}]}}]\n", "shape.value", "at least 1"),
    ("steps: [{try: «{say: a}}]\n", "shape.value", "a list"),
    ("steps: [{return: 1}, «{say: a}]\n", "?step.unreachable", "can't be reached"),
    ("steps: [{call: mail.send, undo: {«say: a}}]\n", "shape.unknown_key", "unknown key `say`"),
    ("steps: [{call: mail.send, «undo: {with: {a: b}}}]\n", "undo.kind", "`call`, `http`, `run`"),
    ("steps: [{call: mail.send, undo: {call: «pick, with: {question: a}}}]\n", "cleanup.waits", "a stop always has to end"),
    ("steps: [{say: a, finally: [{«wait: {for: 5s}}]}]\n", "cleanup.waits", "can't contain `wait`"),
    ("steps: [{say: a, finally: [{switch: [{when: 'true', steps: [{«return: 1}]}]}]}]\n", "cleanup.waits", "can't contain `return`"),
    ("steps: [{say: a}]\nfinally: [{call: mail.send, «approval: {from: anyone}}]\n", "cleanup.waits", "can't contain `approval`"),
]  # fmt: skip

PEOPLE: Final[list[Case]] = [
    ("steps: [{«approve: {title: Pay?}}]\n", "shape.missing_key", "`from` is missing"),
    ("steps: [{approve: {title: a, «approvers: [user:ann]}}]\n", "shape.unknown_key", "did you mean `from`?"),
    ("steps: [{approve: {title: a, from: «ann}}]\n", "selector.invalid", "`user:ann`"),
    ("steps: [{approve: {title: a, from: [«rule:boss]}}]\n", "selector.invalid", "did you mean `role:boss`?"),
    ("steps: [{approve: {title: a, from: [«role:bos]}}]\n", "?role.unknown", "did you mean `boss`?"),
    ("steps: [{approve: {title: a, from: [user:a], quorum: «2}}]\n", "quorum.impossible", "lower it, or name more"),
    ("steps: [{approve: {title: a, from: role:boss, quorum: «3}}]\n", "quorum.impossible", "needs 3 people"),
    ("steps: [{approve: {title: a, from: role:boss, quorum: {any: «3}}}]\n", "quorum.impossible", "needs 3 people"),
    ("steps: [{approve: {title: a, from: [user:a, user:b], quorum: «{user:c: 1}}}]\n", "quorum.impossible", "match its selectors"),
    ("steps: [{approve: {title: a, from: [user:a, user:b], quorum: {user:a: 1, user:b: 1}, on_deadline: [{escalate: {from: «user:c, deadline: 1d}}, reject]}}]\n", "?quorum.impossible", "quorum is user:a: 1, user:b: 1"),
    ("steps: [{approve: {title: a, from: [user:a, user:b], quorum: 2, on_deadline: [{escalate: {exclude: «user:b, deadline: 1d}}, reject]}}]\n", "?quorum.impossible", "has 1 person"),
    ("steps: [{approve: {title: a, from: [user:a, user:b], on_deadline: [{escalate: {quorum: «3, deadline: 1d}}, reject]}}]\n", "?quorum.impossible", "quorum is 3"),
    ("steps: [{approve: {title: a, from: [user:a, user:b], exclude: user:c, on_deadline: [{escalate: {from: «[user:a, user:c], quorum: 2, deadline: 1d}}, reject]}}]\n", "?quorum.impossible", "has 1 person"),
    ("steps: [{approve: {title: a, from: [user:a, user:b], quorum: all, on_deadline: [{escalate: {exclude: «[user:a, user:b], deadline: 1d}}, reject]}}]\n", "?quorum.impossible", "quorum is all"),
    ("steps: [{approve: {title: a, from: [user:a, user:b], quorum: {any: 2}, on_deadline: [{escalate: {exclude: «user:a, deadline: 1d}}, reject]}}]\n", "?quorum.impossible", "quorum is any: 2"),
    ("steps: [{approve: {title: a, from: role:boss, quorum: all, on_deadline: [{escalate: {from: «role:clerk, deadline: 1d}}, reject]}}]\n", "?quorum.impossible", "`role:clerk` can't"),
    ("steps: [{approve: {title: a, from: anyone, quorum: «majority}}]\n", "quorum.invalid", "`all`"),
    ("steps: [{approve: {title: a, from: anyone, quorum: {«boss: 1}}}]\n", "selector.invalid", "`role:boss`"),
    ("steps: [{approve: {title: a, from: anyone, quorum: «all}}]\n", "quorum.impossible", "write a number"),
    ("steps: [{approve: {title: a, from: anyone, reject_when: «majority}}]\n", "reject_when.invalid", "`unreachable`"),
    ("steps: [{approve: {title: a, from: role:clerk, reject_when: «unreachable}}]\n", "?approval.never_unreachable", "only the deadline"),
    ("steps: [{approve: {title: a, from: «requester, exclude: requester}}]\n", "?approval.nobody", "nobody can decide"),
    ("triggers: [{event: {type: a}}]\nsteps: [{approve: {title: a, from: «[requester]}}]\n", "?approval.nobody", "`system`"),
    ("steps: [{approve: {title: a, from: anyone, options: «[approve, revise]}, on_decision: {revise: [{return: 1}]}}]\n", "approve.options", "`reject` is missing"),
    ("steps: [{approve: {title: a, from: anyone, options: [approve, reject, «catch]}}]\n", "approve.options", "choose another word"),
    ("steps: [{approve: {title: a, from: anyone, options: [approve, reject, «Revise]}}]\n", "name.invalid", "lower-case"),
    ("steps: [{approve: {title: a, from: anyone, options: [approve, reject, «revise]}}]\n", "decision.no_handler", "on_decision"),
    ("steps: [{approve: {title: a, from: anyone}, on_decision: {«rejct: [{say: a}]}}]\n", "decision.option", "did you mean `reject`?"),
    ("steps: [{approve: {title: a, from: anyone}, on_decision: {«approve: [{say: a}]}}]\n", "decision.approve", "write the next step"),
    ("steps: [{approve: {title: a, from: anyone, options: [approve, reject, revise]}, on_decision: {«revise: [{say: a}]}}]\n",
     "decision.falls_through", "must end in `return` or `fail`"),
    ("steps: [{approve: {title: a, from: anyone}, on_decision: {reject: [{say: a}]}, «on_reject: [{say: b}]}]\n", "decision.both", "found both"),
    ("steps: [{call: mail.send, «on_reject: [{say: a}]}]\n", "decision.no_approval", "nobody decides"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: «timeout}}]\n", "deadline.outcome", "`reject`"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: «escalate}}]\n", "deadline.outcome", "escalate: {from"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: [reject, «{escalate: {deadline: 1d}}]}}]\n", "deadline.order", "put `escalate` first"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: [{«escalate: {from: role:boss}}]}}]\n", "shape.missing_key", "`deadline` is missing"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: «approve}}]\n", "?approval.by_deadline", "prefer"),
    ("steps: [{approve: {title: a, from: anyone, «edit: true}}]\n", "shape.unknown_key", "unknown key `edit`"),
    ("steps: [{call: mail.send, with: {to: a, body: b}, approval: {from: anyone, edit: [«boddy]}}]\n", "approval.edit", "did you mean `body`?"),
    ("steps: [{call: mail.send, approval: «true}]\n", "shape.value", "{from: role:manager}"),
    ("steps: [{call: mail.send, approval: {from: anyone, when: «amount > 5}}]\n", "expression.unknown_name", "did you mean `input.amount`?"),
    ("steps: [{approve: {title: a, from: anyone, reasons: {«aprove: required}}}]\n", "reasons.unknown", "did you mean `approve`"),
    ("steps: [{parallel: {a: [{say: a}], b: [{say: b}]}, join: «3}]\n", "parallel.join", "from 1 to 2"),
    ("steps: [{parallel: {a: [{say: a}], b: [{say: b}]}, join: «some}]\n", "parallel.join", "`all`, `any`"),
    ("steps: [{approve: {title: a, from: anyone, reasons: {reject: «always}}}]\n", "reasons.word", "`required` or `optional`"),
    ("steps: [{approve: {title: a, from: anyone, combine: {«x: min}, form: {properties: {y: {type: number}}}}}]\n", "combine.unknown", "it has y"),
    ("steps: [{approve: {title: a, from: anyone, combine: {y: «average}, form: {properties: {y: {type: number}}}}}]\n", "combine.word", "same, min"),
    ("steps: [{approve: {title: a, from: anyone, combine: {y: «min}, form: {properties: {y: {type: string}}}}}]\n", "combine.type", "`type: number`"),
    ("steps: [{approve: {title: a, from: anyone, «combine: {y: min}}}]\n", "combine.form", "needs a `form`"),
    ("steps: [{«ask: {title: Why?}}]\n", "shape.missing_key", "`form` is missing"),
    ("steps: [{ask: {title: a, form: {type: «string}}}]\n", "form.type", "under `properties`"),
    ("steps: [{ask: {title: a, form: {properties: {x: {pattern: «'${{ input.kind }}'}}}}}]\n", "schema.hole", "can stand in"),
    ("steps: [{ask: {title: a, form: {properties: {x: {type: string}}}, «quorum: 2}}]\n", "shape.unknown_key", "unknown key `quorum`"),
]  # fmt: skip

NAMES: Final[list[Case]] = [
    ("steps: [{say: '${{ «inptu.kind }}'}]\n", "expression.unknown_name", "did you mean `input`?"),
    ("steps: [{say: '${{ input.«knd }}'}]\n", "expression.unknown_property", "did you mean `kind`?"),
    ("steps: [{say: '${{ state.«stat }}'}]\n", "expression.unknown_property", "did you mean `status`?"),
    ("steps: [{id: a, say: x}, {say: '${{ steps.«b.output }}'}]\n", "expression.unknown_step", "no step `b`"),
    ("steps: [{id: draft, say: x}, {say: '${{ steps.«draf.output }}'}]\n", "expression.unknown_step", "did you mean `draft`?"),
    ("steps: [{say: '${{ steps.«b.status }}'}, {id: b, say: x}]\n", "expression.later_step", "only steps before"),
    ("steps: [{parallel: {x: [{id: a, say: x}], y: [{say: '${{ steps.«a.status }}'}]}}]\n", "expression.sibling_step", "use it after the block"),
    ("steps: [{switch: [{when: 'true', steps: [{id: a, say: x}]}, {default: true, steps: [{say: '${{ steps.«a.status }}'}]}]}]\n",
     "expression.sibling_step", "another case"),
    ("steps: [{id: all, for_each: {items: [1], steps: [{id: a, say: x}]}}, {say: '${{ steps.«a.status }}'}]\n",
     "expression.inside_for_each", "steps.all.output"),
    ("steps: [{id: a, try: [{say: '${{ steps.«a.status }}'}]}]\n", "expression.own_step", "the block around"),
    ("steps: [{id: a, say: x}, {say: '${{ steps.a.«result }}'}]\n", "expression.step_member", "did you mean `output`?"),
    ("steps: [{id: a, say: x}, {say: '${{ steps.a.«approval.reason }}'}]\n", "expression.step_member", "nobody approves"),
    ("steps: [{id: a, say: x}, {say: '${{ «a.output }}'}]\n", "expression.unknown_name", "did you mean `steps.a.output`?"),
    ("steps: [{id: a, for_each: {items: '${{ input.items }}', as: row, steps: [{say: '${{ row.«nam }}'}]}}]\n",
     "expression.unknown_property", "did you mean `name`?"),
    ("steps: [{say: '${{ «item.name }}'}]\n", "expression.unknown_name", "only inside a `for_each`"),
    ("steps: [{say: '${{ «error.code }}'}]\n", "expression.unknown_name", "only in `catch`"),
    ("steps: [{say: '${{ «args.to }}'}]\n", "expression.unknown_name", "only in the keys of `approval`"),
    ("steps: [{say: '${{ «secrets.KEY }}'}]\n", "expression.unknown_name", "settings of tools"),
    ("steps: [{id: a, call: mail.send, catch: [{steps: [{say: b}]}]}, {say: '${{ «steps.a.output }}'}]\n", "?expression.unguarded", "`catch`"),
    ("steps: [{switch: [{when: 'true', steps: [{id: a, call: mail.send}]}]}, {say: '${{ «steps.a.output }}'}]\n", "?expression.unguarded", "a case"),
    ("steps: [{parallel: {x: [{id: a, call: mail.send}], y: [{say: b}]}, join: any}, {say: '${{ «steps.a.output }}'}]\n",
     "?expression.unguarded", "may have won"),
    ("steps: [{repeat: {max: 2, while: «steps.a.output == 1, steps: [{id: a, call: mail.send}]}}]\n", "?expression.unguarded", "the first one"),
    ("steps: [{id: a, call: mail.send}]\nfinally: [{say: '${{ «steps.a.output }}'}]\n", "?expression.unguarded", "has not finished"),
    ("steps: [{id: a, call: mail.send, catch: [{steps: [{say: '${{ «steps.a.output }}'}]}]}]\n", "?expression.unguarded", "has failed"),
    ("steps: [{say: '${{ «input.note + \"!\" }}'}]\n", "?expression.unguarded", "has(input.note)"),
    ("steps: [{say: 'Hello «{{ input.kind }}'}]\n", "?text.braces", "a hole is written"),
    ("steps: [{say: hi, if: «input.amount}]\n", "expression.not_boolean", "expected true or false"),
    ("steps: [{say: hi, if: input.kind «and input.amount}]\n", "expression.syntax", ""),
    ("steps: [{say: hi, if: 'input.kind «== 5'}]\n", "expression.type", ""),
    ("steps: [{say: '${{ length«(input.kind) }}'}]\n", "expression.unknown_function", ""),
]  # fmt: skip

SILENT: Final[list[Case]] = [
    ("steps: [{say: '${{ «input.items.length }}'}]\n", "expression.no_object", "write size(input.items)"),
    ("steps: [{say: a, if: «input.kind.length > 2}]\n", "expression.no_object", "is text and has no `length`; write size(input.kind)"),
    ("steps: [{say: '${{ «input.items.name }}'}]\n", "expression.no_object", "input.items.map(x, x.name)"),
    ("steps: [{say: '${{ input.items.map(i, «i.name.length) }}'}]\n", "expression.no_object", "size(i.name)"),
    ("steps: [{id: a, approve: {title: a, from: anyone}}, {say: a, if: steps.a.output.decision == «'aprove'}]\n", "expression.enum", "did you mean `approve`?"),
    ("steps: [{id: a, approve: {title: a, from: anyone}}, {say: a, if: steps.a.approval.decision == «'approved'}]\n", "expression.enum", "approve, reject"),
    ("steps: [{id: a, say: a}, {say: b, if: steps.a.status == «'done'}]\n", "expression.enum", "finished"),
    (HEAD + "state: {«url: {type: string}}\nsteps: [{say: a}]\n", "?state.starts_null", 'add `default: ""`'),
    ("steps: [{call: mail.send, approval: {from: anyone}, catch: [«{steps: [{say: a}]}]}]\n", "?catch.rejection", "on_reject"),
    ("steps: [{call: mail.send, approval: {from: anyone}, «on_reject: [{say: a}]}]\n", "?decision.raises", "`return`"),
    ("steps: [{call: mail.send, approval: {from: anyone}, on_decision: {«reject: [{say: a}]}}]\n", "?decision.raises", "`return`"),
    ("steps: [{id: a, approve: {title: a, from: anyone}}, {set: {log: «'${{ steps.a.output.reason }}'}}]\n", "?set.nullable", "if: steps.a.output.reason != null"),
    ("steps: [{id: a, approve: {title: a, from: anyone, reasons: {reject: required}}, on_reject: [{set: {status: «'${{ steps.a.output.reason }}'}}, {return: 1}]}]\n", "?set.nullable", "if: steps.a.output.reason != null"),
    ("steps: [{id: a, approve: {title: a, from: anyone, options: [approve, ask, reject], reasons: {reject: required}}, on_decision: {ask: [{set: {status: «'${{ steps.a.output.reason }}'}}, {return: 1}]}}]\n", "?set.nullable", "if: steps.a.output.reason != null"),
    ("steps: [{set: {status: «'${{ input.note }}'}}]\n", "?set.nullable", "`input.note` may be null"),
    (HEAD + "models: {m: {provider: «opnai, model: x}}\nsteps: [{say: a}]\n", "?model.provider", "did you mean `openai`?"),
    (HEAD + "tools: {t: {mcp: 'https://a', auth: «{whatever}}}\nsteps: [{say: a}]\n", "?auth.kind", "bearer: TOKEN"),
    (HEAD + "tools: {t: {mcp: 'https://a', auth: {basic: «x}}}\nsteps: [{say: a}]\n", "?auth.kind", "basic: {user: ..., password: ...}"),
    ("steps: [{http: {get: 'https://a', auth: «{token: x}}}]\n", "?auth.kind", "found `token`"),
    ("steps: [{ask: {title: a, form: {properties: {}}, notify: [«carrier pigeon]}}]\n", "?notify.channel", "slack:#finance"),
    (HEAD + "tools: {t: {http: {«base_ulr: 'https://a'}}}\nsteps: [{say: a}]\n", "?tool.http", "did you mean `base_url`?"),
    ("steps: [{approve: {title: a, from: role:x, on_deadline: [«{escalate: {from: role:y, deadline: 1d}}]}}]\n", "?deadline.end", "it is `reject`"),
    ("steps: [{if: input.amount > 1.0, run: sample, «with: {amount: 1, kind: taxi}}]\n", "run.missing_argument", "needs the argument `items`"),
    ("steps: [{if: input.amount > 1.0, run: sample, with: {amount: 1, items: [], «knid: taxi}}]\n", "run.unknown_argument", "did you mean `kind`?"),
    ("steps: [{if: input.amount > 1.0, run: sample@1, with: {amount: «x, kind: taxi, items: []}}]\n", "run.argument", "number"),
]  # fmt: skip

HABITS: Final[list[Case]] = [
    ("steps: [{say: a, if: '«${{ input.amount }} > 1 && ${{ input.amount }} < 5'}]\n", "expression.holes", "drop the `${{ }}`: input.amount > 1 && input.amount < 5"),
    ("steps: [{say: a, if: input.amount > 1 «and input.amount < 5}]\n", "expression.syntax", "`and` is not CEL; write `&&`"),
    ("steps: [{say: a, if: input.amount > 1 «or input.amount < 5}]\n", "expression.syntax", "write `||`"),
    ("steps: [{say: a, if: «not input.amount > 1}]\n", "expression.syntax", "write `!`"),
    ("steps: [{say: a, if: input.kind «=== 'taxi'}]\n", "expression.syntax", "write `==`"),
    ("steps: [{say: a, if: input.kind «is null}]\n", "expression.syntax", "== or !="),
    ("steps: [{say: '${{ input.kind «| upper }}'}]\n", "expression.syntax", "no filters"),
    ("steps: [{say: '${{ input.kind «?? input.note }}'}]\n", "expression.syntax", "orValue"),
    ("steps: [{say: '${{ now«() }}'}]\n", "expression.unknown_function", "write now, without ()"),
    ("steps: [{say: '${{ input.kind «+ input.amount }}'}]\n", "expression.type", "string(x)"),
    ("steps:\n  - call: mail.send\n    «deadline: 1d\n", "shape.unknown_key", "did you mean `timeout`?"),
    ("steps:\n  - ask: {title: a, form: {properties: {}}}\n    «timeout: 1d\n", "shape.unknown_key", "`deadline`"),
    ("steps: [{switch: [{when: 'true', steps: [{say: a}]}, {«else: [{say: b}]}]}]\n", "shape.unknown_key", "`- default: true`"),
    ("steps: [{run: other, «input: {a: 1}}]\n", "shape.unknown_key", "did you mean `with`?"),
    ("steps: [{wait_for: {«signal: a}}]\n", "shape.unknown_key", "did you mean `event`?"),
    ("steps: [{http: {«url: 'https://a'}}]\n", "shape.unknown_key", "did you mean `get`?"),
    (HEAD + "tools: «[{name: x}]\nsteps: [{say: a}]\n", "shape.value", "write `tools: {shop: {python: acme.shop}}`"),
    (HEAD + "tools: {x: {python: a, «env: {A: b}}}\nsteps: [{say: a}]\n", "shape.unknown_key", "os.environ"),
    (HEAD + "input: {type: object, properties: {a: {type: string, required: «true}}}\nsteps: [{say: a}]\n", "schema.required", "write `required: [a]` there"),
]  # fmt: skip

REMEDIES: Final[list[Case]] = [  # what to write instead, in one line
    (HEAD + "tools: {mail: {python: «mail.py}}\nsteps: [{say: hi}]\n", "tool.python", "found `mail.py`; write `mail`"),
    (HEAD + "tools: {mail: {python: «./tools/mail.py}}\nsteps: [{say: hi}]\n", "tool.python", "; write `tools.mail`"),
    (HEAD + "tools: {mail: {python: «'mail.py:send'}}\nsteps: [{say: hi}]\n", "tool.python", "; write `mail:send`"),
    (HEAD + "tools: {mail: «mail.py}\nsteps: [{say: hi}]\n", "shape.type", "write `mail: {python: mail}`"),
    (HEAD + "tools: {«mail: {module: mail}}\nsteps: [{say: hi}]\n", "tool.kind", "write `mail: {python: mail}`"),
    (HEAD + "use: «a.yaml\nsteps: [{say: hi}]\n", "shape.value", "write `use: [a.yaml]`"),
    ("hai: flow/v1\nname: a\nversion: «1.2.0\nsteps: [{say: hi}]\n", "shape.value", "write 1, and a higher number for each change"),
    (HEAD + "«id: a\nsteps: [{say: hi}]\n", "shape.unknown_key", "did you mean `name`?"),
    (HEAD + "«x-common: &a {max: 3}\nsteps: [{say: hi}]\n", "shape.unknown_key", "put an anchor (`&`) where it is used first"),
    (HEAD + "«schedule: 0 6 * * *\nsteps: [{say: hi}]\n", "shape.unknown_key", "`triggers: [{schedule: {cron:"),
    (HEAD + "triggers: [{schedule: «0 6 * * *}]\nsteps: [{say: hi}]\n", "shape.type", "`schedule: {cron: 0 6 * * 1-5, timezone: Europe/Berlin}`"),
    (HEAD + "triggers: [{run: {workflow: «b.flow.yaml}}]\nsteps: [{say: hi}]\n", "shape.value", "write `b`"),
    (HEAD + "models: {smart: «gpt-5}\nsteps: [{say: hi}]\n", "shape.type", "write `{use: NAME}`, or `{provider: openai, model: NAME}`"),
    (HEAD + "roles: {boss: «requester}\nsteps: [{say: hi}]\n", "role.member", "`requester` stands in a `from`"),
    ("steps: [«say hi there]\n", "step.type", "write `- say: hi there`"),
    ("steps: [«'say:hi']\n", "step.type", "write `- say: hi`"),
    ("steps: [«mail.send]\n", "step.type", "write `- call: mail.send`"),
    ("steps: [«Good morning]\n", "step.type", "write for example `- say: hello`"),
    ("steps: [«[{say: hi}]]\n", "step.type", "drop one of the two `- `"),
    ("steps: [{if: 'true', «then: [{say: hi}]}]\n", "step.no_verb", "`try: [...]`, in place of `then`"),
    ("steps: [{if: 'true', «steps: [{say: hi}]}]\n", "step.no_verb", "`try: [...]`, in place of `steps`"),
    ("steps: [{if: 'true', «then: [{say: hi}], else: [{say: ho}]}]\n", "step.no_verb", "write `switch: [{when: ..., steps: [...]}, {default: true, steps: [...]}]`"),
    ("steps: [{if: 'true', say: hi, «else: [{say: ho}]}]\n", "shape.unknown_key", "write `switch: [{when:"),
    ("steps: [«{if: 'true'}, {say: hi}]\n", "step.no_verb", "`if` stands in the step that it is about"),
    ("steps: [{name: a, «steps: [{say: hi}]}]\n", "step.no_verb", "`try: [...]`"),
    ("steps: [{«type: say, text: hi}]\n", "step.no_verb", "write `say: ...`"),
    ("steps: [{«Greet Ann: {say: hi}}]\n", "step.no_verb", "write `id: greet_ann`, and `say` beside it"),
    ("steps: [{«shell: ls}]\n", "step.no_verb", "write `call: tool.function`"),
    ("steps: [{«wait_until: state.done}]\n", "step.no_verb", "write `repeat` with `until`"),
    ("steps: [{call: mail.send, «recipient: a}]\n", "shape.unknown_key", "if it is an argument, it stands under `with`"),
    ("steps: [{call: mail.send, «items: a}]\n", "shape.unknown_key", "if it is an argument, it stands under `with`"),
    ("steps: [{«name: send, call: mail.send}, {say: '${{ steps.send.output }}'}]\n", "shape.unknown_key", "by its `id`"),
    ("steps: [{call: mail.send, expose: «yes}]\n", "shape.value", "write true"),
    ("steps: [{say: «true}]\n", "shape.value", "quote it"),
    ("steps: [{run: «b.flow.yaml}]\n", "run.name", "the `name` that stands in that file, such as `run: b`"),
    ("steps: [{run: «./b.yaml}]\n", "run.name", "such as `run: b`"),
    ("steps: [{run: «b@v2}]\n", "run.name", "write `b@2`"),
    ("steps: [{run: «b@latest}]\n", "run.name", "without a version it is the latest: write `b`"),
    ("steps: [{run: «python b.py}]\n", "run.name", "declare it under `tools`, and `call` it"),
    ("steps: [{switch: [{«case: 'true', steps: [{say: hi}]}]}]\n", "shape.unknown_key", "did you mean `when`?"),
    ("steps: [{switch: [{when: 'true', steps: [{say: hi}]}, {default: «[{say: ho}], steps: [{say: ho}]}]}]\n", "shape.value", "write `default: true`, and `steps:` beside it"),
    ("steps: [{http: {post: 'https://a.example', «method: POST}}]\n", "shape.unknown_key", "the key of the address: `post: https://...`"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: {escalate: «role:cfo}}}]\n", "shape.type", "write `escalate: {from: role:cfo, deadline: 1d}`"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: {escalate: «[role:cfo, user:ann]}}}]\n", "shape.type", "write `escalate: {from: [role:cfo, user:ann], deadline: 1d}`"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: {escalate: «1d}}}]\n", "shape.type", "write `escalate: {from: role:manager, deadline: 1d}`"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: «'escalate: role:cfo'}}]\n", "deadline.outcome", "without quotes: `escalate: {from: role:cfo, deadline: 1d}`"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: {reject: «too late}}}]\n", "shape.type", "write `reject: {reason: too late}`"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: {fail: «true}}}]\n", "shape.type", "write `fail` alone"),
    ("steps: [{approve: {title: a, from: anyone, «escalate: role:cfo}}]\n", "shape.unknown_key", "write `on_deadline: {escalate: {from:"),
    ("steps: [{approve: {title: a, from: anyone}, «on_approve: [{say: hi}]}]\n", "shape.unknown_key", "is the next step"),
    ("steps: [{approve: {title: a, from: «{role: boss}}}]\n", "selector.invalid", "write `role:boss`, without a space"),
    ("steps: [{approve: {title: a, from: «'role: boss'}}]\n", "selector.invalid", "did you mean `role:boss`?"),
    ("steps: [{approve: {title: a, from: «users:ann}}]\n", "selector.invalid", "did you mean `user:ann`?"),
]  # fmt: skip

ARTICLES: Final[list[Case]] = [
    ("steps: [{approve: {title: a, from: anyone}, «foo: 1}]\n", "shape.unknown_key", "in an `approve` step"),
    ("steps: [{ask: {title: a, form: {properties: {}}}, «foo: 1}]\n", "shape.unknown_key", "in an `ask` step"),
    ("steps: [{llm: {model: smart, prompt: a}, «foo: 1}]\n", "shape.unknown_key", "in an `llm` step"),
    ("steps: [{http: {get: 'https://a.example'}, «foo: 1}]\n", "shape.unknown_key", "in an `http` step"),
    ("steps: [{say: a, «foo: 1}]\n", "shape.unknown_key", "in a `say` step"),
]  # fmt: skip

STRANGE: Final[list[Case]] = [  # right YAML that means something else here
    ("steps: [{say: 'Hello «${input.kind}'}]\n", "?text.braces", "`${input.kind}` is plain text here; a hole is written ${{ input.kind }}"),
    ("steps: [{say: 'Hello «${kind}'}]\n", "?text.braces", "a hole is written ${{ input.kind }}"),
    ("steps: [{say: 'Hello «{{ kind }}'}]\n", "?text.braces", "a hole is written ${{ input.kind }}"),
    ("steps: [{say: 'Hello «$(input.kind)'}]\n", "?text.braces", "a hole is written ${{ input.kind }}"),
    ("steps: [{say: 'Hello «{input.kind}'}]\n", "?text.braces", "a hole is written ${{ input.kind }}"),
    ("steps: [{say: '${{ input.kind }}, «{{ state.status }}'}]\n", "?text.braces", "a hole is written ${{ state.status }}"),
    ("steps: [{id: a, call: mail.send}, {say: 'Sent: «{{ a.output }}'}]\n", "?text.braces", "a hole is written ${{ steps.a.output }}"),
    ("steps: [{for_each: {items: '${{ input.items }}', steps: [{say: 'To «${item.name}'}]}}]\n", "?text.braces", "a hole is written ${{ item.name }}"),
    ("steps: [{call: mail.send, with: {to: «input.kind}}]\n", "?text.path", "a hole is written ${{ input.kind }}"),
    ("steps: [{id: a, call: mail.send}]\noutput: {sent: «steps.a.output.id}\n", "?text.path", "a hole is written ${{ steps.a.output.id }}"),
    ("steps: [{set: {status: «state.status}}]\n", "?text.path", "a hole is written ${{ state.status }}"),
    ("steps:\n  - say: Order «#${{ input.kind }} is there\n", "?yaml.comment", "quote the whole text"),
    ("steps:\n  - say: Order «#5 is there\n", "?yaml.comment", "quote the whole text"),
    ("steps:\n  - call: mail.send\n    with: {zip: «01234}\n", "?yaml.zeros", "reads 01234 as the number 1234; quote it"),
    ("steps: [{run: «sample, with: {amount: 1, kind: taxi, items: []}}]\n", "?run.itself", "give the step an `if`"),
    ("steps: [{parallel: {a: [{try: [{run: «sample@1, with: {amount: 1, kind: taxi, items: []}}]}], b: [{say: a}]}}]\n", "?run.itself", "without end"),
    ("steps: [{say: a}]\nfinally: [{run: «sample, with: {amount: 1, kind: taxi, items: []}}]\n", "?run.itself", "without end"),
    ("steps: [{set: {status: done}}, {repeat: {max: 2, steps: [{run: «sample, with: {amount: 1, kind: taxi, items: []}}]}}]\n", "?run.itself", "without end"),
]  # fmt: skip

TONGUES: Final[list[Case]] = [  # expressions and YAML of other languages
    ("steps: [{say: a, if: input.kind == «taxi}]\n", "expression.unknown_name", 'text stands in quotes: "taxi"'),
    ("steps: [{say: a, if: input.note != «None}]\n", "expression.unknown_name", "did you mean `null`?"),
    ("steps: [{say: a, if: input.amount > 1.0 && «True}]\n", "expression.unknown_name", "did you mean `true`?"),
    ("steps: [{say: a, if: input.kind «<> 'taxi'}]\n", "expression.syntax", "write `!=`"),
    ("steps: [{say: a, if: \"input.kind «not in ['taxi']\"}]\n", "expression.syntax", "write !(x in list)"),
    ("steps: [{say: \"${{ 'a' «if input.amount > 1.0 else 'b' }}\"}]\n", "expression.syntax", "write a ? b : c"),
    ("steps: [{say: a, if: \"contains«(input.kind, 'a')\"}]\n", "expression.unknown_function", 'write text.contains("x")'),
    ("steps: [{say: a, if: input.kind.startswith«('a')}]\n", "expression.unknown_function", "use startsWith()"),
    ("steps: [{say: a, if: always«()}]\n", "expression.unknown_function", "stands under `finally`"),
    ("steps: [{say: '${{ «env.HOME }}'}]\n", "expression.unknown_name", "${{ secrets.NAME }}"),
    ("steps: [{say: '${{ «foo.bar }}'}]\n", "expression.unknown_name", "there is no name `foo`"),
    ("steps: [{call: mail.send}, {say: '${{ steps.«send.output }}'}]\n", "expression.unknown_step", "a step is named by its `id`"),
    ("steps: [{id: a, approve: {title: a, from: anyone}}, {say: a, if: steps.a.«approved}]\n", "expression.step_member", 'write steps.a.approval.decision == "approve"'),
    ("steps: [{call: «mail.send(input.kind)}]\n", "tool.function", "its arguments stand under `with`"),
    ("steps: [{call: 'mail.«${{ input.kind }}'}]\n".replace("'mail.«", "«'mail."), "tool.hole", "use a `switch`"),
    ("steps: [{set: {«state.status: a}}]\n", "set.unknown", "did you mean `status`?"),
    (HEAD + "state: {n: {type: integer, default: 0}}\nsteps: [{set: {n: «state.n + 1}}]\n", "set.type", "an expression is written ${{ state.n + 1 }}"),
    (HEAD + "input: {type: object, properties: {a: «str}}\nsteps: [{say: hi}]\n", "schema.invalid", "write `{type: string}`"),
    (HEAD + "input: {type: object, properties: {a: {type: «dict}}}\nsteps: [{say: hi}]\n", "schema.invalid", "did you mean `object`?"),
    (HEAD + "state: {done: {type: boolean, default: «no}}\nsteps: [{say: hi}]\n", "schema.default", "write false"),
    (HEAD + "tools: «[shop]\nsteps: [{call: shop.total}]\n", "shape.value", "a mapping"),
    ("«timeout: 5m\nsteps: [{say: hi}]\n", "shape.unknown_key", "it stands inside of `defaults`"),
    ("steps:\n  - say: hi\n      to«: ann\n", "yaml.syntax", "the line is indented too far"),
    ("steps:\n  - say: *bold«* text\n", "yaml.syntax", "must be quoted"),
    ("steps:\n  - say: {name} «is there\n", "yaml.syntax", "must be quoted"),
    ("steps:\n  - say: [x] «done\n", "yaml.syntax", "must be quoted"),
    ("steps:\n  - say: {«{ input.kind }}\n", "yaml.key", "a hole is written ${{ }}"),
    ("steps:\n  - say: hi\n    «say: ho\n", "yaml.duplicate_key", "or begin another item with `- `"),
]  # fmt: skip

AGAIN: Final[list[Case]] = [  # and what the next fifty wrong files showed
    ("hai:flow/v1\nname«: a\nversion: 1\nsteps: [{say: hi}]\n", "yaml.syntax", "the line before needs a space after its colon"),
    ("hai: flow/v1\nname: a\nversion: 1\nsteps\n  - say«: hi\n", "yaml.syntax", "line 4 is read as a key: write a colon behind it"),
    ("steps:\n  - say: |\n    hello\n    «world\n", "yaml.syntax", "or indent it further"),
    ("steps:\n  - say: hi\n«```\n", "yaml.syntax", "leave out the lines with ```"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: «{escalate: , from: role:boss, deadline: 1d}}}]\n", "deadline.outcome", "indent `from` and `deadline` further, to stand inside of `escalate`"),
    ("steps: [{call: mail.send, approval: {from: anyone}, «quorum: 2}]\n", "shape.unknown_key", "it stands inside of `approval`"),
    ("steps: [{call: mail.send, «save_as: x}]\n", "shape.unknown_key", "what a step gives is `steps.ID.output`"),
    ("steps: [{ask: {title: a, form: {properties: {}}, «options: [a, b]}}]\n", "shape.unknown_key", "choices are the `enum`"),
    ("steps: [{«email: {to: ann}}]\n", "step.no_verb", "write `call: tool.function`"),
    ("steps: [{«subworkflow: b}]\n", "step.no_verb", "did you mean `run`?"),
    ("steps: [{repeat: {max: 2, steps: [«break]}}]\n", "step.type", "write `- break: true`"),
    ("steps: [«exit]\n", "step.type", "write `- return: ...`"),
    ("steps: [{repeat: {max: 2, steps: [{continue: «now}]}}]\n", "shape.value", "write `continue: true`"),
    ("steps: [{approve: {title: a, from: [role:boss, role:hr], quorum: «all}}]\n", "quorum.impossible", "`role:hr` can't; list its people under `roles`"),
    ("steps: [{approve: {title: a, from: group:hr, quorum: «all}}]\n", "quorum.impossible", "name its people as `user:`"),
    ("steps: [{approve: {title: a, from: role:boss, on_deadline: [{escalate: {from: role:clerk, quorum: «all, deadline: 1d}}, reject]}}]\n",
     "quorum.impossible", "`role:clerk` can't"),
    ("steps: [{id: f, for_each: {items: '${{ input.items }}', steps: [{say: a}]}}, {say: '${{ steps.f.output.map(r, «r.output.n) }}'}]\n",
     "expression.no_object", "give the `for_each` an `output`"),
    ("steps: [{say: '${{ «now.year }}'}]\n", "expression.no_object", "write now.getFullYear()"),
    ("steps: [{say: '${{ «input.kind[0] }}'}]\n", "expression.no_object", "write input.kind.charAt(0)"),
    ("steps: [{let: {t: '${{ timestamp(input.kind) }}'}}, {if: t «> now, say: a}]\n", "expression.mismatch", "write timestamp(x) around the text"),
    ("steps: [{let: {t: '${{ now }}'}}, {say: '${{ t «- now }}'}]\n", "expression.mismatch", "write timestamp(x) around the text"),
    ("steps: [{let: {t: '${{ now }}'}}, {say: '${{ t.getFullYear«() }}'}]\n", "expression.mismatch", "write timestamp(x) around the text"),
    ("steps: [{let: {t: '${{ now }}'}}, {say: \"${{ t.format_time«('%Y', 'UTC') }}\"}]\n", "expression.mismatch", "write timestamp(x) around the text"),
    ("steps: [{let: {d: '${{ now - timestamp(input.kind) }}'}}, {if: d «> duration(\"1h\"), say: a}]\n", "expression.mismatch", "write duration(x) around the text"),
    ("steps: [{let: {d: '${{ duration(\"1h\") + duration(\"1m\") }}'}}, {say: '${{ now «+ d }}'}]\n", "expression.mismatch", "write duration(x) around the text"),
    ("steps: [{let: {t: '${{ now + duration(\"1h\") }}'}}, {if: t «< now, say: a}]\n", "expression.mismatch", "write timestamp(x) around the text"),
    ("steps: [{let: {t: '${{ input.amount > 1 ? now : now - duration(\"1h\") }}'}}, {if: t «< now, say: a}]\n", "expression.mismatch", "write timestamp(x) around the text"),
    ("steps: [{let: {ts: '${{ input.items.map(i, timestamp(i.name)) }}'}}, {say: '${{ ts.filter(t, t «> now).size() }}'}]\n", "expression.mismatch", "write timestamp(x) around the text"),
]  # fmt: skip

SEVERAL: Final = "roles: {boss: [user:ann, user:bob]}\nsteps:\n  - {id: a, approve: {title: a, from: role:boss, quorum: 2, form: {required: [w], properties: {w: {type: string}}}, combine: {w: list}}}\n"

TEXTS: Final[list[Case]] = [  # of what CEL says in words of its own
    ("steps: [{say: '${{ input.items.«any(x, x.name == \"a\") }}'}]\n", "expression.unknown_function", "no function `any`; write x.exists(y, ...)"),
    ("steps: [{say: '${{ input.items.«sort(x, x.name) }}'}]\n", "expression.unknown_function", "write rows.sort_by(r, r.name)"),
    ("steps: [{say: '${{ input.items.«reduce(a, b, a + b) }}'}]\n", "expression.unknown_function", "use x.sum()"),
    ("steps: [{say: '${{ input.items.«count(x, x.name == \"a\") }}'}]\n", "expression.unknown_function", "`count` names no item; write x.filter("),
    ("steps: [{say: '${{ input.kind.split«() }}'}]\n", "expression.unknown_function", '`split` is written x.split(",")'),
    ("steps: [{say: '${{ math.max«(1, 2) }}'}]\n", "expression.unknown_function", "math.greatest"),
    ("steps: [{say: '${{ input.kind «? 1 : 2 }}'}]\n", "expression.type", 'a condition must be true or false, found string; compare it, as in x != ""'),
    ("steps: [{say: '${{ input.amount > 1 «&& input.kind }}'}]\n", "expression.type", "a condition must be true or false, found string"),
    ("steps: [{if: '«!input.count', say: a}]\n", "expression.type", "found int; compare it, as in x != 0"),
    ("steps: [{say: '${{ input.kind «|| \"none\" }}'}]\n", "expression.type", "a default is written x.?y.orValue(z)"),
    ("steps: [{say: '${{ input.items.filter«(i, size(i.name)).size() }}'}]\n", "expression.type", "a condition must be true or false, found int"),
    ("steps: [{say: '${{ input.amount > 1 «? 1 : \"a\" }}'}]\n", "expression.type", "found (int, string)"),
    ("steps: [{say: '${{ «input.kind.filter(x, x == \"a\") }}'}]\n", "expression.invalid", "go through a list or a map, found string"),
    ("steps: [{say: '${{ [\"a\"].map(x, x«.y) }}'}]\n", "expression.invalid", "found string, which has no properties"),
    ("steps: [{say: '${{ has(«input) }}'}]\n", "expression.invalid", "has() asks for a property"),
    ("steps: [{if: input.kind «== null, say: a}]\n", "expression.type", "by its type it never is null"),
    ("steps: [{if: '«-input.kind == 1', say: a}]\n", "expression.type", "`-` can't be applied to (string)"),
    ("steps: [{if: 'input.count «in [\"1\"]', say: a}]\n", "expression.type", "write string(x) around the number"),
    ("steps: [{say: '${{ string«(input.items) }}'}]\n", "expression.type", "a list or a map becomes JSON"),
    (f"{HEAD}{SEVERAL}  - {{if: steps.a.output.values.w «== 'x', say: a}}\n", "expression.type", "compares list(string) with string"),
    ("steps: [{repeat: {max: 9, while: index >= 0 && «steps.a.output.more, steps: [{id: a, call: mail.send}]}}]\n", "?expression.unguarded", "the first one"),
    ("steps: [{repeat: {max: 9, while: index == 0 || «steps.a.output.more, steps: [{id: a, if: input.amount > 1, call: mail.send}]}}]\n", "?expression.unguarded", "`if`"),
    ("steps: [{http: {«url: 'https://a.de', method: POST}}]\n", "shape.unknown_key", "write `post:` in place of `url` and `method`"),
    ("steps: [{fail: {«error: too much}}]\n", "shape.unknown_key", "did you mean `message`?"),
    ("steps: [{call: mail.send, with: {to: a}, approval: {from: anyone, edit: «to}}]\n", "shape.value", "write `edit: [to]`"),
    ("steps: [{approve: {title: a, from: anyone, deadline: «48}}]\n", "shape.value", "give it a unit: `48h`"),
    ("steps: [{«activity: mail.send}]\n", "step.no_verb", "did you mean `call`?"),
    ("steps:\n  - try:\n      «steps:\n        - say: a\n", "shape.value", "its list stands below `try` itself, without `steps`"),
    ("triggers:\n  «schedule: {cron: 0 2 * * *, timezone: UTC}\nsteps: [{say: a}]\n", "shape.value", "write `- schedule:` in place of `schedule:`"),
    ("steps: [{llm: {model: «gpt-5.4, prompt: hi}}]\n", "model.unknown", "as `smart: {provider: openai, model: gpt-5.4}`"),
    ("steps: [{for_each: {items: [a], steps: [{id: a, say: b}]}}, {say: '${{ steps.«a.output }}'}]\n", "expression.inside_for_each", "give the for_each an `id` and an `output` and use steps.ID.output"),
    ("steps: [{ask: {title: a, form: {«name: string}}}]\n", "schema.unknown_keyword", "`name: {type: ...}`"),
    (f"{HEAD}  - say«: a\n", "yaml.syntax", "a list belongs to a key, as `steps:`"),
    ("steps: [{say: '${{ input.kind «+ duration(\"1h\") }}'}]\n", "expression.type", "write timestamp(x) or duration(x) around the text"),
    ("steps: [{let: {ok: '${{ has(input.note) }}'}}, {if: '!ok', say: '${{ «input.note + \"!\" }}'}]\n", "?expression.unguarded", "has(input.note)"),
    ("steps: [{let: {ok: '${{ has(state.log) && has(input.note) || input.count > 1 }}'}}, {if: ok, say: '${{ «input.note + \"!\" }}'}]\n", "?expression.unguarded", "has(input.note)"),
    ("steps: [{if: size(input.items) != 0 && size(input.items) != 2, say: '${{ «input.items[1].name }}'}]\n", "?expression.unguarded", "may have no item [1]"),
    ("steps: [{say: '${{ 100 «/ size(input.items) }}'}]\n", "?expression.unguarded", "`input.items` may be empty, and this divides by zero then"),
    ("steps: [{say: '${{ input.amount «/ double(size(input.items)) }}'}]\n", "?expression.unguarded", "divides by zero"),
    ("steps: [{say: '${{ input.amount «/ double(input.items.filter(i, i.name != \"\").size()) }}'}]\n", "?expression.unguarded", "the list may be empty"),
]  # fmt: skip

SOUND: Final[list[str]] = [  # and no finding at all
    "steps: [{let: {ok: '${{ has(input.note) }}', n: '${{ size(input.items) }}'}}, {if: ok && n > 0, say: '${{ input.note + input.items[0].name }}'}, {if: '!ok || n < 2', return: 1}, {say: '${{ input.note + input.items[1].name }}'}]\n",
    "steps: [{id: a, if: input.amount > 1, call: mail.send}, {let: {sent: '${{ steps.a.status == \"finished\" }}'}}, {if: sent, say: '${{ steps.a.output.id }}'}]\n",
    "steps: [{let: {hits: '${{ input.items.filter(i, i.name != \"\") }}'}}, {switch: [{when: hits.size() == 0, steps: [{return: 1}]}, {when: size(hits) == 1, steps: [{say: '${{ hits[0].name }}'}]}, {default: true, steps: [{say: '${{ hits[1].name }}'}]}]}]\n",
    "steps: [{id: f, for_each: {items: '${{ input.items }}', steps: [{say: a}]}}, {say: '${{ steps.f.output.filter(r, r.output == null && r.status == \"finished\").map(r, r.key) }}'}]\n",
    "steps: [{repeat: {max: 9, while: 'index == 0 || steps.a.output.more', steps: [{id: a, call: mail.send}]}}]\n",
    "steps: [{repeat: {max: 9, while: '0 < index ? steps.a.output.more : true', steps: [{id: a, call: mail.send}]}}]\n",
    "steps: [{let: {t: '${{ now }}', d: '${{ duration(\"1h\") }}'}}, {if: timestamp(t) + duration(d) > now, say: '${{ t }} ${{ d }} ${{ timestamp(t).getFullYear() }} ${{ t.split(\"T\")[1] }} ${{ t < \"2027\" }}'}]\n",
    "steps: [{say: '${{ (now - timestamp(input.kind)).getHours() }} ${{ [now].filter(t, t > now + duration(\"1h\")).size() }} ${{ now - now > duration(\"0s\") ? 1 : 2 }}'}]\n",
    "steps: [{say: '${{ input.items.map(i, 1.0 / double(input.items.size())) }} ${{ input.items.filter(i, 10 / size(input.items) > 1) }}'}]\n",
    "steps: [{for_each: {items: '${{ input.items }}', steps: [{say: '${{ 10 / size(input.items) }} ${{ input.items[0].name }}'}]}}]\n",
    "steps: [{if: \"input.items.filter(x, x.name == 'a').size() == 1\", say: '${{ input.items.filter(each, each.name == \"a\")[0].name }}'}]\n",
    "steps: [{say: '${{ size(input.items) > 0 ? input.amount / double(size(input.items)) : 0.0 }} ${{ input.amount / double(size(input.items)) > 0.5 }}'}, {if: size(input.items) == 0, return: 1}, {say: '${{ 10 / size(input.items) }}'}]\n",
    "steps: [{approve: {title: a, from: [role:boss, user:x], quorum: all}}, {approve: {title: a, from: role:clerk, quorum: '${{ input.count > 1 ? 2 : 1 }}'}}]\n",
    "steps: [{approve: {title: a, from: [user:a, user:b], quorum: {user:a: 1, any: 2}, on_deadline: [{escalate: {from: [user:a, user:c], deadline: 1d}}, {escalate: {quorum: 1, exclude: user:c, deadline: 1d}}, reject]}}]\n",
    "steps: [{say: 'Set ${HOME} and {name}, {{{x}}}, $(date), {amount}, $${{ input.kind }}'}]\n",
    "steps: [{say: '${{ {\"a\": input.kind}.a }} ${{ \"{input.kind}\" }}'}]\n",
    "steps: [{call: mail.send, with: {path: input.kinds, topic: steps.a, b: state, file: input.txt}}]\n",
    "steps:\n  - say: a text # a remark\n  - wait: {for: 5s} #1 is not enough\n  - say: \"Order #5\"\n  - return: |\n      Order #5\n",
    "steps:\n  - call: mail.send\n    with: {a: 0, b: 0.5, c: '007', d: 2026-01-05, e: 0x10, f: 12:05, g: a07, h: -0}\n",
    "steps: [{if: input.amount > 1.0, run: sample, with: {amount: 1, kind: taxi, items: []}}]\n",
    "steps: [{run: sample, detach: true, with: {amount: 1, kind: taxi, items: []}}]\n",
    "steps: [{run: sample@7, with: {amount: 1, kind: taxi, items: []}}, {run: other}]\n",
    "steps: [{if: input.amount > 1.0, return: 1}, {run: sample, with: {amount: 1, kind: taxi, items: []}}]\n",
    "steps: [{approve: {title: a, from: anyone}}, {run: sample, with: {amount: 1, kind: taxi, items: []}}]\n",
    "steps: [{switch: [{when: input.amount > 1.0, steps: [{run: sample, with: {amount: 1, kind: taxi, items: []}}]}]}]\n",
    "steps: [{call: mail.send, catch: [{steps: [{run: sample, with: {amount: 1, kind: taxi, items: []}}]}]}]\n",
    "steps: [{for_each: {items: '${{ input.items }}', steps: [{run: sample, with: {amount: 1, kind: taxi, items: []}}]}}]\n",
    "steps: [{run: sample, approval: {from: anyone}, with: {amount: 1, kind: taxi, items: []}}]\n",
    "steps: [{approve: {title: a, from: [role:x, role:y], quorum: {role:x: 1, role:y: 1, any: 3}}}, {approve: {title: a, from: [role:x, role:y], quorum: {role:x: 2, any: 2}}}]\n",
    "steps: [{say: '${{ [1, 2.5].sum() }} ${{ input.items.map(i, size(i.name)).sum() }} ${{ input.items.filter(i, i.name != \"\").map(i, 1).sum() }}'}]\n",
    "steps: [{id: a, approve: {title: a, from: anyone, options: [approve, ask, reject], reasons: {ask: required}}, on_decision: {ask: [{set: {status: '${{ steps.a.output.reason }}', log: '${{ steps.a.approval.reason }}'}}, {return: 1}]}}]\n",
    "steps: [{id: a, call: mail.send, approval: {from: anyone, options: [approve, ask, reject], reasons: {ask: required}}, on_decision: {ask: [{set: {status: '${{ steps.a.approval.reason }}'}}, {return: 1}]}}]\n",
]  # fmt: skip

GROUPS: Final = {
    "strange": STRANGE, "tongues": TONGUES, "again": AGAIN,
    "remedies": REMEDIES, "articles": ARTICLES,
    "habits": HABITS,
    "silent": SILENT, "texts": TEXTS,
    "yaml": YAML, "document": DOCUMENT, "triggers": TRIGGERS, "declarations": DECLARATIONS, "steps": STEPS,
    "effects": EFFECTS, "state_and_time": STATE_AND_TIME, "blocks": BLOCKS, "people": PEOPLE, "names": NAMES,
}  # fmt: skip
CASES: Final = [pytest.param(*case, id=f"{name}-{n}") for name, cases in GROUPS.items() for n, case in enumerate(cases)]


@pytest.mark.parametrize(("text", "code", "words"), CASES)
def test_one_mistake_is_answered_by_one_finding_that_points_at_it(text: str, code: str, words: str) -> None:
    whole = text if text.lstrip("«").startswith("hai:") else BASE + textwrap.dedent(text)
    before = whole[: whole.index("«")]
    place = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    found = check_workflow(whole.replace("«", "").encode(), "f")
    shown = [(finding.line, finding.column, finding.code, finding.message) for finding in found]
    assert len(found) == 1, shown
    assert found[0].code == code.removeprefix("?"), shown
    assert found[0].severity == ("warning" if code.startswith("?") else "error")
    assert (found[0].line, found[0].column) == place, shown
    assert words in found[0].message
    assert found[0].file == "f"


@pytest.mark.parametrize("text", SOUND, ids=range(len(SOUND)))
def test_what_only_looks_like_a_mistake_is_none(text: str) -> None:
    assert [(each.code, each.message) for each in check_workflow((BASE + text).encode())] == []


@pytest.mark.parametrize("named", ["vague.*", "vague.send"])
def test_an_agent_whose_approvals_name_the_tool_gets_no_warning(named: str) -> None:
    text = f"steps: [{{agent: {{model: smart, prompt: hi, tools: [vague.send], approvals: {{{named}: none}}}}}}]\n"
    assert check_workflow((BASE + text).encode()) == []


@pytest.mark.parametrize("rule", ["tools: {t: {python: mail.py}}", "roles: {boss: [user:ann]}"])
def test_a_file_name_and_a_space_are_doubts_in_what_was_published(rule: str) -> None:
    """`python: mail.py` is also the module `py` of a package, and `role: boss` a role that nobody has."""
    step = (
        "steps: [{approve: {title: a, from: ['role: boss', user:ann]}}]\n" if "roles" in rule else "steps: [{say: a}]\n"
    )
    warnings = compile_workflow((HEAD + rule + "\n" + step).encode(), stored=True).warnings
    assert [each.code for each in warnings] == ["selector.invalid" if "roles" in rule else "tool.python"]


def test_what_was_published_before_a_rule_still_runs() -> None:
    """A document in the database has passed the rules of its day."""
    for text, code, _ in SILENT:
        whole = (text if text.startswith("hai:") else BASE + text).replace("«", "").encode()
        warnings = compile_workflow(whole, stored=True).warnings
        assert [(each.code, each.severity) for each in warnings] == [(code.removeprefix("?"), "warning")]


def test_the_corpus_is_large_enough_and_its_base_is_sound() -> None:
    assert len(CASES) >= 100
    assert check_workflow((BASE + "steps: [{say: hi}]\n").encode()) == []


@pytest.mark.parametrize("expression", ["chosen.map(each, each.zz)", "chosen.filter(row, true).map(each, each.zz)"])
def test_a_published_text_is_not_held_to_the_inferred_type_of_a_list(expression: str) -> None:
    rows = "{type: array, items: {type: object, properties: {n: {type: integer}}, required: [n], additionalProperties: false}}"
    text = f"""hai: flow/v1
name: inferred
version: 1
input: {{type: object, required: [rows], properties: {{rows: {rows}}}}}
steps:
  - let: {{chosen: "${{{{ input.rows.filter(row, row.n > 1) }}}}"}}
  - let: {{seen: "${{{{ {expression} }}}}"}}
  - say: "${{{{ string(size(seen)) }}}}"
"""
    with pytest.raises(DefinitionError):
        compile_workflow(text.encode())
    assert [each.code for each in compile_workflow(text.encode(), stored=True).warnings] == ["expression.no_object"]
