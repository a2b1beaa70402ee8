"""Approvals that are walked around by those who control runs: each try over REST is refused with the rule and with the
people who could do it, and nothing is paid.

The tables of docs/passing.md try the engine; here are its doors, with real children, forks of forks, and a server that
has to find out by itself what is asked below."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess
from tests.support.waiting import wait_for

_TOOLS: Final = "tools: {fx: {python: tests.support.effects, effect: write}}\n"
_PAY: Final = "  - {id: pay, say: Paid.}\n"
_OK: Final = "approve: {title: Pay?, from: [role:lead], deadline: 1d}"
_ASK: Final = "ask: {title: Sure?, from: [role:lead], form: {type: object, properties: {yes: {type: boolean}}}}"


def _document(name: str, steps: str, version: int = 1) -> str:
    head = f"hai: flow/v1\nname: {name}\nversion: {version}\n"
    return f"{head}{_TOOLS}steps:\n  - {{id: before, say: Hello.}}\n{steps}{_PAY}"


DOCUMENTS: Final = {
    "k_approve": f"  - {{id: ok, {_OK}}}\n",
    "k_two": "  - {id: ok, approve: {title: Pay?, from: [role:lead], quorum: 2, deadline: 1d}}\n",
    "k_late": "  - {id: ok, approve: {title: P?, from: [role:lead], reject_when: unreachable, quorum: 2}}\n",
    "k_ask": f"  - {{id: ok, {_ASK}}}\n",
    "k_gate": "  - {id: ok, call: fx.note, with: {n: 2}, approval: {from: [role:lead], deadline: 1d}}\n",
    "k_signs": f"  - {{id: ok, {_OK}}}\n",
    "k_child": "  - {id: ok, run: k_signs}\n",
    "k_grandchild": "  - {id: ok, run: k_child}\n",
    "k_branch": f"  - id: both\n    parallel:\n      a: [{{id: ok, {_OK}}}]\n      b: [say: Hello.]\n",
    "k_loop": f"  - id: each\n    for_each: {{items: [1], as: n, steps: [{{id: ok, {_OK}}}]}}\n",
    "k_caught": f"  - id: tried\n    try: [{{id: ok, {_OK}}}]\n    finally: [say: Hello.]\n",
}  # fmt: skip
AT: Final = {"k_branch": "both/a/ok", "k_loop": "each[1]/ok", "k_caught": "tried/ok"}
ASKS: Final = [name for name in DOCUMENTS if name != "k_signs"]
REJECTABLE: Final = [name for name in ASKS if name != "k_ask"]
OPERATOR: Final = "user:oscar,role:operator"


def as_(who: str) -> dict[str, str]:
    return {"HAI-Act-As": who}


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        for name, steps in DOCUMENTS.items():
            answer = client.post("/v1/workflows", content=_document(name, steps), headers=YAML)
            assert answer.status_code in (200, 201), answer.text
        yield client


class Payment:
    """A run of `me`, who controls runs and would have the role, and its question."""

    def __init__(self, api: httpx2.Client, workflow: str) -> None:
        self.api, self.workflow, self.me = api, workflow, "user:" + unique("me")
        self.mine = f"{self.me},role:lead,role:operator"
        self.run = api.post("/v1/runs", json={"workflow": workflow}, headers=as_(self.me)).json()
        self.id = str(wait_for(self._asked))

    @property
    def url(self) -> str:
        return f"/v1/runs/{self.run['id']}"

    @property
    def at(self) -> str:
        return AT.get(self.workflow, "ok")

    def _asked(self) -> str | None:
        """The open question of the run, or of one below it."""
        if self.workflow in ("k_child", "k_grandchild"):
            items = self.api.get("/v1/pendings", params={"limit": 200, "workflow": "k_signs"}).json()["items"]
            return next((str(each["id"]) for each in items if self._is_below(each)), None)
        items = self.api.get("/v1/pendings", params={"run_id": self.run["id"]}).json()["items"]
        return next((str(each["id"]) for each in items), None)

    def _is_below(self, pending: dict[str, Any]) -> bool:
        return bool(self.api.get(f"/v1/runs/{pending['run_id']}").json()["thread_id"] == self.run["thread_id"])

    def decide(self, who: str, decision: str) -> None:
        body = {"decision": decision, "reason": "because"}
        answer = self.api.post(f"/v1/pendings/{self.id}/decide", json=body, headers=as_(f"{who},role:lead"))
        assert answer.status_code == 200, answer.text

    def reject(self) -> None:
        self.decide("user:" + unique("no"), "reject")
        if self.workflow == "k_late":
            return
        wait_for(lambda: self.api.get(self.url).json()["status"] == "failed")

    def post(self, what: str, who: str, **body: Any) -> httpx2.Response:
        return self.api.post(f"{self.url}/{what}", json=body, headers=as_(who))

    def demand_unpaid(self) -> None:
        """Neither in the run nor in another one of its thread."""
        for run in self.api.get("/v1/runs", params={"thread_id": self.run["thread_id"]}).json()["items"]:
            page = self.api.get(f"/v1/runs/{run['id']}/events", params={"limit": 500}).json()
            begun = [each["path"] for each in page["items"] if each["type"] == "step_started"]
            assert "pay" not in begun, (run, begun)


def refused(answer: httpx2.Response, *codes: str) -> str:
    problem = answer.json()
    assert answer.status_code in (403, 409, 422), problem
    assert problem["code"] in codes, problem
    return str(problem["detail"])


Skip: TypeAlias = Callable[[Payment], httpx2.Response]
SKIPS: Final[dict[str, Skip]] = {
    "by the requester": lambda it: it.post("skip", it.mine, step=it.at),
    "by the requester with an output": lambda it: it.post("skip", it.mine, step=it.at, output={"yes": True}),
    "by an operator": lambda it: it.post("skip", OPERATOR, step=it.at),
    "by an operator with an output": lambda it: it.post("skip", OPERATOR, step=it.at, output={"decision": "approve"}),
    "by an admin": lambda it: it.post("skip", "user:adam,role:admin", step=it.at, reason="quickly"),
}


@pytest.mark.parametrize("workflow", ASKS)
def test_a_question_is_not_skipped(api: httpx2.Client, workflow: str) -> None:
    it = Payment(api, workflow)
    if workflow == "k_ask":
        it.mine = f"{it.me},role:operator"  # its rules would let the requester answer, had they the role
    for way, skip in SKIPS.items():
        detail = refused(skip(it), "skip.forbidden", "skip.approval")
        assert "decide" in detail, way
        it.demand_unpaid()


@pytest.mark.parametrize("workflow", REJECTABLE)
def test_what_was_rejected_is_not_skipped(api: httpx2.Client, workflow: str) -> None:
    it = Payment(api, workflow)
    it.reject()
    for skip in SKIPS.values():
        refused(skip(it), "skip.forbidden", "skip.approval", "skip.rejected", "retry.forbidden", "skip.not_there")
        it.demand_unpaid()


AGAIN: Final[dict[str, Skip]] = {
    "retry by the requester": lambda it: it.api.post(f"{it.url}/retry", headers=as_(it.mine)),
    "retry by an operator": lambda it: it.api.post(f"{it.url}/retry", headers=as_(OPERATOR)),
    "fork by the requester": lambda it: it.post("fork", it.mine, step="before"),
    "fork by an operator": lambda it: it.post("fork", OPERATOR, step="before"),
    "fork with another input": lambda it: it.post("fork", it.mine, step="before", input={}),
    "dry run": lambda it: it.post("fork", it.mine, step="before", dry_run=True),
}


@pytest.mark.parametrize("workflow", REJECTABLE)
def test_a_no_is_not_asked_anew_by_those_who_may_not_decide(api: httpx2.Client, workflow: str) -> None:
    it = Payment(api, workflow)
    it.reject()
    for way, ask_anew in AGAIN.items():
        answer = ask_anew(it)
        if workflow == "k_late" and "retry" in way:
            assert answer.status_code == 200, "it waits: nothing happens"
        else:
            detail = refused(answer, "retry.forbidden", "fork.forbidden")
            assert "said no" in detail, way
            assert "role:lead" in detail or "somebody else" in detail, way
        it.demand_unpaid()


@pytest.mark.parametrize("workflow", REJECTABLE)
def test_retry_of_many_at_once_asks_nothing_anew(api: httpx2.Client, workflow: str) -> None:
    it = Payment(api, workflow)
    it.reject()
    body = {"action": "retry", "runs": [it.run["id"]], "expect": 1}
    for caller in (it.mine, OPERATOR):
        (item,) = api.post("/v1/runs/bulk", json=body, headers=as_(caller)).json()["items"]
        assert item["outcome"] == ("already" if workflow == "k_late" else "refused"), item
        it.demand_unpaid()


@pytest.mark.parametrize("workflow", ["k_approve", "k_gate", "k_branch", "k_child"])
def test_a_no_counts_in_all_runs_that_are_forks_of_each_other(api: httpx2.Client, workflow: str) -> None:
    it = Payment(api, workflow)
    forked = it.post("fork", OPERATOR, step="before").json()
    it.run, first = forked, it.run
    it.id = str(wait_for(it._asked))
    it.reject()
    for run in (first, forked):
        for who in (it.mine, OPERATOR):
            answer = api.post(f"/v1/runs/{run['id']}/fork", json={"step": "before"}, headers=as_(who))
            refused(answer, "fork.forbidden")
    it.demand_unpaid()


@pytest.mark.parametrize("way", ["retry", "fork"])
@pytest.mark.parametrize("workflow", ["k_approve", "k_two", "k_gate", "k_loop", "k_child"])
def test_a_decider_asks_anew_and_the_requester_still_decides_nothing(
    api: httpx2.Client, workflow: str, way: str
) -> None:
    it = Payment(api, workflow)
    it.reject()
    lead = f"user:{unique('lead')},role:lead,role:operator"
    answer = it.post("fork", lead, step="before") if way == "fork" else api.post(f"{it.url}/retry", headers=as_(lead))
    assert answer.status_code in (200, 201), answer.text
    if way == "fork":
        it.run = answer.json()
    first = it.id
    it.id = str(wait_for(lambda: found if (found := it._asked()) != first else None))
    assert first != it.id
    vote = api.post(f"/v1/pendings/{it.id}/decide", json={"decision": "approve"}, headers=as_(it.mine))
    assert (vote.status_code, vote.json()["code"]) == (403, "pending_forbidden")
    it.demand_unpaid()
    for _ in range(2 if workflow == "k_two" else 1):
        it.decide("user:" + unique("yes"), "approve")
    wait_for(lambda: api.get(it.url).json()["status"] in ("finished", "failed"))


@pytest.mark.parametrize("behind", ["the requester", "an instigator"])
def test_a_version_without_the_question_is_moved_to_by_somebody_else(api: httpx2.Client, behind: str) -> None:
    name = unique("v").replace("-", "_")
    for version, asking in ((1, f"  - {{id: ok, {_OK}}}\n"), (2, "")):
        source = _document(name, "  - {id: place, wait: {for: 1d}}\n" + asking, version)
        assert api.post("/v1/workflows", content=source, headers=YAML).status_code == 201
    me = "user:" + unique("me")
    run = api.post("/v1/runs", json={"workflow": f"{name}@1"}, headers=as_(f"{me},role:operator")).json()
    wait_for(lambda: api.get(f"/v1/runs/{run['id']}").json()["status"] == "waiting")
    if behind == "an instigator":
        answer = api.post(f"/v1/runs/{run['id']}/fork", json={"step": "place"}, headers=as_(OPERATOR))
        run = answer.json()
        wait_for(lambda: api.get(f"/v1/runs/{run['id']}").json()["status"] == "waiting")
    move = {"from": "1", "to": "2", "runs": [run["id"]]}
    mine = as_(f"{me},role:lead,role:operator")
    for body in ({**move, "dry_run": True}, move):
        (found,) = api.post(f"/v1/workflows/{name}/migrate", json=body, headers=mine).json()["runs"]
        assert not found["moved"]
        assert [each["code"] for each in found["obstacles"]] == ["question.changed"]
    answer = api.post(f"/v1/runs/{run['id']}/fork", json={"step": "place", "version": "2"}, headers=mine)
    assert "somebody else must move it" in refused(answer, "migration_refused")
    (found,) = api.post(f"/v1/workflows/{name}/migrate", json=move, headers=as_("user:olga,role:operator")).json()[
        "runs"
    ]
    assert found["moved"]


@pytest.mark.parametrize("workflow", ["k_approve", "k_ask", "k_gate"])
def test_a_decider_skips_what_their_approval_would_decide(api: httpx2.Client, workflow: str) -> None:
    it = Payment(api, workflow)
    answer = it.post("skip", f"user:{unique('lead')},role:lead,role:operator", step=it.at)
    assert answer.status_code == 200, answer.text
    wait_for(lambda: api.get(it.url).json()["status"] in ("finished", "failed"))


def test_the_first_of_two_required_approvers_does_not_skip_the_second_does(api: httpx2.Client) -> None:
    it = Payment(api, "k_two")
    first, second = (f"user:{unique('lead')},role:lead,role:operator" for _ in range(2))
    assert "more people" in refused(it.post("skip", first, step="ok"), "skip.forbidden")
    it.decide(first, "approve")
    assert "a vote stands" in refused(it.post("skip", first, step="ok"), "skip.forbidden")
    assert it.post("skip", second, step="ok").status_code == 200


@pytest.mark.parametrize("workflow", ["k_child", "k_grandchild"])
def test_the_question_of_a_run_below_is_not_skipped_there_either(api: httpx2.Client, workflow: str) -> None:
    it = Payment(api, workflow)
    below = api.get(f"/v1/inbox/{it.id}", headers=as_("user:lee,role:lead")).json()["run_id"]
    for who in (it.mine, OPERATOR):
        answer = api.post(f"/v1/runs/{below}/skip", json={"step": "ok"}, headers=as_(who))
        refused(answer, "skip.forbidden")
    it.demand_unpaid()


@pytest.mark.parametrize("body", [{}, {"input": {}}, {"dry_run": True}])
@pytest.mark.parametrize("workflow", ["k_approve", "k_branch", "k_loop", "k_caught", "k_child", "k_grandchild"])
def test_one_approval_is_not_used_for_two_runs(api: httpx2.Client, workflow: str, body: dict[str, Any]) -> None:
    it = Payment(api, workflow)
    it.decide("user:" + unique("yes"), "approve")
    wait_for(lambda: api.get(it.url).json()["status"] == "finished")
    runs = api.get("/v1/runs", params={"thread_id": it.run["thread_id"]}).json()["items"]
    for who in (it.mine, OPERATOR, f"user:{unique('lead')},role:lead,role:operator"):
        assert "for one run" in refused(it.post("fork", who, step="pay", **body), "fork_approved")
    assert api.get("/v1/runs", params={"thread_id": it.run["thread_id"]}).json()["items"] == runs


_MORE: Final = "ask: {title: More?, from: anyone, form: {type: object, properties: {}}}"
TWICE: Final = f"""hai: flow/v1
name: k_twice
version: 1
{_TOOLS}steps:
  - {{id: ok, {_OK}}}
  - {{id: more, {_MORE}}}
  - {{id: pay, call: fx.note, with: {{n: 2}}}}
