"""`llm` in a real run: streamed, counted, tried again as it should be; against a server on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.primitives.file_ids import file_id
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings, SettingsError
from tests.runtime.conftest import Connection, Make, ended, is_now, start
from tests.support.ledger import log_of
from tests.support.models import CUT, DIALECTS, END, STALL, Act, Answer, FakeModels, Raw, Status, chunk, spoken
from tests.support.waiting import until

USE = "models: {smart: {use: smart}}\n"
ASK = USE + "steps: [{id: a, llm: {model: smart, prompt: 'Tea?'}}]\noutput: ${{ steps.a.output }}\n"
FORM = "{type: object, required: [n], properties: {n: {type: integer}}}"
OBJECT = (
    USE
    + f"steps: [{{id: a, llm: {{model: smart, prompt: 'n?', output: {FORM}}}}}]\noutput: ${{{{ steps.a.output }}}}\n"
)
RETRIED = ASK.replace("'Tea?'}", "'Tea?'}, retry: {max: 1, every: 1ms, jitter: false}")


def catalogue(tmp_path: Path, fake: FakeModels, **more: Any) -> Path:
    path = tmp_path / "models.yaml"
    keys = "".join(f", {key}: {value}" for key, value in more.items())
    path.write_text(
        "hai: models/v1\nmodels:\n"
        f"  smart: {{provider: openai, base_url: '{fake.url}', model: gpt, api_key: '${{{{ secrets.K }}}}',"
        f" price: {{input: 100000, output: 1000000}}{keys}}}\n"
    )
    return path


async def runtime_of(make: Make, tmp_path: Path, fake: FakeModels, **more: Any) -> Runtime:
    return await make(performs=True, models=catalogue(tmp_path, fake, **more), secrets={"K": "sk-1"})


async def test_an_answer_streams_as_a_thought_and_a_message_and_is_the_output(
    make: Make, eye: Connection, tmp_path: Path
) -> None:
    async with FakeModels(DIALECTS["reasoning_content"](Answer("Yes, tea.", "Hm. Tea."))) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        state = await ended(runtime, (await start(runtime, ASK)).run_id)
    assert state.output == "Yes, tea."
    said = [(message.kind, message.content, message.open, message.aborted) for message in state.messages.values()]
    assert sorted(said) == [("text", "Yes, tea.", False, False), ("thinking", "Hm. Tea.", False, False)]
    events = await log_of(eye, UUID(state.run_id))
    edges = [
        (event.type, event.message_id) for event in events if isinstance(event, (e.MessageStarted, e.MessageEnded))
    ]
    first, second = edges[0][1], edges[2][1]
    assert edges == [
        ("message_started", first), ("message_ended", first), ("message_started", second), ("message_ended", second)
    ]  # fmt: skip
    (used,) = [event.use for event in events if isinstance(event, e.ModelUsed)]
    assert used == e.ModelUse("smart", "openai", "gpt", 12, 7, cost=8.2)
    assert fake.asked[0].headers["authorization"] == "Bearer sk-1"
    assert "sk-1" not in repr(events)


async def test_an_object_is_checked_repaired_once_and_not_streamed(make: Make, eye: Connection, tmp_path: Path) -> None:
    async with FakeModels(spoken(Answer('{"n": "x"}')), spoken(Answer('```json\n{"n": 3}\n```'))) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        state = await ended(runtime, (await start(runtime, OBJECT)).run_id)
    assert (state.output, len(state.messages)) == ({"n": 3}, 0)
    assert [message["role"] for message in fake.asked[1].body["messages"]] == ["user", "assistant", "user"]
    assert "/n" in fake.asked[1].body["messages"][2]["content"]
    events = await log_of(eye, UUID(state.run_id))
    assert [event.use.repair for event in events if isinstance(event, e.ModelUsed)] == [False, True]


async def test_an_answer_that_does_not_fit_also_when_told_why_fails_the_step(make: Make, tmp_path: Path) -> None:
    async with FakeModels(spoken(Answer("No."))) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        state = await ended(runtime, (await start(runtime, OBJECT)).run_id)
    assert (state.error.code, state.error.data) == ("llm.invalid_output", {"received": "No."})
    assert (len(fake.asked), state.spent.calls) == (2, 2)


@pytest.mark.parametrize(
    "broken", [[CUT], [END], [Raw(b"data: {\n\n"), END], [STALL]], ids=["cut", "ended", "corrupt", "stalled"]
)
async def test_a_partial_answer_is_aborted_charged_and_unseen_by_the_model(
    broken: list[Act], make: Make, eye: Connection, tmp_path: Path
) -> None:
    async with FakeModels([chunk({"content": "Par"}), *broken], spoken(Answer("Whole."))) as fake:
        runtime = await runtime_of(make, tmp_path, fake, timeout="{idle: 1s}")
        state = await ended(runtime, (await start(runtime, RETRIED)).run_id)
    assert state.output == "Whole."
    assert [asked.body["messages"] for asked in fake.asked] == [[{"role": "user", "content": "Tea?"}]] * 2
    said = {message.content: message.aborted for message in state.messages.values()}
    assert said == {"Par": True, "Whole.": False}
    begun = [event for event in await log_of(eye, UUID(state.run_id)) if isinstance(event, e.MessageStarted)]
    assert [event.instead_of for event in begun] == [None, begun[0].message_id]
    uses = [event.use for event in await log_of(eye, UUID(state.run_id)) if isinstance(event, e.ModelUsed)]
    assert [(use.estimated, use.output) for use in uses] == [(True, 1), (False, 7)]


async def test_a_server_that_is_busy_is_asked_again_when_it_says(make: Make, eye: Connection, tmp_path: Path) -> None:
    async with FakeModels([Status(429, {}, {"retry-after-ms": "600"})], spoken(Answer("Here."))) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        state = await ended(runtime, (await start(runtime, RETRIED)).run_id)
    assert state.output == "Here."
    (again,) = [event for event in await log_of(eye, UUID(state.run_id)) if isinstance(event, e.StepRetried)]
    assert again.error.code == "llm.rate_limited"
    assert again.due is not None
    assert again.due - again.at >= 600


@pytest.mark.parametrize(
    ("acts", "code"), [([Status(400, {})], "llm.invalid_request"), ([chunk({}, reason="length"), END], "llm.truncated")]
)
async def test_what_asking_again_would_not_mend_is_not_asked_again(
    acts: list[Act], code: str, make: Make, tmp_path: Path
) -> None:
    async with FakeModels(acts) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        state = await ended(runtime, (await start(runtime, RETRIED)).run_id)
    assert (state.error.code, len(fake.asked)) == (code, 1)


async def test_a_stopped_run_hangs_up(make: Make, tmp_path: Path) -> None:

    async with FakeModels([chunk({"content": "I"}), STALL]) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        run_id = (await start(runtime, ASK)).run_id
        await until(lambda: fake.asked)
        await runtime.committer.submit(run_id, LOCAL_TENANT, c.Stop(by="user:local", reason="enough"))
        await until(lambda: is_now(runtime, run_id, "stopped"))
        await until(lambda: not fake.connections)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hai: models/v1\nmodels: {a: {provider: openai}}\n", "models.yaml:2:10: `model` is missing"),
        ("models: {}\n", "`hai` is missing"),
        (None, "can't be read: no such file"),
    ],
)
def test_a_wrong_catalogue_is_told_when_a_process_starts(text: str | None, says: str, tmp_path: Path) -> None:

    path = tmp_path / "models.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError, match=r"models\.yaml") as raised:
        Runtime("postgresql://h/x", Settings(models=path), performs=False)
    assert says in str(raised.value)


async def test_a_missing_model_is_a_doubt_at_publication_and_fails_its_step(make: Make, tmp_path: Path) -> None:
    async with FakeModels([END]) as fake:
        runtime = await make(performs=True, models=catalogue(tmp_path, fake))
        source = f"hai: flow/v1\nname: lost_key\nversion: 1\n{ASK}"
        plan = await runtime.catalog.check(LOCAL_TENANT, source.encode(), "f")
        (doubt,) = plan.warnings
        assert str(doubt).startswith("f:5:1: warning: step a: the secret `K` is not there; set HAI_FLOW_SECRET_K")
        state = await ended(runtime, (await start(runtime, ASK)).run_id)
    assert (state.error.code, fake.asked) == ("secret.missing", [])


async def test_a_fallback_without_a_key_keeps_nobody_from_answering(make: Make, tmp_path: Path) -> None:
    async with FakeModels(spoken(Answer("Here."))) as fake:
        path = catalogue(tmp_path, fake, fallback="[other]")
        path.write_text(path.read_text() + "  other: {provider: openai, model: o, api_key: '${{ secrets.NONE }}'}\n")
        runtime = await make(performs=True, models=path, secrets={"K": "sk-1"})
        state = await ended(runtime, (await start(runtime, ASK)).run_id)
    assert (state.status, state.output) == ("finished", "Here.")


FILES = """
input: {type: object, properties: {scan: {type: string}}}
models: {smart: {use: smart}}
steps:
  - id: a
    llm:
      model: smart
      messages:
        - role: user
          content:
            - {type: text, text: "What is it?"}
            - {type: file, file: "${{ input.scan }}"}
