"""Pages for visitors: `/` lists the places of this server, `/docs` shows the API. Their files are part of the
installation. A policy lets the pages load from this server alone."""

from __future__ import annotations

import html
from importlib import resources
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles

import hai_flow
from hai_flow.api.permissions.principals import open_to_everybody
from hai_flow.api.rest import console
from hai_flow.api.routes import Routes

router = Routes(include_in_schema=False)

ASSETS: Final = "/docs/assets"
_NOTHING_ELSE: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# Swagger UI styles its elements by attributes; scripts are files of ours alone.
DOCS_POLICY: Final = (
    f"{_NOTHING_ELSE}; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'"
)
_PLACES: Final = {
    "/docs": "the API, described; try it there",
    "/openapi.json": "the same for programs",
    "/v1/runs": "runs",
    "/v1/pendings": "what waits for people",
    "/v1/workflows": "the workflows that can be started",
    "/healthz": "whether this process answers",
    "/readyz": "whether it can serve",
}
NO_IDENTITY: Final = "No identity is configured: nobody is asked who they are, and everybody is user:local."
_DOCS_PAGE: Final = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>HAI Flow: API</title>
<link rel="stylesheet" href="{ASSETS}/swagger-ui.css"><link rel="icon" href="{ASSETS}/favicon.png">
</head><body><div id="swagger-ui"></div>
<script src="{ASSETS}/swagger-ui-bundle.js"></script><script src="/docs/start.js"></script>
</body></html>
"""
_DOCS_SCRIPT: Final = (
    "SwaggerUIBundle({url: '/openapi.json', dom_id: '#swagger-ui', deepLinking: true, layout: 'BaseLayout', "
    "presets: [SwaggerUIBundle.presets.apis]});\n"
)


def install(app: FastAPI) -> None:
    """Serve the pages and their files."""
    app.include_router(router)
    files = resources.files("fastapi_offline") / "static"
    app.mount(ASSETS, StaticFiles(directory=str(files)), name="assets of /docs")


@router.get("/", dependencies=[open_to_everybody()])
async def show_welcome(request: Request) -> Response:
    """The places of this server: a page for browsers, JSON for others."""
    open_house = request.app.state.settings.identity is None
    if "text/html" not in request.headers.get("accept", ""):
        about: dict[str, Any] = {"name": "HAI Flow", "version": hai_flow.__version__, "places": _PLACES}
        return JSONResponse({**about, "identity": NO_IDENTITY} if open_house else about)
    warning = f"<p>{html.escape(NO_IDENTITY)}</p>" if open_house else ""
    rows = "".join(f'<li><a href="{path}">{path}</a>: {html.escape(text)}</li>' for path, text in _PLACES.items())
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>HAI Flow</title></head>'
        f"<body><h1>HAI Flow {hai_flow.__version__}</h1><p>Workflows that wait for people.</p>{warning}"
        f'<p><a href="{console.PATH}/">The console: decide what is waiting for you, and watch runs</a></p>'
        f"<ul>{rows}</ul>"
        "</body></html>"
    )
    return HTMLResponse(page, headers={"Content-Security-Policy": _NOTHING_ELSE})


@router.get("/docs", dependencies=[open_to_everybody()])
async def show_docs(request: Request) -> Response:
    """The API as a page."""
    warning = f"<p>{html.escape(NO_IDENTITY)}</p>" if request.app.state.settings.identity is None else ""
    return HTMLResponse(
        _DOCS_PAGE.replace("<body>", f"<body>{warning}"), headers={"Content-Security-Policy": DOCS_POLICY}
    )


@router.get("/docs/start.js", dependencies=[open_to_everybody()])
async def get_docs_script() -> Response:
    """The script that starts Swagger UI. It is a file, because the policy forbids scripts inside a page."""
    return Response(_DOCS_SCRIPT, media_type="text/javascript")
