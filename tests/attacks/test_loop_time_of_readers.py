"""As `test_loop_time`, at the doors behind which something is looked at again: schedules, versions that are compared,
questions that are written for people, approvals, cards of agents, receipts, and what was kept of a run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import tracemalloc
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hai_flow.api.app import create_app
from hai_flow.api.mcp import runs
from hai_flow.api.mcp.publishing import list_changed_lines
from hai_flow.definition.people.calendars import WORKING_DAYS_MAX, Calendar
from hai_flow.engine import events
from hai_flow.engine.commands import Principal, StepSucceeded
from hai_flow.engine.pendings.selectors import World, list_excluding_selectors, list_matching_selectors
from hai_flow.models.calls.arguments import Arguments
from hai_flow.models.calls.text_pieces import ThinkTags
from hai_flow.notify.channels import Slack
from hai_flow.notify.delivery import NotSent, Sender
from hai_flow.notify.letters import NoticeContent
from hai_flow.primitives.beside_loop import is_large, run_unless_short
from hai_flow.primitives.retry_after import retry_after
from hai_flow.runtime.commit import loader
from hai_flow.runtime.streams import fanout
from hai_flow.settings import Settings
from hai_flow.steps.hiding import Hider
from hai_flow.wire.a2a import older
from hai_flow.wire.a2a import tasks as a2a
from hai_flow.wire.mcp import RunView
from tests.attacks.test_loop_time import (
    JSON,
    LOOPS,
    Door,
    _at_x,
    _beside_others,
    _has_ended,
    client,
    schemas_,
    small_values_,
    stalls,
    values_,
)
from tests.attacks.work import DOCUMENTS, HEAD, SAY
from tests.foreign.reading import read
from tests.foreign.transcripts import DONE, Failed, Transcript, call, document, end, stream
from tests.runtime.conftest import Make, is_now
from tests.support.examples import examples, sample
from tests.support.server import YAML
from tests.support.stalls import STALL_SECONDS, Stalls
from tests.support.waiting import until

__all__ = ["client", "stalls"]

_ANY_X: Final = "input: {type: object, properties: {x: {}}}\n"

# --- what is thrown ---------------------------------------------------------------------------------------------------

_FIELDS: Final = ("*", "0", "29", "31", "*/7", "1-5", "L", "LW", "5#5", "1#5", "0-59", "59", "2", ",".join("0123456"))


def crons_() -> st.SearchStrategy[str]:
    """Dates that are rare, or never come, fields of many values, and what is no cron expression."""
    fields = st.sampled_from(_FIELDS)
    rare = ["0 0 29 2 1#5", "0 0 29 2 *", "0 0 31 2 *", "59 23 31 12 7", ",".join(map(str, range(60))) + " * * * *"]
    wrong = [",".join(["0-59"] * 20_000) + " * * * *", "H(" * 3_000 + " * * * *", "cron(" + "a " * 50_000, "@" * 9_999]
    return st.sampled_from([*rare, *rare, *wrong]) | st.tuples(*[fields] * 5).map(" ".join)


_LINES: Final = (
    "`a", "`` a ", "![", "[", "*a ", "**a ", " _a", "~~a~ ", "- ", "|-", "|a", "\\*", "\\|", "# ", "* * a",
    "```", "[a](", "~~~~", "|`a", "\u4e00", "\u202e", "\u0430a ", "\U0001f600\u200d", "> ", "http://a.b", "&<>", "\x01",
)  # fmt: skip


def markdowns_() -> st.SearchStrategy[str]:
    """Texts of at most 300,000 characters of one mark: in one line, in lines, in a table."""

    def make(mark: str, length: int, shape: int) -> str:
        line = mark * max(1, length // len(mark))
        if shape == 1:
            return f"|a{line}\n|-{'|-' * line.count('|')}\n" + "|b\n" * 20_000
        return (f"{line}\n" * (300_000 // (len(line) + 1) + 1))[:300_000]

    return st.builds(make, st.sampled_from(_LINES), st.sampled_from([1, 90, 4_000, 9_998, 90_000]), st.integers(0, 1))


# --- the doors --------------------------------------------------------------------------------------------------------


async def schedules(door: Door) -> None:
    """Many schedules: published, listed, their next times, paused and resumed."""
    crons = await door.draw(st.lists(crons_(), min_size=1, max_size=4))
    rule = [json.dumps({"schedule": {"cron": cron, "timezone": "Europe/Berlin"}}) for cron in crons]
    text = f"{HEAD}triggers: [{', '.join((rule * 300)[:300])}]\nsteps: [{{say: hi}}]\n"
    await door.client.post("/v1/workflows/validate", content=text.encode(), headers=YAML)
    await door.publish(text)
    listed = (await door.client.get("/v1/schedules", params={"limit": 200})).json()["items"]
    for schedule in listed[:2]:
        await door.client.get(f"/v1/schedules/{schedule['id']}/fires", params={"limit": 50})
        for act in ("pause", "resume"):
            await door.client.post(f"/v1/schedules/{schedule['id']}/{act}")


async def working_days(door: Door) -> None:
    """A deadline in as many working days as there may be, with a year of holidays before it."""
    days, weekday = await door.draw(st.tuples(st.integers(1, 366), st.integers(0, 6)))
    holidays = tuple(f"2027-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29))[:days]
    calendar = Calendar("Europe/Berlin", (weekday,), holidays=holidays)

    async def count() -> None:
        calendar.ahead(1_800_000_000_000, WORKING_DAYS_MAX).add(1_800_000_000_000, WORKING_DAYS_MAX)

    await _beside_others(count)


async def two_versions(door: Door) -> None:
    """Versions of thousands of steps: compared, held against the runs of the first, and runs moved to the second."""
    count, shift, verb = await door.draw(
        st.tuples(st.sampled_from([30, 2_500]), st.sampled_from([0, 1, 7]), st.sampled_from(["say: hi", "let: {a: b}"]))
    )
    head = HEAD + "steps:\n" + "  - {id: first, ask: {title: Hm, from: anyone, form: {type: object}}}\n"
    lines = [f"  - {{say: hi {number}}}\n" for number in range(count)]
    name = await door.publish(head + "".join(lines))
    if name is None or await door.start(name) is None:
        return
    after = [f"  - {{{verb} {number * shift % count}}}\n" for number in range(count)]
    text = (head.replace("id: first", "id: other") + "".join(after)).replace("name: work", f"name: {name}")
    text = text.replace("version: 1", "version: 2")
    await door.client.post(f"/v1/workflows/{name}/backtest", content=text.encode(), headers=YAML)
    answer = await door.client.post("/v1/workflows", content=text.encode(), headers=YAML)
    if answer.status_code == 201:
        await door.client.get(f"/v1/workflows/{name}/diff", params={"from": "1", "to": "2"})
        move = {"from": "1", "to": "2", "dry_run": True}
        answer = await door.client.post(f"/v1/workflows/{name}/migrate", json=move)
        assert answer.status_code == 200, answer.text


async def lines_of_two_versions(door: Door) -> None:
    first, second = await door.draw(st.tuples(*[st.sampled_from([source for source, _ in DOCUMENTS.values()])] * 2))
    kinds = await door.draw(st.sampled_from([1, 50, 999]))
    more = [f"{number % kinds}" for number in range(4_000)]
    before, after = [*first[:50_000].splitlines(), *more], [*second[:50_000].splitlines(), *more[::-1]]
    await asyncio.to_thread(list_changed_lines, before, after, ("a@1", "a@2"))  # as those who check do


class _Poster:
    async def post(self, url: str, body: bytes, headers: Any) -> None:
        """Nobody is there."""

    async def close(self) -> None:
        """Nothing is open."""


async def a_letter(door: Door) -> None:
    """The message of a question, as text in a letter and in a chat."""
    message = await door.draw(markdowns_())
    sender = Sender.__new__(Sender)
    sender._secrets, sender._poster = {"S": "https://hooks.example/x"}, _Poster()  # type: ignore[assignment]
    notice = NoticeContent("opened", "p", "r", "w", "ask", "Hm" * 99, message, datetime.now(UTC))
    with contextlib.suppress(NotSent):
        await asyncio.create_task(sender.send(Slack(url="S"), "1", notice, "", None, datetime.now(UTC)))


async def a_question(door: Door) -> None:
    """A question whose text and evidence the requester wrote, asked of whom they list, in each list that shows it."""
    from_ = await door.draw(st.sampled_from(["anyone", "requester", "'${{ input.who }}'"]))
    ask = f"{{id: a, approve: {{title: Hm, message: '${{{{ input.x }}}}', from: {from_}, exclude: []}}}}"
    head = HEAD + "input: {type: object, properties: {x: {type: string}, who: {}}}\n"
    name = await door.publish(f"{head}steps: [{ask}]\n")
    who = [f"user:u{number}" for number in range(3_000)]
    sent = await door.draw(markdowns_(), lambda text: json.dumps({"x": text, "who": who}))
    if name is None or (run := await door.start(name, sent)) is None:
        return
    for path in (f"/v1/pendings?run_id={run}", "/v1/inbox", f"/v1/runs/{run}", f"/v1/runs/{run}/steps", "/v1/pendings"):
        assert (await door.client.get(path)).status_code < 500
    page = await door.client.get("/v1/pendings", params={"run_id": run})
    for pending in page.json()["items"]:
        await door.client.get(f"/v1/pendings/{pending['id']}")
        await door.client.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve", "reason": "a"})
        await door.client.get(f"/v1/pendings/{pending['id']}/receipt")


async def selectors(door: Door) -> None:
    """Thousands of selectors of a question, held against somebody with thousands of roles and groups."""
    count = await door.draw(st.sampled_from([10, 2_000]))
    names = [f"g{number}" for number in range(count)]
    person = Principal("user:ann", tuple(names), tuple(names), aliases=tuple(f"user:{name}" for name in names))
    listed = [f"{kind}:{name}x" for name in names for kind in ("role", "group", "user")]
    world = World("user:bob", {"boss": tuple(listed)})

    async def match() -> None:
        list_matching_selectors([*listed, "role:boss"], person, world)
        list_excluding_selectors([*listed, "requester"], person, world)

    await _beside_others(match)


async def a_call_that_is_approved(door: Door) -> None:
    """The digest of arguments as large as a body may be."""
    content = await door.draw(
        values_() | small_values_(), lambda value: json.dumps({"action": "pay", "arguments": {"x": value}}).encode()
    )
    answer = await door.client.post("/v1/approvals", content=content, headers=JSON)
    assert answer.status_code in (201, 413, 422), answer.text[:300]
    if answer.status_code == 201:
        id = answer.headers["location"]
        assert (await door.client.get(id)).status_code == 200
        (await door.client.post(f"{id}/consume", content=content, headers=JSON)).read()


_LISTING: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
_ACCEPT: Final = {"Accept": "application/json, text/event-stream"}


async def canaries(door: Door) -> None:
    """A canary with as much evidence as a question may have; its question in each list that shows it."""
    approve = "{id: a, approve: {title: Hm, from: anyone, exclude: [], evidence: '${{ input.x }}'}}"
    name = await door.publish(f"{HEAD}{_ANY_X}steps: [{approve}]\n")
    assert name is not None, "or nothing is tried here"
    await door.start(name, '{"x": 1}')
    seeded = {"workflow": name, "path": "a", "reason": "no"}
    content = await door.draw(small_values_(), lambda value: json.dumps({**seeded, "evidence": value}).encode())
    for path in ("/v1/canaries", "/v1/inbox", "/v1/pendings"):
        if path == "/v1/canaries":
            await door.client.post(path, content=content, headers=JSON)
        assert (await door.client.get(path)).status_code == 200


async def cards_of_agents(door: Door) -> None:
    """The cards and lists of tools of workflows with large schemas and long descriptions."""
    schema = await door.draw(schemas_(), lambda inner: json.dumps({"type": "object", "properties": {"x": inner}}))
    words = json.dumps(await door.draw(markdowns_(), lambda text: text[:20_000]))
    name = await door.publish(f"{HEAD}description: {words}\ninput: {schema}\nsteps: [{{say: hi}}]\n")
    await door.client.post("/mcp", json=_LISTING, headers=_ACCEPT)
    card: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}
    await door.client.post("/a2a", json=card, headers={"A2A-Version": "1.0"})
    await door.client.get("/.well-known/agent-card.json")
    if name is not None:
        await door.client.get(f"/v1/workflows/{name}")
        await door.client.get(f"/workflows/{name}/a2a/.well-known/agent-card.json")


async def a_condition_that_still_holds(door: Door) -> None:
    """`still:` over a value of the requester's, looked at again when the effect begins."""
    source = (await door.draw(st.sampled_from(LOOPS))).replace("X", "input.x") + " && state.open"
    gate = json.dumps({"from": "anyone", "exclude": [], "still": source})
    head = f"{HEAD}{_ANY_X}state: {{open: {{type: boolean, default: true}}}}\n"
    head += "tools: {e: {python: tests.support.effects, effect: write}}\n"
    name = await door.publish(f"{head}steps: [{{id: a, call: e.echo, with: {{value: 1}}, approval: {gate}}}]\n")
    assert name is not None, "or nothing is tried here"
    if (run := await door.start(name, await door.draw(small_values_(), _at_x))) is None:
        return
    for pending in (await door.client.get("/v1/pendings", params={"run_id": run})).json()["items"]:
        await door.client.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"})


