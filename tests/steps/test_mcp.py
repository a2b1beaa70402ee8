"""Tools of real MCP servers, over stdio and HTTP: what a call gives, how it fails, and where it leads nowhere."""

from __future__ import annotations

import asyncio
import importlib
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec
import pytest

from hai_flow import values
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.plan import Call, Step
from hai_flow.definition.tools.mcp_servers import read_mcp_catalogue
from hai_flow.errors import OutcomeLost, StepError
from hai_flow.steps.files import RunFiles, kind_of
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.steps.mcp import connections as mcp_connections
from hai_flow.steps.mcp.receipts import SAID_CHARS_MAX, CallReceipt
from hai_flow.steps.mcp.runner import McpRunner, classify
from hai_flow.steps.pins import LISTED
from hai_flow.steps.runner import Attempt
from hai_flow.steps.secrets import Secrets, Source, remember
from tests.support.mcp_server import COMMAND, ROOT, http_server, programs  # noqa: F401
from tests.support.waiting import until

STDIO = f"mcp: {{command: {values.dumps(COMMAND).decode()}, env: {{PYTHONPATH: '{ROOT}'}}}}"


class Heard:
    """What an attempt streams."""

    def __init__(self) -> None:
        self.text = ""
        self.done: list[Any] = []

    async def __call__(self, text: str, kind: str = "text") -> None:
        self.text += text

    async def call(self, name: str, number: int, text: str) -> None:
        raise AssertionError("no model is asked")

    def noted(self, notes: Any) -> None:
        self.notes = (*getattr(self, "notes", ()), *notes)

    def made(self, part: Any) -> None:
        raise AssertionError("no model is asked")

    def used(self, use: Any) -> None:
        raise AssertionError("no model is asked")

    def progress(self, value: Any) -> None:
        self.done.append(value)


def step_of(call: str, declared: str) -> Step:
    source = (
        f"hai: flow/v1\nname: sample\nversion: 1\ntools:\n  t: {{{declared}}}\nsteps:\n  - {{id: s, call: {call}}}\n"
    )
    return compile_workflow(source.encode(), "f").steps["s"]


@asynccontextmanager
async def runner_of(
    catalogue: str = "{}", secrets: Secrets | None = None, hosts: tuple[str, ...] = (), **config: Any
) -> AsyncIterator[McpRunner]:
    head = "" if catalogue.startswith("hai:") else "hai: mcp/v1\nservers: "
    known, findings = read_mcp_catalogue(f"{head}{catalogue}".encode(), "f")
    assert findings == []
    made = McpRunner(known, secrets or Secrets(), hosts, HttpConfig(**config))
    try:
        yield made
    finally:
        await made.close()


async def call(
    runner: McpRunner,
    function: str,
    declared: str = STDIO,
    *,
    from_disk: bool = True,
    stream: bool = False,
    files: RunFiles | None = None,
    **args: Any,
) -> Any:
    step = step_of(f"t.{function}" + (", stream: text" if stream else ""), declared)
    heard = Heard()
    attempt = Attempt("run", "s", 1, values.dumps(args).decode(), step, None, from_disk, "sample")
    if files is not None:
        attempt = msgspec.structs.replace(attempt, files=files)
    output = await runner.perform(attempt, heard)
    return (output, heard.text, heard.done) if stream else output


async def failure(runner: McpRunner, function: str, declared: str = STDIO, **more: Any) -> StepError:
    with pytest.raises(StepError) as raised:
        await call(runner, function, declared, **more)
    return raised.value


# --- what a call gives ------------------------------------------------------------------------------------------------


