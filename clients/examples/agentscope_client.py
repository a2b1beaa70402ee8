"""agentscope-runtime's client with tokens that end: python agentscope_client.py URL SESSION TOKENS MESSAGE."""

import json
import sys
import urllib.request

from agentscope_runtime.engine.helpers.agent_api_client import HTTPAgentAPIClient
from agentscope_runtime.engine.schemas.agent_schemas import AgentRequest


def token(address):
    """A token of the page's own backend."""
    with urllib.request.urlopen(urllib.request.Request(address, method="POST"), timeout=30) as answer:
        return json.load(answer)["token"]


def responded(url, session, address, message):
    """The response to a message. When a token ends before it does, the session is asked again, with nothing new: that
    attaches to what is under way."""
    said = {"type": "message", "role": "user", "content": [{"type": "text", "text": message}]}
    asked = {"input": [said], "session_id": session, "stream": True}
    while True:
        *_, last = HTTPAgentAPIClient(url, token=token(address), timeout=60).stream(AgentRequest(**asked))
        if last.status != "failed" or last.error.code != "auth.expired":
            return last
        print("the token has ended; coming back", file=sys.stderr)
        asked["input"] = []


if __name__ == "__main__":
    for each in responded(*sys.argv[1:]).output:
        for content in each.content:
            print(f"{each.role}: {content.text}")
