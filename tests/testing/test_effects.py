"""Everything that reaches out is answered from the test: requests, models, agents, child runs, signals, undo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.testing.support import loaded, messages, played

TESTS = "hai: test/v1\nworkflow: expense.flow.yaml\n"
FLOW = "hai: flow/v1\nname: a\nversion: 1\n"

HTTP = (
    FLOW
    + """\
steps:
  - id: ping
    http: {get: "https://example.com/x"}
    retry: {max: 2, every: 1s}
output: ${{ steps.ping.output }}
"""
)
WATCHED = (
    FLOW
    + """\
input: {type: object, properties: {most: {type: number, default: 0.5}}}
steps:
  - id: ping
    http: {get: "https://example.com/x", expect: response.json.rate < input.most}
"""
)
AGENT = (
    FLOW
    + """\
models: {smart: {provider: openai, model: gpt-5}}
tools: {web: {mcp: "https://mcp.example.com", effect: read}, mail: {python: acme.mail, effect: write}}
steps:
  - id: research
    agent: {model: smart, prompt: Look it up., tools: [web.search, mail.*], max_turns: 3}
output: ${{ steps.research.output }}
"""
)
LLM = (
    FLOW
    + """\
models: {smart: {provider: openai, model: gpt-5}}
steps:
  - id: draft
    llm: {model: smart, prompt: Write., output: {type: object, required: [body], properties: {body: {type: string}}}}
output: ${{ steps.draft.output }}
"""
)
CHILD = (
    FLOW
    + """\
steps:
  - id: other
    run: other_flow
    with: {n: 1}
output: ${{ steps.other.output }}
"""
)
WAITING = (
    FLOW
    + """\
steps:
  - id: gather
    wait: {for: 1h}
  - id: paid
    wait_for: {event: paid, match: event.data.order == "A1", deadline: 2d}
output: ${{ steps.paid.output.data }}
"""
)
LOOP = (
    FLOW
    + """\
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
"""
)
ONCE = (
    FLOW
    + """\
tools: {bank: {python: acme.bank}}
steps:
  - id: pay
    call: bank.pay
    delivery: at_most_once
    with: {}
output: ${{ steps.pay.output }}
"""
)


def one(folder: Path, workflow: str, body: str) -> list[str]:
    """What a case says that fails; nothing if it passes."""
    (result,) = played(folder, f"{TESTS}people: {{bob: []}}\ncases:\n  - name: a\n{body}", workflow)
    return messages(result)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_what_a_mocked_response_leaves_out_is_filled_in(tmp_path: Path) -> None:
    response = '{status: 200, headers: {}, json: {a: 1}, text: \'{"a":1}\', url: "https://example.com/x"}'
    body = f"    mock: {{ping: {{output: {{json: {{a: 1}}}}}}}}\n    expect: {{output: {response}}}\n"
    assert one(tmp_path, HTTP, body) == []


@pytest.mark.parametrize(("status", "calls"), [(404, 1), (429, 3), (503, 3)])
def test_a_status_is_an_error_and_some_are_worth_another_attempt(tmp_path: Path, status: int, calls: int) -> None:
    expect = f"{{status: failed, error: {{code: http.status, path: ping}}, calls: {{ping: {calls}}}}}"
    assert one(tmp_path, HTTP, f"    mock: {{ping: {{output: {{status: {status}}}}}}}\n    expect: {expect}\n") == []


@pytest.mark.parametrize(("rate", "status"), [(0.1, "finished"), (0.9, "failed")])
def test_expect_is_asked_as_it_would_be(tmp_path: Path, rate: float, status: str) -> None:
    code = "" if status == "finished" else ", error: {code: http.expect}"
    body = f"    mock: {{ping: {{output: {{json: {{rate: {rate}}}}}}}}}\n    expect: {{status: {status}{code}}}\n"
    assert one(tmp_path, WATCHED, body) == []


def test_a_mocked_response_has_the_keys_of_one(tmp_path: Path) -> None:
    (message,) = one(tmp_path, HTTP, "    mock: {ping: {output: {jsn: 1}}}\n")
    assert message.endswith(
        "the mock of `ping` answers a request: `output` takes the keys status, headers, json, text, url"
    )


# --- models -----------------------------------------------------------------------------------------------------------


def test_the_turns_of_an_agent_are_the_entries_of_its_list(tmp_path: Path) -> None:
    body = """\
    mock:
      web.search: [{output: {hits: 1}}, {error: {code: tool.failed}}]
      research: [{tool_calls: [web.search]}, {tool_calls: [{call: web.search, with: {q: x}}], text: It is so.}]
    expect: {status: finished, output: It is so., calls: {web.search: 2, web: 2, research: 1}}
