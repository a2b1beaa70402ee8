"""Both clients against a server, over real sockets: all that can be asked, and how refusals come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hai_flow_client import (
    AsyncClient,
    Client,
    Conflict,
    Forbidden,
    HaiFlowError,
    Invalid,
    NotFound,
    Pending,
    RunFailed,
    Unavailable,
    awaiting,
    blocking,
)
from hai_flow_client.events import PendingOpened

from tests.client.conftest import EAGER, Opened
from tests.support.hai_client import unique
from tests.support.server import ServerProcess

HEAD = "hai: flow/v1\nname: {name}\nversion: {version}\n"
FORM = """
steps:
  - {id: asked, ask: {title: How many?, from: anyone, form: {type: object, properties: {count: {type: integer}}}}}
  - {id: sure, approve: {title: "Sure?", from: anyone}}
output: {count: "${{ steps.asked.output.count }}"}
"""
GATED = """
tools: {files: {python: hai_flow.examples, effect: write}}
steps:
  - id: delete
    call: files.delete_files
    with: {folder: tmp, count: 3}
    approval: {title: "Delete?", from: anyone, edit: [count]}
output: {deleted: "${{ steps.delete.output.deleted }}"}
"""
FAILING = "steps:\n  - fail: {code: mine.broken, message: it broke}\n"
WAITING = "steps:\n  - {id: paid, wait_for: {event: invoice.paid}}\noutput: ${{ steps.paid.output.data.amount }}\n"
EVENT = """
input: {{type: object, required: [repo], properties: {{repo: {{type: string}}}}}}
triggers:
  - event: {{type: {kind}, dedupe: "${{{{ event.data.repo }}}}"}}
