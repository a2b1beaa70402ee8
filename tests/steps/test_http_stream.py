"""Bodies that stream into a message: said while they come, bounded, and given up when nothing comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow import values
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.expressions.expressions import CompiledExpression
from hai_flow.definition.plan import Expression, Template
from hai_flow.errors import StepError
from hai_flow.steps.guard import Guard
from hai_flow.steps.http import HttpRunner
from hai_flow.steps.http_stream import Event, Events
from hai_flow.steps.http_transport import HttpConfig
from hai_flow.steps.runner import Attempt
from hai_flow.steps.secrets import Secrets
from tests.runtime.conftest import Make, is_now, start, state_of
from tests.runtime.conftest import make as make
from tests.support.service import Received, Reply, Service
from tests.support.waiting import until

EVENTS = "text/event-stream"


class Said:
    """What an attempt says."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.came = asyncio.Event()

    async def __call__(self, text: str, kind: str = "text") -> None:
        self.pieces.append(text)
        self.came.set()


async def streamed(http: Mapping[str, Any], said: Said, **config: Any) -> Any:
    document = {
        "hai": "flow/v1",
        "name": "asks",
        "version": 1,
        "steps": [{"id": "a", "http": {**http, "stream": "text"}}],
    }
    step = compile_workflow(json.dumps(document).encode()).steps["a"]

    def evaluate(uses: Expression | Template, /, **names: Any) -> Any:
        return uses.evaluate(names) if isinstance(uses, CompiledExpression) else cast(Template, uses).render(names)

    args = values.dumps(step.verb.arguments.render({})).decode()  # type: ignore[union-attr]
    runner = HttpRunner(Guard(("127.0.0.1",)), Secrets(), HttpConfig(**config))
    try:
        return await runner.perform(Attempt("r", "a", 1, args, step, evaluate=evaluate), cast(Any, said))
    finally:
        await runner.close()


def giving(body: bytes, kind: str = EVENTS, **more: Any) -> Callable[[Received], Reply]:
    return lambda received: Reply(body=body, type=kind, **more)


async def test_what_events_say_is_said_and_is_the_text_of_the_output() -> None:
    said, body = (
        Said(),
        b": hello\nevent: token\nid: 1\ndata: One\n\ndata: and\ndata: two\r\n\r\nretry: 5\n\ndata: cut off",
    )
    async with Service(giving(body)) as service:
        output = await streamed({"get": service.url()}, said)
    assert said.pieces == ["One", "and\ntwo"]
    assert (output["status"], output["text"], output["json"]) == (200, "Oneand\ntwo", None)


@pytest.mark.parametrize(("kind", "body"), [(EVENTS, b"data: One\n\n"), ("text/plain", b"One")])
async def test_a_byte_order_mark_is_no_part_of_what_is_said(kind: str, body: bytes) -> None:
    async with Service(giving(b"\xef\xbb\xbf" + body, kind)) as service:
        assert (await streamed({"get": service.url()}, Said()))["text"] == "One"


async def test_a_piece_says_what_of_an_event_is_said() -> None:
    lines = [b'data: {"t": "Hel"}', b'data: {"t": "lo"}', b'data: {"usage": 3}', b"data: [DONE]"]
    async with Service(giving(b"\n\n".join([*lines, b""]))) as service:
        said = Said()
        piece = "${{ event.data == '[DONE]' ? null : event.json.?t.orValue(null) }}"
        output = await streamed({"get": service.url(), "piece": piece}, said)
        assert (said.pieces, output["text"]) == (["Hel", "lo"], "Hello")
        with pytest.raises(StepError, match="expected a text from `piece`, found 3"):
            await streamed({"get": service.url(), "piece": "${{ event.json.?usage.orValue(null) }}"}, Said())


async def test_a_text_is_said_as_it_comes_in_whole_characters_that_can_be_stored() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"gr\xc3", b"\xbc", b"n \x00", b"\xff."):
            yield piece
            await asyncio.sleep(0.01)

    said = Said()
    async with Service(lambda received: Reply(type="text/plain; charset=utf-8", pieces=pieces())) as service:
        output = await streamed({"get": service.url()}, said)
    assert "".join(said.pieces) == output["text"] == "grün \ufffd\ufffd."
    values.check(output)


