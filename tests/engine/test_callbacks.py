"""Requests that wait for a callback: the attempt is over with the answer, the step with the callback or in time."""

from __future__ import annotations

import pytest

from hai_flow import values
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.plan import callback_of
from hai_flow.definition.yaml.include_keys import include_files
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.steps.wait_for_event import derive_callback_type, is_awaiting_callback
from tests.support.runs import HEAD, HOUR, NOON, Play

FLOW = """\
steps:
  - id: order
    http: {post: "https://shop.example/orders", body: {back: "${{ callback.url }}"}, await_callback: {deadline: 1h}}
  - {id: after, say: "${{ steps.order.output.callback.paid }} for ${{ steps.order.output.json.id }}"}
output: ${{ steps.order.output }}
"""
ANSWER = {"status": 202, "headers": {}, "json": {"id": "o-1"}, "text": "", "url": "https://shop.example/orders"}


def called_back(path: str = "order", paid: int = 3, id: str = "callback_1", type: str = "") -> c.Signal:
    name = type or f"callback:{path}"
    return c.Signal(id=id, name=name, data={"paid": paid}, sent_at=NOON + 1000, own=True)


def awaits(play: Play, path: str = "order", type: str = "") -> bool:
    return is_awaiting_callback(play.state, path, type or f"callback:{path}")


def test_the_run_waits_for_the_callback_and_holds_no_process() -> None:
    play = Play(FLOW)
    assert '"back":"${{ callback.url }}"' in str(play.state.steps["order"].args), "what is recorded names it"
    play.succeed("order", ANSWER)
    assert play.status == "waiting"
    assert play.state.attempts.get("order") is None
    assert awaits(play)
    play.do(called_back())
    assert play.status == "finished"
    assert play.state.output == {**ANSWER, "callback": {"paid": 3}}
    assert play.said == ["3 for o-1"]


def test_a_second_callback_changes_nothing() -> None:
    play = Play(FLOW.replace("output:", "  - {wait: {for: 1h}}\noutput:"))
    play.succeed("order", ANSWER)
    play.do(called_back())
    assert play.do(called_back(paid=4, id="callback_2")).already
    assert play.state.steps["order"].output["callback"] == {"paid": 3}


def test_no_callback_in_time_is_an_error_of_its_own() -> None:
    play = Play(FLOW)
    play.succeed("order", ANSWER)
    play.now += HOUR
    play.do(c.TimerFired())
    assert play.status == "failed"
    assert play.error.code == "http.callback_expired"
    assert not awaits(play)


def test_the_timeout_of_the_request_does_not_count_while_the_step_waits() -> None:
    play = Play(FLOW.replace("    http:", "    timeout: 10s\n    http:"))
    play.succeed("order", ANSWER)
    play.now += HOUR // 2
    play.do(c.TimerFired()) if play.state.timers[0].due <= play.now else None
    play.do(called_back())
    assert play.status == "finished"


def test_a_failed_request_waits_for_nothing() -> None:
    play = Play(FLOW)
    play.fail("order", "http.status", retriable=False)
    assert play.status == "failed"
    assert not awaits(play)


def test_a_stop_and_a_retry_while_it_waits() -> None:
    play = Play(FLOW)
    play.succeed("order", ANSWER)
    play.do(c.Stop(by="user:ann"))
    assert play.status == "stopped"
    assert not awaits(play)
    play = Play(FLOW)
    play.succeed("order", ANSWER)
    play.now += HOUR
    play.do(c.TimerFired())
    play.do(c.Retry(by="user:ann"))
    assert play.state.attempts.get("order") == 2, "the request is sent again"
    play.succeed("order", ANSWER)
    play.do(called_back())
    assert play.status == "finished"


def test_a_callback_is_in_time_while_its_request_is_to_be_sent_again() -> None:
    play = Play(FLOW.replace("    http:", "    retry: {max: 3, every: 1m}\n    http:"))
    play.do(c.StepLost(path="order", attempt=1, reason="gone"))
    assert awaits(play)
    play = Play(FLOW.replace("    http:", "    retry: {max: 3, every: 1m}\n    http:"))
    play.fail("order", "http.connection", retriable=True)
    assert play.state.attempts.get("order") is None
    assert awaits(play), "the service may have heard the request, and calls back at once"


UNDONE = """\
tools: {fx: {python: tests.support.effects, effect: write}}
steps:
  - id: order
    http: {post: "https://shop.example/orders", body: {back: "${{ callback.url }}"}, await_callback: {deadline: 1h}}
    undo: {call: fx.echo, with: {value: b}}
  - {id: next, call: fx.echo, with: {value: a}}
output: ${{ steps.order.output.callback }}
"""


def test_a_callback_for_undone_work_answers_no_new_request() -> None:
    play = Play(UNDONE)
    play.succeed("order", ANSWER)
    play.do(called_back())
    play.fail("next", "tool.failed", retriable=False)
    (undoing,) = play.state.attempts
    play.succeed(undoing, "b")
    assert (play.status, play.state.steps["order"].status) == ("failed", "undone")
    play.do(c.Retry(by="user:ann"))
    anew = derive_callback_type("order", play.state.steps["order"])
    assert awaits(play, type=anew)
    assert not awaits(play)
    play.succeed("order", ANSWER)
    assert play.do(called_back(id="callback_2", paid=4)).already
    assert play.status == "waiting"
    play.do(called_back(id="callback_3", paid=5, type=anew))
    assert play.state.steps["order"].output["callback"] == {"paid": 5}


