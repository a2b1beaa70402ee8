"""A small backend of a web page: it holds the API key, serves the page, and gives it tokens.

    HAI_FLOW_URL=http://localhost:8000 HAI_FLOW_KEY=hai_... python3 clients/examples/backend.py PAGES

The key has the role `issuer`, and the roles that its tokens may have. A real backend knows from a session of its own
who its visitor is; this one is told. The page's origin has to be one of the server's `HAI_FLOW_ALLOWED_ORIGINS`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hai_flow_client import Client, HaiFlowError


class Backend(ThreadingHTTPServer):
    """Serves the files below `pages`, and at `POST /token` a token of `principal` that is good for `seconds`."""

    daemon_threads = True

    def __init__(
        self, pages: Path, principal: str, *, roles: Sequence[str] = (), seconds: int = 900, port: int = 0
    ) -> None:
        super().__init__(("127.0.0.1", port), partial(_Handler, directory=str(pages)))
        self.principal, self.roles, self.seconds = principal, roles, seconds
        self.threads: Sequence[str] | None = None  # the only ones that the page may open; None: all of its visitor's
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.flow: Client | None = None  # with the key
        self.given = 0

    def token(self) -> dict[str, Any]:
        """A new token. Raises HaiFlowError."""
        assert self.flow is not None, "say which server it is for"
        self.given += 1
        made = self.flow.tokens.create(self.principal, roles=self.roles, threads=self.threads, expires_in=self.seconds)
        return {"token": made.token, "expires_in": self.seconds}


class _Handler(SimpleHTTPRequestHandler):
    server: Backend

    def do_POST(self) -> None:
        """`/token`, for pages of this origin: a page of elsewhere can't read the answer, and is told so."""
        if self.path != "/token" or self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            self.send_error(403)
            return
        try:
            status, content = 200, self.server.token()
        except HaiFlowError as error:
            status, content = error.status or 502, {"detail": error.detail}
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a log of addresses is none of this example's business."""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Serve pages, and give them tokens of a HAI Flow server.")
    parser.add_argument("pages", type=Path, help="the folder of the pages")
    parser.add_argument("--principal", default="user:ann", help="who has signed in")
    parser.add_argument("--role", action="append", default=[], help="a role that the page gets")
    parser.add_argument("--port", type=int, default=8001)
    given = parser.parse_args()
    with Client() as flow, Backend(given.pages, given.principal, roles=given.role, port=given.port) as backend:
        backend.flow = flow
        print(f"{backend.origin} (HAI_FLOW_ALLOWED_ORIGINS has to name it)", flush=True)
        backend.serve_forever()


if __name__ == "__main__":
    main()
