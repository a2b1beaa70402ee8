"""Seeded questions that have to be refused: they look like real ones, do nothing, and are counted by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from json import loads
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio import to_thread
from msgspec.structs import replace
from typer.testing import CliRunner

from hai_flow.cli import app
from hai_flow.engine.canaries import ASKER, CANARY, disguise_state
from hai_flow.engine.state.state import RunState
from tests.api.test_audit import House
from tests.support.examples import sample
from tests.support.identities import KEYS, People
from tests.support.mcp_caller import Caller
from tests.support.models import Answer, FakeModels, spoken
from tests.support.postgres import Server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

PAY = """
hai: flow/v1
name: pay
version: 1
title: Payments
queue: till
input: {type: object, required: [amount], properties: {amount: {type: integer}}}
roles: {chief: [user:bob, user:cat]}
tools: {ledger: {python: hai_flow.steps.built_in, effect: external}}
steps:
  - id: transfer
    call: ledger.grant
    with: {action: pay, arguments: {amount: "${{ input.amount }}"}}
    approval:
      title: Pay ${{ args.arguments.amount }}?
      from: [role:chief]
      edit: [arguments]
      confirm: true
      reasons: {reject: required}
      remind: [1h]
      on_deadline: [{escalate: {from: [user:dan], deadline: 1d}}, reject]
    on_reject: [{return: {paid: false}}]
  - id: signed
    approve:
      title: Sign ${{ input.amount }}?
      evidence: ${{ input.amount }}
      from: [role:chief]
      quorum: 2
      veto: [role:chief]
    on_reject: [{return: {paid: false}}]
