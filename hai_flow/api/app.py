"""The application: every route, behind the guard. A composition root; the runtime is given."""

from __future__ import annotations

import functools
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute

import hai_flow
from hai_flow.api import a2a, mcp
from hai_flow.api.auth.credentials import identity_of
from hai_flow.api.http import problems
from hai_flow.api.http.bodies import Bodies
from hai_flow.api.http.instrumentation import Measured
from hai_flow.api.http.load_shedding import Admission
from hai_flow.api.http.request_policy import RequestPolicy
from hai_flow.api.permissions.credential_expiry import CredentialWatcher
from hai_flow.api.permissions.principals import ACT_AS_PARAMETER, open_to_everybody, rights_for
from hai_flow.api.permissions.rate_limits import Decisions, TicketRate
from hai_flow.api.permissions.sign_in_limits import SignIns
from hai_flow.api.protocols import agent_api, agui, aui, copilotkit, hai, social
from hai_flow.api.requests import schemas
from hai_flow.api.requests.dependencies import OpenAccess
from hai_flow.api.rest import console, feed, files, landing, schedules, sign_in, versions, workflows
from hai_flow.api.rest.admin import audit, canaries, freezes, keys, oversight, overview, tenants, tokens, workers
from hai_flow.api.rest.inbound import chat, hooks, signals
from hai_flow.api.rest.people import (
    absences,
    approvals,
    chat_accounts,
    delegations,
    feedback,
    inbox,
    links,
    notifications,
    openings,
    pendings,
    receipts,
    rules,
)
from hai_flow.api.rest.runs import bulk, control, events, runs, steps, threads, time_travel
from hai_flow.api.routes import OF_EVERY_ROUTE, Routes, build_shape_schemas
from hai_flow.api.shared_lists import SharedLists
from hai_flow.primitives.hosts import is_loopback
from hai_flow.runtime.cells import Cells
from hai_flow.runtime.ops.readiness import Readiness
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import KEYS, Settings

# Its spans would hold paths and queries, where tokens of callbacks and links stand; `measured` tells of requests.
_NO_TELEMETRY: Final[Any] = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}


class _Application(FastAPI):
    """FastAPI, with the shape of our problems and the header of development servers in its OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is not None:
            return self.openapi_schema
        document = super().openapi()
        schemas = document["components"]["schemas"] | build_shape_schemas()
        document["components"]["schemas"] = dict(sorted(schemas.items())) | {"Problem": problems.SCHEMA}
        for context in iter_route_contexts(self.routes):
            route = context.original_route
            if isinstance(route, APIRoute) and context.include_in_schema and rights_for(context.dependant):
                for method in route.methods or ():
                    operation = document["paths"][context.path_format][method.lower()]
                    operation.setdefault("parameters", []).append(ACT_AS_PARAMETER)
        return document


def is_development(settings: Settings, *, act_as: bool) -> bool:
    """Whether the server has the development features: it was started with `act_as`, only this machine can reach it,
    and it asks for no credentials."""
    return act_as and not settings.allow_remote and is_loopback(settings.host) and settings.identity is None


def create_app(settings: Settings, runtime: Runtime, *, act_as: bool = False, cells: Cells | None = None) -> FastAPI:
    """The ASGI application over a runtime, which the caller starts before and stops after it.

    `act_as`: this is a development server. On loopback only, callers may name the principal that they act as, publish,
    and let time pass. `cells`: the cells of the process, of which `runtime` is home; None: there is only home."""
    app = _Application(
        title="HAI Flow",
        version=hai_flow.__version__,
        description="Declarative workflows that wait for people, in PostgreSQL.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        routes=list(build_common_routes()),
        **OF_EVERY_ROUTE,
    )
    app.state.runtime = runtime
    app.state.cells = cells or Cells(runtime)
    app.state.settings = settings
    app.state.admission = Admission.of(settings)
    app.state.sign_ins = SignIns(settings, runtime)
    app.state.tickets = TicketRate(settings)
    app.state.decisions = Decisions(settings)
    app.state.terms = CredentialWatcher(runtime)
    app.state.lists = SharedLists()
    app.state.development = is_development(settings, act_as=act_as)
    app.state.identity = identity_of(settings, runtime, development=app.state.development)
    app.state.publishing = settings.publish or app.state.development
    app.state.readiness = Readiness(runtime)
    problems.install(app)
    app.include_router(hai.build_alias_routes(settings.hai_aliases))
    landing.install(app)
    console.install(app, build=app.state.development)
    app.add_middleware(Bodies)
    app.add_middleware(problems.ErrorResponses)
    app.add_middleware(RequestPolicy, settings=settings)
    app.add_middleware(Measured, watching=runtime.requests)
    return app


@functools.cache
def build_common_routes() -> tuple[BaseRoute, ...]:
    """The routes that all applications of this process have."""
    routers: tuple[APIRouter, ...] = (
        runs.router,  # routes are tried in this order, and that takes time: what begins runs comes first
        mcp.router,
        control.router,
        steps.router,
        events.router,
        feed.router,
        delegations.router,  # before the inbox, which takes any word there for a question
        chat_accounts.router,
        absences.router,
        inbox.router,
        links.router,
        notifications.router,
        pendings.router,
        a2a.router,
        approvals.router,
        receipts.router,
        threads.router,
        feedback.router,
        audit.router,
        files.router,
        sign_in.router,
        signals.router,
        signals.events,
        hooks.router,
        hooks.callbacks,
        chat.router,
        schedules.router,
        versions.router,
        time_travel.router,
        bulk.router,
        keys.router,
        tenants.router,
        tokens.router,
        workers.router,
        freezes.router,
        rules.router,
        oversight.router,
        canaries.router,
        openings.router,
        overview.router,
        delegations.of_all,
        workflows.router,
        workflows.language,
        hai.router,
        agui.router,
        copilotkit.router,
        social.router,
        aui.router,
        agent_api.router,
        operations,
    )
    return tuple(route for router in routers for route in router.routes)


operations = Routes(tags=["operations"])


@operations.get("/healthz", dependencies=[open_to_everybody()])
async def healthz(access: OpenAccess) -> schemas.Health:
    """The process answers."""
    identity = access.settings.identity
    return {
        "status": "ok",
        "version": hai_flow.__version__,
        "streams": access.admission.streams,
        "identity": "none" if identity is None else "keys" if identity == KEYS else "file",
    }


@operations.get("/readyz", dependencies=[open_to_everybody()])
async def readyz(access: OpenAccess, request: Request) -> schemas.Readiness:
    """The process can serve: the database answers, its schema is ours, and all that must run does. 503 otherwise.

    `workers` is 0 while no process performs runs. The process is ready all the same: runs wait until a worker comes,
    those in an `unserved` queue until one comes that serves it. `hints` is `good`, or `away` while commits of other
    processes are found by polls alone."""
    readiness: Readiness = request.app.state.readiness
    await readiness.demand()
    worker, attendance = access.runtime.worker, await readiness.attendance()
    return {
        "status": "ready",
        "worker": worker is not None and worker.id is not None,
        "workers": None if attendance is None else attendance.alive,
        "waiting": None if attendance is None else attendance.waiting,
        "unserved": None if attendance is None else list(attendance.unserved),
        "hints": readiness.hints(),
    }
