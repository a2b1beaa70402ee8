"""What a name of `models:` means here, and what a document from elsewhere may not say."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.errors import StepError
from hai_flow.models.providers.catalogue import Catalogue, read_catalogue
from hai_flow.models.providers.endpoints import Providers
from hai_flow.models.providers.presets import PRESETS
from hai_flow.models.vocabulary import Endpoint, Finish, Piece, Price, Request, Text

OURS = b"""
hai: models/v1
models:
  smart:
    provider: deepseek
    model: deepseek-chat
    api_key: ${{ secrets.DEEPSEEK }}
    params: {temperature: 0.5, top_p: 0.9}
    quirks: {output: prompt}
    context: 65536
    timeout: {total: 2m, idle: 10s}
    price: {input: 0.8, cached: 0.1, output: 2}
    fallback: [local]
  local: {provider: vllm, base_url: "http://models.internal:8000/v1/", model: qwen}
"""


def catalogue(source: bytes = OURS, **more: Any) -> Catalogue:
    models, findings = read_catalogue(source, "models.yaml")
    assert findings == []
    return Catalogue(models, **more)


def asked(models: str, *, from_disk: bool = False, where: Catalogue | None = None) -> list[Endpoint]:
    """How the model `m` of a workflow with these `models` is reached."""
    document = (
        f"hai: flow/v1\nname: a\nversion: 1\nmodels: {models}\nsteps: [{{id: x, llm: {{model: m, prompt: hi}}}}]\n"
    )
    verb = compile_workflow(document.encode()).steps["x"].verb
    return (where or catalogue()).endpoints(verb.models, from_disk=from_disk)  # type: ignore[union-attr]


def fault(models: str, **more: Any) -> str:
    with pytest.raises(StepError) as raised:
        asked(models, **more)
    assert (raised.value.code, raised.value.retriable) == ("llm.not_configured", False)
    return raised.value.message


def test_use_takes_all_from_the_catalogue_and_its_fallback_with_it() -> None:
    smart, local = asked("{m: {use: smart}}")
    assert (smart.name, smart.model, smart.base_url) == ("m", "deepseek-chat", "https://api.deepseek.com")
    assert (smart.secret, smart.ours, smart.key) == ("DEEPSEEK", True, None)
    assert (smart.total, smart.idle, smart.context) == (120.0, 10.0, 65536)
    assert smart.price == Price(input=0.8, cached=0.1, output=2)
    assert (smart.quirks.output, smart.quirks.send_back) == ("prompt", "tool_turns"), (
        "the preset's, but for what is said"
    )
    assert (local.base_url, local.secret) == ("http://models.internal:8000/v1", None)


def test_a_workflow_says_its_own_parameters_times_and_fallbacks() -> None:
    other = "o: {provider: ollama, model: llama}"
    first, _, last = asked(
        f"{{m: {{use: smart, params: {{temperature: 0}}, timeout: 1m, fallback: [o]}}, {other}}}", from_disk=True
    )
    assert first.params == {"temperature": 0, "top_p": 0.9}
    assert (first.total, first.idle) == (60.0, 10.0)
    assert (last.model, last.base_url) == ("llama", "http://localhost:11434/v1")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_reached(name: str) -> None:
    (found,) = asked(
        f"{{m: {{provider: {name}, model: x, api_key: '${{{{ secrets.K }}}}', base_url: https://h/v1}}}}",
        from_disk=True,
    )
    assert (found.base_url, found.secret, found.ours) == ("https://h/v1", "K", False)


@pytest.mark.parametrize("name", ["ollama", "llamacpp"])
def test_what_was_published_reaches_no_model_of_this_machine(name: str) -> None:
    models = f"{{m: {{provider: {name}, model: x}}}}"
    assert "means this machine" in fault(models)
    assert asked(models, from_disk=True)[0].base_url.startswith("http://localhost")


def test_what_was_published_has_no_address_of_its_own() -> None:
    models = "{m: {provider: openai, model: x, base_url: 'https://evil.example/v1', api_key: '${{ secrets.OPENAI }}'}}"
    assert "declare it in the deployment's catalogue" in fault(models)
    assert asked(models, from_disk=True)[0].base_url == "https://evil.example/v1"
    assert asked("{m: {provider: openai, model: x, api_key: '${{ secrets.K }}'}}")[0].secret == "K"


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ("{m: {use: smrt}}", "no model `smrt`; did you mean `smart`?"),
        ("{m: {use: other}}", "has local, smart"),
        ("{m: {provider: openai, model: x}}", "no `api_key`"),
        ("{m: {provider: vllm, model: x}}", "`base_url` is missing"),
        ("{m: {provider: cohere, model: x}}", "nobody provides models as `cohere` here"),
    ],
)
def test_what_the_deployment_does_not_have_is_said(models: str, says: str) -> None:
    assert says in fault(models)


@pytest.mark.parametrize(
    ("models", "code", "says"),
    [
        ("{m: {use: a, price: {input: 1, output: 1}}}", "model.use", "says its `price` as well"),
        ("{m: {use: a, provider: openai}}", "model.use", "`provider`"),
        ("{m: {provider: openai, model: x, api_key: sk-123}}", "model.key", "named, never written"),
        ("{m: {provider: openai, model: x, fallback: [n]}}", "model.unknown", "no model `n`"),
        ("{m: {provider: openai, model: x, temperature: 1, params: {temperature: 2}}}", "model.params", "as well"),
        ("{m: {provider: openai, model: x, params: {user: '${{ input.a }}'}}}", "model.hole", "literal"),
        ("{m: {provider: openai, model: x, timeout: soon}}", "duration.invalid", "`timeout`"),
        ("{m: {provider: openai, model: x, quirks: {output: xml}}}", "shape.value", "json_object"),
        ("{m: {}}", "shape.missing_key", "or `use` a model of the deployment"),
    ],
)
def test_a_wrong_declaration_is_a_finding(models: str, code: str, says: str) -> None:
    document = f"hai: flow/v1\nname: a\nversion: 1\nmodels: {models}\nsteps: [{{say: a}}]\n"
    (found,) = check_workflow(document.encode())
    assert (found.code, says in found.message) == (code, True), found


def test_a_wrong_catalogue_is_told_with_its_place() -> None:
    _, (found,) = read_catalogue(
        b"hai: models/v1\nmodels:\n  a: {provider: openai, model: x, fallback: [b]}\n", "m.yaml"
    )
    assert str(found).startswith("m.yaml:3:46: ")
    _, (found,) = read_catalogue(b"hai: models/v1\nmodels: {a: {use: b}}\n", "m.yaml")
    assert found.code == "model.use"


# --- plug-ins ---------------------------------------------------------------------------------------------------------


class Parrot:
    def fault(self, endpoint: Endpoint) -> str | None:
        return None

    async def stream(self, request: Request) -> Any:
        piece: Piece = Text(str(request.messages[-1].content))
        yield piece
        yield Finish("stop")

    async def close(self) -> None:
        pass


async def test_a_package_adds_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    from hai_flow import plugins

    offered = EntryPoint("parrot", f"{__name__}:Parrot", "hai_flow.models")
    broken = EntryPoint("broken", "no.such.module:X", "hai_flow.models")
    monkeypatch.setattr(plugins, "list_offers", lambda group: [offered, broken])
    providers = Providers()
    where = catalogue(offered=providers.offered)
    (found,) = asked("{m: {provider: parrot, model: grey}}", where=where)
    assert type(await providers.of(found)).__name__ == "Parrot"
    (found,) = asked("{m: {provider: broken, model: grey}}", where=where)
    with pytest.raises(StepError, match=r"can't be loaded: ModuleNotFoundError"):
        await providers.of(found)