"""
SHOWN = (
    "workflow", "workflow_title", "started_by", "kind", "path", "tool", "effect", "schema", "options", "policy",
    "may_decide", "why_not",
)  # fmt: skip


@pytest.fixture(scope="module")
def house(postgres_server: Server) -> Iterator[House]:
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment={**KEYS, "HAI_FLOW_QUEUES": "*"}, may_fail=True) as process,  # one table is taken away
        House((process, People(dsn))) as made,
    ):
        assert made.as_("user:pat", "publisher").post("/v1/workflows", content=PAY, headers=YAML).status_code == 201
        yield made


@pytest.fixture(scope="module")
def bob(house: House) -> httpx2.Client:
    return house.as_("user:bob", "decider")


@pytest.fixture(scope="module")
def real(house: House, bob: httpx2.Client) -> dict[str, Any]:
    house.as_("user:ann", "operator").post("/v1/runs", json={"workflow": "pay", "input": {"amount": 7}})
    (item,) = wait_for(lambda: bob.get("/v1/inbox").json()["items"])
    return item


def seed(house: House, **body: Any) -> dict[str, Any]:
    question = {"workflow": "pay", "path": "transfer", "reason": "more than the account has"}
    call = {"arguments": {"action": "pay", "arguments": {"amount": 9}}, "title": "Pay 9?"}
    return expect(house.as_("user:root", "admin").post("/v1/canaries", json={**question, **call, **body}), 201).json()


def find_question(client: httpx2.Client, canary: dict[str, Any]) -> dict[str, Any]:
    (item,) = wait_for(
        lambda: [each for each in client.get("/v1/inbox").json()["items"] if each["run_id"] == canary["run_id"]]
    )
    return item


def decide(client: httpx2.Client, id: str, **answer: Any) -> dict[str, Any]:
    return expect(client.post(f"/v1/pendings/{id}/decide", json=answer), 200).json()


def describe(answer: Any) -> Any:
    """The answer without ids, times and what the question is about."""
    if isinstance(answer, dict):
        own = ("id", "run_id", "thread_id", "digest", "title", "summary", "args", "detail", "params", "deadline")
        times = ("at", "until")
        return {name: describe(each) for name, each in answer.items() if name not in own and not name.endswith(times)}
    return [describe(each) for each in answer] if isinstance(answer, list) else answer


def list_all(house: House) -> dict[str, dict[str, Any]]:
    items = house.as_("user:eve", "auditor").get("/v1/canaries").json()["items"]
    return {each["run_id"]: each for each in items}


def test_an_open_canary_shows_what_the_real_question_shows(
    house: House, bob: httpx2.Client, real: dict[str, Any]
) -> None:
    canary = seed(house)
    item = find_question(bob, canary)
    assert {name: item[name] for name in SHOWN} == {name: real[name] for name in SHOWN}
    assert (item["title"], item["args"]) == ("Pay 9?", {"action": "pay", "arguments": {"amount": 9}})
    view, other = (bob.get(f"/v1/pendings/{each['id']}").json() for each in (item, real))
    assert view.keys() == other.keys()
    assert (view["workflow"], view["started_by"]) == ("pay", "user:ann")
    forms = [bob.get(f"/v1/pendings/{each['id']}/arguments").json() for each in (item, real)]
    assert forms[0] == forms[1]
    assert forms[0]["parameters"] is not None
    names = [sorted(each) for each in bob.get(f"/v1/pendings/{item['id']}/history").json()["items"]]
    assert names == [sorted(each) for each in bob.get(f"/v1/pendings/{real['id']}/history").json()["items"]]
    assert bob.get("/v1/inbox/counts").json()["workflows"].keys() == {"pay"}
    assert [each["id"] for each in bob.get("/v1/inbox", params={"workflow": "pay"}).json()["items"]].count(item["id"])
    operator = house.as_("user:olga", "operator", "decider")
    view = operator.get(f"/v1/runs/{item['run_id']}").json()
    assert (view["workflow"], view["version"]["version"], view["started_by"]) == ("pay", 1, "user:ann")
    assert item["run_id"] not in [each["id"] for each in operator.get("/v1/runs").json()["items"]]
    assert "oversight_canary" not in str([bob.get("/v1/inbox").text, view, operator.get("/v1/pendings").text])
    assert bob.get("/v1/canaries").status_code == operator.get("/v1/canaries").status_code == 403


LISTS = (
    "/v1/inbox",
    "/v1/inbox?workflow=pay",
    "/v1/inbox?kind=gate",
    "/v1/inbox?text=Pay",
    "/v1/inbox?text=pay",
    "/v1/inbox?text=ledger.grant",
    "/v1/inbox?opened_after=2026-01-01T00:00:00Z",
    "/v1/inbox?workflow=oversight_canary",
    "/v1/inbox?text=canary",
    "/v1/pendings",
    "/v1/runs",
    "/v1/rules",
    "/v1/absences",
    "/v1/freezes",
)
"""What a decider can ask for that names questions, runs or workflows."""
OF_ONE = (
    "/v1/inbox/{id}",
    "/v1/pendings/{id}",
    "/v1/pendings/{id}/arguments",
    "/v1/pendings/{id}/history",
    "/v1/pendings/{id}/openings",
    "/v1/pendings/{id}/receipt",
    "/v1/runs/{run_id}",
    "/v1/runs/{run_id}/snapshot",
    "/v1/runs/{run_id}/events",
    "/v1/runs/{run_id}/steps",
    "/v1/runs/{run_id}/marks",
    "/v1/runs/{run_id}/diff?from=1&to=3",
    "/v1/approvals/{run_id}",
    "/v1/threads/{run_id}",
    "/v1/threads/{run_id}/messages",
    "/v1/threads/{run_id}/queue",
    "/api/v1/agent/runs/{run_id}/history",
)


POLICY = "{from: [user:bob], reasons: {reject: required}}"
GATED = f"call: ledger.grant, with: {{action: pay, arguments: {{amount: 7}}}}, approval: {POLICY}"
STEP = f"{{id: transfer, {GATED}}}"
AGENT = "{{id: clerk, agent: {{model: smart, prompt: Pay, tools: ['{0}'], approvals: {{{0}: {1}}}}}}}"
SIGNED = "{id: signed, approve: {title: 'Sign?', from: [user:bob], reasons: {reject: required}}}"
IN_PLACES = """
hai: flow/v1
version: 1
title: Places
summary: A place of ${{ input.n }}
input: {type: object, properties: {n: {type: integer, default: 1}}}
tools: {ledger: {python: hai_flow.steps.built_in, effect: external}}
"""
PLACES = {
    "each[b%2Fc]/transfer": f"{{id: each, for_each: {{items: [b/c], steps: [{STEP}]}}}}",
    "again[0]/transfer": f"{{id: again, repeat: {{max: 1, steps: [{STEP}]}}}}",
    "each[b]/call#2": f"{{id: each, for_each: {{items: [b], steps: [{{{GATED}, if: 'false'}}, {{{GATED}}}]}}}}",
    "checks/legal/transfer": f"{{id: checks, parallel: {{other: [{{say: hi}}], legal: [{STEP}]}}}}",
    "route/1/transfer": "{id: route, switch: [{when: 'false', steps: [say: a]}, "
    f"{{default: true, steps: [{STEP}]}}]}}",
    "wrap/transfer": f"{{id: wrap, try: [{STEP}]}}",
    "wrap/~catch/0/transfer": f"{{id: wrap, try: [fail: {{message: a}}], catch: [{{errors: '*', steps: [{STEP}]}}]}}",
    "try#1/rows[b]/call#1": f"{{try: [{{id: rows, for_each: {{items: [b], steps: [{{{GATED}}}]}}}}]}}",
    "clerk[0]/call[ledger.grant-1]/ledger.grant": AGENT.format("ledger.grant", POLICY),
    "clerk[0]/call[ledger.grant-1]/ledger.*": AGENT.format("ledger.*", POLICY),
    "each[b]/signed": f"{{id: each, for_each: {{items: [b], steps: [{SIGNED}]}}}}",
}
"""A step that asks inside of another one, by the path of its question."""


@pytest.mark.costly
@pytest.mark.timeout(300)
async def test_a_decider_can_tell_a_canary_of_no_place_from_a_real_one(postgres_server: Server, tmp_path: Path) -> None:
    """By the answers about the question, and those about its run."""
    places = sample(PLACES, 3)
    call = '{"action": "pay", "arguments": {"amount": 7}}'
    asked = [spoken(Answer("Well.", calls=(("ledger_grant", call),))) for path in places if "clerk" in path]
    async with FakeModels(*asked) as fake:
        catalogue = tmp_path / "models.yaml"
        smart = f"{{smart: {{provider: vllm, base_url: '{fake.url}', model: small}}}}"
        catalogue.write_text(f"hai: models/v1\nmodels: {smart}\n")
        environment = {**KEYS, "HAI_FLOW_MODELS": str(catalogue)}
        with (
            postgres_server.database() as dsn,
            serving(dsn, environment=environment) as process,
            House((process, People(dsn))) as house,
        ):
            await to_thread.run_sync(tell_all, house, house.as_("user:bob", "decider"), places)


def tell_all(house: House, bob: httpx2.Client, places: list[str]) -> None:
    pat, ann = house.as_("user:pat", "publisher"), house.as_("user:ann", "operator")
    model = "models: {smart: {use: smart}}\n"
    for number, path in enumerate(places):
        step = PLACES[path]
        name = f"place-{number}"
        text = f"{IN_PLACES}name: {name}\n{model if 'agent' in step else ''}steps: [{step}]\n"
        expect(pat.post("/v1/workflows", content=text, headers=YAML), 201)
        ann.post("/v1/runs", json={"workflow": name}).raise_for_status()
        (real,) = wait_for(lambda name=name: bob.get(f"/v1/inbox?workflow={name}").json()["items"])
        assert real["path"] == path
        own = {"arguments": None, "title": "Sign?"} if "signed" in path else {"title": None}
        own["summary"] = "A place of mine"
        item = find_question(bob, seed(house, workflow=name, path=path, **own))
        assert {each: item[each] for each in SHOWN} == {each: real[each] for each in SHOWN}
        tell_from(bob, item, real)
        decided = decide(bob, item["id"], decision="approve")
        assert (decided["canary"]["status"], decided["canary"]["path"]) == ("missed", path)


def test_a_decider_can_tell_a_canary_by_no_list_and_no_answer(
    house: House, bob: httpx2.Client, real: dict[str, Any]
) -> None:
    canary = find_question(bob, seed(house))
    tell_from_lists(bob, canary, real)
    tell_from(bob, canary, real)


def tell_from_lists(bob: httpx2.Client, canary: dict[str, Any], real: dict[str, Any]) -> None:
    ids = (canary["id"], canary["run_id"])
    for path in LISTS:
        listed = bob.get(path)
        assert listed.status_code == 200, path
        text = listed.text
        assert not [each for each in ("oversight", CANARY, ASKER, "built_in.nothing") if each in text], path
        assert all(
            (id in text) == (other in text) for id, other in zip(ids, (real["id"], real["run_id"]), strict=True)
        ), path


def tell_from(bob: httpx2.Client, canary: dict[str, Any], real: dict[str, Any]) -> None:
    def answers(item: dict[str, Any]) -> Iterator[tuple[str, int, Any]]:
        own = {"id": item["id"], "run_id": item["run_id"]}

        def plain(answer: httpx2.Response) -> tuple[int, Any]:
            text = answer.text.replace(own["id"], "ID").replace(own["run_id"], "RUN")
            return answer.status_code, describe(loads(text)) if text[:1] in "{[" else text

        for path in OF_ONE:
            yield path, *plain(bob.get(path.format(**own)))
        for act in ("claim", "release"):
            yield act, *plain(bob.post(f"/v1/inbox/{own['id']}/{act}", json={}))
        check = f"/v1/pendings/{own['id']}/check"
        yield "check", *plain(bob.post(check, json={"decision": "approve", "edits": {"arguments": {"amount": "x"}}}))
        yield (
            "no reason",
            *plain(bob.post("/v1/inbox/decide", json={"items": [{"id": own["id"], "decision": "reject"}]})),
        )
        caller = Caller(bob)
        listed = caller.call("list_pending", {"limit": 50})["structuredContent"]["questions"]
        (shown,) = [each for each in listed if each["id"] == own["id"]]
        yield "mcp", 200, {name: value for name, value in describe(shown).items() if name not in ("arguments", "url")}

    for shown, other in zip(answers(canary), answers(real), strict=True):
        assert shown == other, shown[0]


def test_who_seems_to_ask_does_not_decide_it_as_at_a_real_one(house: House, real: dict[str, Any]) -> None:
    canary = seed(house, requester="user:cat")
    cat = house.as_("user:cat", "decider")
    pending = wait_for(lambda: list_all(house)[canary["run_id"]]["pending_id"])
    assert pending not in [each["id"] for each in cat.get("/v1/inbox").json()["items"] if each["may_decide"]]
    assert cat.post(f"/v1/pendings/{pending}/decide", json={"decision": "approve"}).status_code in (403, 404)


def test_an_approved_canary_does_nothing_is_told_and_is_missed(
    house: House, bob: httpx2.Client, real: dict[str, Any]
) -> None:
    before = house.as_("user:eve", "auditor").get("/v1/oversight").json()["items"]
    canary = seed(house)
    item = find_question(bob, canary)
    answer = decide(bob, item["id"], decision="approve", edits={"arguments": {"amount": 8}})
    assert (answer["canary"]["status"], answer["canary"]["reason"]) == ("missed", "more than the account has")
    run = wait_for(
        lambda: (
            (state := house.as_("user:olga", "operator").get(f"/v1/runs/{canary['run_id']}").json()).get("status")
            == "finished"
            and state
        )
    )
    assert (run["workflow"], run["output"]) == ("oversight_canary", None)
    assert list_all(house)[canary["run_id"]]["status"] == "missed"
    items = house.as_("user:eve", "auditor").get("/v1/oversight").json()["items"]
    changed = {name for name in before[0] if before[0][name] != items[0][name]}
    assert (len(items), changed) == (1, {"canaries", "missed"})
    own = bob.get("/v1/oversight/me").json()
    assert (own["questions"], own["canaries"], own["caught"], own["missed"]) == (0, 1, 0, 1)
    (decided, *_) = bob.get("/v1/inbox/decided").json()["items"]
    assert (decided["id"], decided["workflow"]) == (item["id"], "oversight_canary")


def test_a_refused_canary_is_caught_and_its_seeder_is_not_asked(
    house: House, bob: httpx2.Client, real: dict[str, Any]
) -> None:
    canary, spoilt = seed(house), seed(house)
    answer = decide(bob, find_question(bob, canary)["id"], decision="reject", reason="no money")
    assert answer["canary"]["status"] == list_all(house)[canary["run_id"]]["status"] == "caught"
    root = house.as_("user:root", "decider")
    house.people.person("user:root", roles=["chief"], tenant=house.tenant)
    assert root.get(f"/v1/pendings/{find_question(bob, spoilt)['id']}").status_code == 404  # not asked at all
    (act, *_) = house.as_("user:eve", "auditor").get("/v1/audit", params={"act": "canary.seeded"}).json()["items"]
    assert (act["by"], act["details"]["path"]) == ("user:root", "transfer")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"path": "nowhere"}, 404, "canary_model_unknown"),
        ({"workflow": "oversight_canary"}, 404, "canary_model_unknown"),
        ({"arguments": {"action": "pay"}}, 422, "canary_invalid"),
        ({"arguments": {"action": "pay", "arguments": {}, "more": 1}}, 422, "canary_invalid"),
        ({"arguments": None}, 422, "canary_invalid"),
        ({"within": "soon"}, 422, "canary_invalid"),
        ({"form": {"type": "object"}}, 422, "canary_invalid"),
        ({"summary": "Paid"}, 422, "canary_invalid"),
        ({"reason": ""}, 422, "request.invalid"),
        ({"requester": "ann"}, 422, "request.invalid"),
    ],
)
def test_a_question_that_none_can_look_like_is_refused(
    house: House, real: dict[str, Any], change: dict[str, Any], status: int, code: str
) -> None:
    body = {"workflow": "pay", "path": "transfer", "reason": "too much", "arguments": {"action": "a", "arguments": {}}}
    answer = house.as_("user:root", "admin").post("/v1/canaries", json={**body, **change})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_a_question_whose_asking_is_not_in_the_log_is_refused(house: House, real: dict[str, Any]) -> None:
    def move(by: int) -> None:
        moved = f"UPDATE pendings SET opened_seq = opened_seq + {by} WHERE path = 'transfer'"
        house.people.do(lambda connection: connection.execute(moved))

    body = {"workflow": "pay", "path": "transfer", "reason": "too much", "arguments": {"action": "a", "arguments": {}}}
    move(1_000_000)
    try:
        answer = house.as_("user:root", "admin").post("/v1/canaries", json=body)
    finally:
        move(-1_000_000)
    assert (answer.status_code, answer.json()["code"]) == (422, "canary_invalid"), answer.text
    assert "log" in answer.json()["detail"]


def test_nobody_starts_or_forks_a_run_that_passes_for_a_canary(
    house: House, bob: httpx2.Client, real: dict[str, Any]
) -> None:
    canary = seed(house)
    decide(bob, find_question(bob, canary)["id"], decision="approve")
    operator = house.as_("user:olga", "operator", "decider")
    input = {"workflow": "pay", "version": 1, "sha256": "no digest", "requester": "user:ceo", "title": "Pay 9?"}
    arguments = {"action": "pay", "arguments": {"amount": 9}}
    wait_for(lambda: operator.get(f"/v1/runs/{canary['run_id']}").json()["status"] == "finished")
    for path, body in (
        ("/v1/runs", {"workflow": "oversight_canary", "input": {**input, "arguments": arguments}}),
        (f"/v1/runs/{canary['run_id']}/fork", {"at": 7}),
    ):
        answer = operator.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (409, "workflow_reserved"), answer.text


def test_the_input_of_another_s_run_disguises_nothing() -> None:
    input = {"workflow": "pay", "version": 1, "sha256": "no digest", "requester": "user:ceo"}
    canary = RunState("r", workflow=CANARY, requester=ASKER, input=input)
    assert disguise_state(canary).requester == "user:ceo"
    assert disguise_state(replace(canary, instigators=("user:ceo",))).instigators == ()
    other = replace(canary, requester="user:olga")
    assert disguise_state(other) is other


def test_its_name_is_nobody_elses_and_only_admins_seed(house: House, bob: httpx2.Client) -> None:
    text = "hai: flow/v1\nname: oversight_canary\nversion: 1\nsteps: [{say: hi}]\n"
    answer = house.as_("user:pat", "publisher").post("/v1/workflows", content=text, headers=YAML)
    assert (answer.status_code, answer.json()["code"]) == (409, "workflow_reserved")
    for role in ("operator", "auditor", "publisher", "decider"):
        assert house.as_("user:ann", role).post("/v1/canaries", json={}).status_code == 403


def test_the_command_seeds_and_lists(house: House, real: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    key = house.people.key("user:root", roles=["admin"], tenant=house.tenant)[1]
    monkeypatch.setenv("HAI_FLOW_URL", house.server.url)
    monkeypatch.setenv("HAI_FLOW_KEY", key)

    def call(*arguments: str) -> str:
        return CliRunner().invoke(app, ["canary", *arguments], terminal_width=200).output

    seeded = call(
        "seed", "pay", "transfer", "--reason", "a drill", "--within", "9h", "--arguments",
        '{"action": "pay", "arguments": {}}',
    )  # fmt: skip
    assert "it looks like the question of pay transfer" in seeded
    assert "a drill" in call("list")
    assert "open" in call()


def test_an_approval_with_a_quorum_is_imitated_and_told_at_its_last_vote(
    house: House, bob: httpx2.Client, real: dict[str, Any]
) -> None:
    decide(bob, real["id"], decision="approve")
    (signed,) = wait_for(lambda: [each for each in bob.get("/v1/inbox").json()["items"] if each["path"] == "signed"])
    canary = seed(house, path="signed", arguments=None, evidence=-3, title="Sign -3?", requester="service:erp")
    item = find_question(bob, canary)
    alike = [name for name in SHOWN if name != "started_by"]
    assert {name: item[name] for name in alike} == {name: signed[name] for name in alike}
    assert (item["evidence"], item["started_by"]) == (-3, "service:erp")
    first = decide(bob, item["id"], decision="approve")
    assert (first["status"], first["workflow"], first.get("canary")) == ("open", "pay", None)
    assert bob.get("/v1/inbox/decided").json()["items"][0]["workflow"] == "pay"
    cat = house.as_("user:cat", "decider")
    assert decide(cat, item["id"], decision="reject")["canary"]["status"] == "caught"
    assert cat.get("/v1/oversight/me").json()["caught"] == 1


PARENT = """
hai: flow/v1
name: parent
version: 1
steps: [{id: below, run: child}]
"""
CHILD = """
hai: flow/v1
name: child
version: 1
steps: [{id: sure, approve: {title: Sure?, from: [user:bob]}}]
"""


def test_of_a_question_in_a_child_run_there_is_no_canary(house: House, bob: httpx2.Client) -> None:
    for source in (CHILD, PARENT):
        assert house.as_("user:pat", "publisher").post("/v1/workflows", content=source, headers=YAML).status_code == 201
    house.as_("user:ann", "operator").post("/v1/runs", json={"workflow": "parent"}).raise_for_status()
    wait_for(lambda: bob.get("/v1/inbox?workflow=child").json()["items"])
    question = {"workflow": "child", "path": "sure", "title": "Sure?", "reason": "too much"}
    refused = house.as_("user:root", "admin").post("/v1/canaries", json=question)
    assert (refused.status_code, refused.json()["code"]) == (422, "canary_invalid")
    assert "child run" in refused.json()["detail"]


LIMITS = """
hai: flow/v1
name: limits
version: 1
input: {type: object, properties: {amount: {type: integer, default: 4711}}}
steps:
  - id: raised
    approve:
      title: Raise it?
      from: [user:bob]
      form: {type: object, properties: {limit: {type: integer, default: "${{ input.amount }}"}}}
