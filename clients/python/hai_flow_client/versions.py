"""How versions of workflows are named: `chat@1`, or `chat@1+3f2a9c11` for a copy that was loaded while it is edited."""

# Written by `make generate` from hai_flow/primitives/versions.py: change that, or clients/generate.py.

from __future__ import annotations


def version_text(version: int, sha256: str, *, dev: bool) -> str:
    """A version behind its workflow's name: `1` or `1+3f2a9c11`. `dev`: it is a copy of that kind."""
    return f"{version}+{sha256[:8]}" if dev else str(version)


def reference(workflow: str, version: int, sha256: str, *, dev: bool) -> str:
    return f"{workflow}@{version_text(version, sha256, dev=dev)}"
