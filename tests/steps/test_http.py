"""`http` against a service on a real socket: what is sent, what counts, and where nothing is sent."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from hai_flow import values
from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.expressions.evaluation import CompiledExpression
from hai_flow.definition.plan import Expression, Template
from hai_flow.errors import StepError
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.runner import HttpRunner
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.steps.runner import Attempt
from hai_flow.steps.secrets import Secrets, Source, hide_secrets
from tests.support.service import Received, Reply, Service

HERE = ("127.0.0.1", "*.test")


async def nobody(text: str, kind: str = "text") -> None:
    raise AssertionError("http says nothing")


async def perform(
    http: Mapping[str, Any],
    *,
    allowed: tuple[str, ...] = HERE,
    secrets: Secrets | None = None,
    from_disk: bool = False,
    resolve: Callable[..., Any] | None = None,
    **config: Any,
) -> Any:
    """The output of a step with these parameters, whose holes are filled from nothing but secrets."""
    document = {"hai": "flow/v1", "name": "asks", "version": 1, "steps": [{"id": "a", "http": http}]}
    step = compile_workflow(json.dumps(document).encode()).steps["a"]

    async def evaluate(uses: Expression | Template, /, **names: Any) -> Any:
        return uses.evaluate(names) if isinstance(uses, CompiledExpression) else cast(Template, uses).render(names)

    args = values.dumps(step.verb.arguments.render({})).decode()  # type: ignore[union-attr]
    attempt = Attempt("r", "a", 1, args, step, None, from_disk, "asks", evaluate)
    guard = EgressGuard(allowed) if resolve is None else EgressGuard(allowed, resolve)
    runner = HttpRunner(guard, secrets or Secrets(), HttpConfig(**config))
    try:
        return await runner.perform(attempt, nobody)  # type: ignore[arg-type]
    finally:
        await runner.close()


async def failure(http: Mapping[str, Any], **more: Any) -> StepError:
    with pytest.raises(StepError) as raised:
        await perform(http, **more)
    return raised.value


def says(value: Any, **more: Any) -> Callable[[Received], Reply]:
    return lambda received: Reply(body=json.dumps(value).encode(), **more)


# --- what is sent -----------------------------------------------------------------------------------------------------


async def test_a_response_is_its_status_headers_json_text_and_address() -> None:
    async with Service(says({"a": [1, None]}, headers=(("X-Page", "1"),))) as service:
        output = await perform({"get": service.url("/x?b=1"), "query": {"q": "ä b", "n": [1, 2], "none": None}})
    assert (output["status"], output["json"], output["headers"]["x-page"]) == (200, {"a": [1, None]}, "1")
    assert output["text"] == '{"a": [1, null]}'
    assert service.received[0].target == "/x?b=1&q=%C3%A4+b&n=1&n=2"
    assert "idempotency-key" not in service.received[0].headers


@pytest.mark.parametrize(
    ("body", "type", "sent"),
    [
        ({"body": {"a": 1.5}}, "application/json", b'{"a":1.5}'),
        ({"form": {"a": "x y", "b": [1, 2]}}, "application/x-www-form-urlencoded", b"a=x+y&b=1&b=2"),
        ({"text": "ping"}, None, b"ping"),
    ],
)
async def test_bodies_go_as_they_are_called(body: dict[str, Any], type: str | None, sent: bytes) -> None:
    async with Service(says({})) as service:
        for method in ("post", "put", "patch", "delete"):
            await perform({method: service.url(), **body})
    for received in service.received:
        assert (received.headers.get("content-type"), received.body) == (type, sent)
        assert received.headers["idempotency-key"] == "r/a"


async def test_a_form_with_files_is_one() -> None:
    parts = {"note": "hello", "file": {"filename": "a.csv", "content": "1,2", "type": "text/csv"}}
    async with Service(says({})) as service:
        await perform({"post": service.url(), "multipart": parts})
    received = service.received[0]
    assert received.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b'name="note"\r\n\r\nhello\r\n' in received.body
    assert b'name="file"; filename="a.csv"\r\nContent-Type: text/csv\r\n\r\n1,2\r\n' in received.body


async def test_a_list_in_a_form_is_json_unless_it_is_one_of_files() -> None:
    said = [{"role": "user", "content": "hi"}]
    parts = {"said": said, "none": [], "files": [{"filename": "a", "content": "1"}, {"content": "2"}]}
    async with Service(says({})) as service:
        await perform({"post": service.url(), "multipart": parts})
    body = service.received[0].body
    assert b'name="said"\r\n\r\n[{"role":"user","content":"hi"}]\r\n' in body
    assert b'name="none"\r\n\r\n[]\r\n' in body
    assert body.count(b'name="files"; filename="') == 2


async def test_pages_are_followed_as_next_says() -> None:
    def answer(received: Received) -> Reply:
        page = int(received.target.rpartition("=")[2]) if "=" in received.target else 1
        return Reply(body=json.dumps({"n": page, "next": f"/list?page={page + 1}" if page < 3 else None}).encode())

    http = {"next": "${{ response.json.next }}", "headers": {"X-Team": "a"}}
    async with Service(answer) as service:
        output = await perform({"get": service.url("/list"), **http})
        assert [page["n"] for page in output["json"]] == [1, 2, 3]
        fault = await failure({"get": service.url("/list"), "pages": 2, **http})
    assert fault.code == "http.too_large"
    assert {received.headers["x-team"] for received in service.received} == {"a"}


# --- what counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "again", "after"),
    [
        (Reply(404, b"no"), "http.status", False, None),
        (Reply(500), "http.status", True, None),
        (Reply(429, headers=(("Retry-After", "7"),)), "http.status", True, 7.0),
        (Reply(302, headers=(("Location", "/elsewhere"),)), "http.status", False, None),
        (Reply(body=b"x" * 2000, type="text/plain"), "http.too_large", False, None),
    ],
)
async def test_a_response_that_does_not_count_has_its_code(reply: Reply, code: str, again: bool, after: Any) -> None:
    async with Service(lambda _: reply) as service:
        fault = await failure({"post": service.url("/a?token=x"), "body": {}}, bytes_max=1024)
    assert (fault.code, fault.retriable, fault.retry_after) == (code, again, after)
    assert "token" not in fault.message


async def test_expect_says_what_counts() -> None:
    async with Service(lambda _: Reply(404, b'{"gone": true}')) as service:
        output = await perform({"get": service.url(), "expect": "response.status == 404"})
        assert output["json"] == {"gone": True}
        fault = await failure({"get": service.url(), "expect": "response.status == 200"})
    assert (fault.code, fault.retriable) == ("http.expect", None)


@pytest.mark.parametrize(
    "url",
    ["ftp://a/b", "//a/b", "http://", "http://a:b@c.test/", "http://[::1", "file:///etc/passwd", "http://a:99999/"],
)
async def test_what_is_no_address_of_the_web_is_refused_where_a_hole_gives_it(url: str) -> None:
    assert (await failure({"get": f"${{{{ '' + '{url}' }}}}"})).code == "http.invalid_request"


async def test_headers_make_no_lines_of_their_own() -> None:
    async with Service(says({})) as service:
        fault = await failure({"get": service.url(), "headers": {"X": "a\r\nY: b"}})
    assert (fault.code, service.received) == ("http.invalid_request", [])


# --- where nothing is sent --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]"])
async def test_this_machine_is_not_reached(host: str) -> None:
    async with Service(says({})) as service:
        fault = await failure({"get": service.url(host=host)}, allowed=())
    assert (fault.code, service.received) == ("http.refused", [])


async def test_a_redirect_is_judged_like_the_first_address() -> None:
    async with Service(says({"secret": 1})) as inside:
        there = inside.url(host="localhost")
        async with Service(lambda _: Reply(302, headers=(("Location", there),))) as outside:
            fault = await failure({"get": outside.url()}, allowed=("127.0.0.1",), resolve=names({"localhost": ["::1"]}))
    assert (fault.code, inside.received) == ("http.refused", [])


def names(answers: dict[str, list[str]]) -> Callable[..., Any]:
    """A resolver of the test's own: the last answer for a name is not the first (rebinding)."""

    async def resolve(host: str, port: int) -> list[str]:
        known = answers.get(host, [host])
        return [known.pop(0) if len(known) > 1 else known[0]]

    return resolve


