"""Who somebody says they are: read in one way, or refused."""

from __future__ import annotations

import pytest

from hai_flow.engine.act_as import NotAPrincipal, marked, parse
from hai_flow.engine.commands import Principal


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("user:ann", Principal("user:ann")),
        (" role:controller , user:ann,role:lead ", Principal("user:ann", ("controller", "lead"))),
        ("user:ann,group:finance,group:finance", Principal("user:ann", (), ("finance",))),
        ("user:ann,for=user:bob", Principal("user:ann", (), (), "user:bob")),
        ("user:ann@example.com", Principal("user:ann@example.com")),
    ],
)
def test_a_person_with_roles_and_groups(text: str, principal: Principal) -> None:
    assert parse(text) == principal


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "found ''"),
        ("ann", "found 'ann'"),
        ("user:", "found 'user:'"),
        ("role:lead", "found 0 users"),
        ("user:ann,user:bob", "found 2 users"),
        ("user:ann,", "found ''"),
        ("user:ann,team:x", "found 'team:x'"),
        ("user:ann,for=role:lead", "found 'for=role:lead'"),
        ("user:ann,for=user:bob,for=user:eve", "found 2 people to act for"),
        ("user:ann,for=user:ann", "nobody acts for themselves"),
        ("user:a nn", "found 'user:a nn'"),
        ("user:änn", "found 'user:änn'"),
        ("user:a\x00", "found 'user:a"),
        ("system", "found 'system'"),
    ],
)
def test_anything_else_is_answered_with_what_was_expected_and_found(text: str, found: str) -> None:
    with pytest.raises(NotAPrincipal) as refused:
        parse(text)
    assert found in str(refused.value)


def test_what_was_done_so_is_marked() -> None:
    assert (marked("rest", acting=True), marked("rest", acting=False)) == ("rest+act_as", "rest")