_KEPT: Final = ("", "/steps", "/events?limit=50", "/events?after=2")


async def events_of_a_run(door: Door) -> None:
    """A run with a large value: its view, steps and events, as REST shows them."""
    name = await door.publish(f"{HEAD}{_ANY_X}steps: [{{let: {{v: '${{{{ input.x }}}}'}}}}, {{say: '${{{{ v }}}}'}}]\n")
    if name is None or (run := await door.start(name, await door.draw(values_(), _at_x))) is None:
        return
    await until(lambda: _has_ended(door, run))
    for path in _KEPT:
        answer = await door.client.get(f"/v1/runs/{run}{path}", headers={"Accept": "application/json"})
        assert answer.status_code < 500, answer.text[:300]


_SECRET: Final = "ab" * 10


async def secrets_of_a_result(door: Door) -> None:
    """Values that are hidden in a text which nearly has them, thousands of times."""
    count = await door.draw(st.sampled_from([1, 20, 400]))
    hider = Hider(500)
    for number in range(count):
        hider.add(f"{_SECRET}{number}")
    text = await door.draw(
        st.sampled_from([_SECRET, "ab", "a", _SECRET[:-1] + "x", "\u00e4"]), lambda one: one * 20_000
    )
    await _beside_others(run_unless_short, text, hider.hide, text)


