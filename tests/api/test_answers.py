"""REST answers with the fields of its shapes: the HTTP client of these tests sees each answer (`support/answers`)."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute

from docs.rights_page import application
from tests.support.answers import find_faults

RIGHT = {"counts": {"running": 1}, "max": 1000, "missing": []}


def _answer(body: Any) -> httpx2.Response:
    return httpx2.Response(200, json=body, request=httpx2.Request("GET", "http://here/v1/runs/counts"))


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"counts": {}, "max": 1000}, '/: "missing" is a required property'),
        (RIGHT | {"most": 1}, "/: Additional properties are not allowed ('most' was unexpected)"),
        (RIGHT | {"max": "1000"}, '/max: "1000" is not of type "integer"'),
    ],
)
def test_a_field_that_differs_from_the_shape_is_a_fault(body: Any, fault: str) -> None:
    assert find_faults(_answer(body)) == [fault]


def test_an_answer_as_its_shape_has_it_has_no_fault() -> None:
    assert find_faults(_answer(RIGHT)) == []


def test_every_function_that_returns_json_says_which_shape() -> None:
    nameless = [
        route.name
        for route in application().routes
        if isinstance(route, APIRoute)
        and route.path.startswith("/v1/")
        and "dict" in route.endpoint.__annotations__["return"]
    ]
    assert nameless == []
