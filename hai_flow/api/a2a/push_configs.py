"""The addresses that clients of A2A leave for their tasks: set, get, list and delete (docs/protocols/a2a.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow.api.a2a.operations import CalledAgent
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.push_addresses import find_obstacle, key_of, store_push
from hai_flow.settings import Settings
from hai_flow.store.messaging import pushes
from hai_flow.values import Json
from hai_flow.wire.a2a import tasks as a2a
from hai_flow.wire.a2a.pushes import PushConfig, read_push_config, write_push_config

CREATE: Final = "CreateTaskPushNotificationConfig"
GET: Final = "GetTaskPushNotificationConfig"
LIST: Final = "ListTaskPushNotificationConfigs"
DELETE: Final = "DeleteTaskPushNotificationConfig"
METHODS: Final = (CREATE, GET, LIST, DELETE)


async def perform_on_push_configs(agent: CalledAgent, method: str, params: Mapping[str, Json], *, old: bool) -> Json:
    """The result of one of `METHODS`. `old`: in the words of A2A 0.3. Raises Fault and Rejected."""
    task_id = params.get("id") if old and method != CREATE else params.get("taskId")
    access, task = await agent.look(task_id, "/id" if old and method != CREATE else "/taskId")
    run_id = UUID(task.state.run_id)
    if method == CREATE:
        place = "/pushNotificationConfig" if old else ""
        config = read_push_config(params.get("pushNotificationConfig") if old else params, place, old=old)
        await demand_reachable(access.settings, config)
        await store_push_config(access, run_id, config)
        return write_push_config(config, str(run_id), old=old)
    mine = access.runtime.database.api, access.tenant, run_id, access.principal.id
    if method == LIST:
        configs = await _read_configs(access, run_id)
        documents: list[Any] = [write_push_config(each, str(run_id), old=old) for each in configs]
        return documents if old else {"configs": documents, "nextPageToken": ""}
    id = params.get("pushNotificationConfigId") if old else params.get("id")
    if method == DELETE:
        if not isinstance(id, str) or not id:
            raise a2a.invalid("The id of a push configuration is missing.")
        await pushes.delete_push(*mine, id)
        return None if old else {}
    configs = await _read_configs(access, run_id)
    config = next((each for each in configs if id in (each.id, None)), None)
    if config is None:
        raise a2a.Fault("TASK_NOT_FOUND", "The task has no such push configuration of yours.")
    return write_push_config(config, str(run_id), old=old)


async def demand_reachable(settings: Settings, config: PushConfig) -> None:
    """Raises Fault for an address that this server does not connect to. Each call is judged again, and one whose name
    leads nowhere now is tried then."""
    obstacle = await find_obstacle(settings, config.url)
    if obstacle is not None:
        raise a2a.invalid(f"url: {obstacle}")


async def store_push_config(access: Access, run_id: UUID, config: PushConfig) -> None:
    """Store the caller's configuration for the run. Raises Fault where they have too many."""
    if not await store_push(access, run_id, config):
        most = f"A task has at most {pushes.PUSHES_MAX} push configurations of one caller; delete one first."
        raise a2a.invalid(most)


async def _read_configs(access: Access, run_id: UUID) -> list[PushConfig]:
    """Those of the caller. One that this database can't open, because it is a copy, is left out."""
    key = await key_of(access)
    rows = await pushes.list_pushes(access.runtime.database.api, access.tenant, run_id, access.principal.id)
    opened = [pushes.open_config(key, row) for row in rows]
    configs = [msgspec.json.decode(each, type=PushConfig) for each in opened if each is not None]
    return [each for each in configs if not each.approval]
