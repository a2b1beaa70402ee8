"""Every request to a server, described once: its parameters, its request, its answer.

`Client` and `AsyncClient` both take their methods from here; the docstring of a function is that of its methods.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec

from hai_flow_client import inbox, scripts
from hai_flow_client import models as m
from hai_flow_client import values as json_values
from hai_flow_client.effects import Answer, Feed, Request, Script
from hai_flow_client.errors import RunFailed, unreadable
from hai_flow_client.events import AnyEvent, PendingOpened, read_event
from hai_flow_client.scripts import exchange, keyed, pages, parameters
from hai_flow_client.values import Json

RunRef: TypeAlias = str | m.Run
KeyRef: TypeAlias = str | m.Key
TenantRef: TypeAlias = str | m.Tenant
PendingRef: TypeAlias = str | m.Pending | m.InboxItem | PendingOpened
ApprovalRef: TypeAlias = str | m.Approval
FileRef: TypeAlias = str | m.File
ScheduleRef: TypeAlias = str | m.Schedule
ThreadRef: TypeAlias = str | m.Thread | m.Run
MessageRef: TypeAlias = str | m.ThreadMessage

YAML: Final = "application/yaml"
UNSET: Final = msgspec.UNSET
Given: TypeAlias = Json | msgspec.UnsetType


# --- requests -----------------------------------------------------------------------------------------------------


def _get(path: str, shape: Any, query: Mapping[str, Json] | None = None) -> Script[Any]:
    return (yield from exchange(Request("GET", path, parameters(query or {})))).read(shape)


def _post(path: str, shape: Any, body: Json = UNSET, *, key: str | None = None) -> Script[Any]:
    """A command, under a key."""
    return (yield from keyed(_with_json("POST", path, body), key)).read(shape)


def _post_yaml(path: str, shape: Any, source: str | bytes, query: Mapping[str, Json] | None = None) -> Script[Any]:
    data = source.encode() if isinstance(source, str) else source
    request = Request("POST", path, parameters(query or {}), data, {"Content-Type": YAML})
    return (yield from exchange(request)).read(shape)


def _with_json(method: str, path: str, body: Json = UNSET, query: Mapping[str, Json] | None = None) -> Request:
    """A request with a JSON body. Raises NotJson for a body that JSON can't express."""
    if body is UNSET:
        return Request(method, path, parameters(query or {}))
    data = json_values.dumps(json_values.check(body))
    return Request(method, path, parameters(query or {}), data, {"Content-Type": "application/json"})


def _path(*segments: str) -> str:
    """The path `/v1/...`. Raises ValueError for a segment that can be no name."""
    for segment in segments:
        if segment.strip(".") == "":
            raise ValueError(f"expected an id or a name, found {segment!r}")
    return "/".join(["/v1", *(quote(segment, safe="@+:") for segment in segments)])


def _run(run: RunRef) -> str:
    return _path("runs", run if isinstance(run, str) else run.id)


# --- workflows ----------------------------------------------------------------------------------------------------


def publish_workflow(source: str | bytes, *, dev: bool = False, unrehearsed: str | None = None) -> Script[m.Published]:
    """Publish a YAML document under the name and version that it declares. `dev`: a copy that may be replaced.
    `unrehearsed`: why it is published without the rehearsal that the deployment demands, for admins.

    Raises Invalid with every mistake, Conflict where this version exists already with another content, or a rehearsal
    of this text is demanded (`backtest` with `keep`).
    """
    return _post_yaml("/v1/workflows", m.Published, source, {"dev": dev or None, "unrehearsed": unrehearsed})


def backtest_workflow(
    name: str, source: str | bytes, *, since: str = "30d", examples: int = 20, keep: bool = False
) -> Script[dict[str, Json]]:
    """Decide the recorded runs of the workflow again under a YAML document that is not stored: the counts of those that
    would be the same, take another path, ask others, or fail, with up to so many examples of each. `since`: of runs
    that began within it. `keep`: keep the counts, for a publication that demands them.

    Raises Invalid with every mistake, NotFound where there is no such workflow.
    """
    wishes = {"since": since, "examples": str(examples), "keep": keep or None}
    return _post_yaml(_path("workflows", name) + "/backtest", dict[str, Json], source, wishes)


def validate_workflow(source: str | bytes) -> Script[m.Validation]:
    """Check a YAML document without storing it: every finding at once."""
    return _post_yaml("/v1/workflows/validate", m.Validation, source)


def format_workflow(source: str | bytes) -> Script[m.Formatted]:
    """A YAML document in its one form, with its meaning and its comments. Raises Invalid where YAML can't read it."""
    return _post_yaml("/v1/workflows/format", m.Formatted, source)


def draw_text(source: str | bytes, format: str = "mermaid") -> Script[str]:
    """The picture of a YAML document that is not stored, as `graph` gives it. Raises Invalid with every mistake."""
    data = source.encode() if isinstance(source, str) else source
    request = Request("POST", "/v1/workflows/graph", parameters({"format": format}), data, {"Content-Type": YAML})
    return (yield from exchange(request)).body.decode()


def language_schema() -> Script[dict[str, Json]]:
    """The JSON Schema (2020-12) of workflow documents, for editors."""
    return _get("/v1/language/schema", dict[str, Json])


def list_workflows() -> Feed[m.WorkflowVersion]:
    """The latest version of each workflow, by name."""
    return pages("/v1/workflows", m.WorkflowVersion)


