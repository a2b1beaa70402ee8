"""A workflow's abilities, as AG-UI's `AgentCapabilities`
(docs/design/protocols.md#tools-and-interrupts). A field that is absent claims nothing."""

from __future__ import annotations

from hai_flow.values import Json


def capabilities(name: str, version: str, description: str | None = None) -> dict[str, Json]:
    """The capabilities of the workflow `name`; `version` is the server's."""
    identity = {"name": name, "type": "hai-flow", "version": version}
    return {
        "identity": identity if description is None else {**identity, "description": description},
        "transport": {"streaming": True, "httpBinary": True, "resumable": True},
        "tools": {"supported": True, "parallelCalls": True, "clientProvided": True},
        "output": {"structuredOutput": True},
        "state": {"snapshots": True, "deltas": True, "memory": True, "persistentState": True},
        "multiAgent": {"supported": True, "delegation": True},
        "reasoning": {"supported": True, "streaming": True, "encrypted": False},
        "multimodal": {"input": {"image": True, "audio": True, "video": True, "pdf": True, "file": True}},
        "humanInTheLoop": {"supported": True, "approvals": True, "approveWithEdits": True, "interrupts": True},
    }
