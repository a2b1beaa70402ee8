"""The package of Anthropic's models, found by its entry point: one transcript, and the faults, over real sockets."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from hai_flow.errors import StepError
from hai_flow.models.vocabulary import Call, Endpoint, Finish, Message, Usage
from tests.models.test_dialects import ANSWER, FETCH, SCHEMA, SCHEMAS, SEARCH, Asking, transcript
from tests.support.models import CUT, END, STALL, Act, Answer, FakeModels, Raw, Said, Status, pieces
from tests.support.waiting import until

PACKAGE = Path(__file__).parents[2] / "plugins" / "anthropic"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as an installer leaves it: its modules, and what it says of itself."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    about = tmp_path / f"hai_flow_anthropic-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"[{group}]\n{name} = {value}\n" for group, names in project["entry-points"].items()
             for name, value in names.items()]  # fmt: skip
    (about / "entry_points.txt").write_text("".join(lines))
    monkeypatch.syspath_prepend(str(PACKAGE))
    monkeypatch.syspath_prepend(str(tmp_path))


def endpoint(fake: FakeModels, **more: Any) -> Endpoint:
    return Endpoint("smart", "anthropic", "claude", fake.url.removesuffix("/v1"), "sk-1", secret="K", **more)


def started(**usage: int) -> Said:
    counted = {"input_tokens": 9, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 1}
    return Said({"type": "message_start", "message": {"id": "msg_1", "usage": counted | usage}})


def block(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[Act]:
    return [
        Said({"type": "content_block_start", "index": index, "content_block": begun}),
        *(Said({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas),
        Said({"type": "content_block_stop", "index": index}),
    ]


def ended(reason: str = "end_turn") -> list[Act]:
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}}
    return [Said(delta), Said({"type": "message_stop"}), END]


def spoken(answer: Answer) -> list[Act]:
    """The answer as Anthropic's servers stream it."""
    acts: list[Act] = [started(), Raw(b'event: ping\ndata: {"type": "ping"}\n\n')]
    if answer.thinking:
        thoughts = [{"type": "thinking_delta", "thinking": each} for each in pieces(answer.thinking)]
        signed = {"type": "signature_delta", "signature": "sig"}
        acts += block(0, {"type": "thinking", "thinking": ""}, *thoughts, signed)
    acts += block(
        1, {"type": "text", "text": ""}, *({"type": "text_delta", "text": each} for each in pieces(answer.text))
    )
    for number, (name, args) in enumerate(answer.calls, 2):
        begun = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        grown = [{"type": "input_json_delta", "partial_json": each} for each in ("", *pieces(args))]
        acts += block(number, begun, *grown)
    return [*acts, *ended("tool_use" if answer.calls else "end_turn")]


async def failure(*acts: Act, **more: Any) -> StepError:
    async with FakeModels(acts) as fake:
        with pytest.raises(StepError) as raised:
            await Asking().of(endpoint(fake, **more), tools=(SEARCH,))
    return raised.value


async def test_it_gives_the_transcript_that_all_dialects_give() -> None:
    async with FakeModels(spoken(ANSWER)) as fake:
        turn, _ = await Asking().of(endpoint(fake), tools=(SEARCH, FETCH))
    calls = [("search", {"q": "tea"}), ("fetch", {"url": "x", "n": 2})]
    assert transcript(turn) == (ANSWER.thinking, ANSWER.text, calls, Usage(12, 7, 2), "stop")
    assert turn.call_faults(SCHEMAS) == {}
    thought = {"type": "thinking", "thinking": ANSWER.thinking, "signature": "sig"}
    assert turn.finish == Finish("stop", opaque=[thought])
    (asked,) = fake.asked
    assert (asked.path, asked.headers["x-api-key"]) == ("/v1/messages", "sk-1")
    assert "authorization" not in asked.headers
    assert asked.headers["anthropic-version"] == "2023-06-01"


async def test_calls_of_one_id_are_as_many_calls() -> None:
    def alike(act: Act) -> Act:
        if not isinstance(act, Said) or act.event.get("content_block", {}).get("type") != "tool_use":
            return act
        return Said({**act.event, "content_block": {**act.event["content_block"], "id": "toolu_1"}})

    async with FakeModels([alike(act) for act in spoken(ANSWER)]) as fake:
        turn, _ = await Asking().of(endpoint(fake), tools=(SEARCH, FETCH))
    assert transcript(turn)[2] == [("search", {"q": "tea"}), ("fetch", {"url": "x", "n": 2})]
    assert len({call.id for call in turn.calls}) == 2


