"""A version in which a question is not come by, or is come by too late, asks fewer people: who is behind a run does not
move it there."""

from __future__ import annotations

import pytest

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.decide import decide
from hai_flow.errors import Rejected
from tests.support.runs import Play, plan_of

ME = c.Principal("user:req", ("boss", "operator"))
ANOTHER = c.Principal("user:op", ("operator",))
OK = "id: ok, approve: {title: Pay?, from: [role:boss]}"
PAY = "{id: pay, call: t}"
LAST = "{say: Bye.}"


def document(*steps: str) -> str:
    written = "".join(f"      - {each}\n" for each in steps)
    return f"""
    input: {{type: object, properties: {{n: {{type: integer, default: 9}}}}}}
    tools:
      t: {{python: "acme:pay", effect: write}}
      r: {{python: "acme:look", effect: read}}
      f: {{frontend: {{description: Shows it., parameters: {{type: object}}}}}}
    steps:
      - {{id: place, ask: {{title: Where?, from: anyone, form: {{type: object, properties: {{}}}}}}}}
{written}"""


PLAIN = document(f"{{{OK}}}", PAY, LAST)
IN_BLOCK = document(f"{{id: b, try: [{{{OK}}}, {PAY}]}}", LAST)
IN_CASES = document(
    f"{{id: b, switch: [{{when: input.n > 5, steps: [{{{OK}}}]}}, {{default: true, steps: [{{say: Little.}}]}}]}}", PAY
)
IN_LOOP = document(f"{{id: l, for_each: {{items: [1], as: n, steps: [{{{OK}}}]}}}}", PAY)

LESS = {
    "behind a condition": (PLAIN, PLAIN.replace("{id: ok", "{if: input.n > 100, id: ok")),
    "behind the payment": (PLAIN, document(PAY, f"{{{OK}}}", LAST)),
    "behind another payment": (PLAIN, document("{id: more, call: t}", f"{{{OK}}}", PAY, LAST)),
    "behind what was looked up, which pays now": (
        document("{id: look, call: r}", f"{{{OK}}}", PAY),
        document("{id: look, call: t}", f"{{{OK}}}", PAY),
    ),
    "with a list for a no": (
        PLAIN,
        PLAIN.replace("from: [role:boss]}", "from: [role:boss]}, on_decision: {reject: [{say: So what.}]}"),
    ),
    "in a block with a condition": (IN_BLOCK, IN_BLOCK.replace("{id: b", "{if: input.n > 100, id: b")),
    "in a block that catches a no": (
        IN_BLOCK,
        IN_BLOCK.replace("{id: b,", "{id: b, catch: [{errors: [approval.rejected], steps: [{say: So what.}]}],"),
    ),
    "in a case for more": (IN_CASES, IN_CASES.replace("> 5", "> 500")),
    "in a loop over nothing": (IN_LOOP, IN_LOOP.replace("[1]", "[]")),
}


def moved(old: str, new: str, who: c.Principal) -> None:
    play = Play(old, start=False)
    play.do(c.Start(run_id=play.run_id, thread_id="t-1", requester="user:req", input={"n": 9}))
    to: Plan = plan_of(new)
    decide(play.plan, play.state, c.Migrate(to=to, by=who.id, who=who), play.now)


@pytest.mark.parametrize("way", LESS)
def test_a_person_behind_a_run_moves_it_to_no_version_without_the_question(way: str) -> None:
    old, new = LESS[way]
    moved(old, new, ANOTHER)
    with pytest.raises(Rejected) as refused:
        moved(old, new, ME)
    assert [each["code"] for each in refused.value.findings] == ["question.changed"]
    assert "somebody else must move it" in str(refused.value.findings[0]["message"])


@pytest.mark.parametrize(
    "new",
    {
        "other words": PLAIN.replace("Bye.", "Farewell."),
        "more behind it": document(f"{{{OK}}}", PAY, "{id: more, call: t}", LAST),
        "a call of the page before": document("{id: shown, call: f}", f"{{{OK}}}", PAY, LAST),
        "a look before": document("{id: look, call: r}", f"{{{OK}}}", PAY, LAST),
    }.values(),
)
def test_a_version_that_asks_as_before_is_moved_to_by_the_requester(new: str) -> None:
    moved(PLAIN, new, ME)
