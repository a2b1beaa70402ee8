"""A role that is written as one which people of the deployment have, but for a letter, is doubtful."""

from __future__ import annotations

import pytest

from hai_flow.definition.readiness import list_unlikely_roles

HEAD = "hai: flow/v1\nname: a\nversion: 1\n"
KNOWN = ("controller", "viewer", "lead", "seller", "editor", "level1", "finance")


@pytest.mark.parametrize("role", ["controler", "controllers", "contorller", "conttoller", "leads", "finnace"])
@pytest.mark.parametrize(
    "place",
    ["from: role:{}", "from: [user:a, role:{}]", "from: anyone, exclude: [role:{}]", "quorum: {{'role:{}': 1}}"],
)
def test_a_misspelt_role_is_named_at_its_place_with_the_near_one(role: str, place: str) -> None:
    source = HEAD + "steps:\n  - approve: {title: x, " + place.format(role) + "}\n"
    (finding,) = list_unlikely_roles(source.encode(), KNOWN)
    assert (finding.severity, finding.code, finding.line) == ("warning", "role.unknown", 5)
    assert f"`{role}`; did you mean `" in finding.message


@pytest.mark.parametrize(
    "role", ["controller", "reviewer", "teller", "auditor", "level2", "head", "lean", "cfo", "support", "finances1"]
)
def test_a_role_of_its_own_is_no_finding(role: str) -> None:
    source = f"{HEAD}steps:\n  - approve: {{title: x, from: 'role:{role}', form: {{type: object}}}}\n"
    assert list_unlikely_roles(source.encode(), KNOWN) == []


def test_a_role_of_the_workflow_and_the_data_of_a_step_are_no_finding() -> None:
    source = f"{HEAD}steps:\n  - approve: {{title: x, from: 'role:controler'}}\n  - set: {{from: 'role:leads'}}\n"
    assert list_unlikely_roles(source.encode(), KNOWN, ("controler",)) == []
