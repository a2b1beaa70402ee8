"""Services that call back, over real sockets: once, in time, at the address that they were given, and nobody else."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.api.test_rest import Checked, wait_for_end
from tests.api.test_too_large import SIZE, sent_whole
from tests.support.hai_client import unique
from tests.support.postgres import fetch
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import wait_for

PUBLIC = "https://flow.example.com/"


class Shop:
    """A service that takes orders and remembers where it is to call back."""

    def __init__(self) -> None:
        shop = self
        self.asked: list[dict[str, Any]] = []
        self.came = threading.Condition()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with shop.came:
                    shop.asked.append(body)
                    shop.came.notify_all()
                answer = json.dumps({"id": "o-1", "echo": body}).encode()
                self.send_response(202)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/orders"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def address(self, order: str) -> str:
        """Where it was asked to call back for this order."""

        def found() -> list[str]:
            return [each["back"] for each in self.asked if each["order"] == order]

        with self.came:
            assert self.came.wait_for(lambda: bool(found()), 20)
            return found()[-1]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.close()


ENVIRONMENT = {"HAI_FLOW_HTTP_HOSTS": "127.0.0.1", "HAI_FLOW_PUBLIC_URL": PUBLIC}


@pytest.fixture(scope="module")
def server(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment=ENVIRONMENT) as process:
        yield process


def ordered(http: Checked, shop: Shop, more: str = "deadline: 1h", catch: str = "") -> tuple[str, str]:
    """A run that has asked the shop; its id, and the path at which the shop is to call back."""
    name = unique("order").replace("-", "_")
    body = (
        f"hai: flow/v1\nname: {name}\nversion: 1\nsteps:\n  - id: order\n    http:\n      post: {shop.url}\n"
        f'      body: {{order: {name}, back: "${{{{ callback.url }}}}"}}\n      await_callback: {{{more}}}\n{catch}'
        'output: "${{ steps.order.output.callback }}"\n'
    )
    expect(http.post("/v1/workflows", content=body.encode(), headers=YAML), 201)
    run = http.post("/v1/runs", json={"workflow": name}).json()["id"]
    address = shop.address(name)
    assert address.startswith(f"{PUBLIC}callbacks/")
    return run, urlsplit(address).path


def test_a_callback_goes_on_with_the_run_once(server: ServerProcess, shop: Shop) -> None:
    with Checked(server.url) as http:
        run, path = ordered(http, shop)
        taken = http.post(path, json={"paid": 3})
        assert (taken.status_code, taken.json()) == (202, {"already": False})
        assert wait_for_end(http, run)["output"] == {"paid": 3}
        again = http.post(path, json={"paid": 3})
        assert (again.status_code, again.json()) == (202, {"already": True})
        assert http.post(path, json={"paid": 4}).status_code == 409
        assert http.get(f"/v1/runs/{run}").json()["output"] == {"paid": 3}


def test_a_run_waits_through_kills_and_its_address_is_never_stored(database_url: str, shop: Shop) -> None:
    with serving(database_url, environment=ENVIRONMENT) as first:
        with Checked(first.url) as http:
            run, path = ordered(http, shop)
            wait_for(lambda: http.get(f"/v1/runs/{run}").json()["status"] == "waiting")
        first.kill()
    with serving(database_url, environment=ENVIRONMENT) as second, Checked(second.url) as http:
        assert http.get(f"/v1/runs/{run}").json()["status"] == "waiting"
        token = path.rpartition("/")[2]
        events = http.get(f"/v1/runs/{run}/events").text
        assert token not in events
        assert "${{ callback.url }}" in events
        assert token not in second.log
        assert http.post(
            path, content=b"paid=3", headers={"Content-Type": "application/x-www-form-urlencoded"}
        ).is_success
        assert wait_for_end(http, run)["output"] == {"paid": "3"}


async def test_of_an_address_only_its_hash_is_kept(dsn: str, server: ServerProcess, shop: Shop) -> None:
    with Checked(server.url) as http:
        _, path = ordered(http, shop)
    kept = [row["digest"] for row in await fetch(dsn, "SELECT digest FROM callbacks")]
    token = path.rpartition("/")[2].encode()
    assert hashlib.sha256(token).digest() in kept
    assert token not in kept


@pytest.mark.parametrize("token", ["x", "a" * 43, "..%2f..%2fv1%2fruns", "a" * 500, "%00"])
def test_an_address_that_was_never_given_out_says_nothing(server: ServerProcess, token: str) -> None:
    answer = expect(httpx2.post(f"{server.url}/callbacks/{token}", json={"paid": 3}), 404)
    assert "run" not in answer.json().get("detail", "")


def test_a_body_that_is_not_what_is_waited_for_uses_nothing_up(server: ServerProcess, shop: Shop) -> None:
    with Checked(server.url) as http:
        schema = "schema: {type: object, required: [paid], properties: {paid: {type: integer}}}"
        run, path = ordered(http, shop, schema)
        assert http.post(path, json={"paid": "three"}).status_code == 422
        assert http.post(path, content=b"{", headers={"Content-Type": "application/json"}).status_code in (400, 422)
        large = json.dumps({"paid": 1, "note": "x" * 2_000_000}).encode()
        assert http.post(path, content=large, headers={"Content-Type": "application/json"}).status_code == 413
        status, problem = sent_whole(server.url, path, "application/json", SIZE, chunked=False)
        assert (status, problem["code"]) == (413, "body.too_large")
        assert http.post(path, json={"paid": 3}).status_code == 202
        assert wait_for_end(http, run)["output"] == {"paid": 3}


def test_an_odd_body_goes_on_with_the_run_and_no_digit_is_lost(server: ServerProcess, shop: Shop) -> None:
    with Checked(server.url) as http:
        run, path = ordered(http, shop)
        body = b'\xef\xbb\xbf{"id": 1234567890123456789, "rate": NaN, "note": "a\\u0000b\\ud800"}'
        expect(http.post(path, content=body, headers={"Content-Type": "application/json"}), 202)
        output = wait_for_end(http, run)["output"]
        assert output == {"id": "1234567890123456789", "rate": "NaN", "note": "a\ufffdb\ufffd"}


def test_a_callback_names_no_file_that_is_not_its_runs(server: ServerProcess, shop: Shop) -> None:
    with Checked(server.url) as http:
        run, path = ordered(http, shop)
        id = http.post("/v1/files", content=b"abc").json()["id"]
        refused = http.post(path, json={"paid": id})
        assert (refused.status_code, refused.json()["code"]) == (404, "file_unknown")
        assert http.post(path, json={"paid": 3}).status_code == 202, "the address is good yet"
        assert wait_for_end(http, run)["output"] == {"paid": 3}


def test_what_comes_when_nothing_waits_any_more_is_refused(server: ServerProcess, shop: Shop) -> None:
    with Checked(server.url) as http:
        run, path = ordered(http, shop)
        assert http.post(f"/v1/runs/{run}/terminate").is_success
        assert http.post(path, json={"paid": 3}).status_code == 410
        going_on = "    catch: [{steps: [{wait: {for: 1h}}]}]\n"
        late, path = ordered(http, shop, "deadline: 1s", going_on)
        wait_for(lambda: "http.callback_expired" in http.get(f"/v1/runs/{late}/events").text)
        assert http.post(path, json={"paid": 3}).status_code == 410
        assert http.get(f"/v1/runs/{late}").json()["status"] == "waiting"
        late, path = ordered(http, shop, "deadline: 1s")
        assert wait_for_end(http, late)["error"]["code"] == "http.callback_expired"
        assert http.post(path, json={"paid": 3}).status_code == 410


def test_no_other_door_takes_the_signal_that_a_callback_is(server: ServerProcess, shop: Shop) -> None:
    with Checked(server.url) as http:
        run, path = ordered(http, shop)
        forged = {"type": "callback:order", "data": {"paid": 0}}
        assert http.post(f"/v1/runs/{run}/signals", json=forged).status_code == 403
        assert http.post("/v1/signals", json=forged).status_code == 403
        assert http.post("/v1/events", json=forged).status_code == 403
        assert http.post(path, json={"paid": 3}).status_code == 202
        assert wait_for_end(http, run)["output"] == {"paid": 3}
