"""The client's records have the fields that OpenAPI describes: none is missing, none made up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hai_flow_client import models
from hai_flow_client.errors import Problem

from clients.models import RECORDS
from hai_flow.api.http.problems import SCHEMA
from hai_flow.api.requests import schemas
from hai_flow.api.requests.shape_models import list_fields

SAME: dict[type[msgspec.Struct], type] = {
    models.Page: schemas.EventsPage,
    **{getattr(models, record): getattr(schemas, shape) for shape, record in RECORDS.items()},
}


@pytest.mark.parametrize("record", SAME, ids=lambda record: record.__name__)
def test_a_record_has_the_fields_of_its_shape(record: type[msgspec.Struct]) -> None:
    theirs = {field.name for field in list_fields(SAME[record])}
    if record is models.Page:  # of any list
        theirs |= {field.name for field in list_fields(schemas.Listed)}
    assert {each.encode_name for each in msgspec.structs.fields(record)} == theirs


def test_every_record_has_a_shape() -> None:
    records = {each for each in vars(models).values() if isinstance(each, type) and each.__module__ == models.__name__}
    assert records == set(SAME)


def test_a_problem_has_the_fields_of_its_schema() -> None:
    assert {each.name for each in msgspec.structs.fields(Problem)} == set(SCHEMA["properties"])


def test_a_field_of_a_newer_server_is_left_out() -> None:
    given: dict[str, Any] = {"path": "a", "verb": "call", "colour": "red"}
    assert msgspec.convert(given, models.Step) == models.Step(path="a", verb="call")
