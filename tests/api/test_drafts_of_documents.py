"""A document that is being written: it is drawn and brought into its form without being stored; and the schema of the
language, by which an editor offers keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from hai_flow_client import Client, Invalid
from jsonschema_rs import meta

from hai_flow import values
from hai_flow.authoring.json_schema import workflow_schema
from hai_flow.graph import draw
from tests.api.test_rest import Checked, code, http
from tests.support.server import YAML, ServerProcess

__all__ = ["http"]

RELEASE = (Path(__file__).resolve().parents[2] / "workflows" / "release.flow.yaml").read_bytes()
UNTIDY = b"hai: flow/v1\nversion: 1\nname: draft_only   \nsteps:\n  - {id: a, return: 1}   # why\n\n\n\n"


def drawn(http: Checked, text: bytes, **params: Any) -> httpx2.Response:
    return http.post("/v1/workflows/graph", content=text, headers=YAML, params=params)


def test_a_document_is_drawn_that_nobody_has_stored(http: Checked) -> None:
    text = RELEASE.replace(b"name: release", b"name: not_stored")
    picture = drawn(http, text, format="json")
    assert picture.text == draw(text, "json")
    assert picture.json()["name"] == "not_stored"
    assert drawn(http, text, format="svg").text == draw(text, "svg")
    assert http.get("/v1/workflows/not_stored").status_code == 404


@pytest.mark.parametrize("text", [b"", b"steps: [", b"hai: flow/v1\nname: x\n", b"[1, 2]", b"\xff\xfe", b"a: &a [*a]"])
def test_a_document_with_mistakes_is_not_drawn_and_says_all_of_them(http: Checked, text: bytes) -> None:
    refused = drawn(http, text, format="json")
    assert code(refused) == (422, "definition.invalid")
    for finding in refused.json()["findings"]:
        assert finding["code"]
        assert (finding["end_line"], finding["end_column"]) >= (finding["line"], finding["column"])


def test_a_document_is_brought_into_its_form_with_its_comments(http: Checked) -> None:
    answer = http.post("/v1/workflows/format", content=UNTIDY, headers=YAML).json()
    assert answer["changed"]
    assert answer["source"].startswith("hai: flow/v1\nname: draft_only\nversion: 1\n")
    assert "# why" in answer["source"]
    again = http.post("/v1/workflows/format", content=answer["source"].encode(), headers=YAML).json()
    assert again == {"source": answer["source"], "changed": False}


def test_what_yaml_cannot_read_has_no_form(http: Checked) -> None:
    refused = http.post("/v1/workflows/format", content=b"a: [", headers=YAML)
    assert code(refused) == (422, "definition.invalid")


def test_the_schema_of_the_language_is_the_editors(http: Checked) -> None:
    schema = http.get("/v1/language/schema").json()
    assert schema == values.loads(values.dumps(workflow_schema()))
    meta.validate(schema)


def test_a_client_checks_draws_and_formats_a_draft(server: ServerProcess) -> None:
    with Client(server.url) as client:
        assert client.workflows.draw(RELEASE, "json") == draw(RELEASE, "json")
        assert client.workflows.format(UNTIDY).changed
        assert client.workflows.schema()["title"] == "HAI Flow workflow"
        with pytest.raises(Invalid, match="mistake"):
            client.workflows.draw("steps: [")
