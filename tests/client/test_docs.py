"""The page about the client is true: its examples run as they stand, and it names every method and error."""

from __future__ import annotations

import re
from pathlib import Path

import hai_flow_client as client
import pytest
from hai_flow_client import HaiFlowError, blocking

from tests.support.server import ServerProcess

PAGES = {name: (Path(__file__).parents[2] / "docs" / name).read_text() for name in ("client.md", "approvals.md")}
PAGE = PAGES["client.md"]
EXAMPLES = {
    f"{page}, example {number}": source
    for page, text in PAGES.items()
    for number, source in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1)
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_it_stands(name: str, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of adapters define functions, which agents of the real packages call (tests/clients/frameworks)."""
    monkeypatch.setenv("HAI_FLOW_URL", server.url)
    exec(compile(EXAMPLES[name], f"docs/{name}", "exec"), {})


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 10


GROUPS = [each.__name__ for each in blocking._Group.__subclasses__() if each is not blocking.Client]


@pytest.mark.parametrize("group", GROUPS)
def test_every_method_is_on_the_page(group: str) -> None:
    row = re.search(rf"^\| `flow.{group.lower()}` \|(.*)\|$", PAGE, re.MULTILINE)
    assert row is not None
    methods = {name for name in vars(getattr(blocking, group)) if not name.startswith("_")}
    assert methods - {"events_json", "follow_json"} == set(re.findall(r"\w+", row[1]))


def test_every_error_is_on_the_page() -> None:
    errors = [
        name
        for name in client.__all__
        if isinstance(kind := getattr(client, name), type) and issubclass(kind, HaiFlowError)
    ]
    assert len(errors) == 7
    assert [name for name in errors if f"`{name}`" not in PAGE] == []


def test_what_is_public_is_there_and_sorted() -> None:
    assert sorted(client.__all__) == client.__all__
    assert all(hasattr(client, name) for name in client.__all__)