def get_workflow(reference: str) -> Script[m.Workflow]:
    """One workflow: `name`, `name@version` or `name@version+sha8`."""
    return _get(_path("workflows", reference), m.Workflow)


def list_versions(name: str) -> Script[list[m.WorkflowVersion]]:
    """The versions of a workflow, the latest first."""
    workflow = yield from get_workflow(name)
    return workflow.versions


def retire_workflow(reference: str) -> Script[m.WorkflowVersion]:
    """Retire `name@version`: no run, child or fork begins with it any more. Those that have begun go on."""
    return _post(_path("workflows", reference) + "/retire", m.WorkflowVersion)


def unretire_workflow(reference: str) -> Script[m.WorkflowVersion]:
    """Take `name@version` back into use."""
    return _post(_path("workflows", reference) + "/unretire", m.WorkflowVersion)


def get_source(reference: str) -> Script[bytes]:
    """The document as it was published."""
    answer = yield from exchange(Request("GET", _path("workflows", reference) + "/source"))
    return answer.body


def draw_workflow(reference: str, format: str = "mermaid") -> Script[str]:
    """The workflow as a picture: text for Mermaid, `svg`, or `json`: its steps and shapes (the text of a Graph)."""
    path = _path("workflows", reference) + "/graph"
    answer = yield from exchange(Request("GET", path, parameters({"format": format})))
    return answer.body.decode()


def diff_versions(name: str, from_: str | int, to: str | int) -> Script[m.Diff]:
    """The changes of the version `to` against `from_`: steps that were added, removed, moved or changed."""
    return _get(_path("workflows", name) + "/diff", m.Diff, {"from": from_, "to": to})


def migrate_runs(
    name: str,
    from_: str | int,
    to: str | int,
    *,
    runs: Sequence[RunRef] | None = None,
    map: Mapping[str, str] | None = None,
    dry_run: bool = False,
    key: str | None = None,
) -> Script[m.Migration]:
    """Let runs of one version go on with another one: those in `runs`, or all that are active. `map`: steps that have
    another name there, old to new. With `dry_run` nothing moves; the answer shows which runs would, and why others
    would not."""
    body: dict[str, Json] = {"from": str(from_), "to": str(to), "map": dict(map or {}), "dry_run": dry_run}
    if runs is not None:
        body["runs"] = [run if isinstance(run, str) else run.id for run in runs]
    return _post(_path("workflows", name) + "/migrate", m.Migration, body, key=key)


# --- files --------------------------------------------------------------------------------------------------------


def put_file(data: bytes, *, name: str = "", media_type: str = "application/octet-stream") -> Script[m.File]:
    """Upload bytes as a file of yours. The same bytes again are the same file.

    Raises Problem with the code `file.too_large` for more than the server takes.
    """
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    headers = {"Content-Type": media_type, "Content-Digest": f"sha-256=:{digest}:"}
    request = Request("POST", "/v1/files", parameters({"name": name or None}), data, headers)
    return (yield from exchange(request)).read(m.File)


def get_file(file: FileRef) -> Script[bytes]:
    """The content of the file. Raises NotFound unless you have uploaded it or may see a run that refers to it."""
    answer = yield from exchange(Request("GET", _path("files", file if isinstance(file, str) else file.id)))
    return answer.body


# --- runs ---------------------------------------------------------------------------------------------------------


def start_run(
    workflow: str,
    input: Mapping[str, Json] | None = None,
    *,
    thread_id: str | None = None,
    key: str | None = None,
) -> Script[m.Run]:
    """Start a run of `name`, `name@version` or `name@version+sha8`. `thread_id`: the conversation it belongs to.

    However often the request is repeated, it starts one run. With a `key` this holds across calls: the same key, the
    same run.
    """
    # the server refuses others
    run_input = {} if input is None else dict(input) if isinstance(input, Mapping) else input
    body: dict[str, Json] = {"workflow": workflow, "input": run_input}
    if thread_id is not None:
        body["thread_id"] = thread_id
    return _post("/v1/runs", m.Run, body, key=key)


def get_run(run: RunRef) -> Script[m.Run]:
    """One run as it is now."""
    return _get(_run(run), m.Run)


def list_runs(
    *,
    status: str | Sequence[str] | None = None,
    workflow: str | None = None,
    workflow_like: str | None = None,
    version: int | None = None,
    thread_id: str | None = None,
    queue: str | None = None,
    started_by: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    error: str | None = None,
    limit: int | None = None,
) -> Feed[m.Run]:
    """The runs, newest first, as many as are asked for. `workflow_like`: those of workflows with this part in their
    name or title; `error`: those that failed with this code."""
    statuses = [status] if isinstance(status, str) else status
    query: dict[str, Json] = {"status": statuses, "workflow": workflow, "version": version, "thread_id": thread_id}
    query |= {"queue": queue, "started_by": started_by, "error": error, "workflow_like": workflow_like}
    times = {"created_after": created_after, "created_before": created_before}
    query |= {name: None if time is None else time.isoformat() for name, time in times.items()}
    return pages("/v1/runs", m.Run, limit=limit, query=query)


