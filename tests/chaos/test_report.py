"""The report says what was seen, and lets nothing of it become part of the page."""

from __future__ import annotations

from xml.etree import ElementTree

from hai_flow_chaos.campaign import Outcome
from hai_flow_chaos.history import Broken, History, Mark, Started
from hai_flow_chaos.plan import Campaign
from hai_flow_chaos.report import page


def test_a_violation_is_shown_as_text_and_in_the_timeline() -> None:
    history = History()
    history.marks.append(Mark(1.0, 2.5, "life", "worker 1", "<b>ended</b>"))
    history.marks.append(Mark(2.0, 2.0, "cut", "worker 1", "3 connections"))
    history.started.append(Started(1.5, 0, "form", "r1", {}))
    broken = [Broken("one answer <i>wins</i>", "p1", "two & more", 2.2)]
    outcome = Outcome(Campaign(5), [], history, {"fill_disk": "only root can"}, broken=broken)
    shown = page(outcome)
    assert "one answer &lt;i&gt;wins&lt;/i&gt;" in shown
    assert "<b>" not in shown
    assert "two &amp; more" in shown
    assert "--seed 5" in shown
    assert "only root can" in shown
    picture = ElementTree.fromstring(shown[shown.index("<svg") : shown.index("</svg>") + 6])
    assert [each.attrib["class"] for each in picture.iter("line") if each.attrib["class"] == "violation"]
    assert len(list(picture.iter("rect"))) == 2


def test_a_campaign_that_held_says_so() -> None:
    outcome = Outcome(Campaign(5), [], History(), {}, quiet_after=3.0)
    assert "Everything held" in page(outcome)
    assert outcome.as_json()["holds"]