async def test_a_conversation_goes_by_turns_with_signed_thinking_before_calls() -> None:
    signed = [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}]
    picture = {"type": "image", "source": {"type": "data", "value": "QUJD", "mimeType": "image/png"}}
    messages = (
        Message("system", "Be brief."),
        Message("user", [{"type": "text", "text": "See"}, picture]),
        Message("assistant", "", (Call("t1", "search", '{"q": 1}'), Call("t2", "fetch", "")), opaque=signed),
        Message("tool", "found", call_id="t1"),
        Message("tool", "nothing", call_id="t2"),
    )
    async with FakeModels(spoken(Answer("ok"))) as fake:
        params = {"temperature": 0.5, "extra": {"top_k": 3}}
        asking = {"messages": messages, "tools": (SEARCH,), "output": SCHEMA}
        await Asking().of(endpoint(fake, params=params), **asking)
    body = fake.asked[0].body
    assert body["system"].startswith("Be brief.\n\nAnswer with one JSON value")
    assert (body["max_tokens"], body["temperature"], body["top_k"], body["stream"]) == (4096, 0.5, 3, True)
    assert body["tools"] == [{"name": "search", "description": "Searches", "input_schema": SEARCH.schema}]
    base64 = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image", "source": base64}]},
        {
            "role": "assistant",
            "content": [
                *signed,
                {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": 1}},
                {"type": "tool_use", "id": "t2", "name": "fetch", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "found"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "nothing"},
            ],
        },
    ]


PART = [started(), *block(0, {"type": "text", "text": "Par"})]
BROKEN: dict[str, list[Act]] = {
    "cut": [CUT],
    "ended": [END],
    "ended without its last event": [Said({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}), END],
    "corrupt": [Raw(b"data: {\n\n"), END],
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_an_answer_that_breaks_off_is_none(broken: str) -> None:
    assert (await failure(*PART, *BROKEN[broken])).code == "llm.truncated"


async def test_a_stalled_answer_hangs_up() -> None:
    async with FakeModels([*PART, STALL]) as fake:
        with pytest.raises(StepError, match="Nothing came"):
            await Asking().of(endpoint(fake, idle=0.3))
        await until(lambda: not fake.connections)


@pytest.mark.parametrize(
    ("acts", "code"),
    [
        ([Status(429, {"error": {"type": "rate_limit_error", "message": "slow"}}, {"retry-after": "3"})],
         "llm.rate_limited"),
        ([Status(529, {"error": {"type": "overloaded_error", "message": "busy"}})], "llm.unavailable"),
        ([Status(401, {"error": {"type": "authentication_error", "message": "no"}})], "llm.not_configured"),
        ([Status(400, {"error": {"message": "prompt is too long: 3 > 2"}})], "llm.context_exceeded"),
        ([*PART, Said({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}), END],
         "llm.rate_limited"),
        ([*PART, *ended("max_tokens")], "llm.truncated"),
        ([*PART, *ended("refusal")], "llm.refused"),
    ],
)  # fmt: skip
async def test_faults_have_the_codes_that_those_of_other_providers_have(acts: list[Act], code: str) -> None:
    fault = await failure(*acts)
    assert fault.code == code
    if code == "llm.rate_limited" and len(acts) == 1:
        assert (fault.retry_after, fault.retriable) == (3.0, True)


async def test_an_absent_server_is_unavailable_and_no_film_is_asked_about() -> None:
    async with FakeModels([END]) as fake:
        where = endpoint(fake)
        film = {"type": "video", "source": {"type": "url", "value": "https://x/y", "mimeType": "video/mp4"}}
        with pytest.raises(StepError, match="video/mp4"):
            await Asking().of(where, messages=(Message("user", [film]),))
        assert fake.asked == []
    with pytest.raises(StepError, match="can't be reached"):
        await Asking().of(where)


async def test_it_says_what_it_could_never_ask() -> None:
    async with FakeModels([END]) as fake:
        provider = await Asking().providers.of(endpoint(fake))
        assert provider.fault(endpoint(fake)) is None
        assert provider.fault(Endpoint("smart", "anthropic", "claude")) == "Anthropic's models ask for an `api_key`"
        assert provider.fault(endpoint(fake, api="responses")) is not None