"""


def _answer_more(api: httpx2.Client, run_id: str) -> None:
    def waits() -> str | None:
        items = api.get("/v1/pendings", params={"run_id": run_id}).json()["items"]
        return next((str(each["id"]) for each in items if each["title"] == "More?"), None)

    pending = wait_for(waits)
    answer = api.post(f"/v1/pendings/{pending}/decide", json={"values": {}}, headers=as_(OPERATOR))
    assert answer.status_code == 200, answer.text


def _waits(api: httpx2.Client, run_id: str) -> int:
    """The last moment at which the run waited."""
    items = api.get(f"/v1/runs/{run_id}/marks").json()["items"]
    return int(next(each["seq"] for each in reversed(items) if each["step"] is None))


def _is(api: httpx2.Client, run_id: str, status: str) -> bool:
    return bool(api.get(f"/v1/runs/{run_id}").json()["status"] == status)


@pytest.mark.parametrize("payer", ["the run", "a fork of it"])
def test_one_approval_pays_once_where_the_run_waited_behind_it(api: httpx2.Client, payer: str) -> None:
    answer = api.post("/v1/workflows", content=TWICE, headers=YAML)
    assert answer.status_code in (200, 201), answer.text
    it = Payment(api, "k_twice")
    first = str(it.run["id"])
    it.decide("user:" + unique("yes"), "approve")
    wait_for(lambda: api.get("/v1/pendings", params={"run_id": first}).json()["items"][0]["title"] == "More?")
    wait_for(lambda: _is(api, first, "waiting"))
    at = _waits(api, first)
    runs = [first]
    if payer == "a fork of it":
        forked = it.post("fork", it.mine, at=at)
        assert forked.status_code == 201, forked.text
        runs.append(str(forked.json()["id"]))
    _answer_more(api, runs[-1])
    wait_for(lambda: _is(api, runs[-1], "finished") or _is(api, runs[-1], "failed"))
    for run in runs:
        place = at if run == first else _waits(api, run)
        for body in ({"at": place}, {"at": place, "dry_run": True}):
            answer = api.post(f"/v1/runs/{run}/fork", json=body, headers=as_(it.mine))
            assert "asked anew" in refused(answer, "fork_approved")
        marks = api.get(f"/v1/runs/{run}/marks").json()["items"]
        assert {each["forkable"] for each in marks if each["seq"] == place} == {False}
    anew = it.post("fork", it.mine, step="ok")
    assert anew.status_code == 201, anew.text


def _has_begun(api: httpx2.Client, run_id: str, path: str) -> bool:
    page = api.get(f"/v1/runs/{run_id}/events", params={"limit": 500}).json()
    return any(each["type"] == "step_started" and each["path"] == path for each in page["items"])


FAILING: Final = f"""hai: flow/v1
name: k_failing
version: 1
tools: {{fx: {{python: tests.support.effects, effect: write}}, look: {{python: tests.support.effects, effect: read}}}}
steps:
  - {{id: ok, {_OK}}}
  - {{id: more, {_MORE}}}
  - {{id: late, call: look.breaks}}
  - {{id: pay, call: fx.note, with: {{n: 2}}}}
