"""The TypeScript client where callers prove who they are: a decider's inbox, and tokens that end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.clients import typescript
from tests.clients.conftest import HERE
from tests.clients.typescript import node
from tests.support.identities import KEYS, People
from tests.support.server import YAML, ServerProcess, serving

pytestmark = pytest.mark.timeout(600)  # the first test waits for the packages

ASKING = """
hai: flow/v1
name: spend
version: 1
steps:
  - {id: gate, approve: {title: Spend, from: [role:boss], deadline: 1h, on_deadline: reject}}
"""


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment=KEYS) as process:
        publisher = People(dsn).person("user:pat", roles=["publisher"])
        for source in (ASKING, (HERE / "flows" / "two_words.flow.yaml").read_text()):
            published = httpx2.post(f"{process.url}/v1/workflows", content=source, headers={**YAML, **publisher})
            assert published.status_code == 201, published.text
        yield process


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return typescript.built(tmp_path_factory.mktemp("hai-client"))


def key(dsn: str, id: str, *roles: str) -> str:
    return People(dsn).key(id, roles=roles)[1]


def played(package: Path, strict: ServerProcess, scenario: str, **fields: Any) -> dict[str, Any]:
    return json.loads(node(package, "test/live.mjs", json.dumps({"scenario": scenario, "url": strict.url, **fields})))


def test_an_inbox_is_followed_claimed_counted_and_decided(package: Path, strict: ServerProcess, dsn: str) -> None:
    told = played(
        package,
        strict,
        "inbox",
        shop=key(dsn, "service:shop", "issuer"),
        boss=key(dsn, "user:bo", "decider", "boss"),
        other=key(dsn, "user:bea", "decider", "boss"),
        workflow="spend",
    )
    assert told["told"] == [[0, 0, 0], [1, 1, 0], [1, 1, 0], [0, 0, 1]]
    item = {"title": "Spend", "startedBy": "user:ann", "mayDecide": True, "claimedBy": None}
    assert told["items"] == [item, item]
    assert (told["counted"], told["complete"]) == (2, True)
    assert told["outcomes"] == [[200, "user:bo", None], [404, None, "pending_unknown"]]
    assert told["conflict"] == [409, "reject"]
    assert told["decided"] == [["reject", "no", "user:bo"], ["approve", "fine", "user:bo"]]
    assert told["delegation"] == ["user:bo", "user:zoe", True, 1]
    assert told["left"] == 0
    assert told["session"] == ["user:bo", True]
    assert told["ticket"] is True
    assert told["foreign"] == [403, "right_missing"]


def test_following_past_a_tokens_end_loses_and_doubles_nothing(package: Path, strict: ServerProcess, dsn: str) -> None:
    told = played(package, strict, "expires", shop=key(dsn, "service:shop", "issuer"), seconds=3)
    assert told["given"] >= 2
    assert (told["texts"], told["error"]) == (["go", "Before.", "After."], None)
