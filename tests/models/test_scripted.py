"""What answers where no model can be asked, in `dev` and `run` alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import Model
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.errors import StepError
from hai_flow.models.providers.catalogue import Catalogue
from hai_flow.models.providers.endpoints import Providers
from hai_flow.models.providers.scripted import ScriptedProvider, StandIn, least
from hai_flow.models.turn import Turn
from hai_flow.models.vocabulary import Message, Request, Tool
from hai_flow.steps.llm import LlmRunner
from hai_flow.steps.runner import Attempt
from hai_flow.steps.secrets import Secrets
from tests.support.models import Answer, FakeModels, spoken


class Heard:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: dict[tuple[str, int], str] = {}
        self.uses: list[Any] = []

    async def __call__(self, text: str, kind: str = "text") -> None:
        self.texts.append(text)

    def progress(self, value: Any) -> None:
        raise AssertionError(f"a model tells no progress: {value}")

    async def call(self, name: str, number: int, text: str) -> None:
        self.calls[name, number] = self.calls.get((name, number), "") + text

    def noted(self, notes: Any) -> None:
        self.notes = (*getattr(self, "notes", ()), *notes)

    def made(self, part: Any) -> None:
        raise AssertionError(f"a script makes no file: {part}")

    def used(self, use: Any) -> None:
        self.uses.append(use)


async def perform(
    stand_in: StandIn | None, model: str = "{use: smart}", output: Any = None, *, from_disk: bool = True
) -> tuple[Any, Heard]:
    more = "" if output is None else f", output: {json.dumps(output)}"
    step_text = f"{{id: x, llm: {{model: m, prompt: Tea?{more}}}}}"
    document = f"hai: flow/v1\nname: a\nversion: 1\nmodels: {{m: {model}}}\nsteps: [{step_text}]\n"
    step = compile_workflow(document.encode()).steps["x"]
    runner, heard = LlmRunner(Catalogue(), Providers(), Secrets(), stand_in), Heard()
    try:
        attempt = Attempt("r", "x", 1, json.dumps({"prompt": "Tea?"}), step, from_disk=from_disk)
        return await runner.perform(attempt, heard), heard
    finally:
        await runner.close()


async def test_without_a_key_a_script_answers_and_says_what_it_is() -> None:
    output, heard = await perform(StandIn())
    assert output == "(Scripted model: no key of a real one is set. It was asked: Tea?)"
    assert "".join(heard.texts) == output
    assert [(use.provider, use.served, use.cost) for use in heard.uses] == [("scripted", "scripted-model", None)]


async def test_it_makes_an_object_that_fits() -> None:
    schema = {
        "type": "object",
        "required": ["n", "kind"],
        "properties": {"n": {"type": "integer"}, "kind": {"enum": ["a"]}},
    }
    output, _ = await perform(StandIn(), "{provider: openai, model: gpt, api_key: '${{ secrets.K }}'}", schema)
    assert output == {"n": 0, "kind": "a"}


async def test_each_named_tool_is_called_once_and_its_result_repeated() -> None:
    tools = (
        Tool("mail_send", "", {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}),
        Tool("weather", "", {"type": "object"}),
    )
    asked = Message("user", "Please send a mail.")
    endpoint = StandIn().endpoint(Model("smart"))
    first = await turn_of(
        Request(endpoint, (Message("user", "The weather?"), Message("assistant", "Rain."), asked), tools)
    )
    assert [(call.name, call.args) for call in first.calls] == [("mail_send", '{"to":"scripted"}')]
    told = (asked, Message("assistant", "", first.calls), Message("tool", "sent", call_id="call_0"))
    second = await turn_of(Request(endpoint, told, tools))
    assert (second.calls, "Its tools said: sent" in second.text) == ((), True)
    assert "To see one" not in second.text
    other = await turn_of(Request(endpoint, (Message("user", "Write to Ann."),), tools))
    assert (other.calls, "name it in the question: mail send, weather." in other.text) == ((), True)


async def turn_of(request: Request) -> Turn:
    turn = Turn()
    async for piece in ScriptedProvider().stream(request):
        turn.add(piece)
    return turn


async def test_with_a_key_in_the_environment_a_real_model_is_asked() -> None:
    async with FakeModels(spoken(Answer("Real."))) as fake:
        stand_in = StandIn("sk-env", fake.url, "some-model")
        assert (await perform(stand_in))[0] == "Real."
        assert (await perform(stand_in, "{provider: openai, model: other}"))[0] == "Real."
    assert [asked.body["model"] for asked in fake.asked] == ["some-model", "other"]
    assert {asked.headers["authorization"] for asked in fake.asked} == {"Bearer sk-env"}
    assert "sk-env" not in repr(stand_in)


@pytest.mark.parametrize(("stand_in", "from_disk"), [(None, True), (StandIn(), False)])
async def test_nobody_stands_in_elsewhere_nor_for_what_came_over_the_network(
    stand_in: StandIn | None, from_disk: bool
) -> None:
    with pytest.raises(StepError) as raised:
        await perform(stand_in, from_disk=from_disk)
    assert raised.value.code == "llm.not_configured"


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {"type": "string", "minLength": 12},
            {"type": "string", "maxLength": 3},
            {"type": "integer", "minimum": 4},
            {"type": "number", "maximum": -3},
            {"type": "boolean"},
            {"type": "null"},
            {"enum": [3, "x"]},
            {"const": None},
            {"type": ["integer", "null"]},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda items, n: {"type": "array", "items": items, "minItems": n}, inner, st.integers(0, 2)),
        st.builds(
            lambda given: {
                "type": "object",
                "properties": given,
                "required": list(given),
                "additionalProperties": False,
            },
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        ),
        st.builds(lambda first, other: {"anyOf": [first, other]}, inner, inner),
    ),
    max_leaves=6,
)


@given(SCHEMAS)
def test_its_objects_fit_their_schemas(schema: Any) -> None:
    assert JsonSchema(schema).findings(least(schema)) == []