def count_runs(
    *,
    workflow: str | None = None,
    workflow_like: str | None = None,
    version: int | None = None,
    thread_id: str | None = None,
    started_by: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
) -> Script[m.RunCounts]:
    """How many runs have each status, counted up to `max` of each."""
    query: dict[str, Json] = {"workflow": workflow, "version": version, "thread_id": thread_id}
    times = {"created_after": created_after, "created_before": created_before}
    query |= {name: None if time is None else time.isoformat() for name, time in times.items()}
    return _get("/v1/runs/counts", m.RunCounts, query | {"started_by": started_by, "workflow_like": workflow_like})


def control_runs(
    action: str,
    *,
    where: Mapping[str, Json] | None = None,
    runs: Sequence[RunRef] | None = None,
    expect: int | None = None,
    reason: str = "",
    dry_run: bool = False,
    key: str | None = None,
) -> Script[m.BulkReport]:
    """`pause`, `resume`, `stop` or `retry` the `runs`, or those that meet all conditions of `where` (`status`,
    `workflow`, `workflow_like`, `version`, `thread_id`, `queue`, `started_by`, `created_after`, `created_before`,
    `error`), at most 1,000. Raises Conflict where these are not as many as `expect`: nothing is done then. A run that
    refuses does not affect the others."""
    body: dict[str, Json] = {"action": action, "reason": reason, "dry_run": dry_run}
    if where is not None:
        body["where"] = {name: v.isoformat() if isinstance(v, datetime) else v for name, v in where.items()}
    if runs is not None:
        body["runs"] = [run if isinstance(run, str) else run.id for run in runs]
    if expect is not None:
        body["expect"] = expect
    return _post("/v1/runs/bulk", m.BulkReport, body, key=key)


def get_snapshot(run: RunRef, *, at: m.Moment | None = None) -> Script[m.Snapshot]:
    """The run at a moment (None: now): steps, variables, questions, messages."""
    return _get(_run(run) + "/snapshot", m.Snapshot, {"at": _moment(at)})


def compare_moments(run: RunRef, from_: m.Moment, to: m.Moment | None = None) -> Script[m.Difference]:
    """The differences of the run at `to` (None: now) from the run at `from_`."""
    return _get(_run(run) + "/diff", m.Difference, {"from": _moment(from_), "to": _moment(to)})


def list_marks(run: RunRef) -> Script[m.Marks]:
    """Where the run waited and where its steps began, and whether it can be forked there."""
    return _get(_run(run) + "/marks", m.Marks)


def _moment(moment: m.Moment | None) -> int | str | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment


def list_steps(run: RunRef, *, at: int | None = None) -> Feed[m.RunStep]:
    """The steps in the order in which they began, with their attempts and the times that they waited."""
    return pages(_run(run) + "/steps", m.RunStep, query={"at": at}, cursor_name="after")


def list_events(
    run: RunRef,
    *,
    after: int = 0,
    before: int | None = None,
    types: Sequence[str] | None = None,
    path: str | None = None,
    backwards: bool = False,
    limit: int | None = None,
) -> Feed[AnyEvent]:
    """The events that there are, after a seq and before another one. `types`: only these; `path`: only of this step and
    those inside it; `backwards`: the newest first."""
    feed = list_events_json(run, after=after, before=before, types=types, path=path, backwards=backwards, limit=limit)
    return scripts.mapped(feed, _event)


def list_events_json(
    run: RunRef,
    *,
    after: int = 0,
    before: int | None = None,
    types: Sequence[str] | None = None,
    path: str | None = None,
    backwards: bool = False,
    limit: int | None = None,
) -> Feed[dict[str, Json]]:
    """The same as JSON."""
    query: dict[str, Json] = {"type": types, "path": path}
    ends: tuple[str, int | None] = ("before", before)
    if backwards:
        query |= {"order": "desc", "after": after}
    else:
        query["before"] = before
        ends = ("after", after)
    name, place = ends
    return pages(
        _run(run) + "/events",
        dict[str, Json],
        limit=limit,
        query=query,
        size_max=scripts.EVENTS_PAGE,
        cursor=None if place is None else str(place),
        cursor_name=name,
    )


def follow_run(run: RunRef, *, after: int = 0) -> Feed[AnyEvent]:
    """The events after a seq, and those to come, until the run ends. A lost connection is made anew, at the next event:
    each event comes exactly once."""
    return scripts.mapped(scripts.follow(_run(run), after), _event)


def follow_run_json(run: RunRef, *, after: int = 0) -> Feed[dict[str, Json]]:
    """The same as JSON."""
    return scripts.follow(_run(run), after)


def wait_for_run(run: RunRef, *, after: int = 0, timeout: float | None = None) -> Script[m.Run]:
    """The run as soon as it stands still: it has ended, waits (for people, signals, time), is paused or needs
    attention.

    `after`: wait until it has more events than that seq. Raises TimeoutError after `timeout` seconds.
    """
    return scripts.until(_run(run), m.STANDING, after, timeout)


def get_result(run: RunRef, *, timeout: float | None = None) -> Script[Json]:
    """The run's output, when it has it. Raises RunFailed where it ends without one, TimeoutError."""
    ended: m.Run = yield from scripts.until(_run(run), m.ENDED, 0, timeout)
    if ended.status != "finished":
        raise RunFailed(ended)
    return ended.output


def _event(shown: dict[str, Json]) -> AnyEvent:
    try:
        return read_event(shown)
    except msgspec.ValidationError as error:
        raise unreadable(f"expected an event, found {str(shown)[:200]}: {error}") from None


