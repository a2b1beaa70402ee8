"""One's own request, approved by oneself, where a trigger, a signal or another person's fork has taken one's name off
it.

Each cause is tried with each way of deciding: all are refused with the rule, none leaves a vote, and somebody else can
decide afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess, expect
from tests.support.waiting import wait_for

_HEAD: Final = (
    "hai: flow/v1\nname: {name}\nversion: 1\ninput: {{type: object, properties: {{tag: {{type: string}}}}}}\n"
)
_SIGNS: Final = """
steps:
  - {{id: before, say: Hello.}}
  - id: ok
    approve: {{title: "Pay ${{{{ input.tag }}}}?", from: [role:lead], deadline: 1d}}
"""
_TAG: Final = 'input: {{tag: "${{{{ event.data.tag }}}}"}}'
_OF_END: Final = 'input: {{tag: "${{{{ event.data.input.tag }}}}"}}'


_GOT: Final = "{{id: got, wait_for: {{event: t.go, match: event.data.tag == input.tag, deadline: 1d}}}}"
_THEN_SIGNS: Final = _SIGNS.removeprefix("\nsteps:\n")
_HANDED: Final = 'with: {{tag: "${{{{ input.tag }}}}"}}'


def _document(name: str, rest: str, triggers: str = "") -> str:
    return (_HEAD + (f"triggers:\n  - {triggers}\n" if triggers else "") + rest).format(name=name)


_SAYS: Final = "steps: [{{say: Hello.}}]\n"
DOCUMENTS: Final = (
    _document("t_signs", _SIGNS),
    _document("t_event", _SIGNS, "event: {{type: t.wished, " + _TAG + "}}"),
    _document("t_schedule", _SIGNS.replace("input.tag", "run.id"), 'schedule: {{cron: "0 0 1 1 *", timezone: UTC}}')
    .replace("input: {type: object, properties: {tag: {type: string}}}\n", ""),
    _document("t_wish", _SAYS),
    _document("t_end", _SIGNS, "run: {{workflow: t_wish, " + _OF_END + "}}"),
    _document("t_fails", "steps: [{{fail: {{code: no, message: No.}}}}]\n"),
    _document("t_failed_end", _SIGNS, "run: {{workflow: t_fails, on: [failed], " + _OF_END + "}}"),
    _document("t_waits", "steps: [{{wait: {{for: 1d}}}}]\n"),
    _document("t_stopped_end", _SIGNS, "run: {{workflow: t_waits, on: [stopped], " + _OF_END + "}}"),
    _document("t_heard", _SAYS, "event: {{type: t.heard, " + _TAG + "}}"),
    _document("t_heard_end", _SIGNS, "run: {{workflow: t_heard, " + _OF_END + "}}"),
    _document("t_first", _SAYS),
    _document("t_second", _SAYS, "run: {{workflow: t_first, " + _OF_END + "}}"),
    _document("t_third", _SAYS, "run: {{workflow: t_second, " + _OF_END + "}}"),
    _document("t_chain", _SIGNS, "run: {{workflow: t_third, " + _OF_END + "}}"),
    _document(
        "t_parent", 'steps: [{{id: sub, run: t_signs, with: {{tag: "${{{{ input.tag }}}}"}}}}]\n',
        "event: {{type: t.child, " + _TAG + "}}",
    ),
    _document(
        "t_leaves", 'steps: [{{id: sub, run: t_signs, detach: true, with: {{tag: "${{{{ input.tag }}}}"}}}}]\n',
        "event: {{type: t.detached, " + _TAG + "}}",
    ),
    _document("t_sends", "steps:\n  - {{id: got, wait_for: {{event: t.go, match: event.data.tag == input.tag, "
              "deadline: 1d}}}}\n" + _SIGNS.removeprefix("\nsteps:\n")),
    _document("t_over", 'steps: [{{id: sub, run: t_wish, with: {{tag: "${{{{ input.tag }}}}"}}}}]\n',
              "event: {{type: t.over, " + _TAG + "}}"),
    _document("t_takes", f"steps: [{_GOT}]\n"),
    _document("t_takes_and_fails", f"steps: [{_GOT}, {{{{id: no, fail: {{{{code: no, message: No.}}}}}}}}]\n"),
    _document("t_between", "steps: [{{id: sub, run: t_takes, " + _HANDED + "}}]\n"),
    _document("t_above", "steps:\n  - {{id: sub, run: t_takes, " + _HANDED + "}}\n" + _THEN_SIGNS),
    _document("t_far_above", "steps:\n  - {{id: sub, run: t_between, " + _HANDED + "}}\n" + _THEN_SIGNS),
    _document("t_catches", "steps:\n  - id: t\n    try: [{{id: sub, run: t_takes_and_fails, " + _HANDED + "}}]\n"
              "    catch: [{{steps: [{{say: Well.}}]}}]\n" + _THEN_SIGNS),
    _document("t_branches", "steps:\n  - {{id: both, parallel: {{a: [" + _GOT + "], b: [{{wait: {{for: 1s}}}}]}}}}\n"
              + _THEN_SIGNS),
    _document("t_over_end", _SIGNS, "run: {{workflow: t_over, " + _OF_END + "}}"),
)  # fmt: skip
YES: Final = {"decision": "approve"}
OPERATOR: Final = "user:oscar,role:operator"


def as_(who: str) -> dict[str, str]:
    return {"HAI-Act-As": who}


class Asked(NamedTuple):
    """An open question of a run that `me` is behind."""

    api: httpx2.Client
    me: str
    id: str
    run_id: str

    def votes(self) -> int:
        events = self.api.get(f"/v1/runs/{self.run_id}/events", params={"limit": 500}).json()["items"]
        return len([each for each in events if each["type"] in ("vote_cast", "pending_decided")])


Cause: TypeAlias = Callable[[httpx2.Client, str, str], object]


def _post(api: httpx2.Client, path: str, who: str, **body: Any) -> Any:
    return expect(api.post(path, json=body, headers=as_(who)), 200, 201).json()


def _start(api: httpx2.Client, workflow: str, who: str, tag: str) -> Any:
    return _post(api, "/v1/runs", who, workflow=workflow, input={"tag": tag})


def _event(api: httpx2.Client, me: str, tag: str) -> object:
    return _post(api, "/v1/events", me, type="t.wished", data={"tag": tag})


def _signal_to_all(api: httpx2.Client, me: str, tag: str) -> object:
    return _post(api, "/v1/signals", f"{me},role:operator", type="t.wished", data={"tag": tag})


def _schedule(api: httpx2.Client, me: str, tag: str) -> object:
    items = api.get("/v1/schedules", headers=as_(OPERATOR)).json()["items"]
    (schedule,) = [each for each in items if each["workflow"] == "t_schedule"]
    return _post(api, f"/v1/schedules/{schedule['id']}/run", f"{me},role:operator")


def _end(api: httpx2.Client, me: str, tag: str) -> object:
    return _start(api, "t_wish", me, tag)


def _failed_end(api: httpx2.Client, me: str, tag: str) -> object:
    return _start(api, "t_fails", me, tag)


def _stopped_end(api: httpx2.Client, me: str, tag: str) -> object:
    return _post(api, f"/v1/runs/{_start(api, 't_waits', me, tag)['id']}/stop", OPERATOR)


def _chain(api: httpx2.Client, me: str, tag: str) -> object:
    return _start(api, "t_first", me, tag)


def _child(api: httpx2.Client, me: str, tag: str) -> object:
    return _post(api, "/v1/events", me, type="t.child", data={"tag": tag})


def _detached(api: httpx2.Client, me: str, tag: str) -> object:
    return _post(api, "/v1/events", me, type="t.detached", data={"tag": tag})


def _gone_back(api: httpx2.Client, who: str, run: Any, **where: Any) -> Any:
    return _post(api, f"/v1/runs/{run['id']}/fork", who, **where)


def _waiting(api: httpx2.Client, run: Any) -> Any:
    return wait_for(lambda: [r for r in [api.get(f"/v1/runs/{run['id']}").json()] if r["status"] == "waiting"])[0]


def _fork(api: httpx2.Client, me: str, tag: str) -> object:
    run = _waiting(api, _start(api, "t_signs", me, tag))
    return _gone_back(api, OPERATOR, run, at=run["seq"])


def _rerun(api: httpx2.Client, me: str, tag: str) -> object:
    return _gone_back(api, OPERATOR, _waiting(api, _start(api, "t_signs", me, tag)), step="ok")


def _edited_fork(api: httpx2.Client, me: str, tag: str) -> object:
    return _gone_back(api, OPERATOR, _waiting(api, _start(api, "t_signs", me, tag)), step="ok", input={"tag": tag})


def _fork_of_a_fork(api: httpx2.Client, me: str, tag: str) -> object:
    first = _gone_back(api, OPERATOR, _waiting(api, _start(api, "t_signs", me, tag)), step="ok")
    return _gone_back(api, "user:olga,role:operator", _waiting(api, first), step="ok")


def _fork_of_a_triggered_run(api: httpx2.Client, me: str, tag: str) -> object:
    (started,) = _post(api, "/v1/events", me, type="t.wished", data={"tag": tag})["runs"]
    return _gone_back(api, OPERATOR, _waiting(api, {"id": started["run_id"]}), step="ok")


def _end_of_what_an_event_started(api: httpx2.Client, me: str, tag: str) -> object:
    return _post(api, "/v1/events", me, type="t.heard", data={"tag": tag})


def _end_of_a_fork(api: httpx2.Client, me: str, tag: str) -> object:
    """Only the fork has the tag: that mine was stopped for it starts another one."""
    mine = _waiting(api, _start(api, "t_waits", me, unique("other")))
    left = _gone_back(api, OPERATOR, mine, at=mine["seq"], input={"tag": tag})
    return _post(api, f"/v1/runs/{_waiting(api, left)['id']}/stop", OPERATOR)


def _signal_to_the_run(api: httpx2.Client, me: str, tag: str) -> object:
    run = _waiting(api, _start(api, "t_sends", "user:zoe", tag))
    return _post(api, f"/v1/runs/{run['id']}/signals", f"{me},role:operator", type="t.go", data={"tag": tag})


def _event_that_a_run_takes(api: httpx2.Client, me: str, tag: str) -> object:
    _waiting(api, _start(api, "t_sends", "user:zoe", tag))
    return _post(api, "/v1/events", me, type="t.go", data={"tag": tag})


def _let_child_take_event(api: httpx2.Client, me: str, tag: str, workflow: str = "t_above") -> object:
    """The event is to nobody in particular: the child takes it."""
    _waiting(api, _start(api, workflow, "user:zoe", tag))
    return _post(api, "/v1/events", me, type="t.go", data={"tag": tag})


def _let_grandchild_take_event(api: httpx2.Client, me: str, tag: str) -> object:
    return _let_child_take_event(api, me, tag, "t_far_above")


def _let_failing_child_take_event(api: httpx2.Client, me: str, tag: str) -> object:
    return _let_child_take_event(api, me, tag, "t_catches")


def _let_branch_take_event(api: httpx2.Client, me: str, tag: str) -> object:
    return _let_child_take_event(api, me, tag, "t_branches")


def _fork_of_what_a_child_took(api: httpx2.Client, me: str, tag: str) -> object:
    run = _waiting(api, _start(api, "t_above", "user:zoe", tag))
    _post(api, "/v1/events", me, type="t.go", data={"tag": tag})
    wait_for(lambda: _asking(api, tag))
    return _gone_back(api, OPERATOR, run, step="ok")


def _end_above_a_child(api: httpx2.Client, me: str, tag: str) -> object:
    return _post(api, "/v1/events", me, type="t.over", data={"tag": tag})


def _fork_of_a_fork_of_a_rerun(api: httpx2.Client, me: str, tag: str) -> object:
    run = _start(api, "t_signs", me, tag)
    for number, where in enumerate(({"step": "ok"}, {"step": "before"}, {"step": "ok", "input": {"tag": tag}})):
        run = _gone_back(api, f"user:olga{number},role:operator", _waiting(api, run), **where)
    return run


def _fork_of_an_end(api: httpx2.Client, me: str, tag: str) -> object:
    _start(api, "t_wish", me, tag)
    return _gone_back(api, OPERATOR, _waiting(api, {"id": wait_for(lambda: _asking(api, tag))["run_id"]}), step="ok")


def _fork_of_what_took_my_event(api: httpx2.Client, me: str, tag: str) -> object:
    run = _waiting(api, _start(api, "t_sends", "user:zoe", tag))
    _post(api, "/v1/events", me, type="t.go", data={"tag": tag})
    wait_for(lambda: _asking(api, tag))
    return _gone_back(api, OPERATOR, run, step="ok")


CAUSES: Final[dict[str, Cause]] = {
    "an event starts it": _event,
    "a signal to all starts it": _signal_to_all,
    "I let the schedule run": _schedule,
    "my run's end starts it": _end,
    "my run's failure starts it": _failed_end,
    "the stop of my run starts it": _stopped_end,
    "it is the fourth of a chain": _chain,
    "it is the child of what my event started": _child,
    "what my event started left it alone": _detached,
    "another one forked mine where it asks": _fork,
    "another one ran mine again from the step": _rerun,
    "another one forked mine with an input": _edited_fork,
    "a third one forked the fork": _fork_of_a_fork,
    "another one forked what my event started": _fork_of_a_triggered_run,
    "the end of what my event started does": _end_of_what_an_event_started,
    "the end of what another one made of mine does": _end_of_a_fork,
    "it has taken my signal": _signal_to_the_run,
    "it has taken my event": _event_that_a_run_takes,
    "the end above the child of what my event started does": _end_above_a_child,
    "others forked the forks of a rerun of mine": _fork_of_a_fork_of_a_rerun,
    "another one forked what my run's end started": _fork_of_an_end,
    "its child has taken my event": _let_child_take_event,
    "its child's child has taken my event": _let_grandchild_take_event,
    "its child has taken my event and failed": _let_failing_child_take_event,
    "another branch has taken my event": _let_branch_take_event,
    "another one forked what stands above who took my event": _fork_of_what_a_child_took,
    "another one forked what took my event": _fork_of_what_took_my_event,
}


def _directly(asked: Asked) -> httpx2.Response:
    return asked.api.post(f"/v1/pendings/{asked.id}/decide", json=YES, headers=as_(f"{asked.me},role:lead"))


def _as_an_operator(asked: Asked) -> httpx2.Response:
    who = as_(f"{asked.me},role:lead,role:operator,role:admin")
    return asked.api.post(f"/v1/pendings/{asked.id}/decide", json=YES, headers=who)


def _by_my_delegate(asked: Asked) -> httpx2.Response:
    friend = "user:" + unique("f")
    _delegate(asked.api, f"{asked.me},role:lead", friend)
    body = {**YES, "on_behalf_of": asked.me}
    return asked.api.post(f"/v1/pendings/{asked.id}/decide", json=body, headers=as_(f"{friend},role:lead"))


def _for_somebody_else(asked: Asked) -> httpx2.Response:
    lead = "user:" + unique("l")
    _delegate(asked.api, f"{lead},role:lead", asked.me)
    body = {**YES, "on_behalf_of": lead}
    return asked.api.post(f"/v1/pendings/{asked.id}/decide", json=body, headers=as_(asked.me))


def _claimed(asked: Asked) -> httpx2.Response:
    return asked.api.post(f"/v1/inbox/{asked.id}/claim", headers=as_(f"{asked.me},role:lead"))


def _rejected(asked: Asked) -> httpx2.Response:
    body, who = {"decision": "reject", "reason": "no"}, as_(f"{asked.me},role:lead")
    return asked.api.post(f"/v1/pendings/{asked.id}/decide", json=body, headers=who)


def _delegate(api: httpx2.Client, from_: str, to: str) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert api.post("/v1/inbox/delegations", json={"to": to, "until": until}, headers=as_(from_)).status_code == 201


WAYS: Final[dict[str, Callable[[Asked], httpx2.Response]]] = {
    "directly": _directly,
    "as an operator": _as_an_operator,
    "by my delegate": _by_my_delegate,
    "for somebody else": _for_somebody_else,
    "by a claim": _claimed,
    "as a refusal": _rejected,
}


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        for source in DOCUMENTS:
            expect(client.post("/v1/workflows", content=source, headers=YAML), 200, 201)
        yield client


def _asking(api: httpx2.Client, tag: str) -> Any:
    """The newest open question with the tag in its title."""
    found, cursor = [], None
    while True:
        params = {"limit": 200, **({} if cursor is None else {"cursor": cursor})}
        page = api.get("/v1/pendings", params=params).json()
        found += [each for each in page["items"] if tag in (each["title"] or "")]
        cursor = page["next_cursor"]
        if cursor is None:
            return max(found, key=lambda each: each["opened_at"], default=None)


@pytest.fixture(scope="module", params=CAUSES)
def asked(request: pytest.FixtureRequest, api: httpx2.Client) -> Asked:
    me, tag = "user:" + unique("me"), unique("tag")
    made: Any = CAUSES[request.param](api, me, tag)
    title = made["id"] if request.param == "I let the schedule run" else tag
    run_id = made.get("id") if "fork" in request.param or "again" in request.param else None

    def open_question() -> Any:
        found = _asking(api, title)
        return found if found and run_id in (None, found["run_id"]) else None

    found = wait_for(open_question)
    return Asked(api, me, found["id"], found["run_id"])


@pytest.mark.parametrize("way", WAYS)
def test_it_is_refused_with_the_rule(asked: Asked, way: str) -> None:
    answer = WAYS[way](asked)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (403, "pending_forbidden"), problem
    if way in ("directly", "as an operator", "by my delegate"):
        assert asked.me in problem["detail"]
        assert "somebody else must decide" in problem["detail"]
    assert asked.votes() == 0


def test_the_inbox_says_why_and_the_run_names_me_and_somebody_else_decides(asked: Asked) -> None:
    who = as_(f"{asked.me},role:lead")
    item = asked.api.get(f"/v1/inbox/{asked.id}", headers=who).json()
    assert (item["may_decide"], item["why_not"]["code"]) == (False, "excluded.instigator")
    assert asked.me in asked.api.get(f"/v1/runs/{asked.run_id}").json()["instigators"]
    lead = as_(f"user:{unique('lead')},role:lead")
    assert asked.api.post(f"/v1/pendings/{asked.id}/decide", json=YES, headers=lead).status_code == 200
