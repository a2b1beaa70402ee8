"""`subscriptions/listen`: a client hears that a task or a resource of its caller has changed.

The stream carries no state: it says that there is news, and for a task how it stands now. It ends when the client
hangs up, when its credential ends, or when the server closes; the client then listens again."""

from __future__ import annotations

import contextlib
from typing import Any, Final
from uuid import UUID

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from hai_flow.api.mcp import runs as mcp_runs
from hai_flow.api.mcp.context import Client, Context, build_access, reject_without_tasks, request_of
from hai_flow.api.requests.access import FOLLOWER, Access
from hai_flow.errors import Rejected, Unreadable
from hai_flow.runtime.base.service import wait_at_most
from hai_flow.wire.dialects.log import LOG
from hai_flow.wire.mcp import build_detailed_task

FOLLOWED_MAX: Final = 20
"""Runs of one stream."""
_RUNS: Final = "hai://runs/"
_LOOK_SECONDS: Final = 1.0  # between two looks whether the credential is good


async def listen(ctx: Context, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
    """Serve one stream. Raises MCPError where the server has no place for it."""
    access = build_access(ctx)
    requested = params.notifications
    task_ids = (requested.model_extra or {}).get("taskIds", [])
    if not isinstance(task_ids, list) or not all(isinstance(each, str) for each in task_ids):
        raise MCPError(types.INVALID_PARAMS, "/params/notifications/taskIds: expected a list of ids of tasks.")
    if task_ids and not Client.of(ctx).tasks:
        raise reject_without_tasks("News of tasks need the tasks extension.")
    tasks = list(dict.fromkeys(task_ids))
    uris = [str(each) for each in requested.resource_subscriptions or ()]
    runs = {each.removeprefix(_RUNS).removesuffix("/output"): each for each in uris if each.startswith(_RUNS)}
    if len(tasks) + len(runs) > FOLLOWED_MAX:
        raise MCPError(types.INVALID_PARAMS, f"A stream follows at most {FOLLOWED_MAX} tasks and resources.")
    try:
        await access.take_place(follows=True)
    except Rejected as rejected:
        raise MCPError(types.INTERNAL_ERROR, rejected.detail, {"retryAfter": rejected.retry_after}) from None
    term = request_of(ctx).app.state.terms.begin(access.principal)
    try:
        honored = types.SubscriptionFilter.model_validate(
            {"resourceSubscriptions": list(runs.values()) or None, **({"taskIds": tasks} if tasks else {})}
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
    """Until the server closes or the credential ends. Each run is followed as every stream follows one: nothing is read
    while nothing happens."""
    closing = access.cells.home.fanout.closing
    async with anyio.create_task_group() as group:
        for id in dict.fromkeys((*tasks, *runs)):
            group.start_soon(_follow_run, ctx, access, id, id in tasks, runs.get(id), meta)
        while not closing.is_set() and not term.is_over:
            await wait_at_most(closing, _LOOK_SECONDS)
        group.cancel_scope.cancel()


async def _follow_run(
    ctx: Context, access: Access, id: str, is_task: bool, uri: str | None, meta: dict[str, Any]
) -> None:
    closing = access.cells.home.fanout.closing
    with contextlib.suppress(Rejected, Unreadable):  # unknown, or not the caller's: it never changes
        access, run = await mcp_runs.look(access, id)
        while not run.is_over and not closing.is_set():
            before = run.state.seq
            state = await access.state(UUID(run.state.run_id), before)
            async with contextlib.aclosing(access.follow(state, LOG, FOLLOWER)) as pieces:
                async for _ in pieces:
                    access, run = await mcp_runs.look(access, id)
                    if run.state.seq == before:
                        continue
                    before = run.state.seq
                    if is_task:
                        task = build_detailed_task(run, forms=True, urls=True)
                        await _notify(ctx, "notifications/tasks", {**task, "_meta": meta})
                    if uri is not None:
                        await _notify(ctx, "notifications/resources/updated", {"uri": uri, "_meta": meta})


class _Notification(types.Notification[dict[str, Any], str]):
    """A notification of which the SDK has no model, as it has none of tasks."""


async def _notify(ctx: Context, method: str, params: dict[str, Any]) -> None:
    """Send a notification on the stream of the request."""
    notification: Any = _Notification(method=method, params=params)
    await ctx.session.send_notification(notification, ctx.request_id)
