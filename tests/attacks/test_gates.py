"""Every attack of the registry: nothing is decided, no event is written, nothing is carried out, and the attacker is
told what they must be told."""

from __future__ import annotations

import pytest

from docs import attacks_page
from tests.attacks.doors import DOORS, EVERYWHERE
from tests.attacks.house import House
from tests.attacks.registry import ATTACKS, INAPPLICABLE, Attack, table


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: f"{each.kind}-{each.name or 'so'}-{each.door}")
def test_nothing_comes_of_it(house: House, attack: Attack) -> None:
    sent = attack.make(house)
    before = house.facts()
    status, said = DOORS[attack.door](house, sent)
    assert house.facts() == before
    expected, code = attack.expected
    assert status == expected, said
    if attack.door not in ("the command line", "a mailed link") and expected != 200:  # they say it in words
        assert said == code


def test_there_are_enough_of_them_and_none_is_left_out() -> None:
    counted = table()
    assert len(ATTACKS) >= 250
    assert len({(each.kind, each.name, each.door) for each in ATTACKS}) == len(ATTACKS)
    empty = {(kind, door) for kind, doors in counted.items() for door in EVERYWHERE if not doors[door]}
    assert empty == INAPPLICABLE.keys()
    assert counted["unfurled link"]["a mailed link"] >= 5


def test_the_table_of_attacks_in_the_documentation_is_today_s() -> None:
    assert attacks_page.section() in attacks_page.PAGE.read_text()


def test_the_gate_opens_for_who_may(house: House) -> None:
    target = house.start("vault", house.req)
    before = house.facts()
    for who in (house.ann, house.bob):
        house.vote(target, who)
    house.until(target.run_id, "finished")
    after = house.facts()
    assert after["votes"] == before["votes"] + 2
    assert after["effects"] == before["effects"] + 1