def _control(run: RunRef, verb: str, key: str | None, body: Json = UNSET) -> Script[m.Run]:
    return _post(f"{_run(run)}/{verb}", m.Run, body, key=key)


def pause_run(run: RunRef, *, reason: str = "", key: str | None = None) -> Script[m.Run]:
    """Let no new step start. Attempts in flight finish, answers are stored, deadlines keep running."""
    return _control(run, "pause", key, {"reason": reason})


def resume_run(run: RunRef, *, key: str | None = None) -> Script[m.Run]:
    """Go on after a pause."""
    return _control(run, "resume", key)


def stop_run(run: RunRef, *, reason: str = "", key: str | None = None) -> Script[m.Run]:
    """Stop cooperatively: `in_flight` attempts are asked to cancel and have a grace period."""
    return _control(run, "stop", key, {"reason": reason})


def terminate_run(run: RunRef, *, reason: str = "", key: str | None = None) -> Script[m.Run]:
    """End the run at once. Late results are not recorded."""
    return _control(run, "terminate", key, {"reason": reason})


def retry_run(run: RunRef, *, key: str | None = None) -> Script[m.Run]:
    """Go on from the failed step of a failed run, or with a run that needs attention."""
    return _control(run, "retry", key)


def fork_run(
    run: RunRef,
    *,
    at: int | None = None,
    step: str | None = None,
    input: Mapping[str, Json] | None = None,
    state: Mapping[str, Json] | None = None,
    version: str | None = None,
    map: Mapping[str, str] | None = None,
    reason: str = "",
    key: str | None = None,
) -> Script[m.Run]:
    """Go on as the run was behind event `at`, or in front of where `step` began last, in a new run of its thread, with
    another input, other variables or another version of its workflow. The thread's active run is stopped first. Raises
    Conflict where the run can't be forked there; `winner` names the `nearest` moments."""
    body = _fork(at, step, input, state, version, map, reason)
    return _post(_run(run) + "/fork", m.Run, body, key=key)


def rehearse_fork(
    run: RunRef,
    *,
    at: int | None = None,
    step: str | None = None,
    input: Mapping[str, Json] | None = None,
    state: Mapping[str, Json] | None = None,
    version: str | None = None,
    map: Mapping[str, str] | None = None,
) -> Script[m.Rehearsal]:
    """The effects that `fork` would have: the steps that begin, the questions that open, the run that is stopped with
    the steps that it undoes. Nothing happens."""
    body = {**_fork(at, step, input, state, version, map, ""), "dry_run": True}
    return _post(_run(run) + "/fork", m.Rehearsal, body)


def _fork(
    at: int | None,
    step: str | None,
    input: Mapping[str, Json] | None,
    state: Mapping[str, Json] | None,
    version: str | None,
    map: Mapping[str, str] | None,
    reason: str,
) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "at": at, "step": step, "input": input, "state": state, "version": version, "map": map, "reason": reason or None
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value is not None}


def skip_step(
    run: RunRef, step: str, output: Json = None, *, reason: str = "", key: str | None = None
) -> Script[m.Run]:
    """Go on behind a step at which the run stands: the step does nothing more, and `output` replaces its own."""
    return _control(run, "skip", key, {"step": step, "output": output, "reason": reason})


# --- people -------------------------------------------------------------------------------------------------------


def list_pendings(*, limit: int | None = None) -> Feed[m.Pending]:
    """The open questions, newest first."""
    return pages("/v1/pendings", m.Pending, limit=limit)


def get_pending(pending: PendingRef) -> Script[m.Pending]:
    """One question: its content, its deciders, and its outcome."""
    return _get(_pending(pending), m.Pending)


def decide_pending(
    pending: PendingRef,
    decision: str | None = None,
    *,
    reason: str | None = None,
    values: Given = UNSET,
    edits: Given = UNSET,
    result: Given = UNSET,
    error: str | None = None,
    on_behalf_of: str | None = None,
    key: str | None = None,
) -> Script[m.Decision]:
    """Decide an approval: `approve`, `reject` or another of its options, with the `values` of its form and `edits` of a
    gated call's arguments. Of a call in doubt also its `result`. `on_behalf_of`: the person that has delegated to you.

    A record (not a bare id) binds the answer to the content that it shows. The first valid answer stands: the same one
    again is `already`, another one raises Conflict with the `winner`.
    """
    body = _answer(pending, values, edits, result, decision=decision, reason=reason, error=error, for_=on_behalf_of)
    return _post(_pending(pending) + "/decide", m.Decision, body, key=key)


def get_arguments(pending: PendingRef) -> Script[m.PendingArguments]:
    """The arguments that the call in question may have."""
    return _get(_pending(pending) + "/arguments", m.PendingArguments)


def get_receipt(pending: PendingRef) -> Script[bytes]:
    """The signed receipt of a decision, byte for byte (docs/receipts.md). Raises Conflict while the question is open or
    the call that was approved has not ended."""
    answer = yield from exchange(Request("GET", _pending(pending) + "/receipt"))
    return answer.body


