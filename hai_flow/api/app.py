"""The application: every route, behind the guard. A composition root; the runtime is given."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

import hai_flow
from hai_flow.api import dialects, pendings, problems, runs, workflows
from hai_flow.api.deps import CurrentRuntime, Guard
from hai_flow.errors import Rejected
from hai_flow.runtime import Runtime
from hai_flow.settings import Settings
from hai_flow.store import migrations


def create_app(settings: Settings, runtime: Runtime) -> FastAPI:
    """The ASGI application over a runtime, which the caller starts before and stops after it."""
    app = FastAPI(
        title="HAI Flow",
        version=hai_flow.__version__,
        description="Declarative workflows that wait for people, in PostgreSQL.",
        docs_url="/docs",
        redoc_url=None,
    )
    app.state.runtime = runtime
    app.state.settings = settings
    problems.install(app)
    for module in (runs, pendings, workflows, dialects):
        app.include_router(module.router)

    @app.get("/healthz", tags=["operations"])
    async def healthz() -> dict[str, Any]:
        """The process answers."""
        return {"status": "ok", "version": hai_flow.__version__}

    @app.get("/readyz", tags=["operations"])
    async def readyz(runtime: CurrentRuntime) -> dict[str, Any]:
        """The process can serve: the database answers, and its schema is ours. 503 otherwise."""
        try:
            behind = await migrations.is_behind(runtime.dsn)
        except Exception as error:
            raise Rejected(503, "database_unavailable", f"the database does not answer: {error}") from None
        if behind:
            raise Rejected(503, "schema_behind", "the database's schema is older than this server: run hai-flow migrate.")
        worker = runtime.worker
        return {"status": "ready", "worker": worker is not None and worker.id is not None}

    app.add_middleware(Guard, settings=settings)
    return app