output: ${{ steps.a.output }}
"""
ASKED = {"type": "text", "text": "What is it?"}


async def upload(runtime: Runtime, body: bytes, media_type: str, name: str = "") -> str:
    async def pieces() -> AsyncIterator[bytes]:
        yield body

    file = await runtime.files.take(LOCAL_TENANT, "user:local", pieces(), name=name, media_type=media_type)
    return file_id(file.sha256)


@pytest.mark.parametrize(
    ("media_type", "body", "sent"),
    [
        ("image/png", b"\x89PNG", {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}),
        ("text/csv", "ä,1".encode(), {"type": "text", "text": "it:\n\nä,1"}),
        (
            "application/pdf",
            b"%PDF",
            {"type": "file", "file": {"filename": "it", "file_data": "data:application/pdf;base64,JVBERg=="}},
        ),
    ],
)
async def test_a_model_is_sent_what_a_file_holds_and_the_log_has_its_id_alone(
    media_type: str, body: bytes, sent: Any, make: Make, eye: Connection, tmp_path: Path
) -> None:
    async with FakeModels(spoken(Answer("A scan."))) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        id, run_id = await upload(runtime, body, media_type, "it"), uuid4()
        await runtime.files.use(LOCAL_TENANT, "user:local", run_id, id.encode())
        state = await ended(runtime, (await start(runtime, FILES, run_id=run_id, input={"scan": id})).run_id)
    assert (state.error, state.output) == (None, "A scan.")
    assert fake.asked[0].body["messages"][0]["content"] == [ASKED, sent]
    told = repr(await log_of(eye, run_id))
    assert id in told
    assert "base64" not in told
    assert "ä,1" not in told


async def test_a_file_that_no_run_refers_to_is_sent_to_no_model(make: Make, tmp_path: Path) -> None:
    async with FakeModels(spoken(Answer("A scan."))) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        id = await upload(runtime, b"mine", "text/plain")
        state = await ended(runtime, (await start(runtime, FILES, input={"scan": id})).run_id)
        assert (state.error.code, fake.asked) == ("step.file_unknown", [])
