"""Drives the official A2A client, in an environment of its own that knows nothing of ours.

One JSON document per line: `{"id": 1, "op": "send", "card": URL, "binding": "JSONRPC", ...}` on standard input; on
standard output what came, as JSON. A message goes to the agent of the card.
"""

import asyncio
import json
import os
import sys
import traceback
import uuid

replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)

import httpx  # noqa: E402
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory  # noqa: E402
from a2a.types import a2a_pb2 as pb  # noqa: E402
from google.protobuf.json_format import MessageToDict, ParseDict  # noqa: E402


async def client_of(http, asked):
    card = await A2ACardResolver(http, asked["card"]).get_agent_card()
    if asked.get("version") == "0.3":  # a client that finds no address for 1.0
        kept = [each for each in card.supported_interfaces if each.protocol_version == "0.3"]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(kept)
    config = ClientConfig(
        httpx_client=http,
        streaming=asked.get("streaming", False),
        supported_protocol_bindings=[asked.get("binding", "JSONRPC")],
    )
    return ClientFactory(config).create(card)


async def send(http, asked):
    client = await client_of(http, asked)
    message = {"messageId": asked.get("message_id") or str(uuid.uuid4()), "role": "ROLE_USER", "parts": asked["parts"]}
    message |= {name: asked[name] for name in ("taskId", "contextId") if asked.get(name)}
    request = ParseDict({"message": message}, pb.SendMessageRequest())
    return [MessageToDict(event) async for event in client.send_message(request)]


async def get(http, asked):
    client = await client_of(http, asked)
    return MessageToDict(await client.get_task(pb.GetTaskRequest(id=asked["task"])))


async def cancel(http, asked):
    client = await client_of(http, asked)
    return MessageToDict(await client.cancel_task(pb.CancelTaskRequest(id=asked["task"])))


async def push_configs(http, asked):
    """Sets a configuration, reads it, deletes it; what each gave, and what is left."""
    client = await client_of(http, asked)
    task = asked["task"]
    made = await client.create_task_push_notification_config(
        ParseDict({"taskId": task, **asked["config"]}, pb.TaskPushNotificationConfig())
    )
    named = {"task_id": task, "id": made.id}
    read = await client.get_task_push_notification_config(pb.GetTaskPushNotificationConfigRequest(**named))
    asking = pb.ListTaskPushNotificationConfigsRequest(task_id=task)
    listed = await client.list_task_push_notification_configs(asking)
    if not asked.get("keep"):
        await client.delete_task_push_notification_config(pb.DeleteTaskPushNotificationConfigRequest(**named))
    left = await client.list_task_push_notification_configs(asking)
    return {
        "made": MessageToDict(made), "read": MessageToDict(read),
        "listed": len(listed.configs), "left": len(left.configs),
    }  # fmt: skip


async def list_tasks(http, asked):
    client = await client_of(http, asked)
    return MessageToDict(await client.list_tasks(pb.ListTasksRequest(context_id=asked["context"])))


async def subscribe(http, asked):
    client = await client_of(http, asked)
    return [MessageToDict(event) async for event in client.subscribe(pb.SubscribeToTaskRequest(id=asked["task"]))]


async def card(http, asked):
    return MessageToDict(await A2ACardResolver(http, asked["card"]).get_agent_card())


async def answer(asked):
    async with httpx.AsyncClient(timeout=80, headers=asked.get("headers", {})) as http:
        try:
            return {"result": await globals()[asked["op"]](http, asked)}
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("a2a", "httpx"):
                raise
            return {"thrown": {"name": type(error).__name__, "message": str(error)}}


async def main():
    loop = asyncio.get_running_loop()
    tasks = set()

    async def reply(line):
        asked = json.loads(line)
        try:
            found = await answer(asked)
        except BaseException:
            found = {"fault": traceback.format_exc()}
        replies.write(json.dumps({"id": asked["id"], **found}) + "\n")
        replies.flush()

    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = asyncio.create_task(reply(line))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(main())
