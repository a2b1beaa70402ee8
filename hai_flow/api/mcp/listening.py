"""`subscriptions/listen`: a client hears that a task or a resource of its caller has changed.

The stream carries no state: it says that there is news, and for a task how it stands now. It ends when the client
hangs up, when its credential ends, or when the server closes; the client then listens again.
"""

from __future__ import annotations

from typing import Any, Final

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from hai_flow.api.mcp import runs as mcp_runs
from hai_flow.api.mcp.context import Context, build_access, find_address, request_of
from hai_flow.api.requests.access import Access
from hai_flow.errors import Rejected, Unreadable
from hai_flow.runtime.base.service import wait_at_most
from hai_flow.wire.mcp import build_detailed_task

FOLLOWED_MAX: Final = 20
"""Runs of one stream."""
_LOOK_SECONDS: Final = 1.0


async def listen(ctx: Context, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
    """Serve one stream. Raises MCPError where the server has no place for it."""
    access = build_access(ctx)
    requested = params.notifications
    extra = requested.model_extra or {}
    task_ids = extra.get("taskIds")
    tasks = [each for each in task_ids if isinstance(each, str)] if isinstance(task_ids, list) else []
    uris = [str(each) for each in requested.resource_subscriptions or ()]
    runs = {each.removeprefix("hai://runs/").removesuffix("/output"): each for each in uris if "://runs/" in each}
    if len(tasks) + len(runs) > FOLLOWED_MAX:
        raise MCPError(types.INVALID_PARAMS, f"A stream follows at most {FOLLOWED_MAX} tasks and resources.")
    try:
        await access.take_place(follows=True)
    except Rejected as rejected:
        raise MCPError(types.INTERNAL_ERROR, rejected.detail, {"retryAfter": rejected.retry_after}) from None
    term = request_of(ctx).app.state.terms.begin(access.principal)
    try:
        honored = types.SubscriptionFilter.model_validate(
            {"resourceSubscriptions": uris or None, **({"taskIds": tasks} if tasks else {})}
        )
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        await _notify(ctx, "notifications/subscriptions/acknowledged", {
            "notifications": honored.model_dump(by_alias=True, exclude_none=True), "_meta": meta,
        })  # fmt: skip
        await _follow(ctx, access, tasks, runs, meta, term)
        return types.SubscriptionsListenResult.model_validate({"_meta": meta})
    finally:
        access.place.leave()
        term.leave()


async def _follow(
    ctx: Context, access: Access, tasks: list[str], runs: dict[str, str], meta: dict[str, Any], term: Any
) -> None:
    base = find_address(ctx)
    seqs: dict[str, int] = {}
    closing = access.cells.home.fanout.closing
    while not closing.is_set() and not term.is_over:
        for id in dict.fromkeys((*tasks, *runs)):
            try:
                _, run = await mcp_runs.look(access, base, id)
            except (Rejected, Unreadable):
                continue  # unknown, or not the caller's: it never changes
            before, seqs[id] = seqs.get(id), run.state.seq
            if before in (None, run.state.seq):
                continue
            if id in tasks:
                task = build_detailed_task(run, forms=True, urls=True)
                await _notify(ctx, "notifications/tasks", {**task, "_meta": meta})
            if id in runs:
                await _notify(ctx, "notifications/resources/updated", {"uri": runs[id], "_meta": meta})
        await wait_at_most(closing, _LOOK_SECONDS)
        await anyio.lowlevel.checkpoint()


async def _notify(ctx: Context, method: str, params: dict[str, Any]) -> None:
    """Send a notification on the stream of the request, also one that the SDK has no model of."""
    await ctx.session._request_outbound.notify(method, params)
