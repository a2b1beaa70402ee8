"""Servers of the Model Context Protocol that say what the SDK's own servers never would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx2
import pytest
from structlog.testing import capture_logs

from hai_flow import values
from hai_flow.api.app import create_app
from hai_flow.api.permissions.principals import Principal as Caller
from hai_flow.api.requests.run_visibility import RunVisibility
from hai_flow.cells import TenantCells
from hai_flow.engine import commands as c
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.people import pendings
from hai_flow.store.runs import run_lists
from hai_flow.wire import DIALECTS
from tests.runtime.conftest import Make, is_now, start, state_of
from tests.runtime.conftest import make as make
from tests.steps.test_mcp import call, failure, runner_of
from tests.support.identities import KEYS, People
from tests.support.mcp_lines import Script, Way, catalogue, result
from tests.support.service import Received, Reply, Service
from tests.support.waiting import until

WAYS: tuple[Way, ...] = ("stdio", "events", "json")
CALLING = "tools: {t: {mcp: {use: files}}}\nsteps: [{id: a, call: t.add}]\noutput: ${{ steps.a.output }}\n"
DONE = result({"content": [{"type": "text", "text": "done"}]})
DEEP = "[" * 100_000 + "]" * 100_000


def told(method: str, params: str) -> str:
    return f'{{"jsonrpc": "2.0", "method": "notifications/{method}", "params": {params}}}'


def progress(value: str, more: str = "") -> str:
    return told("progress", f'{{"progressToken": TOKEN, "progress": {value}{more}}}')


def refusing(message: str) -> str:
    return f'{{"jsonrpc": "2.0", "id": ID, "error": {{"code": -1, "message": "{message}"}}}}'


async def ended(make: Make, folder: Path, script: Script, way: Way, body: str = CALLING) -> Any:
    """A run that has called the server, as far as it came."""
    async with catalogue(folder, script, way) as file:
        runtime = await make(performs=True, mcp=file)
        run_id = (await start(runtime, body)).run_id
        await until(lambda: is_now(runtime, run_id, "finished", "failed", "waiting"))
        state = await state_of(runtime, run_id)
        values.check(state.output)
        values.check(state.error and [state.error.message, state.error.data])
        await runtime.stop()
    return state


@pytest.mark.parametrize("way", ["stdio", "events"])
async def test_what_a_server_tells_on_the_way_and_nobody_can_read_is_passed_over(
    way: Way, make: Make, tmp_path: Path
) -> None:
    lines = [
        progress(number) for number in ("1e999", "NaN", "9" * 30, "9" * 400, "9" * 5000, f'1, "total": {"9" * 400}')
    ]
    lines += [progress("1", f', "message": "{text}"') for text in ("a\\u0000b", "\\ud800", "\udcff", "\\\\ud800")]
    lines += [progress("1", f', "more": {DEEP}'), told("message", f'{{"level": "info", "data": {DEEP}}}')]
    lines += ["", "{", "[1]", "null", "\udcff\udcfe", DEEP, '{"id": true}']
    state = await ended(make, tmp_path, Script(answers=(*lines, DONE)), way)
    assert (state.status, state.output, state.error) == ("finished", "done", None)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", ["a\\u0000b", "a\\ud800b", "a\udcffb"])
async def test_a_refusal_is_told_without_the_characters_that_can_not_be_stored(
    way: Way, text: str, make: Make, tmp_path: Path
) -> None:
    state = await ended(make, tmp_path, Script(answers=(refusing(text),)), way)
    assert (state.error.code, state.error.message) == (
        "tool.failed",
        "the MCP server `files` refuses the call: a\ufffdb",
    )


@pytest.mark.parametrize("way", WAYS)
async def test_an_answer_that_can_not_be_read_ends_its_call_and_no_other(way: Way, make: Make, tmp_path: Path) -> None:
    state = await ended(make, tmp_path, Script(answers=(result("7"),)), way)
    assert (state.error.code, state.error.retriable) == ("tool.invalid_result", False)
    assert "answers with what can't be read" in state.error.message


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "answer",
    [
        result(f'{{"content": {DEEP}}}'),
        f'{{"jsonrpc": "2.0", "result": {{"content": {DEEP}, "id": 7, "s": "}}\\"}}"}}, "id": ID}}',
    ],
    ids=["before the id", "with an id in it"],
)
async def test_what_a_call_gave_is_kept_however_deep_it_is(way: Way, answer: str, make: Make, tmp_path: Path) -> None:
    state = await ended(make, tmp_path, Script(answers=(answer,)), way)
    assert state.status == "finished"
    assert str(state.output).startswith("[" * 60)


@pytest.mark.parametrize(
    ("before", "status"),
    [((), "failed"), ((progress("1"),), "waiting"), ((told("message", '{"level": "info", "data": "x"}'),), "waiting")],
    ids=["nothing", "progress", "a message"],
)
async def test_a_call_that_has_begun_is_made_in_no_other_session(
    before: tuple[str, ...], status: str, make: Make, tmp_path: Path
) -> None:
    state = await ended(make, tmp_path, Script(answers=(*before, refusing("Session not found"))), "events")
    assert state.status == status
    assert state.error is None or "forgets each session at once" in state.error.message


async def test_a_connection_survives_a_call_with_unreadable_messages(make: Make, tmp_path: Path) -> None:
    body = CALLING.replace("steps: [", "steps: [{id: b, call: t.add}, {id: c, call: t.add}, ")
    script = Script(answers=(progress("9" * 400), told("message", DEEP), DONE))
    assert (await ended(make, tmp_path, script, "stdio", body)).output == "done"


@pytest.mark.parametrize("way", ["events", "json"])
@pytest.mark.parametrize("id", ["null", "77", '"other"'])
async def test_an_answer_over_http_belongs_to_its_request_whatever_id_it_has(
    way: Way, id: str, make: Make, tmp_path: Path
) -> None:
    state = await ended(make, tmp_path, Script(answers=(DONE.replace("ID", id if id != "null" else "78"),)), way)
    assert state.output == "done"
    state = await ended(make, tmp_path, Script(answers=(refusing("no").replace("ID", id),)), way)
    assert state.error.code == "tool.failed"


@pytest.mark.parametrize(
    ("parts", "output"),
    [
        (
            '{"type": "resource_link", "uri": "https://a.example/\\u0000", "name": "a\\ud800", "mimeType": "a\\u0000"}',
            {"type": "url", "value": "https://a.example/\ufffd", "filename": "a\ufffd", "mimeType": "a\ufffd"},
        ),
        ('{"type": "text", "text": "\\u0000"}, {"type": "image", "data": "AA==", "mimeType": "a\\u0000"}', None),
    ],
)
async def test_parts_of_a_result_hold_no_character_that_can_not_be_stored(
    parts: str, output: Any, make: Make, tmp_path: Path
) -> None:
    state = await ended(make, tmp_path, Script(answers=(result(f'{{"content": [{parts}]}}'),)), "stdio")
    assert state.status == "finished"
    assert output is None or state.output[0]["source"] == output


@pytest.mark.parametrize("number", ["NaN", "1e999", "9" * 400, "9" * 5000])
async def test_a_number_of_a_result_that_no_run_can_hold_is_text(number: str, make: Make, tmp_path: Path) -> None:
    answer = result(f'{{"content": [], "structuredContent": {{"a": {number}}}}}')
    state = await ended(make, tmp_path, Script(answers=(answer,)), "stdio")
    assert (state.status, state.output) == ("finished", {"a": number})


@pytest.mark.parametrize("name", ["a\x00b", "x" * 100_000, "", "a\nb", "\udcff"])
async def test_a_function_with_an_unwritable_name_harms_no_other(name: str, make: Make, tmp_path: Path) -> None:
    assert (await ended(make, tmp_path, Script(names=("add", name), answers=(DONE,)), "stdio")).output == "done"


# --- questions --------------------------------------------------------------------------------------------------------


def asking(schema: str, key: str = "k", message: str = "How?") -> str:
    params = f'{{"mode": "form", "message": "{message}", "requestedSchema": {schema}}}'
    asked = f'{{"{key}": {{"method": "elicitation/create", "params": {params}}}}}'
    return result(f'{{"resultType": "input_required", "inputRequests": {asked}, "requestState": "s"}}')


FORM = '{"type": "object", "properties": {"a": %s}}'


@pytest.mark.parametrize(
    "answer",
    [
        asking(FORM % '{"type": "string"}'),
        asking(FORM % '{"type": "string"}', key="k\\u0000"),
        asking(FORM % '{"type": "string"}', message="a\\u0000\\ud800" + "x" * 100_000),
        asking(FORM % '{"type": "string", "title": "a\\u0000\\ud800"}'),
        asking('{"type": "object", "properties": {"a\\u0000": {"type": "string"}}}'),
        asking(FORM % '{"type": "number", "default": NaN}'),
        asking(FORM % '{"type": "number", "default": 1e400}'),
        asking(FORM % f'{{"type": "number", "default": {"9" * 400}}}'),
        asking(FORM % f'{{"type": "string", "default": {DEEP}}}'),
        asking(FORM % f'{{"type": "string", "default": {"[" * 150 + "]" * 150}}}'),
    ],
)
async def test_a_question_is_asked_with_characters_and_sizes_that_can_be_stored(
    answer: str, make: Make, tmp_path: Path
) -> None:
    state = await ended(make, tmp_path, Script(answers=(answer,), modern=True), "stdio")
    (pending,) = state.pendings.values()
    opened = pending.opened
    values.check([opened.message, opened.schema, opened.title, list(opened.inquiry.keys)])
    assert len(opened.message) < 5_000


@pytest.mark.parametrize(
    "answer",
    [
        asking(FORM % '{"type": "string"}', key="k" * 100_000),
        asking(FORM % f'{{"type": "string", "title": "{"x" * 100_000}"}}'),
        asking("7"),
    ],
    ids=["key", "large", "no form"],
)
async def test_a_question_that_no_form_can_ask_fails_the_call(answer: str, make: Make, tmp_path: Path) -> None:
    state = await ended(make, tmp_path, Script(answers=(answer,), modern=True), "stdio")
    assert state.status == "failed", json.dumps(state.output)
    assert state.error.code in ("tool.failed", "tool.invalid_result")


async def test_what_a_servers_form_marks_is_hidden_from_viewers_everywhere(
    make: Make, database_url: str, tmp_path: Path
) -> None:
    """The workflow marks nothing, and the server's answer repeats what it was told."""
    amount = {"type": "integer", "pii": True}
    people = People(database_url)
    ann, vic = people.person("user:ann"), people.person("user:vic", roles=["viewer"])
    async with catalogue(tmp_path, Script(questions=("How much?",), amount=amount), "stdio") as file:
        runtime = await make(performs=True, mcp=file, identity="keys", publish=True)
        source = f"hai: flow/v1\nname: asks\nversion: 1\nvisibility: tenant\n{CALLING}".encode()
        await runtime.catalog.publish(LOCAL_TENANT, source)
        app = create_app(Settings(publish=True, identity=KEYS["HAI_FLOW_IDENTITY"]), runtime)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as api:
            run = (await api.post("/v1/runs", json={"workflow": "asks"}, headers=ann)).json()
            await until(lambda: is_now(runtime, UUID(run["id"]), "waiting"))
            (pending,) = (await api.get(f"/v1/pendings?run_id={run['id']}", headers=ann)).json()["items"]
            answer, path = {"values": {"amount": 7715443}}, f"/v1/pendings/{pending['id']}"
            assert (await api.post(f"{path}/decide", json=answer, headers=ann)).status_code == 200
            await until(lambda: is_now(runtime, UUID(run["id"]), "finished"))
            of_run, of_thread = f"/v1/runs/{run['id']}", f"/v1/threads/{run['thread_id']}"
            for each in (
                "/v1/runs", of_run, f"{of_run}/steps", f"{of_run}/snapshot", f"{of_run}/diff?from=1",
                f"{of_run}/events?limit=99", path, f"{path}/history", of_thread, f"{of_thread}/messages",
                *(f"{of_run}/events?dialect={name}" for name in DIALECTS),
            ):  # fmt: skip
                own, others = [(await api.get(each, headers={"Accept": "*/*", **who})).text for who in (ann, vic)]
                assert "7715443" not in others, each
                assert "7715443" in own or each not in ("/v1/runs", of_run, f"{of_run}/snapshot"), each


