"""A page of somebody else, on another origin than the server's, with the elements in it: under a policy that excepts
nothing, and whatever styles and scripts it may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, cast

HEAD = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page of somebody else</title>'


class HostSite(ThreadingHTTPServer):
    """Serves pages that tests write into `pages` (paths to documents, scripts or styles), each with the policy."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.pages: dict[str, str] = {}
        self.flow = ""
        """The origin of the HAI Flow server."""

    @property
    def policy(self) -> str:
        return (
            f"default-src 'none'; script-src 'self' {self.flow}; connect-src {self.flow}; style-src 'self'; "
            "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        )

    def write(self, body: str, script: str = "", style: str = "", integrity: str = "") -> str:
        """The path of a new page. `script` runs before the elements are known; `integrity` is their hash."""
        name = f"/page-{len(self.pages)}"
        self.pages[f"{name}.js"] = script
        self.pages[f"{name}.css"] = style
        self.pages[name] = (
            f'{HEAD}<link rel="stylesheet" href="{name}.css"><script src="{name}.js"></script>'
            f'<script type="module" src="{self.flow}/console/elements.js" crossorigin '
            f'integrity="{integrity}"></script></head>'
            f"<body><main><h1>Orders</h1>{body}</main></body></html>"
        )
        return name


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        site = cast(HostSite, self.server)
        path = self.path.partition("?")[0]
        text = site.pages.get(path)
        self.send_response(204 if path == "/favicon.ico" else 404 if text is None else 200)
        kind = "text/javascript" if path.endswith(".js") else "text/css" if path.endswith(".css") else "text/html"
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", site.policy)
        body = (text or "").encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what was asked for is seen in the browser."""


@contextmanager
def host_site() -> Iterator[HostSite]:
    """A site that is served until the end."""
    with HostSite() as site:
        thread = Thread(target=site.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()