def test_a_gate_that_expires_is_no_missing_callback() -> None:
    gated = "    approval: {from: anyone, deadline: 1h}\n    http:"
    for flow in (FLOW, FLOW.replace(", await_callback: {deadline: 1h}", "").replace("${{ callback.url }}", "x")):
        play = Play(flow.replace("    http:", gated).split("  - {id: after")[0])
        assert play.status == "waiting"
        play.now += HOUR
        play.do(c.TimerFired())
        assert (play.status, play.error.code) == ("failed", "approval.rejected")


API = {
    "openapi": "3.0.3",
    "servers": [{"url": "https://shop.example"}],
    "paths": {
        "/orders": {
            "post": {
                "operationId": "order",
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {"type": "object", "properties": {"back": {"type": "string", "format": "uri"}}}
                        }
                    }
                },
                "responses": {},
                "callbacks": {
                    "paid": {
                        "{$request.body#/back}": {
                            "post": {
                                "requestBody": {
                                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Paid"}}}
                                }
                            }
                        }
                    }
                },
            }
        }
    },
    "components": {"schemas": {"Paid": {"type": "object", "required": ["paid"]}}},
}
CALLING = """\
tools: {shop: {http: {openapi: ./shop.json}}}
steps:
  - id: order
    call: shop.order
    expose: true
    with: {body: {back: "${{ callback.url }}"}}
    await_callback: {deadline: 1h}
output: ${{ steps.order.output }}
"""


def called(body: str = CALLING) -> Play:
    return Play(compile_workflow(with_api(body)))


def with_api(body: str) -> bytes:
    return include_files((HEAD + body).encode(), {"shop.json": values.dumps(API)}.__getitem__)


def test_a_call_of_an_operation_waits_for_its_callback_as_a_request_does() -> None:
    play = called()
    assert play.state.steps["order"].args == '{"body":{"back":"${{ callback.url }}"}}'
    verb = play.plan.steps["order"].verb
    callback = callback_of(verb)
    assert callback is not None
    assert callback.schema is not None
    assert callback.schema.findings({}), "its body is what the document says"
    play.succeed("order", {"id": "o-1"})
    assert (play.status, awaits(play)) == ("waiting", True)
    play.do(called_back())
    assert play.state.output == {"answer": {"id": "o-1"}, "callback": {"paid": 3}}
    late = called()
    late.succeed("order", {"id": "o-1"})
    late.now += HOUR
    late.do(c.TimerFired())
    assert (late.status, late.error.code) == ("failed", "http.callback_expired")
    (shown,) = late.state.tool_calls.values()
    assert shown.error is not None, "who saw the call begin is told how it ended"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('back: "${{ callback.url }}"', "back: x", "its document says that it belongs to `body.back`"),
        ("    await_callback: {deadline: 1h}\n", "", "callback"),
        ("{http: {openapi: ./shop.json}}", "{python: acme.shop}", "no service that an OpenAPI document describes"),
    ],
)
def test_a_call_that_can_wait_for_no_callback_is_a_finding(old: str, new: str, words: str) -> None:
    found = check_workflow(with_api(CALLING.replace(old, new)))
    assert any(words in each.message for each in found if each.severity == "error"), found


def test_each_item_of_a_loop_waits_for_its_own_callback() -> None:
    each = FLOW.replace("output: ${{ steps.order.output }}\n", "").replace("steps:\n", "").rstrip()
    inner = "\n".join("      " + line for line in each.splitlines())
    play = Play(f"steps:\n  - for_each:\n      items: [a, b]\n      max_parallel: 2\n      steps:\n{inner}\n")
    first, second = sorted(play.state.attempts)
    play.succeed(first, ANSWER)
    play.succeed(second, ANSWER)
    play.do(called_back(second, 2, "callback_2"))
    assert awaits(play, first)
    assert not awaits(play, second)
    play.do(called_back(first, 1))
    assert (play.status, play.said) == ("finished", ["2 for o-1", "1 for o-1"])


def test_an_old_log_of_signals_folds_as_before() -> None:
    play = Play("steps:\n  - {id: w, wait_for: {event: note, deadline: 1h}}\n")
    (awaited,) = [each for each in play.last if isinstance(each, e.SignalsAwaited)]
    assert awaited.output is None
    assert b"output" not in e.encode_events([awaited])


@pytest.mark.parametrize(
    ("http", "words"),
    [
        ('{post: "https://a.example", await_callback: {deadline: 1h}}', "names `${{ callback.url }}`"),
        ('{post: "https://a.example", body: "${{ callback.url }}"}', "callback"),
        (
            '{get: "https://a.example", query: {b: "${{ callback.url }}"}, next: "${{ null }}", await_callback: {}}',
            "sends one request",
        ),
        (
            '{post: "https://a.example", body: "${{ callback.url }}", await_callback: {schema: {type: nothing}}}',
            "nothing",
        ),
    ],
)
def test_mistakes_are_found_before_anything_runs(http: str, words: str) -> None:
    found = check_workflow(f"{HEAD}steps:\n  - {{id: a, http: {http}}}\n".encode())
    assert any(words in each.message for each in found if each.severity == "error"), found