"""


@pytest.mark.parametrize("payer", ["the run", "a fork of it"])
@pytest.mark.parametrize("way", ["retry", "skip", "bulk"])
def test_a_run_failed_after_approval_stays_once_a_relative_used_it(api: httpx2.Client, way: str, payer: str) -> None:
    answer = api.post("/v1/workflows", content=FAILING, headers=YAML)
    assert answer.status_code in (200, 201), answer.text
    it = Payment(api, "k_failing")
    first = str(it.run["id"])
    it.decide("user:" + unique("yes"), "approve")
    wait_for(lambda: api.get("/v1/pendings", params={"run_id": first}).json()["items"][0]["title"] == "More?")
    wait_for(lambda: _is(api, first, "waiting"))
    at = _waits(api, first)
    _answer_more(api, first)
    wait_for(lambda: _is(api, first, "failed"))
    forked = it.post("fork", it.mine, at=at)
    assert forked.status_code == 201, forked.text
    second = str(forked.json()["id"])
    _answer_more(api, second)
    wait_for(lambda: _is(api, second, "failed"))
    paying, other = (first, second) if payer == "the run" else (second, first)
    skipped = api.post(f"/v1/runs/{paying}/skip", json={"step": "late"}, headers=as_(it.mine))
    assert skipped.status_code == 200, skipped.text  # nobody has acted on the approval yet
    wait_for(lambda: _has_begun(api, paying, "pay") and (_is(api, paying, "finished") or _is(api, paying, "failed")))
    for who in (it.mine, OPERATOR):
        if way == "bulk":
            body = {"action": "retry", "runs": [other]}
            (item,) = api.post("/v1/runs/bulk", json=body, headers=as_(who)).json()["items"]
            assert item["problem"]["code"] == "retry_approved", item
            continue
        answer = api.post(f"/v1/runs/{other}/{way}", json={"step": "late"} if way == "skip" else None, headers=as_(who))
        assert "asked anew" in refused(answer, "retry_approved")
    assert not _has_begun(api, other, "pay")


_BY_N: Final = 'with: {n: "${{ input.n }}"}'
_WHEN: Final = 'approval: {from: [role:lead], when: "args.n > 5"}'
BELOW: Final = {
    "k_pays": f"  - {{id: more, {_MORE}}}\n  - {{id: pay, call: fx.note, {_BY_N}, {_WHEN}}}\n",
    "k_lets": f"  - {{id: more, {_MORE}}}\n  - let: {{x: '${{{{ input.n }}}}'}}\n"
    f"  - {{id: pay, call: fx.note, with: {{n: '${{{{ x }}}}'}}, {_WHEN}}}\n",
    "k_pays_now": f"  - {{id: pay, call: fx.note, {_BY_N}, {_WHEN}}}\n",
    "k_pays_below": f"  - {{id: more, {_MORE}}}\n  - {{id: below, run: k_pays_now, {_BY_N}}}\n",
    "k_asks_nobody": "  - {id: pay, say: Paid.}\n",
    "k_nobody_below": f"  - {{id: more, {_MORE}}}\n  - {{id: below, run: k_asks_nobody, {_BY_N}}}\n",
}


@pytest.mark.parametrize(
    ("workflow", "decides"), [("k_pays", True), ("k_lets", True), ("k_pays_below", True), ("k_nobody_below", False)]
)
def test_a_person_behind_a_run_edits_no_argument_that_decides_on_gates(
    api: httpx2.Client, workflow: str, decides: bool
) -> None:
    head = "hai: flow/v1\nname: {}\nversion: 1\n"
    head += "input: {{type: object, properties: {{n: {{type: integer, default: 9}}}}}}\n"
    for name, steps in BELOW.items():
        answer = api.post("/v1/workflows", content=f"{head.format(name)}{_TOOLS}steps:\n{steps}", headers=YAML)
        assert answer.status_code in (200, 201), answer.text
    it = Payment(api, workflow)
    wait_for(lambda: _is(api, it.run["id"], "waiting"))
    body = {"at": _waits(api, it.run["id"]), "input": {"n": 0}}
    if not decides:
        assert it.post("fork", it.mine, **body).status_code == 201
        return
    for dry_run in (True, False):
        assert "somebody else must edit" in refused(it.post("fork", it.mine, **body, dry_run=dry_run), "fork.forbidden")
    assert it.post("fork", OPERATOR, **body).status_code == 201


RISKY: Final = f"""hai: flow/v1
name: k_risky
version: 1
input: {{type: object, properties: {{n: {{type: integer, default: 9}}}}}}
state: {{risk: {{type: integer, default: 9}}}}
{_TOOLS}steps:
  - {{id: more, {_MORE}}}
  - {{id: pay, call: fx.note, with: {{n: 2}}, approval: {{from: [role:lead], when: "state.risk > 5 || input.n > 5"}}}}
