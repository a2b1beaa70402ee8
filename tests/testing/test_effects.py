"""Everything that reaches out is answered from the test: requests, models, agents, child runs, signals, undo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testing.support import flow, loaded, messages, played

TESTS = "hai: test/v1\nworkflow: expense.flow.yaml\n"
HTTP = flow("""
steps:
  - id: ping
    http: {get: "https://example.com/x"}
    retry: {max: 2, every: 1s}
output: ${{ steps.ping.output }}
""")
WATCHED = flow("""
input: {type: object, properties: {most: {type: number, default: 0.5}}}
steps:
  - id: ping
    http: {get: "https://example.com/x", expect: response.json.rate < input.most}
""")
AGENT = flow("""
models: {smart: {provider: openai, model: gpt-5}}
tools: {web: {mcp: "https://mcp.example.com", effect: read}, mail: {python: acme.mail, effect: write}}
steps:
  - id: research
    agent: {model: smart, prompt: Look it up., tools: [web.search, mail.*], max_turns: 3}
output: ${{ steps.research.output }}
""")
LLM = flow("""
models: {smart: {provider: openai, model: gpt-5}}
steps:
  - id: draft
    llm: {model: smart, prompt: Write., output: {type: object, required: [body], properties: {body: {type: string}}}}
output: ${{ steps.draft.output }}
""")
CHILD = flow("""
steps:
  - id: other
    run: other_flow
    with: {n: 1}
output: ${{ steps.other.output }}
""")
WAITING = flow("""
steps:
  - id: gather
    wait: {for: 1h}
  - id: paid
    wait_for: {event: paid, match: event.data.order == "A1", deadline: 2d}
output: ${{ steps.paid.output.data }}
""")
LOOP = flow("""
tools: {k8s: {python: acme.k8s}}
steps:
  - id: all
    for_each:
      items: [api, web]
      as: name
      on_failure: isolate
      steps:
        - id: deploy
          call: k8s.deploy
          with: {name: "${{ name }}"}
          undo: {call: k8s.rollback, with: {}}
        - id: check
          call: k8s.check
          with: {}
output: ${{ steps.all.output }}
""")
ONCE = flow("""
tools: {bank: {python: acme.bank}}
steps:
  - id: pay
    call: bank.pay
    delivery: at_most_once
    with: {}
output: ${{ steps.pay.output }}
""")


SECRET = flow("""
input: {type: object, properties: {note: {type: string, default: ''}}}
steps:
  - id: ping
    http:
      get: "https://example.com/x"
      headers: {X-Key: "k ${{ secrets.TOKEN }}", X-Note: "${{ input.note }}"}
      auth: ${{ secrets.TOKEN }}
      next: ${{ response.json.next }}
output: ${{ steps.ping.output.json }}
""")
SERVER = flow("""
tools: {erp: {mcp: {use: erp}, allow: [order.create, order.drop]}}
steps:
  - {id: book, call: erp.order.create, with: {n: 1}, retry: {max: 2, every: 1s}}
output: ${{ steps.book.output }}
""")
DETACHED = CHILD.replace("with: {n: 1}", "detach: true").replace("other.output", "other.output.run_id")
TOKENS = LLM.replace("draft.output", "draft.usage.output_tokens")
CLERK = "clerk: {agent: {description: Writes., model: smart, tools: [mail.send]}}"
DELEGATED = AGENT.replace("effect: write}}", f"effect: write}}, {CLERK}}}").replace("mail.*]", "clerk]")


def one(folder: Path, workflow: str, body: str) -> list[str]:
    """What a case says that fails; nothing if it passes."""
    (result,) = played(folder, f"{TESTS}people: {{bob: []}}\ncases:\n  - name: a\n{body}", workflow)
    return messages(result)


def cases(workflow: str, text: str) -> list[Any]:
    """A row for each case of a list in YAML. One that fails has, as `says`, the end of its only message."""
    return [pytest.param(workflow, case, id=case.pop("name")) for case in yaml.safe_load(text)]


REQUESTS = """
- name: what a mocked response leaves out is filled in
  mock: {ping: {output: {json: {a: 1}}}}
  expect: {output: {status: 200, headers: {}, json: {a: 1}, text: '{"a":1}', url: "https://example.com/x"}}
- name: 404 is an error and not worth another attempt
  mock: {ping: {output: {status: 404}}}
  expect: {status: failed, error: {code: http.status, path: ping}, calls: {ping: 1}}
