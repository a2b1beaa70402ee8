"""Whole workflows in the taste of the language, and what each part of it compiles to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hai_flow.definition import plan
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.readiness import lacking, list_missing_runners

from .support import compiled, findings, workflow

EXAMPLES = Path(__file__).parent / "examples"


def example(name: str) -> plan.Plan:
    return compile_workflow((EXAMPLES / f"{name}.flow.yaml").read_bytes(), name)


def verb(p: plan.Plan, path: str, kind: type[Any]) -> Any:
    found = p.steps[path].verb
    assert isinstance(found, kind)
    return found


@pytest.mark.parametrize("file", sorted(EXAMPLES.iterdir()), ids=lambda file: file.name)
def test_an_example_validates_without_any_finding(file: Path) -> None:
    assert check_workflow(file.read_bytes(), file.name) == []


NOTIFIED = "{title: a, from: anyone, deadline: 1d, notify: [email]}"


@pytest.mark.parametrize(
    "source",
    [
        f"steps: [{{approve: {NOTIFIED}}}]",
        f"steps: [{{ask: {NOTIFIED.replace('title', 'form: {properties: {}}, title')}}}]",
        "steps: [{approve: {title: a, from: anyone, deadline: 1d, on_deadline: [{escalate: "
        "{from: anyone, deadline: 1d, notify: ['mailto:ann@example.com']}}, reject]}}]",
        "defaults: {notify: ['${{ input.whom }}']}\ninput: {properties: {whom: {type: string}}}\nsteps: [say: hi]",
    ],
    ids=["approve", "ask", "escalate", "defaults"],
)
def test_who_is_to_be_notified_is_no_finding(source: str) -> None:
    findings = check_workflow(f"hai: flow/v1\nname: a\nversion: 1\n{source}\n".encode())
    assert [each for each in findings if each.code.startswith("notify")] == []


def test_a_reminder_alone_promises_nobody_anything() -> None:
    source = f"steps: [{{approve: {NOTIFIED.replace('notify: [email]', 'remind: [4h]')}}}]"
    assert check_workflow(f"hai: flow/v1\nname: a\nversion: 1\n{source}\n".encode()) == []


# -- blocks --------------------------------------------------------------------------------------------------------


def test_a_loop_has_a_step_for_its_body_and_its_undo_is_a_step_too() -> None:
    p = example("rollout")
    assert list(p.steps) == [
        "rollout", "rollout[]", "rollout[]/deploy", "rollout[]/deploy/~undo", "rollout[]/wait#1", "rollout[]/health",
        "rollout[]/gate", "rollout[]/call#2", "rollout[]/set#1", "settled", "emit#1", "~finally/say#1",
    ]  # fmt: skip
    loop, body = p.steps["rollout"], p.steps["rollout[]"]
    assert (body.parent, body.body, body.verb_name, body.is_written) == ("rollout", "[]", "iteration", False)
    assert (p.steps["rollout[]/deploy"].parent, p.steps["rollout[]/deploy"].body) == ("rollout[]", "")
    each = verb(p, "rollout", plan.ForEach)
    assert (each.iteration, each.as_, each.max_parallel) == ("rollout[]", "svc", 4)
    assert (each.on_failure, each.rollback) == ("isolate", "item")
    assert each.items.render({"input": {"services": [1]}}) == [1]
    assert each.key.render({"svc": {"name": "api"}}) == "api"
    iteration = verb(p, "rollout[]", plan.Iteration)
    assert iteration.first == "rollout[]/deploy"
    scope = {"svc": {"name": "api"}, "index": 2, "steps": {"deploy": {"output": {"previous": "v0"}}}}
    assert iteration.output.render(scope) == {"name": "api", "number": 2, "previous": "v0"}
    undo = p.steps["rollout[]/deploy/~undo"]
    assert p.steps["rollout[]/deploy"].undo == undo.path
    assert (undo.parent, undo.body, undo.is_written, undo.retry) == (
        "rollout[]/deploy", "~undo", False, plan.Retry(2),
    )  # fmt: skip
    assert "~undo" not in p.ids
    assert loop.next == "settled"
    assert p.finally_ == "~finally/say#1"
    assert (p.steps["~finally/say#1"].parent, p.steps["~finally/say#1"].body) == ("", "~finally")


def test_a_repeat_asks_before_or_behind_an_iteration() -> None:
    p = example("newsletter")
    repeat = verb(p, "deliver", plan.Repeat)
    assert (repeat.max, repeat.iteration, repeat.while_) == (5, "deliver[]", None)
    assert repeat.until.evaluate({"steps": {"send": {"approval": {"decision": "approve"}}}}) is True
    counted = compiled("steps: [{repeat: {max: 3, while: index < 2, steps: [{say: a}]}}]\n")
    asked = verb(counted, "repeat#1", plan.Repeat)
    assert asked.while_.evaluate({"index": 2}) is False


def test_a_try_and_its_handlers_have_their_places() -> None:
    p = compiled("""\
        steps:
          - id: wrap
            try:
              - {id: a, say: x}
              - {say: y}
            timeout: 1m
            catch: [{errors: ["*"], steps: [{say: c}]}]
            finally: [{id: f, say: d}]
    """)
    assert verb(p, "wrap", plan.Try).first == "wrap/a"
    assert {path: (s.parent, s.body, s.next) for path, s in p.steps.items()} == {
        "wrap": ("", "", None),
        "wrap/a": ("wrap", "", "wrap/say#2"),
        "wrap/say#2": ("wrap", "", None),
        "wrap/~catch/0/say#1": ("wrap", "~catch/0", None),
        "wrap/~finally/f": ("wrap", "~finally", None),
    }
    step = p.steps["wrap"]
    assert (step.timeout, step.finally_) == (60_000, "wrap/~finally/f")
    assert step.catch == (plan.CatchClause(("*",), "wrap/~catch/0/say#1"),)


# -- people --------------------------------------------------------------------------------------------------------


def test_a_policy_arrives_whole() -> None:
    p = example("invoice")
    policy = verb(p, "review", plan.Approve).policy
    assert (policy.quorum, policy.reject_when, policy.deadline) == (2, "unreachable", 172_800_000)
    assert (policy.remind, policy.combine) == ((14_400_000, 86_400_000), {"cost_center": "same", "amount": "min"})
    assert policy.exclude is not None
    assert policy.exclude.render({}) == ["requester"]
    assert [text.render({}) for text in policy.notify] == ["slack:#finance"]
    (stage,) = policy.escalations
    assert (stage.deadline, stage.quorum, stage.exclude, stage.from_.render({})) == (86_400_000, 1, None, ["user:cfo"])
    assert policy.expiry.outcome == "reject"
    assert policy.expiry.reason is not None
    assert policy.expiry.reason.render({}) == "nobody answered"
    form = policy.form.render({"input": {"amount": 5}})
    assert form["properties"]["amount"]["default"] == 5
    assert p.steps["review"].handlers == {"reject": "review/~reject/call#1"}


def test_a_gate_is_bound_to_the_arguments_and_its_options_have_handlers() -> None:
    p = example("newsletter")
    send = p.steps["deliver[]/send"]
    assert send.approval is not None
    assert send.approval.title is not None
    assert send.approval.title.render({"args": {"subject": "s"}}) == 'Send "s"?'
    policy = send.approval.policy
    assert (policy.options, policy.edit) == (("approve", "revise", "reject"), ("subject", "body"))
    assert policy.deadline == 259_200_000
    assert send.handlers == {
        "revise": "deliver[]/send/~revise/set#1", "reject": "deliver[]/send/~reject/return#1",
    }  # fmt: skip
    assert p.steps["deliver[]/send/~revise/set#1"].body == "~revise"


def test_the_first_answer_to_a_form_decides_and_a_deadline_gives_a_default() -> None:
    p = compiled("""\
        steps:
          - id: why
            ask:
              title: Why?
              form: {properties: {text: {type: string}}}
              on_deadline: [{escalate: {from: role:boss, deadline: 1h}}, {default: {text: none}}]
    """)
    ask = verb(p, "why", plan.Ask)
    assert ask.policy.from_.render({}) == ["requester"]
    assert ask.policy.form.render({})["type"] == "object"
    assert ask.policy.expiry.outcome == "default"
    assert ask.policy.expiry.value.render({}) == {"text": "none"}
    assert len(ask.policy.escalations) == 1


@pytest.mark.parametrize(
    "gate",
    [
        "from: [role:sre, role:dev], quorum: {role:sre: 1, role:dev: 1}",
        "from: [user:a, user:b], quorum: {user:a: 1, any: 2}",
        "from: [user:a, user:b], quorum: all",
        "from: [user:a, user:b], quorum: 2, exclude: []",
        "from: role:sre, quorum: 9",
        "from: \"${{ 'user:' + run.requester }}\", quorum: 5",
    ],
)
def test_a_quorum_that_may_be_met_is_no_finding(gate: str) -> None:
    assert findings(workflow(f"steps: [{{approve: {{title: t, {gate}}}}}]\n")) == []


# -- effects, tools, models ----------------------------------------------------------------------------------------


def test_effects_have_the_timeouts_of_their_kind() -> None:
    p = example("rollout")
    newsletter = example("newsletter")
    assert p.steps["rollout[]/deploy"].timeout == 300_000  # the tool's
    assert p.steps["rollout[]/health"].timeout == 30_000
    assert newsletter.steps["deliver[]/draft"].timeout == 300_000
    assert newsletter.steps["research"].timeout == 1_800_000
    assert p.steps["rollout"].timeout is None
    assert compiled("steps: [{run: child@2}]\n").steps["run#1"].timeout is None


def test_an_http_request_is_one_template() -> None:
    p = example("rollout")
    http = verb(p, "rollout[]/health", plan.Http)
    scope = {"svc": {"name": "api"}}
    assert http.arguments.render(scope) == {
        "method": "GET", "url": "https://health.example.com/api",
        "headers": {"Authorization": "Bearer ${{ secrets.HEALTH }}"},
    }  # fmt: skip
    assert http.arguments.roots == {"svc"}
    assert http.expect.evaluate({"response": {"status": 200, "json": {"error_rate": 0.0}}}) is True


def test_models_and_agents_know_their_defaults() -> None:
    p = example("newsletter")
    model = p.models["smart"]
    assert (model.provider, model.model, model.params) == ("openai", "gpt-5", {"temperature": 0.2})
    assert model.key == "MODEL_KEY"
    agent = verb(p, "research", plan.Agent)
    assert (agent.model, agent.tools) == ("smart", ("web.search", "web.fetch", "clarify", "mail.*"))
    assert agent.arguments.render({"input": {"topic": "x"}})["prompt"] == "Research x."
    gate = p.steps["research[]/call[]/mail.*"].approval
    assert gate is not None
    assert gate.policy.from_.render({}) == ["requester"]
    assert p.steps["research[]/call[]/web.search"].approval is None
    assert verb(p, "deliver[]/draft", plan.Llm).output.raw["required"] == ["subject", "body"]
    assert p.limits == plan.Limits(tokens=400_000, cost_usd=2.5, tool_calls=60, duration=604_800_000)
    web = p.tools["web"]
    assert isinstance(web, plan.McpTool)
    assert (web.allow, web.effect) == (("search", "fetch"), "read")


def test_children_messages_and_signals_compile() -> None:
    p = compiled("""\
        steps:
          - {id: child, run: other@3, with: {a: 1}}
          - {emit: {collaboration: {from: a, to: b, task: {id: t, name: n}}}}
          - {emit: {raw: {event: {x: 1}, source: s}}}
          - {say: {thinking: hm, block_id: b1}}
          - {id: paid, wait_for: {event: paid}, title: "Waiting"}
          - {wait_for: {all: [{event: a}, {event: b, match: event.data.ok == true}]}}
          - {wait: {for: "${{ 'PT5M' }}"}}
    """)
    child = verb(p, "child", plan.Run)
    assert (child.workflow, child.version, child.arguments.render({})) == ("other", 3, {"a": 1})
    assert verb(p, "emit#1", plan.Emit).kind == "collaboration"
    assert verb(p, "emit#2", plan.Emit).content.render({}) == {"event": {"x": 1}, "source": "s"}
    assert verb(p, "say#1", plan.Say).kind == "thinking"
    paid = verb(p, "paid", plan.WaitFor)
    assert (paid.mode, paid.subscriptions, paid.expiry.outcome) == ("one", (plan.Subscription("paid"),), "fail")
    assert paid.deadline == 604_800_000
    both = verb(p, "wait_for#2", plan.WaitFor)
    assert (both.mode, len(both.subscriptions)) == ("all", 2)
    assert both.subscriptions[1].match.evaluate({"event": {"data": {"ok": True}}}) is True
    assert verb(p, "wait#1", plan.Wait).for_.render({}) == "PT5M"


# -- what starts runs ----------------------------------------------------------------------------------------------


def test_triggers_and_concurrency() -> None:
    p = example("rollout")
    schedule, api = p.triggers
    assert isinstance(schedule, plan.ScheduleTrigger)
    assert (schedule.cron, schedule.timezone) == ("0 6 * * 1-5", "Europe/Berlin")
    assert (schedule.missed, schedule.overlap) == ("once", "skip")
    assert schedule.input["release"] == "v1"
    assert api == plan.ApiTrigger()
    assert p.concurrency is not None
    assert (p.concurrency.limit, p.concurrency.on_conflict) == (1, "reject")
    assert p.concurrency.key.render({"input": {"release": "v1"}}) == "rollout-v1"
    event = example("invoice").triggers[1]
    assert isinstance(event, plan.EventTrigger)
    assert event.match is not None
    assert event.match.evaluate({"event": {"data": {"amount": 1.0}}}) is True
    assert event.dedupe is not None
    assert event.dedupe.render({"event": {"id": "e"}}) == "e"
    assert compiled("").triggers == (plan.ApiTrigger(),)
    assert example("invoice").roles == {"finance": ("user:ann", "user:bob", "user:carol")}


# -- who sees whom -------------------------------------------------------------------------------------------------


def test_what_is_visible_where() -> None:
    assert (
        findings(
            workflow("""\
        tools: {t: {python: acme.t, effect: write}}
        steps:
          - id: before
            call: t.f
          - id: each
            for_each:
              items: [1]
              output: ${{ steps.in_loop.output }}
              steps:
                - {id: in_loop, call: t.f, with: {a: "${{ steps.before.output }}"}}
                - {say: "${{ steps.in_loop.output }} ${{ item }} ${{ index }}"}
          - id: again
            repeat:
              max: 3
              until: steps.in_repeat.output.done == true
              steps: [{id: in_repeat, call: t.f}]
          - {say: "${{ steps.in_repeat.output }} ${{ steps.again.output.count + 1 }} ${{ steps.each.output[0].key }}"}
          - id: both
            parallel:
              x: [{id: in_x, call: t.f}]
              y: [{id: in_y, call: t.f}]
            finally: [{say: "${{ steps.both.status }} ${{ steps.in_x.status }}"}]
          - {say: "${{ steps.in_x.output }} ${{ steps.in_y.output }}"}
          - id: gated
            call: t.f
            approval: {from: anyone}
            on_reject: [{say: "${{ steps.gated.approval.reason }} ${{ error.code }}"}, {return: null}]
            undo: {call: t.g, with: {a: "${{ steps.gated.output.id }}"}}
        output: "${{ steps.gated.output }}"
    """)
        )
        == []
    )


@pytest.mark.parametrize(
    "guarded",
    [
        '{if: \'steps.a.status == "finished"\', say: "${{ steps.a.output.x }}"}',
        '{switch: [{when: has(steps.a.output), steps: [{say: "${{ steps.a.output.x }}"}]}]}',
        "{say: \"${{ steps.a.?output.?x.orValue('none') }}\"}",
        '{try: [{say: "${{ steps.a.output.x }}"}], if: has(steps.a.output)}',
    ],
)
def test_a_guard_around_a_step_that_may_be_absent_settles_it(guarded: str) -> None:
    head = "tools: {t: {python: acme.t, effect: write}}\nsteps:\n  - {id: a, if: run.version > 1, call: t.f}\n"
    assert findings(workflow(f"{head}  - {guarded}\n")) == []


def test_a_catch_that_always_ends_leaves_the_step_present_behind_it() -> None:
    body = """\
        tools: {t: {python: acme.t, effect: write}}
        steps:
          - {id: a, call: t.f, catch: [{steps: [{return: none}]}]}
          - say: ${{ steps.a.output }}
    """
    assert findings(workflow(body)) == []
    assert "`catch`" in findings(workflow(body.replace("return: none", "say: none")))[0]


def test_a_nested_loop_needs_a_variable_of_its_own() -> None:
    body = (
        "steps: [{for_each: {items: [1], as: a, steps: [{for_each: {items: [2], AS steps: [{say: '${{ a }}'}]}}]}}]\n"
    )
    assert findings(workflow(body.replace("AS", "as: b,"))) == []
    assert findings(workflow(body.replace("AS", ""))) == []
    assert "loop around" in findings(workflow(body.replace("AS", "as: a,")))[0]


def test_a_mistake_inside_a_block_does_not_hide_its_ids() -> None:
    found = findings(
        workflow("steps: [{retry: 1, try: [{id: a, say: x}], timeot: 5}, {say: '${{ steps.a.status }}'}]\n")
    )
    assert [line.split(":")[2] for line in found] == [" error shape.unknown_key"] * 2


# -- readiness -----------------------------------------------------------------------------------------------------


def test_a_server_without_a_runner_refuses_each_step_that_needs_it() -> None:
    p = example("newsletter")
    everything = frozenset(("python", "mcp", "http", "llm"))
    assert list_missing_runners(p, everything) == []
    found = list_missing_runners(p, frozenset(("python",)), "f")
    assert [(f.file, f.line, f.code, f.severity) for f in found] == [
        ("f", p.steps["research"].line, "step.no_runner", "error"),
        ("f", p.steps["deliver[]/draft"].line, "step.no_runner", "error"),
    ]
    assert "no runner for the model of an `agent`" in found[0].message
    assert "the mcp tool `web`" in list_missing_runners(p, everything - {"mcp"})[0].message
    assert "the mcp tool `erp`" in list_missing_runners(example("invoice"), frozenset(("python",)))[0].message
    assert "no runner for `http`" in list_missing_runners(example("rollout"), frozenset(("python",)))[0].message
    assert lacking(p, frozenset(("python",))) == ["the model of an `agent`", "the mcp tool `web`", "`llm`"]
    assert lacking(p, everything) == []


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ("[{break: true}]", ["break.no_loop"]),
        ("[{continue: true}]", ["continue.no_loop"]),
        ("[{for_each: {items: [1], steps: [{say: a, finally: [{break: true}]}]}}]", ["break.no_loop"]),
        ("[{say: a, finally: [{repeat: {max: 2, steps: [{break: true}]}}]}]", []),
        ("[{repeat: {max: 2, steps: [{if: index > 0, break: true}, {return: 1}]}}, {say: a}]", []),
        ("[{repeat: {max: 2, steps: [{break: true}, {say: b}]}}]", ["step.unreachable"]),
        (
            "[{repeat: {max: 2, until: steps.x.output == 1, steps: "
            "[{if: index > 0, continue: true}, {id: x, call: t.f}]}}]",
            ["expression.unguarded"],
        ),
        (
            "[{repeat: {max: 2, steps: [{if: index > 0, break: true}, {id: x, call: t.f}]}}, "
            "{say: '${{ string(steps.x.output) }}'}]",
            ["expression.unguarded"],
        ),
    ],
)
def test_break_and_continue_stand_in_loops_and_skipped_steps_may_be_absent(steps: str, found: list[str]) -> None:
    source = f"hai: flow/v1\nname: a\nversion: 1\ntools: {{t: {{python: a.b}}}}\nsteps: {steps}\n"
    assert [finding.code for finding in check_workflow(source.encode())] == found