async def test_a_program_and_an_address_give_the_same() -> None:
    async with runner_of() as runner, http_server() as http, http_server(stateless=False) as session:
        for declared in (STDIO, f"mcp: '{http.url}'", f"mcp: {{url: '{session.url}'}}"):
            assert await call(runner, "add", declared, a=2, b=3) == {"sum": 5}
            assert await call(runner, "text", declared, lines=["a", "b"]) == "a\nb"
            assert await call(runner, "parts", declared) == [
                {"type": "text", "text": "See"},
                {
                    "type": "document",
                    "source": {
                        "type": "url", "value": "file:///report.pdf", "filename": "report.pdf",
                        "mimeType": "application/pdf",
                    },
                },
                {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
            ]  # fmt: skip
            assert (await failure(runner, "fails", declared, why="no luck")).code == "tool.failed"
            assert await call(runner, "steps", declared, stream=True, count=2) == (
                "done",
                "part 1\npart 2\n",
                [{"done": n, "total": 2, "message": f"part {n}"} for n in (1, 2)],
            )


class Kept:
    """The files of a run, in memory."""

    def __init__(self) -> None:
        self.stored: list[tuple[bytes, str, str]] = []

    async def read(self, id: str, bytes_max: int) -> Any:
        raise AssertionError("nothing is read")

    async def put(self, body: bytes, media_type: str = "", name: str = "") -> dict[str, Any]:
        self.stored.append((body, media_type, name))
        return {"type": kind_of(media_type), "source": {"type": "file", "value": name, "mimeType": media_type}}


def link(uri: str, number: int) -> dict[str, Any]:
    return {"type": "document", "source": {"type": "url", "value": uri, "filename": f"n{number}"}}


async def test_links_that_the_server_can_read_become_files_others_stay_addresses() -> None:
    web = "https://example.com/a.png"
    async with runner_of(bytes_max=20_000) as runner, http_server() as http:
        for declared in (STDIO, f"mcp: '{http.url}'"):
            kept = Kept()
            uris = ["notes://text", web, "notes://gone", "file:///etc/passwd", "notes://image", "notes://large"]
            assert await call(runner, "linked", declared, files=kept, uris=uris) == [
                {"type": "text", "text": "See"},
                {"type": "document", "source": {"type": "file", "value": "n0", "mimeType": "text/markdown"}},
                *(link(uri, n) for n, uri in enumerate(uris) if n in (1, 2, 3)),
                {"type": "image", "source": {"type": "file", "value": "n4", "mimeType": "image/png"}},
                link("notes://large", 5),
            ]
            assert sorted(kept.stored) == [(b"# A note", "text/markdown", "n0"), (b"hi", "image/png", "n4")]
            assert await call(runner, "add", declared, a=1, b=1) == {"sum": 2}, "the connection is there"


async def test_nothing_is_stored_of_a_result_that_is_refused() -> None:
    async with runner_of(bytes_max=20_000) as runner:
        kept = Kept()
        for uris in (["notes://image"] * 100, ["notes://image", f"notes://{'x' * 20_000}"]):
            fault = await failure(runner, "linked", files=kept, uris=uris)
            assert (fault.code, fault.retriable) == ("tool.invalid_result", False)
        assert kept.stored == []


async def test_a_line_that_is_too_long_ends_its_call_and_no_other() -> None:
    async with runner_of(bytes_max=20_000) as runner:
        await call(runner, "add", a=1, b=1)
        (connection,) = runner._connections.values()
        owner = connection._owner
        fault = await failure(runner, "large", characters=3_000_000)
        assert (fault.code, "more than 40000 bytes" in fault.message) == ("tool.invalid_result", True)
        assert await call(runner, "add", a=1, b=1) == {"sum": 2}
        assert connection._owner is owner


async def test_a_program_gets_its_declared_environment_and_no_secret_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_FLOW_SECRET_OTHER", "hidden")
    declared = STDIO.replace("env: {", "env: {TOKEN: 'k ${{ secrets.FILES }}', ")
    async with runner_of(secrets=Secrets({"FILES": "abc"})) as runner:
        env = await call(runner, "env", declared)
    assert "TOKEN=k abc" in env
    assert "hidden" not in env


async def test_one_program_serves_many_calls_at_once(tmp_path: Path) -> None:
    async with runner_of() as runner:
        sums = await asyncio.gather(*(call(runner, "add", a=n, b=1) for n in range(20)))
        assert [each["sum"] for each in sums] == list(range(1, 21))
        assert len(runner._connections) == 1


async def test_headers_and_tokens_go_to_the_address(tmp_path: Path) -> None:
    declared = "mcp: {{url: '{}', auth: '${{{{ secrets.ERP }}}}', headers: {{X-Team: a}}}}"
    async with runner_of(secrets=Secrets({"ERP": "abcdef"})) as runner, http_server() as http:
        await call(runner, "add", declared.format(http.url), a=1, b=1)
        assert {each["authorization"] for each in http.received} == {"Bearer abcdef"}
        assert {each["x-team"] for each in http.received} == {"a"}


async def test_offered_functions_have_names_schemas_and_trusted_effects() -> None:
    trusted = f"{{ours: {{command: {values.dumps(COMMAND).decode()}, env: {{PYTHONPATH: '{ROOT}'}}, trusted: true}}}}"
    async with runner_of(trusted) as runner:
        ours = tool_of("mcp: {use: ours}, allow: [add, text, gone]")
        add, text = await runner.offered("t", ours)
        assert (add.name, add.description, add.effect) == ("t.add", "Adds two numbers.", "read")
        assert add.parameters["required"] == ["a", "b"]
        assert text.effect == "write"
        (own,) = await runner.offered("t", tool_of(f"{STDIO}, allow: [add]"), from_disk=True)
        assert own.effect == "write"
        (own,) = await runner.offered("t", tool_of(f"{STDIO}, allow: [add], effect: read"), from_disk=True)
        assert own.effect == "read"


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        (types.ToolAnnotations(read_only_hint=True, destructive_hint=True), "read"),
        (types.ToolAnnotations(destructive_hint=True), "irreversible"),
        (types.ToolAnnotations(destructive_hint=False, open_world_hint=False), "external"),
        (types.ToolAnnotations(read_only_hint=False), "write"),
        (types.ToolAnnotations(), "write"),
        (None, "write"),
    ],
)
def test_only_a_trusted_servers_hints_give_the_class_and_none_skips_gates(
    hints: types.ToolAnnotations | None, effect: str
) -> None:
    offered = types.Tool(name="do", input_schema={"type": "object"}, annotations=hints)
    said_nothing = tool_of("mcp: {use: ours}")
    assert classify(said_nothing, offered, trusted=True) == effect
    assert classify(said_nothing, offered, trusted=False) == "write"
    assert classify(tool_of("mcp: {use: ours}, effect: reversible"), offered, trusted=True) == "reversible"


