"""The example page of the TypeScript client in a real browser: no bundler, another origin than the server's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlencode

import httpx2
import pytest

from tests.browsers.conftest import Browser
from tests.clients import typescript
from tests.clients.runs import run_of
from tests.support.hai_client import HaiClient, unique, user
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the browser's packages


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing of it."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the package's files are served as they are."""
    package = typescript.built(tmp_path_factory.mktemp("hai-client"))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(package))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def server(postgres_server: Server, site: str) -> Iterator[ServerProcess]:
    """A server that lets the page in."""
    allowed = {"HAI_FLOW_ALLOWED_ORIGINS": site}
    with postgres_server.database() as dsn, serving(dsn, environment=allowed) as process:
        yield process


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        yield client


@pytest.mark.parametrize("transport", ["sse", "binary"])
@pytest.mark.parametrize(
    ("button", "said"), [("Approve", "已删除 15 个临时文件。"), ("Reject", "已取消,什么都没有删除。")]
)
def test_the_example_page_decides_what_was_asked_elsewhere(
    browser: Browser, site: str, server: ServerProcess, http: httpx2.Client, transport: str, button: str, said: str
) -> None:
    elsewhere = HaiClient(server.url, workflow="cleanup")
    elsewhere.post(user("删除所有临时文件"), tools=("confirmAction",))
    query = urlencode({"url": elsewhere.url, "transport": transport})
    page = unique("page")
    browser.driver.ask("open", page=page, url=f"{site}/example/index.html?{query}#{elsewhere.thread_id}")

    def shows(text: str) -> str:
        """All that the page says, once `text` is there."""
        reply = browser.driver.ask("shows", page=page, text=text)
        assert reply["found"], reply
        assert reply["complaints"] == []
        assert {post["url"] for post in reply["posts"]} == {elsewhere.url}
        return reply["text"]

    assert "删除所有临时文件" in shows("Waiting for you.")
    browser.driver.ask("click", page=page, button=button)
    assert said in shows("Done.")
    assert run_of(http, elsewhere.thread_id)["output"] == {"deleted": 15 if button == "Approve" else 0}
    browser.driver.ask("close", page=page)