@pytest.mark.parametrize("way", ["stdio", "events"])
async def test_of_a_call_with_personal_values_no_answer_is_logged(
    way: Way, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither by us nor, as a warning, by a library."""
    quotes = '"7715443"'
    lines = (
        f"{{{quotes}", f"[{quotes}]", f'{{"jsonrpc": "2.0", "method": {quotes}}}', progress(quotes),
        told("message", f'{{"level": {quotes}, "data": {quotes}}}'), told(quotes.strip('"'), quotes),
        f'{{"jsonrpc": "2.0", "id": 99, "result": {quotes}}}', f'{{"jsonrpc": "2.0", "id": 7, "method": {quotes}}}',
    )  # fmt: skip
    marked = f"state: {{n: {{type: string, pii: true, default: {quotes}}}}}\n" + CALLING.replace(
        "call: t.add", "call: t.add, with: {n: '${{ state.n }}'}"
    )
    for last in (refusing("7715443"), result(f"[{quotes}]"), result('{"content": [{"type": "7715443"}]}')):
        with capture_logs() as logs, caplog.at_level("WARNING"):
            await ended(make, tmp_path, Script(answers=(*lines, last)), way, marked)
        assert "7715443" not in str(logs) + caplog.text


def access_of(runtime: Runtime, id: str, role: str) -> RunVisibility:
    caller: Any = Caller(c.Principal(id, roles=(role,)), LOCAL_TENANT, "key")
    cells: Any = SimpleNamespace(at=lambda cell: runtime)
    return RunVisibility(caller, cells, 0, TenantCells.in_one(0))


class Spy:
    """A function, and the arguments that it was called with."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, list[Any]()

    async def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        return await self.function(*args)


async def test_an_operator_has_a_workflows_roles_before_its_tool_asks(make: Make, tmp_path: Path) -> None:
    """Nothing is personal yet when they begin to follow; a later gate is not hidden from who is asked."""
    async with catalogue(tmp_path, Script(), "stdio") as file:
        runtime = await make(mcp=file)
        run_id = (await start(runtime, "roles: {boss: ['user:oli']}\n" + CALLING)).run_id
        access = access_of(runtime, "user:oli", "operator")
        assert await access.find_state(run_id) is not None
        assert "boss" in access.reader(run_id).roles
        await runtime.stop()


async def test_a_list_reads_the_states_of_those_runs_alone_that_asked(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement finds them, for a page of runs of a workflow with a tool that may ask."""
    scripts = (Script(answers=(DONE,)), Script(questions=("?",), amount={"type": "integer"}),
               Script(questions=("?",), amount={"type": "integer", "pii": True}))  # fmt: skip
    ids = [UUID((await ended(make, tmp_path, script, "stdio")).run_id) for script in scripts]
    runtime = await make()
    vic = access_of(runtime, "user:vic", "viewer")
    page = await run_lists.list_runs(vic.reads, LOCAL_TENANT, limit=9)
    states, statements = Spy(runtime.fanout.state_at), Spy(pendings.find_runs_with_marked_forms)
    monkeypatch.setattr(runtime.fanout, "state_at", states)
    monkeypatch.setattr(pendings, "find_runs_with_marked_forms", statements)
    assert len(await vic.redact_rows(page)) == 3
    assert ([call[1] for call in states.calls], len(statements.calls)) == ([ids[-1]], 1)
    await runtime.database.api.execute("UPDATE runs SET copied = 1, branch_of = id WHERE id = $1", ids[0])
    assert await vic.find_with_forms(page) == {ids[0], ids[-1]}, "what a fork has copied are questions of the other run"
    await runtime.stop()


# --- answers without an end -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [b"data: {}\n\n", b"x" * 1000], ids=["events", "a line"])
async def test_an_endless_stream_fails_its_call_and_the_next_is_answered(piece: bytes) -> None:
    script, endless = Script(answers=(DONE,)), True

    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield piece * 100

    def answer(received: Received) -> Reply:
        asked = json.loads(received.body) if received.body else {}
        if asked.get("method") == "tools/call" and endless:
            return Reply(type="text/event-stream", pieces=pieces())
        said = script.said(asked)
        return Reply(body=said[-1].encode()) if said else Reply(status=202)

    async with Service(answer) as service, runner_of(bytes_max=20_000) as runner:
        declared = f"mcp: '{service.url('/mcp')}'"
        fault = await failure(runner, "add", declared)
        assert (fault.code, fault.retriable) == ("tool.invalid_result", False)
        endless = False
        assert await call(runner, "add", declared) == "done"