async def test_a_name_that_changes_its_mind_is_reached_where_it_was_judged() -> None:
    async with Service(says({"it": "was judged"})) as service:
        asked: list[str] = []
        inner = names({"rebinding.example": ["127.0.0.1", "10.0.0.1"]})

        async def resolve(host: str, port: int) -> list[str]:
            asked.append(host)
            return await inner(host, port)

        url = service.url(host="rebinding.example")
        output = await perform({"get": url}, allowed=("127.0.0.1",), resolve=resolve)
    assert output["json"] == {"it": "was judged"}
    assert asked == ["rebinding.example"], "resolved once: nobody asks again between the judgement and the connection"
    assert service.received[0].headers["host"] == f"rebinding.example:{service.port}"


async def test_a_name_that_has_changed_its_mind_before_is_refused() -> None:
    resolve = names({"rebinding.example": ["10.0.0.1"]})
    assert (await failure({"get": "http://rebinding.example/"}, resolve=resolve, allowed=())).code == "http.refused"


async def test_redirects_end() -> None:
    async with Service(lambda _: Reply(302, headers=(("Location", "/again"),))) as service:
        fault = await failure({"get": service.url()})
    assert (fault.code, len(service.received)) == ("http.connection", 6)


# --- secrets ----------------------------------------------------------------------------------------------------------

