"""Webhooks over real sockets: who knows the secret starts a run, once; who does not learns nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.api.test_rest import Checked, wait_for_end
from tests.api.test_too_large import SIZE, sent_whole
from tests.support.hai_client import unique
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, expect, serving

SECRET = "known to the shop"
FLOW = (
    "input: {type: object, required: [order], properties: {order: {type: string}}}\n"
    "triggers:\n  - webhook: {path: %s, secret: '${{ secrets.SHOP_HOOK }}'%s}\n"
    'steps:\n  - {say: hello}\noutput: "${{ input.order }} for ${{ run.requester }} by ${{ run.trigger }}"\n'
)


@pytest.fixture(scope="module")
def shop(postgres_server: Server) -> Iterator[ServerProcess]:
    with postgres_server.database() as dsn, serving(dsn, environment={"HAI_FLOW_SECRET_SHOP_HOOK": SECRET}) as process:
        yield process
        assert SECRET not in process.log


@pytest.fixture
def http(shop: ServerProcess) -> Iterator[Checked]:
    with Checked(shop.url) as client:
        yield client


def publish(http: Checked, more: str = "", path: str | None = None) -> str:
    """Publish a workflow with a webhook; its path."""
    name = unique("hook").replace("-", "_")
    body = f"hai: flow/v1\nname: {name}\nversion: 1\n" + FLOW % (path or name, more)
    expect(http.post("/v1/workflows", content=body.encode(), headers=YAML), 201)
    return path or name


def call(http: Checked, path: str, body: Any, *, secret: str = SECRET, **headers: str) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    signature = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    signed = {"X-Hub-Signature-256": f"sha256={signature}", "Content-Type": "application/json", **headers}
    return http.post(f"/v1/hooks/{path}", content=content, headers=signed)


def count(http: Checked, workflow: str) -> int:
    return len(http.get("/v1/runs", params={"workflow": workflow}).json()["items"])


def test_a_request_that_names_a_file_starts_nothing(http: Checked) -> None:
    path = publish(http)
    id = http.post("/v1/files", content=b"abc").json()["id"]
    refused = call(http, path, {"order": f"A1 {id}"})
    assert (refused.status_code, refused.json()["code"]) == (404, "file_unknown")
    assert count(http, path) == 0


def test_a_request_that_knows_the_secret_starts_a_run_with_its_body(http: Checked) -> None:
    path = publish(http)
    response = expect(call(http, path, {"order": "A1"}), 202)
    run_id = response.json()["run_id"]
    assert response.json()["already"] is False
    assert wait_for_end(http, run_id)["output"] == "A1 for system by webhook"
    again = call(http, path, {"order": "A1"})
    assert (again.status_code, again.json()) == (202, {"run_id": run_id, "already": True})
    assert call(http, path, {"order": "A2"}).json()["run_id"] != run_id


def test_simultaneous_requests_with_one_dedupe_key_start_one_run(http: Checked) -> None:
    path = publish(http, ", dedupe: '${{ event.data.order }}', input: {order: '${{ event.data.order }}'}")
    with ThreadPoolExecutor(8) as pool:
        bodies = [{"order": "A1", "try": n} for n in range(8)]
        answers = list(pool.map(lambda body: call(http, path, body).json(), bodies))
    assert len({each["run_id"] for each in answers}) == 1
    assert sum(not each["already"] for each in answers) == 1
    assert count(http, path) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
        {"X-Hub-Signature-256": ""},
        {"X-Hub-Signature-256": "sha256=ÿ"},
        {"Authorization": f"Bearer {SECRET}", "X-Hub-Signature-256": SECRET},
    ],
)
def test_who_does_not_know_the_secret_learns_nothing(http: Checked, headers: dict[str, str]) -> None:
    path = publish(http)
    for body in ({"order": "A1"}, b"{", b""):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        encoded = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
        response = http.post(f"/v1/hooks/{path}", content=content, headers=encoded)
        assert (response.status_code, response.json()["code"]) == (401, "webhook_refused")
        assert path not in response.text
    assert count(http, path) == 0


def test_a_secret_that_the_deployment_lacks_looks_like_a_wrong_one(http: Checked, shop: ServerProcess) -> None:
    name = unique("hook").replace("-", "_")
    flow = (FLOW % (name, "")).replace("SHOP_HOOK", "NOBODY_SET")
    http.post("/v1/workflows", content=f"hai: flow/v1\nname: {name}\nversion: 1\n{flow}".encode(), headers=YAML)
    assert call(http, name, {"order": "A1"}, secret="").status_code == 401
    assert call(http, name, {"order": "A1"}).json()["code"] == "webhook_refused"


@pytest.mark.parametrize("path", ["nobody", "no/body", "%00", "..%2f", "a" * 300, "ä"])
def test_a_path_that_no_workflow_has_is_404(http: Checked, shop: ServerProcess, path: str) -> None:
    response = expect(httpx2.post(f"{shop.url}/v1/hooks/{path}", content=b"{}"), 404)
    assert response.json()["detail"] in ("there is no webhook here.", "Not Found", "there is no such path.")


def test_a_path_of_several_parts_is_one_path(http: Checked, shop: ServerProcess) -> None:
    path = publish(http, path=f"shop/{unique('p')}")
    content = b'{"order": "A1"}'
    signature = hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()
    expect(httpx2.post(f"{shop.url}/v1/hooks/{path}", content=content, headers={"X-Hub-Signature-256": signature}), 202)


def test_what_a_genuine_request_says_wrong_is_told(http: Checked) -> None:
    path = publish(http)
    assert call(http, path, b"{").status_code == 400
    assert call(http, path, {"order": 5}).json()["code"] == "input.invalid"
    assert call(http, path, b'{"order": "a", "order": "b"}').status_code == 400
    assert count(http, path) == 0


def test_match_and_input_see_the_headers_but_no_token(http: Checked) -> None:
    hook = (
        """, scheme: token, match: 'event.headers["x-kind"] == "sold"', """
        """input: {order: '${{ size(event.headers) }} ${{ "authorization" in event.headers }}'}"""
    )
    path = publish(http, hook)
    token = {"Authorization": f"Bearer {SECRET}"}
    assert http.post(f"/v1/hooks/{path}", headers={**token, "X-Kind": "other"}).json()["run_id"] is None
    response = expect(http.post(f"/v1/hooks/{path}", headers={**token, "X-Kind": "sold"}), 202)
    assert "false for system" in wait_for_end(http, response.json()["run_id"])["output"]
    assert http.post(f"/v1/hooks/{path}", headers={**token, "X-Kind": "sold"}).json()["already"] is False


def test_pages_of_other_names_and_oversized_bodies_are_refused_everywhere(http: Checked, shop: ServerProcess) -> None:
    path = publish(http)
    assert call(http, path, {"order": "A1"}, Host="evil.example").status_code == 421
    assert call(http, path, {"order": "A1"}, Origin="https://evil.example").status_code == 403
    assert call(http, path, {"order": "A" * 2_000_000}).status_code == 413
    status, problem = sent_whole(shop.url, f"/v1/hooks/{path}", "application/json", SIZE, chunked=False)
    assert (status, problem["code"]) == (413, "body.too_large")
    assert httpx2.post(f"{shop.url}/v1/hooks/nobody", content=b"A" * 2_000_000).status_code == 404


def test_a_path_belongs_to_one_workflow_until_its_latest_version_drops_it(http: Checked) -> None:
    path = publish(http)
    other = f"hai: flow/v1\nname: {unique('other').replace('-', '_')}\nversion: 1\n" + FLOW % (path, "")
    (finding,) = expect(http.post("/v1/workflows", content=other.encode(), headers=YAML), 422).json()["findings"]
    assert (finding["code"], finding["line"]) == ("webhook.path_taken", 6)
    without = f"hai: flow/v1\nname: {path}\nversion: 2\nsteps: [{{say: hi}}]\n"
    assert http.post("/v1/workflows", content=without.encode(), headers=YAML).status_code == 201
    assert call(http, path, {"order": "A1"}).status_code == 404
    assert http.post("/v1/workflows", content=other.encode(), headers=YAML).status_code == 201
    assert call(http, path, {"order": "A1"}).status_code == 202