"""
    assert one(tmp_path, AGENT, body) == []


def test_the_tools_of_an_agent_must_be_mocked_too(tmp_path: Path) -> None:
    (message,) = one(tmp_path, AGENT, "    mock: {research: {tool_calls: [web.search], text: fine}}\n")
    assert "performs `web.search`, which is not mocked" in message


def test_an_agent_among_the_tools_of_another_is_mocked_by_its_name(tmp_path: Path) -> None:
    clerk = "clerk: {agent: {description: Writes., model: smart, tools: [mail.send]}}"
    flow = AGENT.replace("effect: write}}", f"effect: write}}, {clerk}}}").replace("mail.*]", "clerk]")
    path = "research[0]/call[clerk-1]/clerk[0]/call[mail.send-1]/mail.send"
    body = f"""\
    requester: bob
    mock:
      mail.send: {{output: {{sent: true}}}}
      research: [{{tool_calls: [{{call: clerk, with: {{task: Write.}}}}]}}, {{text: Ok}}]
      clerk: [{{tool_calls: [mail.send]}}, {{text: Sent.}}]
    script:
      - expect: {{status: waiting, pending: ["{path}"]}}
      - decide: {{pending: "{path}", by: bob, decision: approve}}
    expect: {{status: finished, output: Ok, calls: {{mail.send: 1, clerk: 1, research: 1}}}}
"""
    assert one(tmp_path, flow, body) == []


def test_an_agent_calls_only_the_tools_that_it_has(tmp_path: Path) -> None:
    (message,) = one(tmp_path, AGENT, "    mock: {research: {tool_calls: [web.fetch], text: fine}}\n")
    assert message.endswith("the model of `research` calls `web.fetch`, but its `tools` are web.search, mail.*")


def test_a_call_of_an_agent_that_needs_a_person_waits_for_one_as_in_a_run(tmp_path: Path) -> None:
    body = """\
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
"""
    assert one(tmp_path, AGENT, body) == []


def test_an_agent_that_never_answers_runs_out_of_turns(tmp_path: Path) -> None:
    body = "    mock: {web: {output: 1}, research: {tool_calls: [web.search]}}\n"
    body += "    expect: {error: {code: agent.max_turns}, calls: {web.search: 3}}\n"
    assert one(tmp_path, AGENT, body) == []


def test_the_text_of_a_model_that_owes_an_object_fails_the_case(tmp_path: Path) -> None:
    (message,) = one(tmp_path, LLM, "    mock: {draft: {text: Dear Sir}}\n")
    assert "the mock of `draft` does not fit the step's `output`: " in message
    body = "    mock: {draft: {error: {code: llm.refused}}}\n    expect: {error: {code: llm.refused}}\n"
    assert one(tmp_path, LLM, body) == []
    body = "    mock: {draft: {output: {body: Dear Sir}}}\n    expect: {output: {body: Dear Sir}}\n"
    assert one(tmp_path, LLM, body) == []


def test_a_model_without_tools_calls_none(tmp_path: Path) -> None:
    (message,) = one(tmp_path, LLM, "    mock: {draft: {tool_calls: [web.search], text: a}}\n")
    assert message.endswith("the mock of `draft` has `tool_calls`, but only an `agent` calls tools")


# --- child runs -------------------------------------------------------------------------------------------------------


def test_a_child_run_is_mocked_by_its_step(tmp_path: Path) -> None:
    body = (
        "    mock: {other: {output: {n: 2}}}\n    script: [restart]\n    expect: {output: {n: 2}, calls: {other: 1}}\n"
    )
    assert one(tmp_path, CHILD, body) == []


def test_the_error_of_a_child_is_the_cause(tmp_path: Path) -> None:
    body = "    mock: {other: {error: {code: shop_down, message: closed}}}\n"
    body += "    expect: {status: failed, error: {code: run.failed, cause: {code: shop_down, message: closed}}}\n"
    assert one(tmp_path, CHILD, body) == []


@pytest.mark.parametrize("code", ["run.stopped", "step.timeout"])
def test_a_child_may_be_stopped(tmp_path: Path, code: str) -> None:
    body = f"    mock: {{other: {{error: {{code: {code}}}}}}}\n    expect: {{error: {{code: {code}}}}}\n"
    assert one(tmp_path, CHILD, body) == []


def test_a_detached_run_needs_no_mock_and_may_be_refused(tmp_path: Path) -> None:
    workflow = CHILD.replace("run: other_flow", "run: other_flow\n    detach: true").replace(
        "steps.other.output", "steps.other.output.run_id"
    )
    assert one(tmp_path, workflow, "    expect: {status: finished, calls: {other: 1}}\n") == []
    body = (
        "    mock: {other: {error: {code: input.invalid}}}\n    expect: {status: failed, error: {code: run.failed}}\n"
    )
    assert one(tmp_path, workflow, body) == []


# --- signals ----------------------------------------------------------------------------------------------------------


def test_a_signal_is_kept_until_somebody_waits_for_it(tmp_path: Path) -> None:
    body = """\
    script:
      - signal: {type: paid, data: {order: A1, n: 1}}
      - restart
      - advance: 1h
    expect: {status: finished, output: {order: A1, n: 1}}
