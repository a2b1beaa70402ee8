"""Pictures of published workflows over REST."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import httpx2
import pytest

from hai_flow.graph import draw

ROOT = Path(__file__).resolve().parents[2]
RELEASE = (ROOT / "workflows" / "release.flow.yaml").read_bytes()


@pytest.mark.parametrize("reference", ["release", "release@1"])
def test_a_workflow_is_drawn(http: httpx2.Client, reference: str) -> None:
    text = http.get(f"/v1/workflows/{reference}/graph")
    assert (text.status_code, text.headers["content-type"]) == (200, "text/vnd.mermaid; charset=utf-8")
    assert text.text == draw(RELEASE, "mermaid")
    picture = http.get(f"/v1/workflows/{reference}/graph", params={"format": "svg"})
    assert picture.headers["content-type"] == "image/svg+xml"
    assert ElementTree.fromstring(picture.text).tag == "{http://www.w3.org/2000/svg}svg"


def test_what_is_in_a_picture_is_had_as_json(http: httpx2.Client) -> None:
    answer = http.get("/v1/workflows/release/graph", params={"format": "json"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.text == draw(RELEASE, "json")
    steps = {step["path"] for step in answer.json()["steps"]}
    assert steps == {step["path"] for step in http.get("/v1/workflows/release").json()["steps"]}


def test_a_picture_opened_as_a_page_runs_nothing(http: httpx2.Client) -> None:
    policy = http.get("/v1/workflows/release/graph", params={"format": "svg"}).headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")


def test_what_is_not_there_and_what_cannot_be_drawn_is_refused(http: httpx2.Client) -> None:
    assert http.get("/v1/workflows/nobody/graph").status_code == 404
    refused = http.get("/v1/workflows/release/graph", params={"format": "png"})
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
