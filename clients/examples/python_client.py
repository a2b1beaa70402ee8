"""HAI Flow's own Python client with tokens that end: python python_client.py URL TOKENS WORKFLOW prints the events."""

import json
import sys
import urllib.request

from hai_flow_client import Client


def followed(url: str, tokens: str, workflow: str) -> None:
    """Start a run and tell its events. The client asks for a token before each request, so it comes back by itself."""

    def token() -> str:
        with urllib.request.urlopen(urllib.request.Request(tokens, method="POST"), timeout=30) as answer:
            return json.load(answer)["token"]

    with Client(url, key=token) as flow:
        run = flow.runs.start(workflow)
        for event in flow.runs.follow(run):
            print(event.seq, event.type)


if __name__ == "__main__":
    followed(*sys.argv[1:])
