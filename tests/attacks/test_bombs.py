"""What is small to send and large to read: documents, expressions, bodies. Refused in time, and others are served."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess

HEAD: Final = "hai: flow/v1\nname: bomb\nversion: 1\n"
SECONDS: Final = 60  # a bomb takes hours; a machine that does much else takes seconds


@pytest.fixture(autouse=True)
def alive(server: ServerProcess) -> Iterator[None]:
    """Whatever was sent, the server is there and says nothing of itself."""
    yield
    assert httpx2.get(f"{server.url}/v1/runs", timeout=20).status_code == 200


def refused(answer: httpx2.Response, *codes: int) -> dict[str, Any]:
    assert answer.status_code in codes, (answer.status_code, answer.text[:500])
    assert answer.headers["content-type"] == "application/problem+json"
    assert "Traceback" not in answer.text
    assert 'File "/' not in answer.text
    return answer.json()


LAUGHS: Final = "\n".join(
    ["x: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    + [f"y{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
)
DOCUMENTS: Final[dict[str, tuple[str, str | bytes]]] = {
    "a billion laughs": ("yaml.too_many_nodes", HEAD + LAUGHS + "\nsteps: [{say: hi}]"),
    "an anchor in itself": ("yaml.alias_cycle", HEAD + "steps: &s [{say: hi}, {parallel: {a: *s}}]"),
    "a merge": ("yaml.merge_key", HEAD + "base: &b {say: hi}\nsteps: [{<<: *b}]"),
    "a tag that runs": ("yaml.tag", HEAD + "steps: [{say: !!python/object/apply:os.system ['id']}]"),
    "a tag of another kind": ("yaml.tag", HEAD + "steps: [{say: !!binary aGk=}]"),
    "another document": ("yaml.second_document", HEAD + "steps: [{say: hi}]\n---\n" + HEAD + "steps: [{say: ho}]"),
    "deep lists": ("yaml.too_deep", HEAD + "steps: " + "[" * 20_000),
    "deep mappings": ("yaml.too_deep", HEAD + "steps: " + "{a: " * 20_000),
    "deep steps": ("yaml.too_deep", HEAD + "steps: " + "[{try: " * 500 + "[{say: hi}]" + "}]" * 500),
    "a key twice": ("yaml.duplicate_key", HEAD + "steps: [{say: hi, say: ho}]"),
    "a name on a way up": ("shape.value", HEAD.replace("bomb", "../../etc/passwd") + "steps: [{say: hi}]"),
    "a name that is a template": ("shape.value", HEAD.replace("bomb", "'${{ 1 }}'") + "steps: [{say: hi}]"),
    "control characters": ("yaml.control", HEAD + 'steps: [{say: "\x1b[2J"}]'),
    "no text": ("yaml.encoding", b"\xff\xfe\x00hai"),
    "an expression without an end": (
        "expression.too_long",
        HEAD + "steps: [{say: '${{ " + "(" * 5000 + "1" + ")" * 5000 + " }}'}]",
    ),
    "an expression of a million signs": ("yaml.too_large", HEAD + "steps: [{say: '${{ 1" + " + 1" * 100_000 + " }}'}]"),
}


@pytest.mark.parametrize(("code", "document"), DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_a_document_that_expands_or_executes_when_read_is_refused(
    server: ServerProcess, code: str, document: str | bytes
) -> None:
    began = time.monotonic()
    content = document if isinstance(document, bytes) else document.encode()
    answer = httpx2.post(f"{server.url}/v1/workflows", content=content, headers=YAML, timeout=SECONDS)
    assert code in [each["code"] for each in refused(answer, 422)["findings"]]
    assert time.monotonic() - began < SECONDS


GROWING: Final = {
    "loops in loops": "input.xs.map(a, input.xs.map(b, input.xs.map(c, a * b * c)))",
    "a list of lists of lists": "input.xs.map(a, input.xs.map(b, input.xs))",
    "a sum of sums": "input.xs.filter(a, input.xs.exists(b, input.xs.all(c, a + b + c >= 0)))",
}
GROWS: Final = """
hai: flow/v1
name: NAME
version: 1
input: {type: object, required: [xs], properties: {xs: {type: array, items: {type: integer}}}}
steps: [{say: "${{ size(EXPRESSION) }}"}]
"""


@pytest.mark.parametrize("expression", GROWING.values(), ids=GROWING.keys())
def test_an_expression_that_takes_for_ever_fails_its_run(server: ServerProcess, expression: str) -> None:
    name = unique("grows")
    source = GROWS.replace("NAME", name).replace("EXPRESSION", expression)
    answer = httpx2.post(f"{server.url}/v1/workflows", content=source, headers=YAML, timeout=SECONDS)
    assert answer.status_code == 201, answer.text
    body = {"workflow": name, "input": {"xs": list(range(3000))}}
    run = httpx2.post(f"{server.url}/v1/runs", json=body, timeout=SECONDS).json()
    stream = {"Accept": "text/event-stream"}
    httpx2.get(f"{server.url}/v1/runs/{run['id']}/events", headers=stream, timeout=SECONDS)
    ended = httpx2.get(f"{server.url}/v1/runs/{run['id']}").json()
    assert (ended["status"], ended["error"]["code"]) == ("failed", "expression.budget")


BODIES: Final = {
    "a key twice": b'{"workflow": "echo", "workflow": "other"}',
    "not a number": b'{"workflow": "echo", "input": {"n": NaN}}',
    "infinity": b'{"workflow": "echo", "input": {"n": Infinity}}',
    "beyond all numbers": b'{"workflow": "echo", "input": {"n": 1e400}}',
    "half a character": b'{"workflow": "echo", "input": {"n": "\\ud800"}}',
    "no UTF-8": b'{"workflow": "\xff\xfe"}',
    "a null in a name": b'{"workflow": "echo\\u0000"}',
    "deep": b'{"workflow": "echo", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"workflow": "echo", "input": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "two documents": b'{"workflow": "echo"}{"workflow": "echo"}',
    "a comment": b'{"workflow": "echo" /* hi */}',
    "UTF-16": '{"workflow": "echo"}'.encode("utf-16"),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_what_readers_of_json_disagree_about_is_refused(server: ServerProcess, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    refused(httpx2.post(f"{server.url}/v1/runs", content=body, headers=headers, timeout=SECONDS), 400, 404, 413, 422)


@cache
def pack_a_bomb() -> bytes:
    return gzip.compress(b'{"workflow": "' + b"a" * 50_000_000 + b'"}', 9)


@pytest.mark.parametrize("path", ["/v1/runs", "/awp", "/ag-ui", "/process", "/api/aui/input", "/v1/workflows"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
def test_a_body_that_is_packed_is_not_unpacked(server: ServerProcess, path: str, encoding: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    refused(httpx2.post(server.url + path, content=pack_a_bomb(), headers=headers, timeout=SECONDS), 400, 415, 422)


PATTERNS: Final = {
    "repeats of repeats": "^(a+)+$",
    "choices of the same": "^(a|aa)+$",
    "what was found before": r"^(a+)+\\1$",
    "what follows, at each place": r"(?=(a+))\\1*b",
    "what stands before, at each place": "(?<=(a+)+)b",
    "nothing, again and again": r"^(?:(?:a*)*)*(?!b)\\w$",
}
FORM: Final = """\
steps:
  - id: q
    ask: {title: Q, from: anyone, form: {type: object, properties: {text: {type: string, pattern: "%s"}}}}