"""
    assert one(tmp_path, WAITING, body) == []


def test_only_a_signal_that_matches_is_taken(tmp_path: Path) -> None:
    body = """\
    script:
      - advance: 1h
      - signal: {type: paid, data: {order: A2}}
      - signal: {type: sent, data: {order: A1}}
      - expect: {status: waiting}
      - signal: {type: paid, data: {order: A1}}
    expect: {status: finished}
"""
    assert one(tmp_path, WAITING, body) == []


def test_a_signal_that_never_comes_is_missed_at_the_deadline(tmp_path: Path) -> None:
    body = "    script: [{advance: 2d1h}]\n    expect: {status: failed, error: {code: wait_for.expired, path: paid}}\n"
    assert one(tmp_path, WAITING, body) == []


# --- loops and undo ---------------------------------------------------------------------------------------------------


def test_one_iteration_is_mocked_by_its_path_and_all_by_empty_brackets(tmp_path: Path) -> None:
    body = """\
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
"""
    assert one(tmp_path, LOOP, body) == []


def test_an_undo_must_be_mocked_as_any_effect(tmp_path: Path) -> None:
    body = "    mock: {k8s.deploy: {output: {}}, k8s.check: {error: {code: tool.failed}}}\n"
    (message,) = one(tmp_path, LOOP, body)
    assert "performs `k8s.rollback`, which is not mocked" in message


# --- lost outcomes ----------------------------------------------------------------------------------------------------


def test_a_lost_call_that_may_happen_once_is_settled_by_an_operator(tmp_path: Path) -> None:
    text = f"""\
{TESTS}people: {{ada: [role:operator], eve: []}}
mock: {{bank.pay: [{{error: {{code: step.lost}}}}, {{output: second}}]}}
cases:
  - name: it happened
    script:
      - expect: {{status: waiting, pending: [pay], calls: {{bank.pay: 1}}}}
      - decide: {{pending: pay, by: eve, decision: again, refused: 403}}
      - decide: {{pending: pay, by: ada, decision: happened, values: first}}
    expect: {{status: finished, output: first, calls: {{bank.pay: 1}}}}
  - name: again
    script:
      - decide: {{pending: pay, by: ada, decision: again}}
    expect: {{status: finished, output: second, calls: {{bank.pay: 2}}}}
  - name: it failed
    script:
      - decide: {{pending: pay, by: ada, decision: fail}}
    expect: {{status: failed, error: {{code: step.in_doubt}}}}
