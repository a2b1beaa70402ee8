"""What a visitor finds at `/` and `/docs`, also where there is no internet."""

from __future__ import annotations

import re

import httpx2
import pytest

LOADED = re.compile(r"""(?:src|href)=["']([^"']+)["']""")


def test_the_root_says_what_is_here_and_each_place_is_there(http: httpx2.Client) -> None:
    about = http.get("/").json()
    assert about["name"] == "HAI Flow"
    for place in about["places"]:
        assert http.get(place).status_code == 200, place


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_loads_nothing_from_elsewhere(http: httpx2.Client, path: str) -> None:
    page = http.get(path, headers={"Accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    assert "<script>" not in page.text
    for address in set(LOADED.findall(page.text)) - {"/console/"}:  # whose pages are built when they are asked for
        assert address.startswith("/"), address
        assert http.get(address).status_code == 200, address


def test_the_page_of_the_api_starts_with_its_own_files(http: httpx2.Client) -> None:
    assert "SwaggerUIBundle" in http.get("/docs/assets/swagger-ui-bundle.js").text
    script = http.get("/docs/start.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "/openapi.json" in script.text


@pytest.mark.parametrize(
    "path", ["/docs/assets/../../app.py", "/docs/assets/%2e%2e/core.py", "/docs/assets/", "/redoc"]
)
def test_nothing_else_is_served(http: httpx2.Client, path: str) -> None:
    assert http.get(path).status_code == 404