"""
INPUT: Final = """\
input: {type: object, properties: {text: {type: string, pattern: "%s"}}}
steps: [{say: hi}]
"""


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS.keys())
def test_a_pattern_that_takes_for_ever_refuses_a_long_text_in_time(server: ServerProcess, pattern: str) -> None:
    """In the input of a workflow and in a form; the fault does not repeat the text."""
    text, name = "a" * 200_000 + "!", unique("pattern").replace("-", "_")
    for kind, body in (("input", INPUT), ("form", FORM)):
        flow = HEAD.replace("bomb", f"{name}_{kind}") + body % pattern
        assert httpx2.post(f"{server.url}/v1/workflows", content=flow, headers=YAML).status_code == 201
    given = {"workflow": f"{name}_input", "input": {"text": text}}
    problem = refused(httpx2.post(f"{server.url}/v1/runs", json=given, timeout=SECONDS), 422)
    assert len(str(problem)) < 5000
    thread = unique("pattern")
    httpx2.post(f"{server.url}/v1/runs", json={"workflow": f"{name}_form", "thread_id": thread})
    (run,) = httpx2.get(f"{server.url}/v1/runs", params={"thread_id": thread}).json()["items"]
    asked = httpx2.get(f"{server.url}/v1/pendings").json()["items"]
    (id,) = [each["id"] for each in asked if each["run_id"] == run["id"]]
    answer = httpx2.post(f"{server.url}/v1/pendings/{id}/decide", json={"values": {"text": text}}, timeout=SECONDS)
    assert len(str(refused(answer, 422))) < 5000


def test_a_pattern_without_a_small_automaton_is_refused_at_publication(server: ServerProcess) -> None:
    flow = HEAD + INPUT % "(?:a{1,1000}){1,1000}"
    problem = refused(httpx2.post(f"{server.url}/v1/workflows", content=flow, headers=YAML), 422)
    assert "schema.too_large" in [each["code"] for each in problem["findings"]]
