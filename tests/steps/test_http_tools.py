"""Operations of a described service, called on a real socket: the document types arguments, and they lead nowhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast
from urllib.parse import unquote_plus

import pytest
from msgspec.structs import replace

from hai_flow import values
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.expressions.evaluation import CompiledExpression
from hai_flow.definition.plan import Call, Expression, HttpTool, Plan, PythonTool, Template
from hai_flow.definition.yaml.include_keys import include_files, read_texts
from hai_flow.engine.steps.effect_texts import find_title
from hai_flow.errors import StepError
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.runner import HttpRunner
from hai_flow.steps.http.tools import HttpToolRunner
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.steps.runner import Attempt, Registry
from hai_flow.steps.secrets import Secrets, Source
from tests.steps.test_python import Heard
from tests.support.people import Lit
from tests.support.service import Received, Reply, Service

API: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "https://api.shop.example/v1"}],
    "paths": {
        "/orders/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {
                "operationId": "getOrder",
                "summary": "Read an order.",
                "parameters": [
                    {"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {
                        "name": "near",
                        "in": "query",
                        "style": "deepObject",
                        "explode": True,
                        "schema": {"type": "object"},
                    },
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "Authorization", "in": "header", "required": True, "schema": {"type": "string"}},
                ],
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}}
                },
            },
            "delete": {"operationId": "deleteOrder", "responses": {"204": {"description": "gone"}}},
        },
        "/orders": {
            "post": {
                "operationId": "addOrder",
                "requestBody": {"$ref": "#/components/requestBodies/Order"},
                "responses": {"201": {"description": "made"}},
            }
        },
        "/forms": {
            "post": {
                "operationId": "sendForm",
                "requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}},
                "responses": {},
            }
        },
        "/uploads": {
            "post": {
                "operationId": "upload",
                "requestBody": {
                    "content": {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/Upload"}}}
                },
                "responses": {},
            }
        },
        "/charges": {
            "post": {
                "operationId": "charge",
                "requestBody": {
                    "content": {
                        "application/x-www-form-urlencoded": {
                            "schema": {"type": "object"},
                            "encoding": {each: {"style": "deepObject", "explode": True} for each in ("meta", "expand")},
                        }
                    }
                },
                "responses": {},
            }
        },
        "/elsewhere": {
            "get": {
                "operationId": "elsewhere",
                "parameters": [{"$ref": "https://evil.example/parameters.json"}],
                "responses": {},
            }
        },
        "/cookies": {
            "get": {
                "operationId": "cookies",
                "parameters": [{"name": "session", "in": "cookie", "required": True, "schema": {"type": "string"}}],
                "responses": {},
            }
        },
    },
    "components": {
        "requestBodies": {
            "Order": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}},
            }
        },
        "schemas": {
            "Upload": {
                "type": "object",
                "properties": {
                    "one": {"type": "string", "format": "binary"},
                    "many": {
                        "type": "array",
                        "items": {"type": "string", "contentMediaType": "application/octet-stream"},
                    },
                    "note": {"type": "string"},
                    "maybe": {"anyOf": [{"type": "string", "format": "binary"}, {"type": "null"}]},
                    "some": {
                        "oneOf": [{"type": "array", "items": {"type": "string", "format": "binary"}}, {"type": "null"}]
                    },
                    "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": {}},
                },
            },
            "Order": {
                "type": "object",
                "required": ["amount"],
                "properties": {
                    "amount": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "format": "double"},
                    "note": {"type": "string", "nullable": True},
                    "parent": {"$ref": "#/components/schemas/Order"},
                },
            },
        },
    },
}
ORDER = {"id": "7", "amount": 12}


def flow(call: str, tool: str = "openapi: ./shop.openapi.json", more: str = "") -> bytes:
    head = "hai: flow/v1\nname: asks\nversion: 1\n"
    return f"{head}tools:\n  shop: {{http: {{{tool}}}{more}}}\nsteps:\n  - {{id: s, call: {call}}}\n".encode()


def together(source: bytes, api: Any = API) -> bytes:
    return include_files(source, {"shop.openapi.json": json.dumps(api).encode()}.__getitem__)


def plan_of(call: str, **more: Any) -> Plan:
    return compile_workflow(together(flow(call, **more)), "asks.flow.yaml")


def said(call: str, api: Any = API, **more: Any) -> list[str]:
    found = check_workflow(together(flow(call, **more), api), "asks.flow.yaml")
    return [f"{each.code} {each.message}" for each in found if each.severity == "error"]


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    def answer(request: Received) -> Reply:
        if request.method == "DELETE":
            return Reply(status=204)
        if request.target.startswith("/v1/orders/text"):
            return Reply(body=b"plain words", type="text/plain")
        if request.target.startswith("/v1/orders/null"):
            return Reply(body=b"null\n")
        if request.target.startswith("/v1/orders/odd"):
            return Reply(body=b'{"id": 1234567890123456789, "n": NaN}')
        if request.target.startswith("/v1/orders/away"):
            return Reply(status=302, headers=(("location", "http://10.0.0.1/metadata"),))
        return Reply(status=404 if "none" in request.target else 200, body=json.dumps(ORDER).encode())

    async with Service(answer) as made:
        yield made


async def call(
    service: Service,
    function: str,
    arguments: Mapping[str, Any],
    *,
    more: str = "",
    secrets: Secrets | None = None,
    allowed: tuple[str, ...] = ("127.0.0.1",),
    from_disk: bool = True,
    heard: Heard | None = None,
) -> Any:
    tool = f"openapi: ./shop.openapi.json, base_url: '{service.url('/v1')}'"
    step = compile_workflow(together(flow("shop.deleteOrder, with: {id: x}", tool, more))).steps["s"]
    verb: Any = step.verb
    step = cast(Any, step).__class__(**{**_fields(step), "verb": type(verb)(verb.tool, function, verb.arguments)})

    async def evaluate(uses: Expression | Template, /, **names: Any) -> Any:
        return uses.evaluate(names) if isinstance(uses, CompiledExpression) else cast(Template, uses).render(names)

    args = values.dumps(dict(arguments)).decode()
    http = HttpRunner(EgressGuard(allowed), secrets or Secrets(), HttpConfig())
    attempt = Attempt("r", "s", 1, args, step, from_disk=from_disk, workflow="asks", evaluate=evaluate)
    try:
        return await HttpToolRunner(http).perform(attempt, heard or Heard())
    finally:
        await http.close()


def _fields(step: Any) -> dict[str, Any]:
    return {name: getattr(step, name) for name in step.__struct_fields__}


async def failure(*arguments: Any, **more: Any) -> StepError:
    with pytest.raises(StepError) as raised:
        await call(*arguments, **more)
    return raised.value


def test_the_title_at_a_gate_is_the_operations_summary_or_the_tools_title() -> None:
    titles = [find_title(plan_of(f"shop.{each}, with: {{id: x}}").steps["s"]) for each in ("getOrder", "deleteOrder")]
    assert titles == ["Read an order.", None]
    letter = Call(PythonTool("mail", "acme.mail", title="Send a letter"), "send", Lit({}))
    assert find_title(replace(plan_of("shop.getOrder, with: {id: x}").steps["s"], verb=letter)) == "Send a letter"


async def test_arguments_go_where_the_document_says(service: Service) -> None:
    given = {"id": "a/b c", "fields": ["x", "y&z"], "near": {"lat": 1.5}, "X-Trace": "t"}
    assert await call(service, "getOrder", given) == ORDER
    (request,) = service.received
    assert (request.method, request.target) == ("GET", "/v1/orders/a%2Fb%20c?fields=x&fields=y%26z&near[lat]=1.5")
    assert request.headers["x-trace"] == "t"
    assert "idempotency-key" not in request.headers


async def test_a_body_is_sent_as_the_document_says_and_writes_are_recognisable(service: Service) -> None:
    assert await call(service, "addOrder", {"body": {"amount": 3, "note": None, "parent": {"amount": 1}}}) == ORDER
    await call(service, "sendForm", {"body": {"a": 1}})
    first, second = service.received
    assert json.loads(first.body) == {"amount": 3, "note": None, "parent": {"amount": 1}}
    assert first.headers["idempotency-key"] == "r/s"
    assert (second.body, second.headers["content-type"]) == (b"a=1", "application/x-www-form-urlencoded")


async def test_files_of_a_form_are_sent_as_files(service: Service) -> None:
    await call(service, "upload", {"body": {"one": "a", "many": ["b", "c"], "note": "d"}})
    body = service.received[0].body
    for name, text in (("one", b"a"), ("many", b"b"), ("many", b"c")):
        assert b'name="%s"; filename="%s"\r\nContent-Type: application/octet-stream\r\n\r\n%s\r\n' % (
            name.encode(), name.encode(), text,
        ) in body  # fmt: skip
    assert b'name="note"\r\n\r\nd\r\n' in body


async def test_optional_files_are_files_and_json_within_a_text_is_none(service: Service) -> None:
    await call(service, "upload", {"body": {"maybe": "a", "some": ["b"], "data": '{"c": 1}'}})
    await call(service, "upload", {"body": {"maybe": None, "some": [], "data": "{}"}})
    first, second = (each.body for each in service.received)
    assert b'name="maybe"; filename="maybe"\r\n' in first
    assert b'name="some"; filename="some"\r\n' in first
    assert b'name="data"\r\n\r\n{"c": 1}\r\n' in first
    assert second.count(b"name=") == 1


async def test_nested_values_are_written_with_brackets_where_described(service: Service) -> None:
    await call(service, "getOrder", {"id": "7", "near": {"at": {"lat": 1.5}, "ids": [1, 2], "or": [{"a": True}]}})
    await call(
        service, "charge", {"body": {"meta": {"a": {"b": "c"}}, "expand": ["x"], "list": [1, 2], "map": {"a": 1}}}
    )
    query, form = (unquote_plus(each) for each in (service.received[0].target, service.received[1].body.decode()))
    assert query == "/v1/orders/7?near[at][lat]=1.5&near[ids][0]=1&near[ids][1]=2&near[or][0][a]=true"
    assert form == 'meta[a][b]=c&expand[0]=x&list=1&list=2&map={"a":1}'


async def test_the_output_is_the_json_of_the_answer_or_its_text_or_nothing(service: Service) -> None:
    assert await call(service, "getOrder", {"id": "null"}) is None
    assert await call(service, "getOrder", {"id": "text"}) == "plain words"
    assert await call(service, "deleteOrder", {"id": "7"}) is None
    refused = await failure(service, "getOrder", {"id": "none"})
    assert (refused.code, refused.data["status"]) == ("http.status", 404)


async def test_what_became_of_an_odd_answer_is_noted(service: Service) -> None:
    heard = Heard()
    assert await call(service, "getOrder", {"id": "odd"}, heard=heard) == {"id": "1234567890123456789", "n": "NaN"}
    assert [note.partition(":")[0] for note in heard.notes] == ["/id", "/n"]
    plain = Heard()
    await call(service, "getOrder", {"id": "7"}, heard=plain)
    assert not hasattr(plain, "notes")


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("getOrder", {"id": 7}, "/id: "),
        ("getOrder", {"id": "7", "stranger": 1}, "stranger"),
        ("getOrder", {}, '"id" is a required property'),
        ("addOrder", {"body": {"amount": 0}}, "/body/amount: "),
        ("addOrder", {"body": {"amount": 1, "parent": {"amount": "1"}}}, "/body/parent/amount: "),
        ("getOrder", {"id": ".."}, "can't be a part of a path"),
        ("getOrder", {"id": ""}, "can't be a part of a path"),
        ("getOrder", {"id": "7", "X-Trace": "${{ secrets.BANK }}"}, "can't name a secret"),
    ],
)
async def test_wrong_arguments_are_refused_and_nothing_is_sent(
    service: Service, function: str, arguments: dict[str, Any], words: str
) -> None:
    refused = await failure(service, function, arguments, secrets=Secrets({"BANK": "canary-of-the-bank"}))
    assert (refused.code, refused.retriable) == ("tool.invalid_arguments", False)
    assert words in refused.message
    assert service.received == []


async def test_a_line_break_in_an_argument_makes_no_second_header(service: Service) -> None:
    refused = await failure(service, "getOrder", {"id": "7", "X-Trace": "a\r\nX-Admin: 1"})
    assert refused.code == "http.invalid_request"
    assert service.received == []


async def test_a_service_that_is_not_public_is_not_reached_nor_where_it_leads(service: Service) -> None:
    assert (await failure(service, "getOrder", {"id": "7"}, allowed=())).code == "http.refused"
    assert service.received == []
    assert (await failure(service, "getOrder", {"id": "away"})).code == "http.refused"


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:10.0.0.1]", "2130706433", "0x7f.1", "[fd00::1]"])
async def test_the_address_in_a_document_is_judged_as_every_other(host: str) -> None:
    api = API | {"servers": [{"url": f"http://{host}/v1"}]}
    plan = compile_workflow(together(flow("shop.deleteOrder, with: {id: x}"), api))
    http = HttpRunner(EgressGuard(), Secrets(), HttpConfig())
    with pytest.raises(StepError) as raised:
        await HttpToolRunner(http).perform(Attempt("r", "s", 1, '{"id": "x"}', plan.steps["s"]), Heard())
    assert raised.value.code == "http.refused"
    await http.close()


async def test_secrets_go_to_the_host_they_are_for_and_to_no_other(service: Service) -> None:
    more = ", auth: '${{ secrets.SHOP }}', headers: {X-Team: '${{ secrets.TEAM }}'}"
    given = {"SHOP": "secret-of-the-shop", "TEAM": "secret-of-the-team"}
    sources = {name: Source(hosts=("127.0.0.1",)) for name in given}
    secrets = Secrets(given, sources)
    await call(service, "getOrder", {"id": "7", "X-Trace": "t"}, more=more, secrets=secrets, from_disk=False)
    (request,) = service.received
    assert request.headers["authorization"] == "Bearer secret-of-the-shop"
    assert request.headers["x-team"] == "secret-of-the-team"
    elsewhere = Secrets(given, {name: Source(hosts=("api.shop.example",)) for name in given})
    refused = await failure(service, "getOrder", {"id": "7"}, more=more, secrets=elsewhere)
    assert refused.code == "secret.refused"
    assert len(service.received) == 1


CALLED_BACK: dict[str, Any] = {
    "/subscriptions": {
        "post": {
            "operationId": "subscribe",
            "parameters": [{"name": "url", "in": "query", "schema": {"type": "string", "format": "uri"}}],
            "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
            "responses": {"200": {"content": {"application/json": {"schema": {}}}}},
        }
    }
}


async def test_a_callbacks_address_is_filled_in_at_the_sending_and_fits(service: Service) -> None:
    with_callback = 'shop.subscribe, with: {url: "${{ callback.url }}", body: {url: "${{ callback.url }}", n: 1}}'
    api = API | {"paths": CALLED_BACK}
    plan = compile_workflow(
        together(
            flow(
                f"{with_callback}, await_callback: {{}}",
                f"openapi: ./shop.openapi.json, base_url: '{service.url('/v1')}'",
            ),
            api,
        )
    )
    http = HttpRunner(EgressGuard(("127.0.0.1",)), Secrets(), HttpConfig(takes_callbacks=True))
    runner = HttpToolRunner(http)

    async def address() -> str:
        return "https://flow.example.com/callbacks/" + "t" * 43

    asked = {"url": "${{ callback.url }}", "body": {"url": "${{ callback.url }}", "n": 1}}
    attempt = Attempt("r", "s", 1, json.dumps(asked), plan.steps["s"], callback=address)
    await runner.perform(attempt, Heard())
    await http.close()
    (request,) = service.received
    assert json.loads(request.body) == {"url": await address(), "n": 1}
    assert request.target.endswith("?url=https%3A%2F%2Fflow.example.com%2Fcallbacks%2F" + "t" * 43)
    assert runner.doubt(plan.steps["s"]) is None
    nowhere = HttpToolRunner(HttpRunner(EgressGuard(), Secrets(), HttpConfig()))
    assert "HAI_FLOW_PUBLIC_URL" in (nowhere.doubt(plan.steps["s"]) or "")


async def test_models_are_offered_the_operations_with_their_schemas() -> None:
    tool = plan_of("shop.deleteOrder, with: {id: x}").tools["shop"]
    assert isinstance(tool, HttpTool)
    runner = HttpToolRunner(HttpRunner(EgressGuard(), Secrets(), HttpConfig()))
    found = {each.name: each for each in await runner.offered("shop", tool)}
    assert list(found) == [
        f"shop.{each}" for each in ("getOrder", "deleteOrder", "addOrder", "sendForm", "upload", "charge")
    ]
    assert {name: each.effect for name, each in found.items()} == {
        "shop.getOrder": "read", "shop.deleteOrder": "irreversible", "shop.addOrder": "write", "shop.sendForm": "write",
        "shop.upload": "write", "shop.charge": "write",
    }  # fmt: skip
    order = found["shop.getOrder"]
    assert order.description == "Read an order."
    assert set(order.parameters["properties"]) == {"id", "fields", "near", "X-Trace"}
    assert order.parameters["required"] == ["id"]
    assert order.result is not None
    assert order.result["$ref"] == "#/$defs/Order"
    allowing = plan_of("shop.getOrder, with: {id: x}", more=", allow: [getOrder], effect: write").tools["shop"]
    (only,) = await runner.offered("shop", allowing)
    assert (only.name, only.effect) == ("shop.getOrder", "write")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("shop.getOrders, with: {id: x}", "did you mean `getOrder`?"),
        ("shop.getOrder", "needs the argument `id`"),
        ("shop.getOrder, with: {id: x, page: 1}", "has no argument `page`"),
        ("shop.getOrder, with: {id: [1]}", "the argument `id` does not fit the operation"),
        ("shop.elsewhere", "only what stands in the document itself is read"),
        ("shop.cookies", "needs the cookie `session`"),
    ],
)
def test_a_call_missing_from_the_document_is_found_before_anything_runs(call: str, words: str) -> None:
    (only,) = said(call)
    assert words in only


@pytest.mark.parametrize(
    ("tool", "api", "words"),
    [
        ("openapi: 'https://api.shop.example/openapi.json'", API, "never fetched"),
        ("openapi: {openapi: 3.1.0}", API, "expected the way to a file"),
        ("openapi: [./shop.openapi.json]", API, "expected the way to a file"),
        ("openapi: ./shop.openapi.json", {"swagger": "2.0"}, "expected `openapi: 3...`"),
        ("openapi: ./shop.openapi.json", [1], "expected a document of OpenAPI"),
        ("openapi: ./shop.openapi.json", API | {"servers": [{"url": "/v1"}]}, "add `base_url`"),
        ("openapi: ./shop.openapi.json, base_url: 'ftp://x'", API, "expected the address of a service"),
    ],
)
def test_a_document_that_can_not_be_used_is_a_finding(tool: str, api: Any, words: str) -> None:
    findings = said("shop.deleteOrder, with: {id: x}", api, tool=tool)
    assert any(words in each for each in findings), findings


def test_an_operation_that_is_not_allowed_is_none() -> None:
    (only,) = said("shop.addOrder, with: {body: {amount: 1}}", more=", allow: [getOrder]")
    assert "does not `allow`" in only
    assert any(
        "did you mean `getOrder`?" in each for each in said("shop.getOrder, with: {id: x}", more=", allow: [getOrdr]")
    )


def test_the_document_is_part_of_what_is_published() -> None:
    source = together(flow("shop.deleteOrder, with: {id: x}"))
    assert include_files(source, {}.__getitem__) == source
    assert list(read_texts(source, "flows/asks.flow.yaml")) == ["flows/asks.flow.yaml", "flows/shop.openapi.json"]
    assert "is not here" in "".join(
        each.message for each in check_workflow(flow("shop.deleteOrder, with: {id: x}"), "asks.flow.yaml")
    )


def test_a_file_that_is_used_names_a_document_from_where_it_lies() -> None:
    main = b"hai: flow/v1\nname: asks\nversion: 1\nuse: [../shared/shop.yaml]\n"
    main += b"steps:\n  - {call: shop.deleteOrder, with: {id: x}}\n"
    shared = b"hai: shared/v1\ntools: {shop: {http: {openapi: ./shop.openapi.json}}}\n"
    files = {"../shared/shop.yaml": shared, "../shared/shop.openapi.json": json.dumps(API).encode()}
    read: Callable[[str], bytes] = files.__getitem__
    plan = compile_workflow(include_files(main, read), "flows/asks.flow.yaml")
    tool = plan.tools["shop"]
    assert isinstance(tool, HttpTool)
    assert tool.base_url == "https://api.shop.example/v1"


def test_a_tool_without_a_document_is_told_so_when_it_is_published() -> None:
    plan = compile_workflow(flow("shop.anything", "base_url: 'https://api.shop.example'"), "f")
    registry = Registry({"http_tool": HttpToolRunner(HttpRunner(EgressGuard(), Secrets(), HttpConfig()))})
    ((_, fault),) = registry.faults(plan)
    assert "add `openapi`" in fault


def test_an_agent_may_have_all_operations_of_a_service() -> None:
    head = "hai: flow/v1\nname: asks\nversion: 1\nmodels: {m: {provider: openai, model: gpt-5.4}}\n"
    tools = "tools: {shop: {http: {openapi: ./shop.openapi.json}}}\n"
    source = f"{head}{tools}steps:\n  - {{id: a, agent: {{model: m, prompt: Look, tools: [shop.*]}}}}\n"
    plan = compile_workflow(together(source.encode()), "f")
    registry = Registry({"http_tool": HttpToolRunner(HttpRunner(EgressGuard(), Secrets(), HttpConfig()))})
    assert registry.faults(plan) == []
    ((_, doubt),) = registry.doubts(plan)
    assert "'elsewhere'" in doubt
    assert "it refers to https://evil.example/parameters.json" in doubt
    assert doubt.endswith("it is offered to no model (and 1 more)")
