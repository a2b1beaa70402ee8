"""Roles and rights: who has no built-in role is a requester, an admin reads and decides nothing by that alone."""

from __future__ import annotations

from uuid import uuid4

import pytest

from hai_flow.api.principals import NOBODY, Principal
from hai_flow.api.rights import ROLES, Right, rights_of
from hai_flow.engine import commands as c


def test_who_has_no_built_in_role_is_a_requester() -> None:
    assert rights_of([]) == rights_of(["controller"]) == ROLES["requester"]
    assert rights_of(["controller", "viewer"]) == ROLES["viewer"]
    assert rights_of(["requester", "auditor"]) == ROLES["requester"] | ROLES["auditor"]


@pytest.mark.parametrize("role", ["admin", "auditor", "author", "publisher", "issuer"])
def test_a_role_that_is_not_about_runs_shows_and_decides_none(role: str) -> None:
    about_runs = {Right.SEE_OWN, Right.SEE_RUNS, Right.ANSWER, Right.DECIDE, Right.CONTROL_RUNS, Right.START_RUNS}
    assert ROLES[role].isdisjoint(about_runs)


def test_every_right_is_of_some_role() -> None:
    assert frozenset().union(*ROLES.values()) == set(Right)


def test_without_identity_everybody_may_do_everything_and_nobody_nothing() -> None:
    local = Principal(c.LOCAL_PRINCIPAL, uuid4())
    assert all(local.may(right) for right in Right)
    assert not any(NOBODY.may(right) for right in Right)
    viewer = Principal(c.Principal("user:ann", ("viewer",)), uuid4(), way="key")
    assert viewer.may(Right.SEE_RUNS)
    assert not viewer.may(Right.DECIDE)
