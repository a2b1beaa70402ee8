"""Drives agentscope-runtime's real client, in an environment of its own that knows nothing of ours.

One JSON document per line: `{"id": 1, "op": "process", "url": ..., "way": "stream"|"astream", "request": {...}}` on
standard input; on standard output the events, each as the client's own class has read it.
"""

import asyncio
import json
import logging
import os
import sys
import traceback

# What the runtime writes to its standard output must not mix with our replies.
replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


class Complaints(logging.Handler):
    """The client swallows what it can't read and only logs it."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.found = []

    def emit(self, record):
        self.found.append(record.getMessage())


from agentscope_runtime.engine.helpers import agent_api_client  # noqa: E402
from agentscope_runtime.engine.schemas.agent_schemas import AgentRequest  # noqa: E402

complaints = Complaints()
agent_api_client.logger.addHandler(complaints)


async def gathered(events):
    return [event async for event in events]


def process(url, way, request, token=None):
    client = agent_api_client.HTTPAgentAPIClient(url, token=token, timeout=60)
    asked = AgentRequest(**request)
    thrown = None
    events = []
    try:
        events = asyncio.run(gathered(client.astream(asked))) if way == "astream" else list(client.stream(asked))
    except Exception as error:
        response = getattr(error, "response", None)
        thrown = {"name": type(error).__name__, "message": str(error), "status": getattr(response, "status_code", None)}
    return {
        "events": [{"class": type(event).__name__, **event.model_dump()} for event in events],
        "complaints": [complaints.found.pop(0) for _ in list(complaints.found)],
        "thrown": thrown,
    }


def main():
    for line in sys.stdin:
        question = json.loads(line)
        number, _ = question.pop("id"), question.pop("op")
        try:
            reply = process(**question)
        except Exception:
            reply = {"fault": traceback.format_exc()}
        print(json.dumps({"id": number, **reply}), file=replies, flush=True)


main()