- name: 429 is an error that is worth another attempt
  mock: {ping: {output: {status: 429}}}
  expect: {status: failed, error: {code: http.status, path: ping}, calls: {ping: 3}}
- name: 503 is an error that is worth another attempt
  mock: {ping: {output: {status: 503}}}
  expect: {status: failed, error: {code: http.status, path: ping}, calls: {ping: 3}}
- name: a mocked response has the keys of one
  mock: {ping: {output: {jsn: 1}}}
  says: "the mock of `ping` answers a request: `output` takes the keys status, headers, json, text, url"
"""
EXPECTED = """
- name: an answer that is as the step expects it
  mock: {ping: {output: {json: {rate: 0.1}}}}
  expect: {status: finished}
- name: an answer that is not as the step expects it
  mock: {ping: {output: {json: {rate: 0.9}}}}
  expect: {status: failed, error: {code: http.expect}}
"""
SECRETS = """
- name: a request with secrets is played and needs none
  mock: {ping: {output: {json: [1]}}}
  expect: {status: finished, output: [1]}
- name: a test sees that nobody smuggles a secret in
  input: {note: "${{ secrets.TOKEN }}"}
  expect: {status: failed, error: {code: expression.error}, not_called: [ping]}
"""
AGENTS = """
- name: the turns of an agent are the entries of its list
  mock:
    web.search: [{output: {hits: 1}}, {error: {code: tool.failed}}]
    research: [{tool_calls: [web.search]}, {tool_calls: [{call: web.search, with: {q: x}}], text: It is so.}]
  expect: {status: finished, output: It is so., calls: {web.search: 2, web: 2, research: 1}}
- name: the tools of an agent must be mocked too
  mock: {research: {tool_calls: [web.search], text: fine}}
  says: "performs `web.search`, which is not mocked; write under `mock`: `web.search: {output: ...}`"
- name: an agent calls only the tools that it has
  mock: {research: {tool_calls: [web.fetch], text: fine}}
  says: "the model of `research` calls `web.fetch`, but its `tools` are web.search, mail.*"
- name: a call that needs a person waits for one as in a run
  requester: bob
  mock:
    mail.send: {output: {sent: true}}
    research: [{tool_calls: [{call: mail.send, with: {to: eve}}, web.search]}, {tool_calls: [mail.send]}, {text: Ok}]
    web: {output: 1}
  script:
    - expect:
        status: waiting
        pending: ["research[0]/call[mail.send-1]/mail.*"]
        calls: {web.search: 1}
        not_called: [mail.send]
    - restart
    - decide: {pending: "research[0]/call[mail.send-1]/mail.*", by: bob, decision: reject, reason: not to eve}
    - decide: {pending: "research[1]/call[mail.send-1]/mail.*", by: bob, decision: approve}
  expect: {status: finished, output: Ok, calls: {mail.send: 1, research: 1}}
- name: an agent that never answers runs out of turns
  mock: {web: {output: 1}, research: {tool_calls: [web.search]}}
  expect: {error: {code: agent.max_turns}, calls: {web.search: 3}}
"""
DELEGATIONS = """
- name: an agent among the tools of another is mocked by its name
  requester: bob
  mock:
    mail.send: {output: {sent: true}}
    research: [{tool_calls: [{call: clerk, with: {task: Write.}}]}, {text: Ok}]
    clerk: [{tool_calls: [mail.send]}, {text: Sent.}]
  script:
    - expect: {status: waiting, pending: ["research[0]/call[clerk-1]/clerk[0]/call[mail.send-1]/mail.send"]}
    - decide: {pending: "research[0]/call[clerk-1]/clerk[0]/call[mail.send-1]/mail.send", by: bob, decision: approve}
  expect: {status: finished, output: Ok, calls: {mail.send: 1, clerk: 1, research: 1}}
"""
MODELS = """
- name: a model that owes an object gives one
  mock: {draft: {output: {body: Dear Sir}}}
  expect: {output: {body: Dear Sir}}
- name: a model that owes an object refuses
  mock: {draft: {error: {code: llm.refused}}}
  expect: {error: {code: llm.refused}}
- name: a model without tools calls none
  mock: {draft: {tool_calls: [web.search], text: a}}
  says: the mock of `draft` has `tool_calls`, but only an `agent` calls tools
"""
NO_TOKENS = """
- name: a mocked model has used no tokens
  mock: {draft: {output: {body: x}}}
  expect: {status: finished, output: 0}
"""
CHILDREN = """
- name: a child run is mocked by its step
  mock: {other: {output: {n: 2}}}
  script: [restart]
  expect: {output: {n: 2}, calls: {other: 1}}