def tool_of(declared: str) -> Any:
    verb = step_of("t.add", declared).verb
    assert isinstance(verb, Call)
    return verb.tool


# --- how it fails -----------------------------------------------------------------------------------------------------


async def test_arguments_that_do_not_fit_are_not_sent(tmp_path: Path) -> None:
    async with runner_of() as runner:
        fault = await failure(runner, "add", a="two", b=1)
        assert (fault.code, fault.retriable) == ("tool.invalid_arguments", False)
        assert "/a" in fault.message


async def test_a_function_that_is_not_there_is_told_with_those_that_are() -> None:
    async with runner_of() as runner:
        fault = await failure(runner, "ad")
        assert (fault.code, fault.retriable) == ("tool.unavailable", False)
        assert "did you mean `add`?" in fault.message


async def test_a_result_that_is_too_large_is_refused() -> None:
    async with runner_of(bytes_max=20_000) as runner, http_server() as http:
        for declared in (STDIO, f"mcp: '{http.url}'"):
            assert len(await call(runner, "large", declared, characters=10_000)) == 10_000
            for characters in (19_999, 30_000):
                fault = await failure(runner, "large", declared, characters=characters)
                assert fault.code == "tool.invalid_result", fault
        assert await call(runner, "add", f"mcp: '{http.url}'", a=1, b=1) == {"sum": 2}


async def test_a_program_that_can_not_be_started_or_says_nothing_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp_connections, "START_SECONDS", 0.5)
    silent = values.dumps([sys.executable, "-c", "import time; time.sleep(600)"]).decode()
    chatty = values.dumps([sys.executable, "-c", "print('hello', 'x' * 100)"]).decode()
    async with runner_of() as runner:
        for command in ("[/no/such/program]", silent, chatty):
            fault = await failure(runner, "add", f"mcp: {{command: {command}}}", a=1, b=1)
            assert (fault.code, fault.retriable) == ("mcp.unavailable", True), command