def check_answer(
    pending: PendingRef,
    decision: str | None = None,
    *,
    reason: str | None = None,
    values: Given = UNSET,
    edits: Given = UNSET,
    result: Given = UNSET,
    error: str | None = None,
    on_behalf_of: str | None = None,
) -> Script[m.CheckedAnswer]:
    """The effect that an answer would have now: nothing is stored. It raises the errors that the answer
    itself would."""
    body = _answer(pending, values, edits, result, decision=decision, reason=reason, error=error, for_=on_behalf_of)
    return (yield from exchange(_with_json("POST", _pending(pending) + "/check", body))).read(m.CheckedAnswer)


def pending_history(pending: PendingRef) -> Feed[AnyEvent]:
    """The history of a question, oldest first: its votes, edits, reminders and escalations, and its end."""
    return scripts.mapped(pages(_pending(pending) + "/history", dict[str, Any]), _event)


def _answer(
    pending: PendingRef, values: Given, edits: Given, result: Given, *, for_: str | None, **words: str | None
) -> dict[str, Json]:
    fields: dict[str, Json] = {**words, "on_behalf_of": for_}
    if not isinstance(pending, str):
        fields["digest"] = pending.digest
    body = {name: value for name, value in fields.items() if value is not None}
    return body | {name: v for name, v in (("values", values), ("edits", edits), ("result", result)) if v is not UNSET}


def answer_pending(pending: PendingRef, values: Json, *, key: str | None = None) -> Script[m.Decision]:
    """Fill in a form."""
    return decide_pending(pending, values=values, key=key)


def give_result(pending: PendingRef, result: Json, *, key: str | None = None) -> Script[m.Decision]:
    """Answer a frontend tool's call with its result."""
    return decide_pending(pending, result=result, key=key)


def give_error(pending: PendingRef, message: str, *, key: str | None = None) -> Script[m.Decision]:
    """Answer a frontend tool's call with the reason why there is no result."""
    return decide_pending(pending, error=message, key=key)


def _pending(pending: PendingRef) -> str:
    return _path("pendings", pending if isinstance(pending, str) else pending.id)


# --- approvals of agents that live elsewhere ----------------------------------------------------------------------

APPROVAL_WAIT_SECONDS: Final = 50


def request_approval(
    action: str,
    arguments: Mapping[str, Json],
    policy: Mapping[str, Json] | None = None,
    *,
    workflow: str | None = None,
    expires_in: str | None = None,
    title: str | None = None,
    message: str | None = None,
    webhook: Mapping[str, Json] | None = None,
    key: str | None = None,
) -> Script[m.Approval]:
    """Ask people whether an action may be taken with exactly these arguments. `policy`: who decides, like
    `{"from": ["role:finance"], "quorum": 2}`; `workflow`: another workflow that asks; `expires_in`: `30m`, `1d`;
    `webhook`: where the outcome is told, `{"url": ..., "secret": ...}`. The same `key` again gives the same
    approval."""
    fields = {"policy": policy, "workflow": workflow, "expires_in": expires_in, "title": title, "message": message}
    if webhook is not None:
        fields["webhook"] = dict(webhook)
    body = {"action": action, "arguments": dict(arguments)}
    body |= {name: value for name, value in fields.items() if value is not None}
    return _post("/v1/approvals", m.Approval, body, key=key)


def get_approval(approval: ApprovalRef) -> Script[m.Approval]:
    """An approval as it is now."""
    return _get(_approval(approval), m.Approval)


def wait_for_approval(approval: ApprovalRef, *, timeout: float | None = None) -> Script[m.Approval]:
    """The approval as soon as people have decided it, or it has expired. Raises TimeoutError after so many seconds."""
    passed = 0.0
    while True:
        seconds = APPROVAL_WAIT_SECONDS if timeout is None else int(min(APPROVAL_WAIT_SECONDS, timeout - passed))
        found = yield from _get(_approval(approval), m.Approval, {"wait": max(seconds, 1)})
        if found.status != "pending":
            return found
        passed += max(seconds, 1)
        if timeout is not None and passed >= timeout:
            raise TimeoutError(f"nobody has decided the approval {found.id} within {timeout:g} s")


def consume_approval(
    approval: ApprovalRef,
    arguments: Mapping[str, Json] | None = None,
    *,
    action: str | None = None,
    digest: str | None = None,
    key: str | None = None,
) -> Script[m.ConsumedApproval]:
    """Consume an approval, right before the action: once, for exactly the arguments that were approved, as edited.
    Without `arguments` and `digest`, the record's own digest is sent. Raises Conflict where it was consumed before, or
    is not approved, and Invalid where the arguments are others. With the same `key` again it is the first answer
    again, `already`: give one only where the action itself happens once under that key."""
    if arguments is None and digest is None and not isinstance(approval, str):
        digest = approval.digest
    fields: dict[str, Json] = {"action": action, "digest": digest}
    if arguments is not None:
        fields["arguments"] = dict(arguments)
    body = {name: value for name, value in fields.items() if value is not None}
    return _post(_approval(approval) + "/consume", m.ConsumedApproval, body, key=key)


def _approval(approval: ApprovalRef) -> str:
    return _path("approvals", approval if isinstance(approval, str) else approval.id)


# --- the inbox ----------------------------------------------------------------------------------------------------