- name: the error of a child is the cause
  mock: {other: {error: {code: shop_down, message: closed}}}
  expect: {status: failed, error: {code: run.failed, cause: {code: shop_down, message: closed}}}
- name: a child may be stopped
  mock: {other: {error: {code: run.stopped}}}
  expect: {error: {code: run.stopped}}
- name: a child may take too long
  mock: {other: {error: {code: step.timeout}}}
  expect: {error: {code: step.timeout}}
"""
DETACHED_CHILDREN = """
- name: a detached run needs no mock
  expect: {status: finished, calls: {other: 1}}
- name: a detached run may be refused
  mock: {other: {error: {code: input.invalid}}}
  expect: {status: failed, error: {code: run.failed}}
"""
SIGNALS = """
- name: a signal is kept until somebody waits for it
  script: [{signal: {type: paid, data: {order: A1, n: 1}}}, restart, {advance: 1h}]
  expect: {status: finished, output: {order: A1, n: 1}}
- name: only a signal that matches is taken
  script:
    - advance: 1h
    - signal: {type: paid, data: {order: A2}}
    - signal: {type: sent, data: {order: A1}}
    - expect: {status: waiting}
    - signal: {type: paid, data: {order: A1}}
  expect: {status: finished}
- name: a signal that never comes is missed at the deadline
  script: [{advance: 2d1h}]
  expect: {status: failed, error: {code: wait_for.expired, path: paid}}
"""
LOOPS = """
- name: one iteration is mocked by its path and all by empty brackets
  mock:
    k8s: {output: {}}
    "all[]/check": {output: fine}
    "all[web]/check": {error: {code: tool.failed}}
  expect:
    output: [{key: api, status: finished}, {key: web, status: failed, error: {code: tool.failed}}]
    calls: {k8s.deploy: 2, k8s.rollback: 1, "all[web]/deploy/~undo": 1, "all[]/check": 2, "all[web]/check": 1}
    not_called: ["all[api]/deploy/~undo"]
    steps:
      "all[web]/deploy": undone
      "all[api]/check": finished
      check: failed
      "all[api]": finished
      "all[web]": failed
- name: an undo must be mocked as any effect
  mock: {k8s.deploy: {output: {}}, k8s.check: {error: {code: tool.failed}}}
  says: "performs `k8s.rollback`, which is not mocked; write under `mock`: `k8s.rollback: {output: ...}`"
"""
DOUBTS = """
- name: a lost call happened
  mock: {bank.pay: [{error: {code: step.lost}}, {output: second}]}
  script:
    - expect: {status: waiting, pending: [pay], calls: {bank.pay: 1}}
    - decide: {pending: pay, by: eve, decision: again, refused: 403}
    - decide: {pending: pay, by: ada, decision: happened, values: first}
  expect: {status: finished, output: first, calls: {bank.pay: 1}}
- name: a lost call is made again
  mock: {bank.pay: [{error: {code: step.lost}}, {output: second}]}
  script: [{decide: {pending: pay, by: ada, decision: again}}]
  expect: {status: finished, output: second, calls: {bank.pay: 2}}
- name: a lost call failed
  mock: {bank.pay: [{error: {code: step.lost}}, {output: second}]}
  script: [{decide: {pending: pay, by: ada, decision: fail}}]
  expect: {status: failed, error: {code: step.in_doubt}}
"""
SERVERS = """
- name: a function of a server is mocked by the step's name
  mock: {book: {output: {id: B1}}}
  expect: {output: {id: B1}, calls: {erp.order.create: 1}}
- name: a function of a server is mocked by its name
  mock: {erp.order.create: {output: {id: B1}}}
  expect: {output: {id: B1}, calls: {erp.order.create: 1}}
- name: a function of a server is mocked by the server's name
  mock: {erp: {output: {id: B1}}}
  expect: {output: {id: B1}, calls: {erp.order.create: 1}}
- name: a server that is away is tried again as the step says
  mock: {erp.order.create: [{error: {code: mcp.unavailable}}, {output: {id: B1}}]}
  expect: {output: {id: B1}, calls: {erp.order.create: 2}}