async def test_pieces_are_said_before_the_rest_has_come() -> None:
    said = Said()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"data: first\n\n"
        await said.came.wait()
        yield b"data: second\n\n"

    async with Service(lambda received: Reply(type=EVENTS, pieces=pieces())) as service:
        assert (await streamed({"get": service.url()}, said))["text"] == "firstsecond"


async def test_any_other_body_and_what_is_no_success_is_read_as_a_whole() -> None:
    async with Service(giving(b'{"a": 1}', "application/json")) as service:
        said = Said()
        assert (await streamed({"get": service.url()}, said))["json"] == {"a": 1}
    async with Service(giving(b"data: no\n\n", status=500)) as service:
        with pytest.raises(StepError) as raised:
            await streamed({"get": service.url()}, said)
    assert (raised.value.code, said.pieces) == ("http.status", [])


async def test_a_body_without_an_end_is_cut_and_one_that_says_nothing_more_is_given_up() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"data: " + b"x" * 1000 + b"\n\n"

    async def one_line() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000

    async def silent() -> AsyncIterator[bytes]:
        yield b"data: a\n\n"
        await asyncio.sleep(600)

    for pieces, code, retriable in (
        (endless, "http.too_large", False),
        (one_line, "http.too_large", False),
        (silent, "http.connection", True),
    ):
        async with Service(lambda received, pieces=pieces: Reply(type=EVENTS, pieces=pieces())) as service:  # type: ignore[misc]
            with pytest.raises(StepError) as raised:
                await streamed({"get": service.url(), "idle": "1s"}, Said(), bytes_max=20_000)
        assert (raised.value.code, raised.value.retriable) == (code, retriable)


@given(st.lists(st.text("ab:\n\r ", max_size=12), max_size=8), st.lists(st.integers(1, 5), max_size=40))
def test_events_are_the_same_however_their_text_is_cut(datas: list[str], cuts: list[int]) -> None:
    text = "".join("".join(f"data: {line}\r\n" for line in data.splitlines() or [""]) + "\n" for data in datas)
    whole = [each.data for each in Events().fed(text)]
    events, found, at = Events(), list[Event](), 0
    for cut in cuts:
        found += events.fed(text[at : at + cut])
        at += cut
    found += events.fed(text[at:])
    assert [each.data for each in found] == whole


@pytest.mark.parametrize(
    ("http", "words"),
    [
        ('{get: "https://a.example", piece: "${{ event.data }}"}', "add `stream: text`"),
        ('{get: "https://a.example", idle: 5s}', "add `stream: text`"),
        ('{get: "https://a.example", stream: text, next: "${{ null }}"}', "a body that streams is one"),
        ('{get: "https://a.example", stream: text, piece: "${{ response.json }}"}', "response"),
        ('{get: "https://a.example", stream: text, idle: "${{ input.a }}"}', "here it is written out, without holes"),
    ],
)
def test_mistakes_are_found_before_anything_runs(http: str, words: str) -> None:
    found = check_workflow(f"hai: flow/v1\nname: a\nversion: 1\nsteps:\n  - {{id: a, http: {http}}}\n".encode())
    assert any(words in each.message for each in found if each.severity == "error"), found


async def test_in_a_run_the_body_is_a_message_and_that_of_a_failed_attempt_is_aborted(make: Make) -> None:
    asked = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal asked
        asked += 1
        yield b"data: Hello\n\n"
        if asked == 1:
            await asyncio.sleep(600)
        yield b"data: there\n\n"

    async with Service(lambda received: Reply(type=EVENTS, pieces=pieces())) as service:
        runtime = await make(performs=True, http_hosts=("127.0.0.1",))
        more = "stream: text, idle: 1s}, retry: {max: 1, every: 1ms}"
        body = f"steps: [{{id: a, http: {{get: '{service.url()}', {more}}}]\noutput: ${{{{ steps.a.output.text }}}}\n"
        run_id = (await start(runtime, body)).run_id
        await until(lambda: is_now(runtime, run_id, "finished", "failed"))
        state = await state_of(runtime, run_id)
    assert state.output == "Hellothere", state.error
    assert [(each.content, each.aborted) for each in sorted(state.messages.values(), key=lambda each: each.n)] == [
        ("Hello", True),
        ("Hellothere", False),
    ]