def list_inbox(
    *,
    workflow: str | None = None,
    kind: str | None = None,
    text: str | None = None,
    opened_before: datetime | None = None,
    opened_after: datetime | None = None,
    deadline_before: datetime | None = None,
    limit: int | None = None,
) -> Feed[m.InboxItem]:
    """The open questions that ask you, the next deadline first; `why_not` explains why you may not decide one."""
    times = {"opened_before": opened_before, "opened_after": opened_after, "deadline_before": deadline_before}
    query: dict[str, Json] = {name: time.isoformat() for name, time in times.items() if time is not None}
    query |= {"workflow": workflow, "kind": kind, "text": text}
    filters = {name: value for name, value in query.items() if value is not None}
    return pages("/v1/inbox", m.InboxItem, query=filters, limit=limit)


def follow_inbox(
    *, workflow: str | None = None, kind: str | None = None, text: str | None = None, limit: int = 50
) -> Feed[inbox.InboxNews]:
    """Your inbox as it is, and again after each change: at most the first `limit` (up to 200) questions. A lost
    connection is made anew, and items that have not changed since are not repeated. It has no end."""
    return inbox.follow({"workflow": workflow, "kind": kind, "text": text, "limit": limit})


def count_inbox() -> Script[m.InboxCounts]:
    """How many open questions of each workflow ask you."""
    return _get("/v1/inbox/counts", m.InboxCounts)


def check_pending(pending: PendingRef) -> Script[m.InboxItem]:
    """Whether you may decide the open question, why not, and which others may."""
    return _get(_asked(pending), m.InboxItem)


def claim_pending(pending: PendingRef, for_: str = "30m") -> Script[m.InboxItem]:
    """Tell others that you are working on the question, for this long; they can still decide it. Raises Conflict if
    somebody else has claimed it."""
    return _post(_asked(pending) + "/claim", m.InboxItem, {"for": for_})


def release_pending(pending: PendingRef) -> Script[m.InboxItem]:
    """Withdraw your claim."""
    return _post(_asked(pending) + "/release", m.InboxItem)


def decide_several(items: Sequence[Mapping[str, Json]], *, key: str | None = None) -> Script[m.BulkOutcomes]:
    """Several answers, each an `id` with the arguments of `decide`; a refused answer does not affect the others."""
    return _post("/v1/inbox/decide", m.BulkOutcomes, {"items": [dict(each) for each in items]}, key=key)


def list_decided(*, limit: int | None = None) -> Feed[m.Decided]:
    """Your decisions, and those of your delegates in your name, newest first."""
    return pages("/v1/inbox/decided", m.Decided, limit=limit)


def list_delegations() -> Script[m.Delegations]:
    """Those from you and to you that have not ended."""
    return _get("/v1/inbox/delegations", m.Delegations)


def delegate(
    to: str, until: datetime, *, since: datetime | None = None, note: str | None = None
) -> Script[m.Delegation]:
    """Let `to` answer the questions that ask you, until then, with the roles and groups that you have now."""
    body: dict[str, Json] = {"to": to, "until": until.isoformat()}
    if since is not None:
        body["since"] = since.isoformat()
    if note is not None:
        body["note"] = note
    return _post("/v1/inbox/delegations", m.Delegation, body)


def end_delegation(delegation: str) -> Script[None]:
    """End a delegation from you, or to you, at once."""
    yield from exchange(Request("DELETE", _path("inbox", "delegations", delegation)))


def list_absences(*, everybody: bool = False, limit: int | None = None) -> Feed[m.Absence]:
    """Absences that are not over, newest first: yours, and those in which you decide for others; with `everybody`, for
    admins, all."""
    return pages("/v1/absences", m.Absence, limit=limit, query={"everybody": "true"} if everybody else None)


def enter_absence(
    first_day: date,
    last_day: date,
    *,
    delegate: str | None = None,
    person: str | None = None,
    zone: str = "UTC",
    note: str | None = None,
) -> Script[m.Absence]:
    """You are away (or `person` is, for admins) from the first day to the end of the last one, in `zone`. `delegate`
    decides meanwhile; None: nobody does."""
    body: dict[str, Json] = {"first_day": first_day.isoformat(), "last_day": last_day.isoformat(), "zone": zone}
    for name, value in (("delegate", delegate), ("person", person), ("note", note)):
        if value is not None:
            body[name] = value
    return _post("/v1/absences", m.Absence, body)


def end_absence(absence: str) -> Script[None]:
    """End an absence at once, or take back one that has not begun."""
    yield from exchange(Request("DELETE", _path("absences", absence)))


def _asked(pending: PendingRef) -> str:
    return _path("inbox", pending if isinstance(pending, str) else pending.id)


# --- threads ------------------------------------------------------------------------------------------------------


def list_threads(*, limit: int | None = None) -> Feed[m.Thread]:
    """The conversations, the one with the newest run first."""
    return pages("/v1/threads", m.Thread, limit=limit)


def get_thread(thread: ThreadRef) -> Script[m.ThreadWithRuns]:
    """One conversation, with its newest runs."""
    return _get(_thread(thread), m.ThreadWithRuns)


def list_messages(thread: ThreadRef, *, limit: int | None = None) -> Feed[m.ThreadMessage]:
    """Its messages, oldest first: messages that are complete, and calls of tools."""
    return pages(_thread(thread) + "/messages", m.ThreadMessage, limit=limit)


def list_queued(thread: ThreadRef) -> Script[m.QueuedMessages]:
    """The messages that wait until its run has ended, the next one first, and those of the last day that could start
    no run."""
    return _get(_thread(thread, "queue"), m.QueuedMessages)