BOUND = Secrets({"TOKEN": "canary-123456"}, {"TOKEN": Source(hosts=("127.0.0.1", "api.test"))})
ASKS = {"headers": {"X-Key": "k ${{ secrets.TOKEN }}"}, "auth": "${{ secrets.TOKEN }}"}


async def test_a_secret_goes_to_its_own_host_and_is_in_no_argument() -> None:
    async with Service(says({})) as service:
        await perform({"get": service.url(), **ASKS}, secrets=BOUND)
        fault = await failure({"get": service.url(host="other.test"), **ASKS}, secrets=BOUND)
    assert service.received[0].headers["x-key"] == "k canary-123456"
    assert service.received[0].headers["authorization"] == "Bearer canary-123456"
    assert (fault.code, len(service.received)) == ("secret.refused", 1)


async def test_user_and_password_are_hidden_as_one_in_what_a_service_repeats() -> None:
    written = b64encode(b"u:canary-123456").decode()
    auth = {"auth": {"basic": {"user": "u", "password": "${{ secrets.TOKEN }}"}}}
    async with Service(lambda received: says({"a": received.headers["authorization"]})(received)) as service:
        response = await perform({"get": service.url(), **auth}, secrets=BOUND)
    assert response["json"]["a"] == f"Basic {written}"
    assert hide_secrets(response["json"]) == {"a": "Basic [secret]"}
    assert "[secret]" in hide_secrets(b64encode(b"another:canary-123456").decode()), "wherever it begins"


async def test_a_secret_that_the_cut_of_an_error_goes_through_is_hidden_whole() -> None:
    async with Service(lambda _: Reply(400, b"x" * 295 + b"canary-123456")) as service:
        fault = await failure({"get": service.url(), **ASKS}, secrets=BOUND)
    assert fault.data["text"] == "x" * 295 + "[secr…"


async def test_a_secret_does_not_follow_a_redirect_to_another_place() -> None:
    async with (
        Service(says({"fine": True})) as other,
        Service(lambda _: Reply(302, headers=(("Location", other.url("/x")),))) as service,
    ):
        await perform({"get": service.url(), **ASKS}, secrets=BOUND)
    assert "canary" in repr(service.received)
    assert [received.target for received in other.received] == ["/x"]
    assert "canary" not in repr(other.received)


async def test_what_comes_from_elsewhere_names_no_secret() -> None:
    document = (
        "hai: flow/v1\nname: a\nversion: 1\ninput: {type: object, required: [n], properties: {n: {type: string}}}\n"
        "steps: [{id: a, http: {get: 'https://x.test', headers: {A: '${{ input.n }}', B: '${{ secrets.TOKEN }}'}}}]\n"
    )
    arguments = compile_workflow(document.encode()).steps["a"].verb.arguments  # type: ignore[union-attr]
    assert arguments.render({"input": {"n": "x"}})["headers"] == {"A": "x", "B": "${{ secrets.TOKEN }}"}
    with pytest.raises(Exception, match="names a secret that the document does not name"):
        arguments.render({"input": {"n": "${{ secrets.TOKEN }}"}})