"""


@pytest.mark.parametrize("edit", [{"state": {"risk": 0}}, {"input": {"n": 0}}])
def test_a_person_behind_a_run_edits_nothing_that_decides_on_gates(api: httpx2.Client, edit: dict[str, Any]) -> None:
    answer = api.post("/v1/workflows", content=RISKY, headers=YAML)
    assert answer.status_code in (200, 201), answer.text
    it = Payment(api, "k_risky")
    wait_for(lambda: _is(api, it.run["id"], "waiting"))
    at = _waits(api, it.run["id"])
    for body in ({"at": at, **edit}, {"at": at, **edit, "dry_run": True}):
        assert "somebody else must edit" in refused(it.post("fork", it.mine, **body), "fork.forbidden")
    same = {"state": {"risk": 9}} if "state" in edit else {"input": {"n": 9}}
    assert it.post("fork", it.mine, at=at, **same, dry_run=True).status_code == 200
    forked = it.post("fork", OPERATOR, at=at, **edit)
    assert forked.status_code == 201, forked.text
    id = forked.json()["id"]
    wait_for(lambda: _is(api, id, "waiting"))
    again = {"at": _waits(api, id), **({"state": {"risk": 1}} if "state" in edit else {"input": {"n": 1}})}
    for who in (it.mine, OPERATOR):  # the fork's requester, and who is behind it
        answer = api.post(f"/v1/runs/{id}/fork", json=again, headers=as_(who))
        assert "somebody else must edit" in refused(answer, "fork.forbidden")