def withdraw_queued(thread: ThreadRef, run: str) -> Script[None]:
    """Take back a message that waits, named by the run that it would start."""
    yield from exchange(Request("DELETE", _thread(thread, "queue", run)))


def list_feedback(thread: ThreadRef, *, limit: int | None = None) -> Feed[m.Feedback]:
    """All feedback on the messages and decisions of a thread, newest first."""
    return pages(_thread(thread) + "/feedback", m.Feedback, limit=limit)


def give_feedback(
    thread: ThreadRef,
    rating: str | int | None = None,
    *,
    message: MessageRef | None = None,
    pending: PendingRef | None = None,
    comment: str | None = None,
    labels: Sequence[str] = (),
) -> Script[m.Feedback]:
    """Rate a message (or a call) or a decided pending: `up` or `down`, or 1 to 5 stars, a comment, labels. It replaces
    your feedback from before. Raises Conflict for a pending that is open."""
    body = {"rating": rating, "comment": comment, "labels": list(labels)}
    request = _with_json("PUT", _subject(thread, message, pending), body)
    return (yield from exchange(request)).read(m.Feedback)


def get_feedback(
    thread: ThreadRef, *, message: MessageRef | None = None, pending: PendingRef | None = None
) -> Script[m.Feedback]:
    """Your feedback on it. Raises NotFound where there is none."""
    return _get(_subject(thread, message, pending), m.Feedback)


def withdraw_feedback(
    thread: ThreadRef, *, message: MessageRef | None = None, pending: PendingRef | None = None
) -> Script[None]:
    """Take back your feedback on it, if there is any."""
    yield from exchange(Request("DELETE", _subject(thread, message, pending)))


def _subject(thread: ThreadRef, message: MessageRef | None, pending: PendingRef | None) -> str:
    """The path of the one message or pending that is judged. Raises ValueError unless it is exactly one."""
    if (message is None) == (pending is None):
        raise ValueError("expected one thing that is judged: either message=... or pending=...")
    if message is not None:
        return _thread(thread, "feedback", "messages", message if isinstance(message, str) else message.id)
    assert pending is not None
    return _thread(thread, "feedback", "pendings", pending if isinstance(pending, str) else pending.id)


def _thread(thread: ThreadRef, *rest: str) -> str:
    id = thread if isinstance(thread, str) else thread.thread_id if isinstance(thread, m.Run) else thread.id
    return _path("threads", id, *rest)


# --- events from outside, schedules -------------------------------------------------------------------------------


def signal_run(run: RunRef, type: str, data: Json = None, *, id: str | None = None) -> Script[m.Signal]:
    """Send one run an event. It is kept until the run waits for its type; the same `id` again changes nothing."""
    return _post(_run(run) + "/signals", m.Signal, _outside(type, data, id))


def send_event(type: str, data: Json = None, *, id: str | None = None) -> Script[m.SentEvent]:
    """Send an event to all: to runs that wait for its type, and to the workflows that it starts."""
    return _post("/v1/events", m.SentEvent, _outside(type, data, id))


def _outside(type: str, data: Json, id: str | None) -> Json:
    return {"type": type, "data": data} | ({} if id is None else {"id": id})


def list_schedules() -> Feed[m.Schedule]:
    """The schedules, by workflow."""
    return pages("/v1/schedules", m.Schedule)


def get_schedule(schedule: ScheduleRef) -> Script[m.Schedule]:
    """One schedule."""
    return _get(_schedule(schedule), m.Schedule)


def get_fires(schedule: ScheduleRef, *, limit: int = 10) -> Script[m.Fires]:
    """The next times at which it fires, and the last times at which it fired with their outcomes: `limit` of each."""
    return _get(_schedule(schedule) + "/fires", m.Fires, {"limit": limit})


def pause_schedule(schedule: ScheduleRef) -> Script[m.Schedule]:
    """Let it fire no more until it is resumed."""
    return _post(_schedule(schedule) + "/pause", m.Schedule)


def resume_schedule(schedule: ScheduleRef) -> Script[m.Schedule]:
    """Let it fire again, from its next time on."""
    return _post(_schedule(schedule) + "/resume", m.Schedule)


def run_schedule(schedule: ScheduleRef, *, key: str | None = None) -> Script[m.Run]:
    """Start its run once, now, also while it is paused. Raises Conflict while its last run is active."""
    return _post(_schedule(schedule) + "/run", m.Run, key=key)


def _schedule(schedule: ScheduleRef) -> str:
    return _path("schedules", schedule if isinstance(schedule, str) else schedule.id)


# --- credentials --------------------------------------------------------------------------------------------------


def create_key(
    principal: str,
    *,
    name: str = "",
    roles: Sequence[str] = (),
    groups: Sequence[str] = (),
    expires_in: int | None = None,
    speaks_for: Sequence[str] = (),
) -> Script[m.NewKey]:
    """Make an API key, which is shown this once. `expires_in`: in seconds (None: never). `speaks_for`: the principals
    as whom its tokens may decide, like `user:shop-*`. The request is sent once: after `Unavailable`, look at `list` for
    a new key that you don't know, and revoke it."""
    body: dict[str, Json] = {"principal": principal, "name": name, "roles": list(roles), "groups": list(groups)}
    if speaks_for:  # servers before this field refuse it
        body["speaks_for"] = list(speaks_for)
    request = _with_json("POST", "/v1/keys", body | {"expires_in": expires_in})
    return (yield from exchange(replace(request, repeatable=False))).read(m.NewKey)


