"""The agent cards that `/a2a` serves: of the server, and of a workflow that the caller may start."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Request

import hai_flow
from hai_flow.api.mcp_resource import base_of
from hai_flow.api.requests.access import Access
from hai_flow.errors import Rejected
from hai_flow.wire import a2a

PATH: Final = "/a2a"


async def build_extended_card(request: Request, access: Access, name: str | None) -> dict[str, Any]:
    for_old = not request.headers.get("a2a-version", "").startswith(a2a.VERSION)
    base = base_of(access.settings.public_url, request)
    secured = access.settings.identity is not None
    plans = {plan.name: plan for _, plan in await access.list_startable()}
    if name is None:
        skills = [a2a.build_skill(each) for each in plans.values()]
        return build_card_of_server(base + PATH, skills, secured=secured, for_old=for_old)
    plan = plans.get(name)
    if plan is None:
        raise Rejected(404, "workflow_unknown", f"there is no workflow {name[:100]!r} that you may start.")
    skill = a2a.build_skill(plan)
    return a2a.build_card(
        skill["name"], skill["description"], f"{base}/workflows/{name}{PATH}", str(plan.version), [skill],
        secured=secured, for_old=for_old,
    )  # fmt: skip


def build_card_of_server(
    address: str, skills: list[dict[str, Any]], *, secured: bool, for_old: bool = True
) -> dict[str, Any]:
    text = "Workflows that wait for people, and survive everything but their database."
    return a2a.build_card("HAI Flow", text, address, hai_flow.__version__, skills, secured=secured, for_old=for_old)