"""
CASES = [
    *cases(HTTP, REQUESTS),
    *cases(WATCHED, EXPECTED),
    *cases(SECRET, SECRETS),
    *cases(AGENT, AGENTS),
    *cases(DELEGATED, DELEGATIONS),
    *cases(LLM, MODELS),
    *cases(TOKENS, NO_TOKENS),
    *cases(CHILD, CHILDREN),
    *cases(DETACHED, DETACHED_CHILDREN),
    *cases(WAITING, SIGNALS),
    *cases(LOOP, LOOPS),
    *cases(ONCE, DOUBTS),
    *cases(SERVER, SERVERS),
]


@pytest.mark.parametrize(("workflow", "case"), CASES)
def test_an_effect_is_played_as_its_case_says(tmp_path: Path, workflow: str, case: dict[str, Any]) -> None:
    document = {
        "hai": "test/v1",
        "workflow": "expense.flow.yaml",
        "people": {"ada": ["role:operator"], "bob": [], "eve": []},
        "cases": [{"name": "a", **{key: value for key, value in case.items() if key != "says"}}],
    }
    (result,) = played(tmp_path, yaml.safe_dump(document), workflow)
    said = messages(result)
    assert [message.endswith(case["says"]) for message in said] == [True] if "says" in case else said == []


def test_the_text_of_a_model_that_owes_an_object_fails_the_case(tmp_path: Path) -> None:
    (message,) = one(tmp_path, LLM, "    mock: {draft: {text: Dear Sir}}\n")
    assert "the mock of `draft` does not fit the step's `output`: " in message


def test_a_path_in_a_loop_has_its_key(tmp_path: Path) -> None:
    flow = LOOP.replace("call: k8s.check\n          with: {}", "approve: {title: Fine?, from: anyone}")
    body = f'{TESTS}cases:\n  - name: a\n    expect: {{pending: ["all[]/check"]}}\n'
    (finding,) = loaded(tmp_path, body, flow).findings
    assert finding.message == "expected the path of one iteration, with its key in the brackets, found `all[]/check`"


def test_a_services_operation_is_mocked_by_name_with_typed_arguments(tmp_path: Path) -> None:
    get = {"operationId": "getOrder", "parameters": [{"name": "id", "in": "query", "schema": {"type": "string"}}]}
    api = {"openapi": "3.1.0", "servers": [{"url": "https://shop.example"}], "paths": {"/orders": {"get": get}}}
    (tmp_path / "shop.openapi.json").write_text(json.dumps(api))
    workflow = flow("""
tools: {shop: {http: {openapi: ./shop.openapi.json}}}
steps:
  - {id: order, call: shop.getOrder, with: {id: a}}
output: ${{ steps.order.output.amount }}
""")
    body = "    mock: {shop.getOrder: {output: {amount: 3}}}\n    expect: {status: finished, output: 3}\n"
    assert one(tmp_path, workflow, body) == []


def test_a_function_that_nothing_calls_is_a_finding(tmp_path: Path) -> None:
    case = "{name: a, mock: {book: {output: 1}}, expect: {not_called: [erp.order.crate]}}"
    (finding,) = loaded(tmp_path, f"{TESTS}cases: [{case}]\n", SERVER).findings
    assert "did you mean `erp.order.create`?" in finding.message


def test_mocks_without_a_call_and_expectations_of_nothing_are_noted(tmp_path: Path) -> None:
    cases = """
cases:
  - name: asks twice
    mock: {ping: [{error: {code: http.connection}}, {output: {json: {a: 1}}}, {output: {status: 500}}]}
    expect: {status: finished, output: {json: {}, headers: {}}}
  - name: uses everything
    mock: {ping: [{error: {code: http.connection}}, {output: {json: {}}}]}
    expect: {status: finished, output: {json: {}}}
"""
    first, second = played(tmp_path, TESTS + cases, HTTP)
    assert first.passed
    assert second.passed
    assert second.notes == ()
    assert [(note.line, note.column, note.message.partition(";")[0]) for note in first.notes] == [
        (6, 12, "the mock `ping` answers 3 calls, and 2 came"),
        (7, 41, "`{}` fits every map, so nothing is compared here"),
    ]


def test_the_answer_that_silence_gives_has_the_defaults_of_the_form(tmp_path: Path) -> None:
    asking = flow("""
steps:
  - id: size
    ask:
      title: Size?
      form:
        type: object
        required: [size]
        properties:
          size: {type: string}
          gift: {type: boolean, default: false}
          by: {type: string, default: "${{ run.workflow }}"}
      deadline: 1d
      on_deadline: {default: {size: M}}
output: ${{ steps.size.output }}
""")
    cases = """
cases:
  - name: nobody answers
    script: [advance: 1d]
    expect: {output: {size: M, gift: false, by: a}}
"""
    assert [result.failures for result in played(tmp_path, TESTS + cases, asking)] == [()]