"""


def test_a_form_that_its_run_fills_in_is_given_anew_and_never_copied(house: House, bob: httpx2.Client) -> None:
    assert house.as_("user:pat", "publisher").post("/v1/workflows", content=LIMITS, headers=YAML).status_code == 201
    house.as_("user:ann", "operator").post("/v1/runs", json={"workflow": "limits"}).raise_for_status()
    path = "/v1/inbox?workflow=limits"
    (real,) = wait_for(lambda: bob.get(path).json()["items"])
    question = {"workflow": "limits", "path": "raised", "title": "Raise it?", "reason": "too much"}
    refused = house.as_("user:root", "admin").post("/v1/canaries", json=question)
    assert (refused.status_code, refused.json()["code"]) == (422, "canary_invalid")
    form = {"type": "object", "properties": {"limit": {"type": "integer", "default": 9}}}
    item = find_question(bob, seed(house, **question, form=form, arguments=None))
    assert (item["schema"], describe(real["schema"]) == describe(item["schema"])) == (form, False)
    alike = [name for name in SHOWN if name != "schema"]
    assert {name: item[name] for name in alike} == {name: real[name] for name in alike}


def test_who_is_given_a_question_before_they_decide_has_opened_it(house: House, bob: httpx2.Client) -> None:
    house.as_("user:ann", "operator").post("/v1/runs", json={"workflow": "pay", "input": {"amount": 70}})
    (item,) = wait_for(lambda: [each for each in bob.get("/v1/inbox").json()["items"] if each["title"] == "Pay 70?"])
    path = f"/v1/pendings/{item['id']}"
    before = bob.get("/v1/oversight/me").json()
    assert bob.get(f"{path}/openings").json()["items"] == []
    assert bob.get(path).status_code == 200
    assert bob.post(f"{path}/opened", json={"part": "link"}).status_code == 204
    assert bob.post(f"{path}/opened", json={"part": "question"}).status_code == 422
    own = bob.get(f"{path}/openings").json()["items"]
    assert [(each["principal"], each["part"]) for each in own] == [("user:bob", "question"), ("user:bob", "link")]
    cat = house.as_("user:cat", "decider")
    assert cat.get(f"{path}/openings").json()["items"] == []
    auditor = house.as_("user:eve", "auditor")
    assert auditor.get(f"{path}/openings").json()["items"] == own
    (act, *_) = auditor.get("/v1/audit", params={"act": "oversight.read"}).json()["items"]
    assert act["details"]["pending"] == item["id"]
    decide(bob, item["id"], decision="reject", reason="too much")
    after = bob.get("/v1/oversight/me").json()
    assert [after[name] - before[name] for name in ("votes", "opened", "followed")] == [1, 1, 1]
    assert house.as_("user:zoe", "decider").get(f"{path}/openings").status_code == 404


TWICE = """
hai: flow/v1
name: twice
version: {version}
tools: {{ledger: {{python: hai_flow.steps.built_in, effect: external}}}}
steps:
  - id: transfer
    call: ledger.grant
    with: {{action: pay, arguments: {{amount: 7}}}}
    approval: {{from: {voters}, quorum: {quorum}}}
    on_reject: [{{return: null}}]