"""
CLOCK = "triggers:\n  - schedule: {cron: 0 6 * * 1-5, timezone: Europe/Berlin}\n"


def publish(flow: Client, body: str, name: str | None = None, version: int = 1) -> str:
    name = name or unique("flow").replace("-", "_") + f"_{type(flow).__name__.lower()}"
    return flow.workflows.publish(HEAD.format(name=name, version=version) + body).name


def question(flow: Client, run: Any) -> Pending:
    """The one that a run asks, when it does."""
    flow.runs.wait(run)
    (pending,) = [each for each in flow.pendings.list() if each.run_id == run.id]
    return pending


# --- one surface --------------------------------------------------------------------------------------------------


def test_both_clients_can_do_the_same() -> None:
    for name in ("Workflows", "Runs", "Pendings", "Threads", "Feedback", "Events", "Schedules"):
        ours, theirs = (surface(vars(each)) for each in (getattr(blocking, name), getattr(awaiting, f"Async{name}")))
        assert ours == theirs
        assert ours
    assert surface(vars(Client)) == surface(vars(AsyncClient))


def surface(members: Mapping[str, Any]) -> dict[str, Any]:
    """What each method performs or gives."""
    found = {name: (type(each).__name__, each) for name, each in members.items() if hasattr(each, "_describe")}
    return {name: (kind, each._describe) for name, (kind, each) in found.items()}


def test_methods_say_what_they_do() -> None:
    with Client("http://127.0.0.1:9") as flow:
        assert flow.runs.start.__name__ == "start_run"
        assert "Start a run" in (flow.runs.start.__doc__ or "")


# --- runs ---------------------------------------------------------------------------------------------------------


def test_a_run_is_started_and_has_a_result(flow: Client) -> None:
    run = flow.runs.start("weather", {"city": "Berlin"})
    assert flow.runs.result(run) == {"weather": "rain, 12°C"}
    ended = flow.runs.get(run.id)
    assert (ended.status, ended.ended, ended.input) == ("finished", True, {"city": "Berlin"})
    assert ended.ended_at is not None
    assert run.created_at <= ended.ended_at <= datetime.now(UTC)
    assert flow.runs.wait(run.id) == ended


def test_a_key_starts_one_run_and_another_input_under_it_is_a_conflict(flow: Client) -> None:
    key = unique("key") + type(flow).__name__
    first, again = (flow.runs.start("cleanup", {"count": 2}, key=key) for _ in range(2))
    assert first.id == again.id
    with pytest.raises(Conflict) as caught:
        flow.runs.start("cleanup", {"count": 3}, key=key)
    assert caught.value.code == "command_id_reused"


def test_a_busy_thread_is_a_conflict_that_names_its_run(flow: Client) -> None:
    thread_id = unique("thread") + type(flow).__name__
    run = flow.runs.start("cleanup", thread_id=thread_id)
    with pytest.raises(Conflict) as caught:
        flow.runs.start("cleanup", thread_id=thread_id)
    assert (caught.value.code, caught.value.winner["run_id"]) == ("thread_busy", run.id)


@pytest.mark.parametrize("input", [[1], "Berlin", 5])
def test_an_input_that_is_no_object_is_refused_by_the_server_in_its_words(flow: Client, input: Any) -> None:
    with pytest.raises(Invalid, match="object"):
        flow.runs.start("cleanup", input)


def test_a_wrong_input_is_refused_with_every_fault(flow: Client) -> None:
    with pytest.raises(Invalid) as caught:
        flow.runs.start("cleanup", {"count": 0, "folder": 1})
    assert (caught.value.status, caught.value.code, len(caught.value.findings)) == (422, "input.invalid", 2)
    assert str(caught.value).count("\n  /") == 2


def test_what_is_not_there_is_not_found(flow: Client) -> None:
    for ask in (
        lambda: flow.runs.start("nothing"),
        lambda: flow.runs.get("nothing"),
        lambda: list(flow.runs.follow("nothing")),
        lambda: flow.runs.wait("00000000-0000-4000-8000-000000000000"),
        lambda: flow.pendings.decide("call_nothing", "approve"),
        lambda: flow.workflows.get("nothing"),
        lambda: flow.schedules.run("nothing"),
    ):
        with pytest.raises(NotFound):
            ask()


def test_a_list_of_runs_goes_over_its_pages_and_is_limited(flow: Client) -> None:
    name = publish(flow, "steps:\n  - return: done\n")
    started = [flow.runs.start(name).id for _ in range(7)]
    for run_id in started:
        flow.runs.wait(run_id)
    assert [run.id for run in flow.runs.list(workflow=name)] == started[::-1]
    assert [run.id for run in flow.runs.list(workflow=name, limit=3)] == started[:3:-1]
    assert list(flow.runs.list(workflow=name, status="waiting")) == []
    assert len(list(flow.runs.list(workflow=name, status=["finished", "waiting"]))) == 7


def test_events_are_given_over_their_pages_as_far_as_there_are(flow: Client) -> None:
    run = flow.runs.wait(flow.runs.start("cleanup"))
    events = list(flow.runs.events(run))
    assert [event.seq for event in events] == list(range(1, run.seq + 1))
    assert list(flow.runs.events(run, after=3, limit=4)) == events[3:7]
    assert [each["seq"] for each in flow.runs.events_json(run, after=run.seq - 1)] == [run.seq]


def test_a_failed_run_has_no_result_and_is_tried_again(flow: Client) -> None:
    run = flow.runs.start(publish(flow, FAILING))
    with pytest.raises(RunFailed, match="it broke") as caught:
        flow.runs.result(run)
    assert (caught.value.code, caught.value.run.status) == ("mine.broken", "failed")
    failed = caught.value.run
    assert failed.error is not None
    assert failed.error.at is not None
    flow.runs.retry(run)
    again = flow.runs.wait(run, after=failed.seq)
    assert (again.status, again.seq > failed.seq) == ("failed", True)
    assert [event.seq for event in flow.runs.follow(run)] == list(range(1, again.seq + 1))


def test_a_run_is_paused_resumed_and_stopped(flow: Client) -> None:
    run = flow.runs.wait(flow.runs.start("cleanup"))
    assert flow.runs.pause(run, reason="lunch").status == "paused"
    assert flow.runs.resume(run).status == "waiting"
    stopped = flow.runs.stop(run, reason="enough")
    assert (stopped.status, stopped.in_flight) == ("stopped", 0)
    with pytest.raises(Conflict) as caught:
        flow.runs.resume(run)
    assert (caught.value.code, caught.value.winner["status"]) == ("run_ended", "stopped")
    with pytest.raises(RunFailed, match="was stopped"):
        flow.runs.result(run)
    assert flow.runs.terminate(flow.runs.start("cleanup")).status == "stopped"


def test_waiting_takes_no_longer_than_it_may(flow: Client) -> None:
    run = flow.runs.wait(flow.runs.start("cleanup"))
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="still waiting"):
        flow.runs.result(run, timeout=0.5)
    assert 0.5 <= time.monotonic() - begun < 20


def test_a_snapshot_is_what_a_run_was(flow: Client) -> None:
    run = flow.runs.wait(flow.runs.start("release"))
    snapshot = flow.runs.snapshot(run)
    assert (snapshot.seq, snapshot.status, len(snapshot.pendings)) == (run.seq, "waiting", 2)
    assert snapshot.steps["approvals"].status == "running"
    assert snapshot.messages[0].content.startswith("Release v1.4.0")
    assert flow.runs.snapshot(run, at=1).pendings == []


# --- people -------------------------------------------------------------------------------------------------------


def test_a_form_and_an_approval_are_answered(flow: Client) -> None:
    run = flow.runs.start(publish(flow, FORM))
    asked = question(flow, run)
    assert (asked.kind, asked.title, asked.schema["properties"]) == ("ask", "How many?", {"count": {"type": "integer"}})
    with pytest.raises(Invalid) as caught:
        flow.pendings.answer(asked, {"count": "x"})
    assert (caught.value.code, [each["path"] for each in caught.value.findings]) == ("answer.invalid", ["/count"])
    assert flow.pendings.get(asked).status == "open"
    assert [flow.pendings.answer(asked, {"count": 3}).already for _ in range(2)] == [False, True]
    with pytest.raises(Conflict) as conflict:
        flow.pendings.answer(asked, {"count": 4})
    assert (conflict.value.code, conflict.value.winner["id"]) == ("pending_decided", asked.id)
    sure = question(flow, run)
    assert flow.pendings.get(sure.id).needed is not None
    decided = flow.pendings.decide(sure, "approve", reason="fine")
    assert (decided.status, decided.reason, decided.decided_by) == ("approve", "fine", "user:local")
    assert flow.runs.result(run) == {"count": 3}


def test_a_call_is_approved_with_edits_and_only_as_it_was_seen(flow: Client) -> None:
    run = flow.runs.start(publish(flow, GATED))
    seen = question(flow, run)
    assert (seen.kind, seen.args) == ("gate", {"folder": "tmp", "count": 3})
    stale = Pending(**{name: getattr(seen, name) for name in seen.__struct_fields__} | {"digest": "0" * 64})
    with pytest.raises(HaiFlowError) as caught:
        flow.pendings.decide(stale, "approve")
    assert caught.value.code == "answer.digest"
    flow.pendings.decide(seen, "approve", edits={"count": 2})
    assert flow.runs.result(run) == {"deleted": 2}


def test_a_question_in_an_event_is_answered_as_it_is(flow: Client) -> None:
    run = flow.runs.start("search_files", {"keyword": "x"})
    with flow.runs.follow(run) as events:
        opened = next(event for event in events if event.type == "pending_opened")
    assert isinstance(opened, PendingOpened)
    assert opened.args == {"keyword": "x"}
    flow.pendings.give_result(opened, ["a", "b"])
    assert flow.runs.result(run) == {"found": ["a", "b"]}


def test_a_frontend_tool_may_say_why_it_has_no_result(flow: Client) -> None:
    run = flow.runs.start("search_files")
    flow.pendings.give_error(question(flow, run).id, "no disk")
    assert flow.runs.result(run) == {"found": []}


def test_a_client_may_act_as_somebody_where_the_server_believes_it(opened: Opened, server: ServerProcess) -> None:
    with opened(server.url, patience=EAGER, act_as="user:ann") as ann:
        run = ann.runs.start(publish(ann, FORM))
        assert run.started_by == "user:ann"
        assert ann.pendings.answer(question(ann, run), {"count": 1}).decided_by == "user:ann"
    with opened(server.url, act_as="ann of nowhere") as nobody, pytest.raises(Invalid):
        nobody.runs.get(run)


# --- threads ------------------------------------------------------------------------------------------------------


def test_a_thread_is_listed_with_its_runs_and_what_was_said(flow: Client) -> None:
    thread_id = unique("thread") + type(flow).__name__
    runs = []
    for _ in range(2):
        runs.append(flow.runs.start("weather", {"city": "Berlin"}, thread_id=thread_id))
        flow.runs.result(runs[-1])
    thread = flow.threads.get(runs[0])
    assert (thread.id, thread.run_id, thread.workflow) == (thread_id, runs[1].id, "weather")
    assert [run.id for run in thread.runs] == [runs[1].id, runs[0].id]
    assert thread.created_at == runs[0].created_at < runs[1].created_at <= thread.updated_at
    (listed,) = [each for each in flow.threads.list() if each.id == thread_id]
    assert (listed.run_id, listed.status, listed.updated_at) == (thread.run_id, "finished", thread.updated_at)
    said = list(flow.threads.messages(thread))
    assert said == list(flow.threads.messages(thread_id))
    assert said[:2] == list(flow.threads.messages(thread, limit=2))
    assert {each.run_id for each in said} == {run.id for run in runs}
    calls = [each for each in said if each.call is not None]
    assert [(each.role, each.call and each.call.name, each.content) for each in calls] == [
        ("tool", "get_weather", "rain, 12°C")
    ] * 2


def test_a_message_and_a_decision_are_rated_and_the_rating_is_taken_back(flow: Client) -> None:
    run = flow.runs.start(publish(flow, GATED))
    pending = question(flow, run)
    with pytest.raises(Conflict) as caught:
        flow.feedback.give(run, "up", pending=pending)
    assert caught.value.code == "pending_open"
    flow.pendings.decide(pending, "approve")
    flow.runs.result(run)
    first = flow.feedback.give(run, 4, pending=pending, comment="a little late", labels=["slow"])
    assert (first.kind, first.subject_id, first.rating, first.comment) == ("pending", pending.id, 4, "a little late")
    assert (first.run_id, first.thread_id, first.by, first.labels) == (run.id, run.thread_id, "user:local", ["slow"])
    assert flow.feedback.give(run.thread_id, 4, pending=pending.id, comment="a little late", labels=["slow"]) == first
    second = flow.feedback.give(run, "down", pending=pending)
    assert (second.id, second.rating, second.comment, second.labels) == (first.id, "down", None, [])
    assert flow.feedback.get(run, pending=pending) == second
    assert list(flow.feedback.list(run)) == [second]
    for _ in range(2):
        flow.feedback.withdraw(run, pending=pending)
    with pytest.raises(NotFound):
        flow.feedback.get(run, pending=pending)
    assert list(flow.feedback.list(run, limit=1)) == []


def test_a_message_is_rated_by_whoever_reads_it(opened: Opened, server: ServerProcess, flow: Client) -> None:
    run = flow.runs.start("weather", {"city": "Berlin"})
    flow.runs.result(run)
    *_, last = flow.threads.messages(run)
    with opened(server.url, act_as="user:ann") as ann:
        ann.feedback.give(run, "up", message=last)
    flow.feedback.give(run, message=last.id, comment="wrong city")
    assert [(each.by, each.subject_id, each.rating) for each in flow.feedback.list(run)] == [
        ("user:local", last.id, None),
        ("user:ann", last.id, "up"),
    ]


def test_feedback_is_of_one_thing(flow: Client) -> None:
    for which in ({}, {"message": "m", "pending": "p"}):
        for ask in (flow.feedback.give, flow.feedback.get, flow.feedback.withdraw):
            with pytest.raises(ValueError, match="expected one thing that is judged"):
                ask("thread", **which)
    run = flow.runs.start("weather")
    flow.runs.result(run)
    *_, last = flow.threads.messages(run)
    with pytest.raises(Invalid) as caught:
        flow.feedback.give(run, message=last)
    assert caught.value.code == "feedback.empty"


# --- workflows ----------------------------------------------------------------------------------------------------


def test_a_workflow_is_validated_published_read_and_never_changed(flow: Client) -> None:
    source = HEAD.format(name="x", version=1) + "steps:\n  - return: {done: yes}\n"
    assert flow.workflows.validate(source).valid
    checked = flow.workflows.validate("hai: flow/v1\n")
    assert not checked.valid
    assert checked.findings[0].severity == "error"
    with pytest.raises(Invalid) as caught:
        flow.workflows.publish("hai: flow/v1\n")
    assert caught.value.code == "definition.invalid"
    assert [each["message"] for each in caught.value.findings] == [each.message for each in checked.findings]
    name = publish(flow, FAILING)
    found = flow.workflows.get(name)
    assert (found.reference, found.steps[0].verb, found.source.encode()) == (
        f"{name}@1",
        "fail",
        flow.workflows.source(name),
    )
    assert name in [each.name for each in flow.workflows.list()]
    with pytest.raises(Conflict) as changed:
        publish(flow, WAITING, name)
    assert changed.value.winner == {"name": name, "version": 1}
    copy = flow.workflows.publish(found.source + "# a copy\n", dev=True)
    assert flow.workflows.get(copy.reference).dev
    assert flow.workflows.graph(name).startswith("---\ntitle")
    assert flow.workflows.graph(name, "svg").startswith("<svg")


def test_runs_go_on_with_another_version(flow: Client) -> None:
    name = publish(flow, FORM)
    run = flow.runs.wait(flow.runs.start(name))
    publish(flow, FORM.replace('{title: "Sure?"', '{title: "Really?"'), name, 2)
    report = flow.workflows.backtest(name, flow.workflows.source(f"{name}@2"), since="1h", keep=True)
    assert (report["workflow"], report["runs"]) == (name, 1)
    again = flow.workflows.source(f"{name}@2")
    assert flow.workflows.publish(again, unrehearsed="it was mended at night").version == 2
    (change,) = flow.workflows.diff(name, 1, 2).steps
    assert (change.kind, change.path) == ("changed", "sure")
    assert [each.version for each in flow.workflows.versions(name)] == [2, 1]
    tried = flow.workflows.migrate(name, 1, 2, dry_run=True)
    assert [(each.id, each.movable, each.moved) for each in tried.runs] == [(run.id, True, False)]
    moved = flow.workflows.migrate(name, 1, 2, runs=[run])
    assert [(each.id, each.moved) for each in moved.runs] == [(run.id, True)]
    assert str(flow.runs.get(run).version) == "2"


# --- the world ----------------------------------------------------------------------------------------------------


def test_a_signal_moves_a_run_on(flow: Client) -> None:
    run = flow.runs.wait(flow.runs.start(publish(flow, WAITING)))
    sent = flow.runs.signal(run, "invoice.paid", {"amount": 7}, id=f"signal-{run.id}")
    assert (sent.run_id, sent.already) == (run.id, False)
    assert flow.runs.signal(run, "invoice.paid", {"amount": 7}, id=f"signal-{run.id}").already
    assert flow.runs.result(run) == 7


def test_an_event_starts_runs(flow: Client) -> None:
    kind = unique("pushed") + type(flow).__name__
    name = publish(flow, EVENT.format(kind=kind) + "steps:\n  - return: done\n")
    sent = flow.events.send(kind, {"repo": kind})
    ((workflow, status, run_id),) = [(each.workflow, each.status, each.run_id) for each in sent.runs]
    assert (workflow, status) == (name, "started")
    assert run_id is not None
    assert flow.runs.result(run_id) == "done"


def test_a_schedule_is_paused_resumed_and_run_now(flow: Client) -> None:
    name = publish(flow, CLOCK + "steps:\n  - return: done\n")
    (schedule,) = [each for each in flow.schedules.list() if each.workflow == name]
    assert flow.schedules.pause(schedule).next is None
    assert flow.schedules.resume(schedule).next is not None
    run = flow.schedules.run(schedule)
    assert flow.runs.result(run) == "done"
    assert flow.schedules.get(schedule.id).last_run_id == run.id


def test_a_file_is_put_and_got_and_is_nobody_elses(flow: Client, opened: Opened, server: ServerProcess) -> None:
    body = f"of {type(flow).__name__} {unique('file')}".encode()
    file = flow.files.put(body, name="a.txt", media_type="text/plain")
    assert (file.name, file.size, file.part["source"]["value"]) == ("a.txt", len(body), file.id)
    assert flow.files.get(file) == flow.files.get(file.sha256) == body
    with opened(server.url, act_as="user:stranger") as other, pytest.raises(NotFound):
        other.files.get(file)


# --- no server ----------------------------------------------------------------------------------------------------


def test_no_server_is_told_with_its_address(opened: Opened) -> None:
    with opened("http://127.0.0.1:9", patience=EAGER) as flow, pytest.raises(Unavailable) as caught:
        flow.runs.get("x")
    assert (caught.value.code, caught.value.status) == ("unreachable", None)
    assert "http://127.0.0.1:9" in caught.value.detail


def test_a_page_of_elsewhere_is_forbidden(opened: Opened, server: ServerProcess) -> None:
    with opened(server.url, headers={"Origin": "https://elsewhere.example"}) as flow, pytest.raises(Forbidden):
        flow.runs.start("cleanup")
