"""`/console/`: the pages in which people decide and watch, as files. They are clients of the API like any other.

A wheel has them built, in `hai_flow/_console`. A checkout has their sources; `dev` builds them there when a page is
first asked for, so that nothing waits for Node where no page is wanted. Until they are built, a page explains how to
get them."""

from __future__ import annotations

import asyncio
import html
import mimetypes
import sys
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from hai_flow import addresses
from hai_flow.api.http.problems import problem
from hai_flow.api.http.visitor_pages import language_of, render_page, say
from hai_flow.api.permissions.principals import open_to_everybody

log = structlog.get_logger(__name__)

PATH: Final = addresses.CONSOLE
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "media-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_FOR_EVER: Final = "public, max-age=31536000, immutable"  # the name of an asset has the hash of its content
_FOR_A_WHILE: Final = "public, max-age=600"
_ELEMENTS: Final = ("elements.js", "elements.json", "elements.d.ts")  # for pages of others, which know these addresses
_PACKAGE: Final = Path(__file__).resolve().parents[2]
_CHECKOUT: Final = _PACKAGE.parent / "console"
_ENCODINGS: Final = {"br": ".br", "gzip": ".gz"}
_PATIENCE_SECONDS: Final = 2.0  # checking pages that are built already takes less
_AGAIN_SECONDS: Final = 2


class Console:
    """The files of the pages, as an ASGI application below `PATH`."""

    def __init__(self, folders: tuple[Path, ...], sources: Path | None = None) -> None:
        """`folders`: where built pages may lie, the first one that has them counts. `sources`: a checkout whose pages
        are built when they are asked for."""
        self._folders = folders
        self._sources = sources
        self._building: asyncio.Task[str] | None = None

    @property
    def is_served(self) -> bool:
        """Whether there are pages, or the first request for one builds them."""
        return self._sources is not None or self._file("index.html") is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if scope["type"] != "http" or request.method not in ("GET", "HEAD"):
            response: Response = problem(405, "method_not_allowed", "the console's pages are only read.")
        else:
            response = await self._answer(request, scope["path"].removeprefix(scope.get("root_path", "")).lstrip("/"))
        await response(scope, receive, send)

    async def _answer(self, request: Request, path: str) -> Response:
        accepted = request.headers.get("accept-encoding", "")
        if path in _ELEMENTS and self._sources is not None:
            await asyncio.shield(self._begin_build(self._sources))
        if "." in path.rpartition("/")[2]:
            file = self._file(path)
            if file is None or path.endswith((".html", *_ENCODINGS.values())):
                return problem(404, "not_found", HTTPStatus.NOT_FOUND.phrase)
            caching = _FOR_EVER if path.startswith("assets/") else _FOR_A_WHILE if path in _ELEMENTS else None
            return _send_file(file, accepted, {} if caching is None else {"Cache-Control": caching})
        if (waiting := await self._wait_for_build(request)) is not None:
            return waiting
        # Any other path is a place within the pages, which find it by themselves.
        page = self._file("decide.html" if path.startswith("decide/") else "index.html")
        return _missing() if page is None else _send_file(page, accepted, {"Content-Security-Policy": POLICY})

    def _file(self, path: str) -> Path | None:
        folder = next((each for each in self._folders if (each / "index.html").is_file()), None)
        if folder is None or ".." in path.split("/") or "\0" in path:
            return None
        file = folder / path
        return file if file.is_file() else None

    def _begin_build(self, sources: Path) -> asyncio.Task[str]:
        """The build, which is begun unless it was."""
        if self._building is None:
            self._building = asyncio.create_task(_build(sources))
        return self._building

    async def _wait_for_build(self, request: Request) -> Response | None:
        """Wait a moment for the build. Returns a page about it while it runs, or after it failed; None: the pages are
        there, or this server builds none."""
        if self._sources is None:
            return None
        building = self._begin_build(self._sources)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                fault = await asyncio.shield(building)
                if fault:
                    self._building = None  # the next look tries again
                    return _render_failure_page(fault)
                return None
        return _being_built(request)


def install(app: FastAPI, *, build: bool) -> None:
    """Serve the pages. `build`: this is a development server, which builds those of its checkout."""
    sources = _CHECKOUT if build and (_CHECKOUT / "package.json").is_file() else None
    app.state.console = Console((_CHECKOUT / "dist", _PACKAGE / "_console"), sources)
    app.mount(PATH, app.state.console, name="console")
    app.add_api_route(
        PATH, enter, methods=["GET"], include_in_schema=False, dependencies=[open_to_everybody()], response_model=None
    )


async def enter() -> Response:
    """Lead to the pages."""
    return RedirectResponse(f"{PATH}/", 308)


async def _build(sources: Path) -> str:
    """Build the pages of the checkout, unless they are built. Returns the fault, or "" if there was none."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(sources / "building.py"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, output = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()  # or its pipes outlive the event loop
        raise
    if process.returncode:
        log.warning("console_not_built", error=output.decode(errors="replace"))
        return output.decode(errors="replace") or "it ended without a word"
    return ""


def _send_file(file: Path, accepted: str, headers: dict[str, str]) -> Response:
    """The file, in the first encoding that the client takes and that lies beside it."""
    guess = "text/plain" if file.name.endswith(".ts") else mimetypes.guess_type(file.name)[0]
    media_type = guess or "application/octet-stream"
    takes = {each.partition(";")[0].strip().lower() for each in accepted.split(",") if "q=0" not in each.split(";")[1:]}
    for encoding, suffix in _ENCODINGS.items():
        encoded = file.with_name(file.name + suffix)
        if encoding in takes and encoded.is_file():
            file, headers = encoded, {**headers, "Content-Encoding": encoding}
            break
    return FileResponse(file, headers={**headers, "Vary": "Accept-Encoding"}, media_type=media_type)


def _missing() -> Response:
    return render_page(
        "The console is not built",
        "<p>This is a checkout, which has the console's sources alone. Build its pages once, in the checkout:</p>"
        "<pre>make console</pre><p>or start <code>python3 cli.py dev</code>, which builds them when you look at them. "
        "An installed wheel has them built. The API works without them.</p>",
        503,
    )


def _being_built(request: Request) -> Response:
    language = language_of(request)
    body = f"<p>{say(language, 'This happens once and takes about fifteen seconds. The page refreshes by itself.')}</p>"
    page = render_page(say(language, "The console is being built"), body, language=language)
    page.headers["Refresh"] = str(_AGAIN_SECONDS)
    return page


def _render_failure_page(fault: str) -> Response:
    excerpt = html.escape(fault[-4000:])
    return render_page(
        "The console could not be built",
        f"<pre>{excerpt}</pre><p>Load this page again to try again. The API works without it.</p>",
        503,
    )
