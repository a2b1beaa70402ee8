"""An agent made with the official A2A SDK's server, which does what the text of a message says. Its effects are lines
of the file that is its first argument; its port is the second.

`paint`: asks for the colour, then paints. `wait`: works until the file `go` is there. `fail`, `reject`, `file`,
`say`: ends so. `twice`: asks two questions.
"""

import asyncio
import sys
import time
from pathlib import Path

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

EFFECTS, PORT = Path(sys.argv[1]), int(sys.argv[2])
BINDINGS = sys.argv[3].split(",")  # like JSONRPC/1.0


def parts_of(*parts):
    return [ParseDict(part, pb.Part()) for part in parts]


def note(what, context):
    with EFFECTS.open("a") as file:
        file.write(f"{what} {context.context_id}\n")


def wait_for_go():
    while not EFFECTS.with_name("go").exists():
        time.sleep(0.05)


class Agent(AgentExecutor):
    def __init__(self):
        self._asked = {}

    async def execute(self, context, queue):
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        text = context.get_user_input()

        def say(words):
            return updater.new_agent_message(parts_of({"text": words}))

        async def end(*parts):
            await updater.add_artifact(parts_of(*parts), name="result")
            await updater.complete()

        questions = self._asked.get(context.task_id)
        if questions is None:
            await queue.enqueue_event(
                pb.Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED),
                    history=[context.message],
                )
            )
            await updater.start_work(say("I am at it"))
            note(text, context)
        if questions:
            note(f"{questions[-1]}={text}", context)
        if text in ("paint", "twice") or questions:
            asked = self._asked.setdefault(context.task_id, [])
            wanted = ["colour"] if text == "paint" or asked[:1] == ["colour"] else ["size", "shape"]
            if len(asked) < len(wanted):
                asked.append(wanted[len(asked)])
                await updater.requires_input(say(f"Which {asked[-1]}?"))
            else:
                await end({"text": f"done in {text}"}, {"data": {"last": text}})
        elif text == "wait":
            await asyncio.to_thread(wait_for_go)
            await end({"data": {"waited": True}})
        elif text == "fail":
            await updater.failed(say("no paint left"))
        elif text == "reject":
            await updater.reject(say("I do not paint"))
        elif text == "file":
            await end({"raw": "aGFsbG8=", "filename": "a.txt", "mediaType": "text/plain"}, {"text": "a file"})
        else:
            await end({"text": text or "nothing"})

    async def cancel(self, context, queue):
        note("cancelled", context)
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def main():
    url = f"http://127.0.0.1:{PORT}"
    interfaces = [binding.split("/") for binding in BINDINGS]
    card = ParseDict(
        {
            "name": "Painter", "description": "Paints.", "version": "1", "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "paint", "name": "Paint", "description": "Paints.", "tags": ["paint"]}],
            "supportedInterfaces": [
                {"url": f"{url}/rpc" if name == "JSONRPC" else url, "protocolBinding": name, "protocolVersion": version}
                for name, version in interfaces
            ],
        },
        pb.AgentCard(),
    )  # fmt: skip
    handler = DefaultRequestHandler(Agent(), InMemoryTaskStore(), card)
    routes = [
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
        *create_rest_routes(handler),
    ]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=PORT, log_level="warning")


if __name__ == "__main__":
    main()