def list_keys(*, limit: int | None = None) -> Feed[m.Key]:
    """All keys, newest first; also those that were revoked or have expired."""
    return pages("/v1/keys", m.Key, limit=limit)


def revoke_key(key: KeyRef) -> Script[m.Key]:
    """Revoke a key: it is refused from now on, within a second by all processes."""
    return _post(_path("keys", key if isinstance(key, str) else key.id) + "/revoke", m.Key)


def list_tenants() -> Feed[m.Tenant]:
    """The tenants, by name: all, for admins of the tenant `default`, whose deployment it is; for others their own."""
    yield from scripts.items("/v1/tenants", m.Tenant)


def get_tenant(tenant: TenantRef) -> Script[m.Tenant]:
    """One tenant, by its name."""
    return _get(_tenant(tenant), m.Tenant)


def limit_tenant(tenant: TenantRef, limits: Mapping[str, int | None]) -> Script[m.Tenant]:
    """Change limits of a tenant, like `{"open_runs": 1000}`: a number; 0: no limit; None: the value of the server's
    settings. Limits that are not named stay. For admins of the tenant `default`."""
    body: dict[str, Json] = dict(limits)
    return (yield from exchange(_with_json("PATCH", _tenant(tenant), body))).read(m.Tenant)


def place_tenant(tenant: TenantRef, cells: Sequence[str]) -> Script[m.Tenant]:
    """Let new threads of a tenant begin in these cells, by their names (`home` is one). Its threads in other cells stay
    there. For admins of the tenant `default`."""
    return (yield from exchange(_with_json("PATCH", _tenant(tenant), {"cells": list(cells)}))).read(m.Tenant)


def _tenant(tenant: TenantRef) -> str:
    return _path("tenants", tenant if isinstance(tenant, str) else tenant.name)


def create_token(
    principal: str,
    *,
    roles: Sequence[str] = (),
    groups: Sequence[str] = (),
    threads: Sequence[str] | None = None,
    workflows: Sequence[str] | None = None,
    expires_in: int = 900,
) -> Script[m.Token]:
    """Make a token for a page of yours, in which `principal` has signed in. It holds no more rights than the API key
    with which you ask, and opens only those `threads` and `workflows` (None: all). `expires_in`: in seconds."""
    body: dict[str, Json] = {"principal": principal, "roles": list(roles), "groups": list(groups)}
    limits = {"threads": threads, "workflows": workflows}
    body |= {name: None if names is None else list(names) for name, names in limits.items()}
    return _post("/v1/tokens", m.Token, body | {"expires_in": expires_in})


def create_ticket() -> Script[m.Ticket]:
    """Make a ticket: `?ticket=` opens one stream as you, within half a minute, for a client that can't send a header
    there."""
    return _post("/v1/tickets", m.Ticket)


def get_session() -> Script[m.Session]:
    """Your identity here, your rights, and when your credential ends."""
    return _get("/v1/session", m.Session)


# --- workers ------------------------------------------------------------------------------------------------------


def list_workers() -> Script[m.Workers]:
    """The processes that perform runs, living ones first, then those that ended or died lately, with their runs that no
    worker has taken over yet. For operators of the tenant `default`."""
    return _get("/v1/workers", m.Workers)


# --- the audit ----------------------------------------------------------------------------------------------------


def list_audit(
    *,
    principal: str | None = None,
    act: str | None = None,
    run: RunRef | None = None,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
) -> Feed[m.AuditRecord]:
    """The recorded acts, newest first. `subject`: `pending:...`, `workflow:...`; `until` is exclusive. Both times have
    a timezone."""
    query: dict[str, Json] = {
        "principal": principal,
        "act": act,
        "run_id": run.id if isinstance(run, m.Run) else run,
        "subject": subject,
        "since": None if since is None else since.isoformat(),
        "until": None if until is None else until.isoformat(),
    }
    return pages("/v1/audit", m.AuditRecord, limit=limit, query=query)


def read_audit_chain(*, limit: int | None = None) -> Feed[m.AuditLink]:
    """The sealed records in the order of the chain, with everything that verifying them needs."""
    return pages("/v1/audit/chain", m.AuditLink, limit=limit)


def get_audit_anchor() -> Script[m.AuditAnchor]:
    """The end of the chain now. Keep it in a place that can't be changed together with the database."""
    return _get("/v1/audit/anchor", m.AuditAnchor)


# --- anything else ------------------------------------------------------------------------------------------------


def send_request(
    method: str,
    path: str,
    *,
    query: Mapping[str, Json] | None = None,
    json: Given = UNSET,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    repeatable: bool | None = None,
) -> Script[Answer]:
    """Any request, also one that this client has no method for. `repeatable` (None: GET is): whether it may be sent
    again."""
    request = _with_json(method, path, json, query)
    body = request.body if content is None else content
    return exchange(
        Request(
            method,
            path,
            request.query,
            body,
            {**request.headers, **(headers or {})},
            repeatable=method == "GET" if repeatable is None else repeatable,
        )
    )


def list_items(
    path: str, *, query: Mapping[str, Json] | None = None, limit: int | None = None
) -> Feed[dict[str, Json]]:
    """The items of any list, as JSON."""
    return pages(path, dict[str, Json], limit=limit, query=query)