_ENDS_AT_AN_EMPTY_CURSOR = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    params = asked.get("params") or {}
    if params.get("cursor") == "":
        sys.exit(1)
    results = {
        "initialize": {"protocolVersion": params.get("protocolVersion"), "capabilities": {"tools": {}},
                       "serverInfo": {"name": "x", "version": "1"}},
        "tools/list": {"tools": [{"name": "ok", "inputSchema": {"type": "object"}}], "nextCursor": ""},
        "tools/call": {"content": [{"type": "text", "text": "ok"}]},
    }
    if "id" in asked:
        error = {"error": {"code": -32601, "message": "no"}}
        end = {"result": results[asked["method"]]} if asked["method"] in results else error
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **end}), flush=True)
"""


async def test_a_program_that_ends_at_an_empty_cursor_is_called() -> None:
    command = values.dumps([sys.executable, "-c", _ENDS_AT_AN_EMPTY_CURSOR]).decode()
    async with runner_of() as runner:
        assert await call(runner, "ok", f"mcp: {{command: {command}}}") == "ok"


async def test_a_dead_and_a_silent_address_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connections, "START_SECONDS", 0.5)
    async with runner_of() as runner:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            fault = await failure(runner, "add", f"mcp: 'http://127.0.0.1:{port}/mcp'", a=1, b=1)
            assert (fault.code, fault.retriable) == ("mcp.unavailable", True)
        fault = await failure(runner, "add", "mcp: 'http://127.0.0.1:9/mcp'", a=1, b=1)
        assert (fault.code, fault.retriable) == ("mcp.unavailable", True)


async def test_a_server_dying_in_a_write_leaves_a_doubt_and_is_restarted(tmp_path: Path) -> None:
    async with runner_of() as runner:
        assert isinstance(await failure(runner, "dies"), OutcomeLost)
        fault = await failure(runner, "dies", f"{STDIO}, effect: read")
        assert (fault.code, fault.retriable) == ("mcp.unavailable", True)
        assert await call(runner, "add", a=1, b=1) == {"sum": 2}


async def test_a_server_that_speaks_a_version_below_the_lowest_is_not_called() -> None:
    runner = McpRunner({}, Secrets(), (), HttpConfig(), "2099-01-01")
    try:
        with pytest.raises(StepError, match="takes none below 2099-01-01") as refused:
            await call(runner, "add", a=1, b=2)
        assert (refused.value.code, refused.value.retriable) == ("mcp.unavailable", False)
    finally:
        await runner.close()


async def test_a_server_that_comes_back_is_reached_again() -> None:
    async with runner_of() as runner:
        for stateless in (True, False):
            async with http_server(stateless=stateless) as http:
                declared = f"mcp: '{http.url}'"
                assert await call(runner, "add", declared, a=1, b=1) == {"sum": 2}
            assert (await failure(runner, "add", declared, a=1, b=1)).code in ("mcp.unavailable", "step.in_doubt")
            async with http_server(stateless=stateless, port=http.port):
                await until(partial(again, runner, declared))


async def again(runner: McpRunner, declared: str) -> bool:
    try:
        return bool(await call(runner, "add", declared, a=1, b=1))
    except StepError as error:
        return error.code != "mcp.unavailable"


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(tmp_path: Path, monkeypatch: Any) -> None:
    ledger = tmp_path / "ledger"
    declared = STDIO.replace("env: {", f"env: {{LEDGER: '{ledger}', ")
    async with runner_of() as runner:
        waiting = asyncio.create_task(call(runner, "waits", declared))
        await until(lambda: ledger.exists() or waiting.done())
        waiting.cancel()
        await asyncio.wait([waiting])
        await until(lambda: ledger.read_text() == "waits\ncancelled\n")
        assert await call(runner, "add", declared, a=1, b=1) == {"sum": 2}


async def test_no_program_outlives_the_runner(tmp_path: Path) -> None:
    async with runner_of() as runner:
        env = await call(runner, "env")
        assert "PATH=" in env
        (connection,) = runner._connections.values()
        assert connection._owner is not None
    assert connection._owner.done()


class Remembered:
    """Pins in memory."""

    def __init__(self, **known: str) -> None:
        self.all = dict(known)

    async def known(self) -> dict[str, str]:
        return self.all

    async def add(self, found: Mapping[str, str]) -> dict[str, str]:
        self.all = {**found, **self.all}
        return self.all


async def test_a_function_is_believed_the_first_time_and_offered_as_it_was_then() -> None:
    tool = tool_of(f"{STDIO}, allow: [add, text]")
    pins = Remembered()
    async with runner_of() as runner:
        for _ in range(2):
            offered = await runner.offered_to("t", tool, pins, workflow="w", from_disk=True)
            assert [each.name for each in offered] == ["t.add", "t.text"]
        assert set(pins.all) == {"t.add", "t.text"}
        pins.all["t.add"] = "another"
        with pytest.raises(StepError) as raised:
            await runner.offered_to("t", tool, pins, workflow="w", from_disk=True)
        assert (raised.value.code, raised.value.retriable) == ("mcp.tool_changed", False)


async def test_a_function_that_came_after_the_publication_is_not_offered() -> None:
    tool = tool_of(f"{STDIO}, allow: [add, text]")
    async with runner_of() as runner:
        pins = Remembered()
        await runner.offered_to("t", tool, pins, workflow="w", from_disk=True)
        del pins.all["t.text"]
        pins.all["t"] = LISTED
        offered = await runner.offered_to("t", tool, pins, workflow="w", from_disk=True)
        assert [each.name for each in offered] == ["t.add"]


async def test_a_call_without_token_is_unauthorized_and_credentials_get_one() -> None:
    oauth = "{{url: '{}', oauth: {{issuer: '{}', client_id: flow, client_secret: '${{{{ secrets.ERP }}}}'}}}}"
    async with http_server(token="good") as http:
        issuer = f"http://127.0.0.1:{http.port}"
        catalogue = f"{{erp: {oauth.format(http.url, issuer)}, other: {oauth.format(http.url, 'http://127.0.0.1:9')}}}"
        async with runner_of(catalogue, Secrets({"ERP": "abcdef"})) as runner:
            for auth in ("", ", auth: bad"):
                fault = await failure(runner, "add", f"mcp: {{url: '{http.url}'{auth}}}", a=1, b=1)
                assert (fault.code, fault.retriable) == ("mcp.unauthorized", False)
            assert http.received == []
            assert await call(runner, "add", "mcp: {use: erp}", from_disk=False, a=1, b=1) == {"sum": 2}
            assert await call(runner, "add", f"mcp: {{url: '{http.url}', auth: good}}", a=1, b=1) == {"sum": 2}
            fault = await failure(runner, "add", "mcp: {use: other}", a=1, b=1)
            assert fault.code == "mcp.unavailable"
            assert "issuer" in fault.message


# --- where it leads nowhere -------------------------------------------------------------------------------------------


async def test_a_published_workflow_starts_only_programs_of_the_deployment() -> None:
    catalogue = f"{{files: {{command: {values.dumps(COMMAND).decode()}, env: {{PYTHONPATH: '{ROOT}'}}}}}}"
    async with runner_of(catalogue) as runner:
        fault = await failure(runner, "add", from_disk=False, a=1, b=1)
        assert (fault.code, fault.retriable) == ("tool.not_allowed", False)
        assert "HAI_FLOW_MCP" in (runner.fault(step_of("t.add", STDIO)) or "")
        assert runner.fault(step_of("t.add", STDIO), from_disk=True) is None
        assert await call(runner, "add", "mcp: {use: files}", from_disk=False, a=1, b=1) == {"sum": 2}
        fault = await failure(runner, "add", "mcp: {use: filse}", from_disk=False)
        assert (fault.code, "did you mean `files`?" in fault.message) == ("mcp.not_configured", True)


async def test_a_published_address_goes_where_the_guard_allows_it() -> None:
    async with http_server() as http:
        declared = f"mcp: '{http.url}'"
        async with runner_of() as runner:
            fault = await failure(runner, "add", declared, from_disk=False, a=1, b=1)
            assert (fault.code, fault.retriable) == ("http.refused", False)
            assert http.received == []
        async with runner_of(hosts=("127.0.0.1",)) as runner:
            assert await call(runner, "add", declared, from_disk=False, a=1, b=1) == {"sum": 2}


@pytest.mark.parametrize("url", ["https://nowhere.invalid/mcp", "http://127.0.0.1:9/mcp"])
async def test_an_absent_server_is_reported_as_by_a_connection_without_the_sdk(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[str] = []
    import_module = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: imported.append(name) or import_module(name))
    faults = []
    for is_loaded in (False, True):
        async with runner_of() as runner:
            runner._loaded = is_loaded
            fault = await failure(runner, "add", f"mcp: '{url}'", from_disk=False)
            faults.append((fault.code, fault.message, fault.retriable))
    assert faults[0] == faults[1]
    assert imported == []


async def test_a_published_workflow_sends_secrets_only_to_their_hosts() -> None:
    bound = Source(hosts=("127.0.0.1",), workflows=("other",))
    secrets = Secrets({"A": "abcdef", "B": "bcdefg"}, {"A": Source(hosts=("erp.test",)), "B": bound})
    async with runner_of(secrets=secrets, hosts=("127.0.0.1",)) as runner, http_server() as http:
        for name in "AB":
            declared = f"mcp: {{url: '{http.url}', auth: '${{{{ secrets.{name} }}}}'}}"
            assert (await failure(runner, "add", declared, from_disk=False)).code == "secret.refused"
        assert http.received == []
        fault = await failure(runner, "add", f"mcp: {{url: '{http.url}', auth: '${{{{ secrets.C }}}}'}}")
        assert fault.code == "secret.missing"


def test_a_catalogue_s_mistakes_are_told_with_their_places() -> None:
    source = (
        "hai: mcp/v1\nservers:\n  a: {url: 'https://a', oauth: {issuer: 'https://b', client_id: c}}\n  b: {use: c}\n"
    )
    _, findings = read_mcp_catalogue(source.encode(), "f")
    assert [(each.line, each.code) for each in findings] == [(3, "shape.missing_key"), (4, "tool.mcp")]


@pytest.mark.parametrize(
    ("server", "code"),
    [
        ("{mcp: {command: [a], url: 'https://a'}}", "tool.mcp"),
        ("{mcp: {}}", "tool.mcp"),
        ("{mcp: 7}", "shape.value"),
        ("{mcp: {command: ['${{ input.a }}']}}", "tool.hole"),
        ("{mcp: {url: 'ftp://a'}}", "tool.mcp"),
        ("{mcp: {command: [a], headers: {}}}", "shape.unknown_key"),
        ("{mcp: {url: 'https://a'}, auth: x}", "tool.mcp"),
        ("{mcp: {url: 'https://a', headers: {A: '${{ input.a }}'}}}", "expression.unknown_name"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_a_finding(server: str, code: str) -> None:
    head = "hai: flow/v1\nname: a\nversion: 1\ninput: {type: object, properties: {a: {type: string}}}\n"
    source = f"{head}tools: {{t: {server}}}\nsteps: [{{say: hi}}]\n"
    assert [each.code for each in check_workflow(source.encode(), "f")] == [code]


def test_a_secret_that_is_cut_in_two_by_the_bound_of_a_receipt_is_hidden() -> None:
    secret = "a-secret-that-is-long"
    remember(secret)
    receipt = CallReceipt()
    receipt.begin(lambda: b"x" * (SAID_CHARS_MAX - 5) + secret.encode())
    receipt.note_progress({"done": 1, "message": secret})
    described = receipt.describe()
    assert "a-secret" not in values.dumps(described).decode()
    assert (len(described["text"]), described["progress"]["done"]) == (SAID_CHARS_MAX + 1, 1)
    receipt.note_result({"content": [{"type": "text", "text": "done"}]})
    assert "done" in receipt.describe()["text"]
    assert CallReceipt().describe() is None