"""


def publish_and_ask(house: House, version: int, voters: str, quorum: int) -> str:
    text = TWICE.format(version=version, voters=voters, quorum=quorum)
    house.as_("user:pat", "publisher").post("/v1/workflows", content=text, headers=YAML).raise_for_status()
    ann = house.as_("user:ann", "operator")
    run = ann.post("/v1/runs", json={"workflow": "twice"}).json()["id"]
    (pending,) = wait_for(lambda: ann.get(f"/v1/runs/{run}/snapshot").json()["pendings"])
    return pending["id"]


def test_a_rule_of_an_open_canary_is_one_of_the_imitated_workflow(house: House, bob: httpx2.Client) -> None:
    publish_and_ask(house, 1, "[user:bob, user:cat]", 2)
    publish_and_ask(house, 2, "[requester]", 1)  # of this one there can be no canary: the one before is imitated
    canary = seed(house, workflow="twice", title=None)
    item, cat = find_question(bob, canary), house.as_("user:cat", "decider")
    assert item["policy"]["quorum"] == 2
    until = (datetime.now(UTC) + timedelta(days=9)).isoformat()
    rule = {"pending_id": item["id"], "when": "args.arguments.amount < 5", "until": until, "reason": "small ones"}
    decide(bob, item["id"], decision="approve")
    proposed = cat.post("/v1/rules", json=rule)
    assert (proposed.status_code, proposed.json()["workflow"]) == (201, "twice"), proposed.text
    decide(cat, item["id"], decision="approve")
    answer = cat.post("/v1/rules", json=rule)
    assert (answer.status_code, answer.json()["code"]) == (422, "rule_invalid")
    assert "canary" in answer.json()["detail"]


def test_a_question_is_read_where_its_opening_can_not_be_kept(house: House, bob: httpx2.Client) -> None:
    id = publish_and_ask(house, 3, "[user:bob]", 1)
    house.people.do(lambda connection: connection.execute("ALTER TABLE openings RENAME TO elsewhere"))
    try:
        assert bob.get(f"/v1/pendings/{id}").status_code == 200
        assert bob.post(f"/v1/pendings/{id}/opened", json={"part": "link"}).status_code >= 500
    finally:
        house.people.do(lambda connection: connection.execute("ALTER TABLE elsewhere RENAME TO openings"))
    assert bob.get(f"/v1/pendings/{id}/openings").json()["items"] == []