"""
    assert [messages(result) for result in played(tmp_path, text, ONCE)] == [[], [], []]


def test_a_path_in_a_loop_has_its_key(tmp_path: Path) -> None:
    flow = LOOP.replace("call: k8s.check\n          with: {}", "approve: {title: Fine?, from: anyone}")
    body = f'{TESTS}cases:\n  - name: a\n    expect: {{pending: ["all[]/check"]}}\n'
    (finding,) = loaded(tmp_path, body, flow).findings
    assert finding.message == "expected the path of one iteration, with its key in the brackets, found `all[]/check`"


SECRET = (
    FLOW
    + """\
input: {type: object, properties: {note: {type: string, default: ''}}}
steps:
  - id: ping
    http:
      get: "https://example.com/x"
      headers: {X-Key: "k ${{ secrets.TOKEN }}", X-Note: "${{ input.note }}"}
      auth: ${{ secrets.TOKEN }}
      next: ${{ response.json.next }}
output: ${{ steps.ping.output.json }}
"""
)


def test_a_request_with_secrets_is_played_and_needs_none(tmp_path: Path) -> None:
    body = "    mock: {ping: {output: {json: [1]}}}\n    expect: {status: finished, output: [1]}\n"
    assert one(tmp_path, SECRET, body) == []


def test_a_test_sees_that_nobody_smuggles_a_secret_in(tmp_path: Path) -> None:
    body = (
        "    input: {note: '${{ secrets.TOKEN }}'}\n"
        "    expect: {status: failed, error: {code: expression.error}, not_called: [ping]}\n"
    )
    assert one(tmp_path, SECRET, body) == []


def test_a_mocked_model_has_used_no_tokens(tmp_path: Path) -> None:
    flow = LLM.partition("output: ${{ steps.draft")[0] + "output: ${{ steps.draft.usage.output_tokens }}\n"
    body = "    mock: {draft: {output: {body: x}}}\n    expect: {status: finished, output: 0}\n"
    assert one(tmp_path, flow, body) == []


def test_a_services_operation_is_mocked_by_name_with_typed_arguments(tmp_path: Path) -> None:
    get = {"operationId": "getOrder", "parameters": [{"name": "id", "in": "query", "schema": {"type": "string"}}]}
    api = {"openapi": "3.1.0", "servers": [{"url": "https://shop.example"}], "paths": {"/orders": {"get": get}}}
    (tmp_path / "shop.openapi.json").write_text(json.dumps(api))
    flow = (
        FLOW
        + "tools: {shop: {http: {openapi: ./shop.openapi.json}}}\nsteps:\n"
        + "  - {id: order, call: shop.getOrder, with: {id: a}}\noutput: ${{ steps.order.output.amount }}\n"
    )
    body = "    mock: {shop.getOrder: {output: {amount: 3}}}\n    expect: {status: finished, output: 3}\n"
    assert one(tmp_path, flow, body) == []


# --- servers of MCP ---------------------------------------------------------------------------------------------------

SERVER = (
    FLOW
    + """\
tools: {erp: {mcp: {use: erp}, allow: [order.create, order.drop]}}
steps:
  - {id: book, call: erp.order.create, with: {n: 1}, retry: {max: 2, every: 1s}}
output: ${{ steps.book.output }}
"""
)


def test_a_function_of_a_server_is_mocked_and_counted_by_its_name(tmp_path: Path) -> None:
    for name in ("erp.order.create", "erp", "book"):
        body = f"    mock: {{{name}: {{output: {{id: B1}}}}}}\n"
        expect = "{output: {id: B1}, calls: {erp.order.create: 1}}"
        assert one(tmp_path, SERVER, f"{body}    expect: {expect}\n") == [], name


def test_a_server_that_is_away_is_tried_again_as_the_step_says(tmp_path: Path) -> None:
    body = "    mock: {erp.order.create: [{error: {code: mcp.unavailable}}, {output: {id: B1}}]}\n"
    expect = "{output: {id: B1}, calls: {erp.order.create: 2}}"
    assert one(tmp_path, SERVER, f"{body}    expect: {expect}\n") == []


def test_a_function_that_nothing_calls_is_a_finding(tmp_path: Path) -> None:
    tests = (
        f"{TESTS}cases:\n  - {{name: a, mock: {{book: {{output: 1}}}}, expect: {{not_called: [erp.order.crate]}}}}\n"
    )
    (finding,) = loaded(tmp_path, tests, SERVER).findings
    assert "did you mean `erp.order.create`?" in finding.message