DOORS: Final[list[Callable[[Door], Awaitable[None]]]] = [
    schedules, working_days, two_versions, lines_of_two_versions, a_letter, a_question, selectors,
    a_call_that_is_approved, cards_of_agents, canaries,
    a_condition_that_still_holds, events_of_a_run, secrets_of_a_result,
]  # fmt: skip


async def _open_all(client: httpx2.AsyncClient) -> None:
    """The first that comes to each door imports what that needs."""
    await client.post("/mcp", json=_LISTING, headers=_ACCEPT)
    await client.post("/v1/workflows", content=(HEAD + SAY).encode(), headers=YAML)
    run = (await client.post("/v1/runs", json={"workflow": "work"})).json()["id"]
    for path in _KEPT:
        await client.get(f"/v1/runs/{run}{path}", headers={"Accept": "application/json"})


@pytest.mark.timeout(900)
@pytest.mark.parametrize("door", sample(DOORS, 4), ids=lambda door: door.__name__)
@given(data=st.data())
@settings(
    max_examples=examples(4), deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@pytest.mark.costly
async def test_nothing_that_is_looked_at_again_takes_long_in_one_go(
    client: httpx2.AsyncClient, stalls: Stalls, door: Callable[[Door], Awaitable[None]], data: st.DataObject
) -> None:
    opened = Door(client, data, stalls)
    await _open_all(client)
    stalls.forget()
    await door(opened)
    await opened.measure()
    assert opened.longest < STALL_SECONDS, opened.what


_MARKS: Final = (
    "<a>", "</tool_call>", "<|a|>", "<|", "```", "{}", '""', '{"a": 1}', "null ", " ", "<", "<title>", "retry ", "wait",
    "1", "1 ", "s", "1,",
)  # fmt: skip
_SIGN: Final = "a mark of 24,000 characters, and a letter behind it"


@pytest.mark.parametrize("place", [
    stream(call(0, "c", "add", '{"a": 1}' + _SIGN), end("tool_calls"), DONE),
    stream(call(0, "c", "add", _SIGN), end("tool_calls"), DONE),
    stream(call(0, "c", "functions.add" + _SIGN, "{}"), end("tool_calls"), DONE),
    stream(call(0, "c", "add", "{}"), end(_SIGN), DONE),
    document({"error": {"message": "wait" + _SIGN}}),
    f"<html>{_SIGN}</html>".encode(),
    stream(call(0, "c", "add", "{}")) + f"data: <{_SIGN}\n\n".encode(),
    _SIGN.encode(),
], ids=lambda place: place.decode()[-40:])  # fmt: skip
async def test_one_mark_again_and_again_from_a_model_takes_no_time(stalls: Stalls, place: bytes) -> None:
    async def answer(mark: str) -> None:
        text = mark * (24_000 // len(mark)) + "x"
        body = place.replace(_SIGN.encode(), json.dumps(text)[1:-1].encode())
        read(Transcript("marks", body, Failed("")), [body])
        retry_after({"retry-after": text})

    await answer("a")
    stalls.forget()
    for mark in _MARKS:
        await _beside_others(answer, mark)
        assert stalls.longest < STALL_SECONDS, (mark, stalls.longest)


_LONG: Final = 100_000  # characters that came before


@pytest.mark.parametrize(("first", "piece", "opened"), [
    ('{"a": "', "abcd", None), ('"{\\"a\\": ', "abcd", None), ("{", "    ", None), ("call: ", "abcd", None),
    ("[", "1, 1", None), ("", "  \n ", True), ("", "\n\n\n\n", False), ("<think>", "abcd", False),
])  # fmt: skip
def test_a_piece_costs_nothing_for_those_before_it(first: str, piece: str, opened: bool | None) -> None:
    tags, arguments = ThinkTags(opened=bool(opened)), Arguments()
    take: Callable[[str], Any] = arguments.take if opened is None else lambda text: list(tags.read(text))
    for each in (first, *[piece] * (_LONG // 4)):
        take(each)
    assert _allocated_by(lambda: take(piece)) < _LONG / 10


def test_a_tag_costs_nothing_for_the_text_behind_it() -> None:
    pieces = ThinkTags().read("<think>a</think>b" * (_LONG // 17))
    next(pieces)
    assert _allocated_by(lambda: next(pieces)) < _LONG / 10


def _allocated_by(work: Callable[[], Any]) -> int:
    """How many bytes were held at most while it worked."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- by the thread, where it is too short to be told by its time ------------------------------------------------------

_SLOW: Final = (
    (events, "decode_events"), (loader, "decode_state"), (fanout, "_piece"), (a2a, "task_of"), (a2a, "read_names"),
    (a2a, "read_message"), (older, "convert_to_old"), (runs, "result_of"),
)  # fmt: skip


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that worked on something large in the thread of the loop."""
    names: list[str] = []

    def watch(module: Any, name: str) -> None:
        function = getattr(module, name)

        def watched(*args: Any, **more: Any) -> Any:
            result = function(*args, **more)
            states = [each.state for each in args if isinstance(each, RunView)]
            if threading.current_thread() is threading.main_thread() and is_large([*args, *states, result]):
                names.append(name)
            return result

        monkeypatch.setattr(module, name, watched)

    for module, name in _SLOW:
        watch(module, name)
    return names


@pytest.mark.costly
async def test_large_values_are_read_and_written_beside_the_loop(make: Make, on_loop: list[str]) -> None:
    """By a process that has the run, and by one that loads it: REST, followers before and after, A2A and MCP."""
    large, ask = [{"a": "x"}] * 15_000, "{id: a, ask: {title: Hm, from: anyone, form: {properties: {x: {}}}}}"
    runtimes = [await make(performs=True, publish=True), await make(publish=True)]
    apps = [create_app(Settings(publish=True), each) for each in runtimes]
    warm, cold = [
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost", timeout=60)
        for app in apps
    ]
    text = f"{HEAD}{_ANY_X}steps: [{ask}, {{say: done}}]\noutput: {{x: '${{{{ input.x }}}}'}}\n"
    await warm.post("/v1/workflows", content=text.encode(), headers=YAML)
    run = (await warm.post("/v1/runs", json={"workflow": "work", "input": {"x": large}})).json()
    path, streamed = f"/v1/runs/{run['id']}", {"Accept": "text/event-stream"}
    follower = asyncio.create_task(cold.get(f"{path}/events", headers=streamed))
    await until(lambda: is_now(runtimes[0], UUID(run["id"]), "waiting"))
    await until(lambda: runtimes[1].fanout.followers)
    (pending,) = (await cold.get("/v1/pendings", params={"run_id": run["id"]})).json()["items"]
    await cold.post(f"/v1/pendings/{pending['id']}/decide", json={"values": {"x": large}})
    assert b"run_finished" in (await follower).content
    for name in ("", "?dialect=hai", "?dialect=agui"):
        await warm.get(f"{path}/events{name}", headers=streamed)
    await warm.get(f"{path}/replay", params={"speed": 100_000, "gap": 0})
    await cold.get(f"/api/v1/agent/runs/{run['thread_id']}/history")
    for method, version in (("GetTask", "1.0"), ("tasks/get", "0.3")):
        rpc = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": run["id"]}}
        answer = await cold.post("/workflows/work/a2a", json=rpc, headers={"A2A-Version": version})
        assert len(answer.content) > 100_000, answer.text[:300]
    call = {"name": "get_run", "arguments": {"run_id": run["id"]}}
    answer = await cold.post("/mcp", json={**_LISTING, "method": "tools/call", "params": call}, headers=_ACCEPT)
    assert '"truncated":true' in answer.text
    assert on_loop == []


class _Ambiguous:
    """A value of a tool that is neither true nor false, as arrays of numbers are."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


_PARTS: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.builds(_Ambiguous),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=20,
)


def _weigh(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return 16 * len(value) + sum(_weigh(key) + _weigh(each) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return 16 * len(value) + sum(map(_weigh, value))
    return 0


@given(value=_PARTS, most=st.integers(0, 400))
def test_a_value_is_large_by_its_texts_and_parts_whatever_holds_it(value: Any, most: int) -> None:
    assert is_large(value, most) == (_weigh(value) > most)
    command = StepSucceeded(path="a", attempt=1, output={"": value})
    assert is_large(command, most) == (_weigh(["a"]) - 16 + _weigh({"": value}) > most)
