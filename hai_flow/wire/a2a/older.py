"""Tasks in the words of A2A 0.3, which its clients read. Pure (docs/protocols/a2a.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

METHODS: Final[Mapping[str, str]] = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
    "tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs",
    "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
}
_ROLES: Final = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}
_STATE: Final = re.compile(r"TASK_STATE_([A-Z_]+)")


def convert_to_old(result: Mapping[str, Any], *, ends_stream: bool = False) -> dict[str, Any]:
    """A result of 1.0 as clients of 0.3 read it. `ends_stream`: it is the last status of a stream."""
    if "task" in result:
        return _convert_task(result["task"])
    if "statusUpdate" in result:
        update = result["statusUpdate"]
        return {"kind": "status-update", **update, "status": _convert_status(update["status"]), "final": ends_stream}
    if "artifactUpdate" in result:
        update = result["artifactUpdate"]
        return {"kind": "artifact-update", **update, "artifact": _convert_artifact(update["artifact"])}
    return _convert_task(result) if "status" in result else dict(result)


def _convert_task(task: Mapping[str, Any]) -> dict[str, Any]:
    old: dict[str, Any] = {"kind": "task", **task, "status": _convert_status(task["status"])}
    if "artifacts" in task:
        old["artifacts"] = [_convert_artifact(each) for each in task["artifacts"]]
    if "history" in task:
        old["history"] = [_convert_message_to_old(each) for each in task["history"]]
    return old


def _convert_status(status: Mapping[str, Any]) -> dict[str, Any]:
    state = _STATE.sub(lambda match: match[1].lower().replace("_", "-"), status["state"])
    old = {**status, "state": state}
    if "message" in status:
        old["message"] = _convert_message_to_old(status["message"])
    return old


def _convert_message_to_old(message: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": "message", **message, "role": _ROLES[message["role"]], "parts": _convert_parts(message["parts"])}


def _convert_artifact(artifact: Mapping[str, Any]) -> dict[str, Any]:
    return {**artifact, "parts": _convert_parts(artifact["parts"])}


def _convert_parts(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Parts with their kind. Data of 0.3 is an object."""
    return [_convert_part(part) for part in parts]


def _convert_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in part:
        return {"kind": "text", **part}
    if "data" in part:
        return {"kind": "data", "data": part["data"] if isinstance(part["data"], Mapping) else {"value": part["data"]}}
    names = {"url": "uri", "raw": "bytes", "filename": "name", "mediaType": "mimeType"}
    return {"kind": "file", "file": {names[name]: value for name, value in part.items()}}
