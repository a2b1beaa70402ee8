"""Bodies that stream into a message: said while they come, bounded, and given up when nothing comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow import values
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.expressions.evaluation import CompiledExpression
from hai_flow.definition.plan import Expression, Template
from hai_flow.errors import StepError
from hai_flow.models.calls.text_pieces import TextJoiner
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.runner import HttpRunner
from hai_flow.steps.http.stream import Events, StreamEvent, Telling
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.steps.runner import Attempt
from hai_flow.steps.secrets import Secrets
from tests.runtime.conftest import Make, is_now, start, state_of
from tests.runtime.conftest import make as make
from tests.support.service import Received, Reply, Service
from tests.support.waiting import until

EVENTS = "text/event-stream"


class Said:
    """What an attempt says, as a run's message has it."""

    def __init__(self) -> None:
        self._joiner = TextJoiner()
        self.raw: list[str] = []
        self.pieces: list[str] = []
        self.came = asyncio.Event()

    async def __call__(self, text: str, kind: str = "text") -> None:
        self.raw.append(text)
        if text := values.storable(self._joiner.take(text)):
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

    async def evaluate(uses: Expression | Template, /, **names: Any) -> Any:
        return uses.evaluate(names) if isinstance(uses, CompiledExpression) else cast(Template, uses).render(names)

    args = values.dumps(step.verb.arguments.render({})).decode()  # type: ignore[union-attr]
    runner = HttpRunner(EgressGuard(("127.0.0.1",)), Secrets(), HttpConfig(**config))
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


@pytest.mark.parametrize(
    "odd", [b": a comment", b"retry: never", b"a line of no field", b"event:", b"id: \x00", b"\xff\xfe: 1"]
)
async def test_an_odd_line_of_a_stream_is_left_out_and_its_neighbours_stay(odd: bytes) -> None:
    for body in (b"data: a\n\n" + odd + b"\n\ndata: b\n\n", b"data: a\n\n" + odd + b"\ndata: b\n\n"):
        async with Service(giving(body)) as service:
            said = Said()
            output = await streamed({"get": service.url()}, said)
        assert (output["text"].strip(), "".join(said.pieces).strip()) == ("ab", "ab")


async def test_any_other_body_and_what_is_no_success_is_read_as_a_whole() -> None:
    async with Service(giving(b'{"a": 1}', "application/json")) as service:
        said = Said()
        assert (await streamed({"get": service.url()}, said))["json"] == {"a": 1}
    async with Service(giving(b"data: no\n\n", status=500)) as service:
        with pytest.raises(StepError) as raised:
            await streamed({"get": service.url()}, said)
    assert (raised.value.code, said.pieces) == ("http.status", [])


async def test_an_endless_body_is_cut_and_a_silent_one_given_up() -> None:
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
    events, found, at = Events(), list[StreamEvent](), 0
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


async def test_a_body_is_a_message_of_its_run_aborted_with_a_failed_attempt(make: Make) -> None:
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


# --- characters that are cut in two -------------------------------------------------------------------------------

MARKS = "".join(map(chr, range(0x10D800, 0x10E000)))  # signs for halves while an expression reads the event
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00" + MARKS), max_size=12)
EVERY_SIGN = 'a"\\\u00fc\u20ac\u6f22\U0001f600\U0010fffd\u2028'  # of one byte to four, some escaped in JSON


async def stream_text(body: Sequence[bytes], piece: Callable[[dict[str, Any]], Any] | None) -> tuple[str, str]:
    """The text of a body in these chunks: as a run's message has it, and as the step's output."""
    said, joiner = Said(), TextJoiner()

    async def evaluate(event: dict[str, Any]) -> Any:
        return None if piece is None else piece(event)

    telling = Telling(EVENTS, "utf-8", cast(Any, said), None if piece is None else evaluate)
    for chunk in body:
        await telling.take(chunk)
    await telling.take(b"", final=True)
    return "".join(map(joiner.take, said.raw)) + joiner.end(), telling.text


def find_event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


@given(st.one_of(TEXTS, st.just(EVERY_SIGN)), st.data())
async def test_a_character_that_is_cut_between_two_events_is_whole(text: str, data: st.DataObject) -> None:
    """Between its escapes, between its bytes in JSON, and between its bytes in plain data; the chunks are cut, too."""
    units = text.encode("utf-16-le")
    cut = data.draw(st.integers(0, len(units) // 2)) * 2
    halves = [part.decode("utf-16-le", "surrogatepass") for part in (units[:cut], units[cut:])]
    escaped = b"".join(find_event(json.dumps({"t": half}).encode()) for half in halves)
    plain = text.replace('"', "").replace("\\", "").encode()
    at = data.draw(st.integers(0, len(plain)))
    quoted = [b'{"t": "' + json.dumps(part.decode(errors="surrogateescape"), ensure_ascii=False)[1:-1].encode(
        "utf-8", "surrogateescape") + b'"}' for part in (plain[:at], plain[at:])]  # fmt: skip
    raw = b"".join(map(find_event, quoted))
    for body, meant in ((escaped, text), (raw, plain.decode())):
        place = data.draw(st.integers(0, len(body)))
        for chunks in ([body], [body[:place], body[place:]], [body[n : n + 1] for n in range(len(body))]):
            assert await stream_text(chunks, lambda event: event["json"]["t"]) == (meant, meant)


async def test_a_character_is_whole_wherever_its_bytes_are_cut() -> None:
    body = EVERY_SIGN.replace("\u2028", "").encode()
    for at in range(len(body) + 1):
        assert await stream_text([find_event(body[:at]), find_event(body[at:])], None) == (body.decode(), body.decode())


async def test_the_signs_for_halves_can_be_said_as_all_others() -> None:
    for data in (json.dumps({"t": MARKS}), json.dumps({"t": MARKS}, ensure_ascii=False)):
        assert await stream_text([find_event(data.encode())], lambda event: event["json"]["t"]) == (MARKS, MARKS)


async def test_a_lone_surrogate_is_a_replacement_character_with_a_note() -> None:
    said = Said()
    async with Service(giving(find_event(b'{"t": "a\\ud83d"}') + find_event(b'{"t": "b\\u0000"}'))) as service:
        output = await streamed({"get": service.url(), "piece": "${{ event.json.t }}"}, said)
    assert output["text"] == "a\ufffdb\ufffd"
    assert output["notes"] == ["`text` has U+FFFD where characters can't be read or stored"]


async def test_a_charset_that_is_none_of_text_is_read_as_utf_8() -> None:
    for charset in ("hex", "rot13", "undefined", "no-such"):
        said = Said()
        async with Service(giving("grün".encode(), f"text/plain; charset={charset}")) as service:
            assert (await streamed({"get": service.url()}, said))["text"] == "grün"


async def test_in_a_run_the_message_has_whole_characters(make: Make) -> None:
    body = find_event(b'{"t": "ok \\ud83d"}') + find_event(b'{"t": "\\ude00!"}')
    runtime = await make(performs=True, http_hosts=("127.0.0.1",))
    async with Service(giving(body)) as service:
        step = (
            f"steps: [{{id: a, http: {{get: '{service.url()}', stream: text, piece: '${{{{ event.json.t }}}}'}}}}]\n"
            "output: ${{ steps.a.output.text }}\n"
        )
        run_id = (await start(runtime, step)).run_id
        await until(lambda: is_now(runtime, run_id, "finished", "failed"))
    state = await state_of(runtime, run_id)
    assert state.output == "ok 😀!"
    assert [each.content for each in state.messages.values()] == ["ok 😀!"]
