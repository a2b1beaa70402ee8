"""Attacks on decisions in chats: each call of a platform that is not what it should be, over each platform. None is a
vote or an event; a call that is not proven gets 401, every other one a sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import httpx2
import pytest

from hai_flow.notify.chat.wecom import _read_xml
from tests.support.chats import Call, Platform, Shown, WeComPlatform, Wrong
from tests.support.chats.world import PLATFORMS, Asked, Chat, chatting
from tests.support.postgres import Server
from tests.support.server import expect


class Target(NamedTuple):
    """A question that waits, with its card; and one that was decided, with the card that it had."""

    chat: Chat
    asked: Asked
    card: Shown
    over: Asked
    old: Shown


@pytest.fixture(scope="module", params=PLATFORMS, ids=lambda each: each.kind)
def target(
    request: pytest.FixtureRequest, postgres_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    with chatting(request.param(), postgres_server, tmp_path_factory.mktemp("attacks")) as chat:
        over = chat.ask()
        old = over.card()
        over.press("Approve", chat.platform.ann, old)
        asked = chat.ask()
        yield Target(chat, asked, asked.card(), over, old)


Make = Callable[[Target], Call]


def press(label: str = "Approve", who: str = "ann", *, token: Any = None, **wrong: object) -> Make:
    """A press of the waiting card that differs in one thing."""

    def make(target: Target) -> Call:
        platform = target.chat.platform
        account = getattr(platform, who, who)
        return platform.press(target.card, label, account, token=token, wrong=Wrong(**wrong))  # type: ignore[arg-type]

    return make


def body(content: bytes, kind: str = "application/json") -> Make:
    """A body that no platform sends, without a proof."""
    return lambda target: Call("POST", {"content-type": kind}, content)


def stolen(target: Target) -> Call:
    """The button of a decided question in the message of the waiting one."""
    token = target.old.buttons["Approve"]
    return target.chat.platform.press(target.card, "Approve", target.chat.platform.ann, token=token)


def swapped(target: Target) -> Call:
    """The button of the waiting question in another message."""
    platform = target.chat.platform
    return platform.press(target.card, "Approve", platform.ann, wrong=Wrong(message=target.old.id))


def again(target: Target) -> Call:
    """A second press of a button that has decided."""
    return target.chat.platform.press(target.old, "Approve", target.chat.platform.ann)


def late(target: Target) -> Call:
    """The other button of a question that is decided."""
    return target.chat.platform.press(target.old, "Reject", target.chat.platform.bob)


def code(text: str) -> Make:
    return lambda target: target.chat.platform.say(target.chat.platform.ann + "0", text)


UNPROVEN: Final[dict[str, Make]] = {
    "without a signature": press(unsigned=True),
    "with another secret": press(sign=False),
    "changed behind the signature": press(tamper=True),
    "ten minutes old": press(skew=-700.0),
    "ten minutes ahead": press(skew=700.0),
    "a message without a signature": lambda target: target.chat.platform.say("x", "hello", wrong=Wrong(unsigned=True)),
    "a message with another secret": lambda target: target.chat.platform.say("x", "hello", wrong=Wrong(sign=False)),
    "a message ten minutes old": lambda target: target.chat.platform.say("x", "hello", wrong=Wrong(skew=-700.0)),
    "no body": body(b""),
    "broken JSON": body(b'{"type":'),
    "deep JSON": body(b"[" * 100_000),
    "an XML bomb": body(b'<!DOCTYPE a [<!ENTITY b "cc">]><xml><Encrypt>&b;</Encrypt></xml>', "text/xml"),
    "XML whose text never ends": body(b"<a><![CDATA[" * 20_000, "text/xml"),
    "a preview that a bot makes": lambda target: Call("GET", {"user-agent": "Slackbot-LinkExpanding 1.0"}, b""),
}
REFUSED: Final[dict[str, tuple[Make, str]]] = {
    "a button that is a number": (press(token=7), "not good any more|^$"),
    "a button that is a list": (press(token=["A" * 43]), "not good any more|^$"),
    "a button that is an object": (press(token={"token": "A" * 43}), "not good any more|^$"),
    "another tenant": (press(tenant="T0OTHER"), "not of the|not in the server"),
    "an account that nobody has connected": (press(who="U0NOBODY"), "hai-flow chat connect|^$"),
    "an account that is called like a person": (press(who="user:ann"), "hai-flow chat connect|^$"),
    "a person without the role": (press(who="eve"), "it asks role:boss|not for you|alone"),
    "the one who asked": (press(who="req"), "started this run|alone"),
    "a button that was made up": (press(token="A" * 43), "not good any more"),
    "no button": (press(token=""), "not good any more|^$"),
    "a button of another cell": (press(token="A" * 43 + ".9"), "."),
    "a button of another question": (stolen, "copy of a card|not good|pressed before"),
    "a forwarded card": (swapped, "copy of a card"),
    "a second press": (again, "pressed before|not good|decided already"),
    "a late press": (late, "decided already|not good|alone"),
    "a code that was made up": (code("connect " + "A" * 43), "not good"),
    "an account with a NUL": (press(who="U0\0ANN"), "hai-flow chat connect|^$"),
    "an account of a hundred thousand signs": (press(who="U" * 100_000), "hai-flow chat connect|^$"),
    "no account": (press(who=""), "hai-flow chat connect|^$"),
    "an account with hidden signs": (press(who="U0\u202eANN"), "hai-flow chat connect|^$"),
    "a button with a NUL": (press(token="A\0" * 43), "not good any more|^$"),
    "a button of a hundred thousand signs": (press(token="A" * 100_000), "not good any more|^$"),
    "a code from an account with a NUL": (
        lambda target: target.chat.platform.say("U0\0", "connect " + "A" * 43),
        "no account has|^$",
    ),
    "words in place of a code": (code("please connect me as user:ann"), "hai-flow chat connect"),
}


@pytest.mark.parametrize("attack", UNPROVEN)
def test_a_call_that_is_not_proven_is_refused_and_says_nothing(target: Target, attack: str) -> None:
    before = target.asked.events()
    assert expect(send(target, UNPROVEN[attack](target)), 401).json()["code"] == "chat_refused"
    assert target.asked.events() == before
    assert target.asked.votes() == []


@pytest.mark.parametrize("attack", REFUSED)
def test_a_call_that_may_not_act_is_no_vote_and_its_sender_is_told_why(target: Target, attack: str) -> None:
    make, told = REFUSED[attack]
    if attack == "another tenant" and target.chat.platform.kind == "wecom":
        told = "^$"  # an app of WeCom can write to nobody in another company
    if attack == "no account" and target.chat.platform.kind == "teams":
        told = "not of the organisation"  # a guest of Teams has no account of the directory
    before, over = target.asked.events(), target.over.events()
    call = make(target)
    response = send(target, call)
    no_xml = target.chat.platform.kind == "wecom" and re.search("NUL|hundred thousand", attack)
    assert response.status_code in ((200, 401) if no_xml else (200, 503))
    assert target.asked.events() == before
    assert target.over.events() == over
    if response.status_code == 401:
        return
    said = " ".join(text for _, text in target.chat.platform.whispers) + target.chat.platform.read_answer(response)
    assert re.search(told, said or ("." if response.status_code == 503 else "")), said


def test_a_channel_of_another_tenant_does_not_know_the_button(target: Target) -> None:
    platform = target.chat.platform
    before = target.asked.events()
    response = platform.post(target.chat.http, platform.press(target.card, "Approve", platform.ann), "@globex/chat")
    assert response.status_code == 200
    assert "not good any more" in platform.last_told(response, platform.ann)
    assert target.asked.events() == before


@pytest.mark.parametrize("address", ["none", "@none/chat", "@globex/none", "@/chat", "", "../chat", "chat/more"])
def test_a_channel_that_is_not_there_is_not_found(target: Target, address: str) -> None:
    platform: Platform = target.chat.platform
    call = platform.press(target.card, "Approve", platform.ann)
    response = target.chat.http.post(
        f"/chat/{address}", content=call.content, headers=dict(call.headers), params=dict(call.params)
    )
    assert response.status_code == 404


def test_a_message_of_wecom_for_another_receiver_is_not_proven(
    postgres_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The company's key is that of several apps of a provider, whose messages it seals."""
    platform = WeComPlatform()
    with chatting(platform, postgres_server, tmp_path_factory.mktemp("wecom")) as chat:
        xml = b"<xml><ToUserName>wx5823bf96d3bd56c7</ToUserName><MsgType>text</MsgType></xml>"
        assert platform.post(chat.http, platform.signed(xml, Wrong(), receiver="wxother")).status_code == 401
        echo = platform.seal(b"1616140317555161061", platform.corp)
        asked = chat.http.get("/chat/chat", params={**platform.parameters(echo, Wrong()), "echostr": echo})
        assert (asked.status_code, asked.content) == (200, b"1616140317555161061")
        message = platform.seal(xml, platform.corp)
        caught = chat.http.get("/chat/chat", params={**platform.parameters(message, Wrong()), "echostr": message})
        assert caught.status_code == 401, "who caught a message and its signature reads it here"
        forged = chat.http.get("/chat/chat", params={**platform.parameters(echo, Wrong(sign=False)), "echostr": echo})
        assert forged.status_code == 401


def test_members_in_the_text_that_a_person_wrote_are_not_those_of_wecom() -> None:
    text = "x]]></Content><FromUserName><![CDATA[boss]]></FromUserName><Content><![CDATA[y"
    sent = f"<FromUserName><![CDATA[eve]]></FromUserName><Content><![CDATA[{text}]]></Content><AgentID>1</AgentID>"
    assert _read_xml(f"<xml>{sent}</xml>".encode()) == {"FromUserName": "eve", "Content": "x", "AgentID": "1"}
    assert _read_xml(b"<xml><A><B>1</B></A><C></C></xml>") == {"A": "", "C": ""}


@pytest.mark.parametrize(
    ("workflow", "label", "fields"),
    [
        ("reasoned", "Reject", {"Reason": "a\0b"}),
        ("reasoned", "Reject", {"Reason": "y" * 50_000}),
        ("reasoned", "Reject", {"Reason": "  "}),
        ("reasoned", "Approve", {"Limit": "9" * 400}),
        ("reasoned", "Approve", {"Limit": "NaN"}),
        ("reasoned", "Approve", {"Limit": "1\0"}),
        ("paying", "Edit…", {"n": "[" * 50_000}),
        ("paying", "Edit…", {"n": "1e999"}),
        ("paying", "Edit…", {"n": '"a\0"'}),
        ("paying", "Edit…", {"n": '"\\u0000"'}),
        ("paying", "Edit…", {"n": '"\\ud800"'}),
    ],
)
def test_hostile_fields_of_a_dialog_are_no_vote_and_its_sender_is_told_why(
    target: Target, workflow: str, label: str, fields: dict[str, str]
) -> None:
    platform = target.chat.platform
    if not platform.takes_dialogs:
        pytest.skip("the platform has no dialogs")
    asked = target.chat.ask(workflow)
    asked.press(label, platform.ann, asked.card(label=label))
    before = asked.events()
    response = expect(send(target, platform.submit(platform.ann, fields)), 200)
    assert platform.read_answer(response)
    assert asked.events() == before


def test_a_dialog_that_is_sent_twice_or_by_somebody_else_is_one_vote(target: Target) -> None:
    platform = target.chat.platform
    if not platform.takes_dialogs:
        pytest.skip("the platform has no dialogs")
    asked = target.chat.ask("reasoned")
    asked.press("Approve", platform.ann)
    dialogs: dict[str, Any] = next(
        each for each in (getattr(platform, name, None) for name in ("views", "dialogs", "modals")) if each
    )
    dialogs[platform.bob] = dialogs[platform.ann]
    others = send(target, platform.submit(platform.bob, {"Limit": "50"}))
    assert "opened by somebody else" in platform.last_told(others, platform.bob)
    assert asked.votes() == []
    call = platform.submit(platform.ann, {"Limit": "50"})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: send(target, call), range(4)))
    assert [each[:2] for each in asked.votes()] == [("user:ann", "approve")]
    events = asked.events()
    assert send(target, call).status_code == 200
    assert asked.events() == events


def test_a_dialog_that_comes_after_the_decision_is_no_vote(target: Target) -> None:
    platform, chat = target.chat.platform, target.chat
    if not platform.takes_dialogs:
        pytest.skip("the platform has no dialogs")
    asked = chat.ask("reasoned")
    asked.press("Reject", platform.ann)
    body = {"decision": "approve", "values": {"limit": 5}}
    expect(chat.http.post(f"/v1/pendings/{asked.pending['id']}/decide", json=body, headers=chat.cy), 200)
    late = send(target, platform.submit(platform.ann, {"Reason": "no"}))
    assert re.search("decided already|not good", platform.last_told(late, platform.ann))
    assert [each[:2] for each in asked.votes()] == [("user:cy", "approve")]


def test_a_clock_four_minutes_off_and_headers_in_capitals_are_taken(target: Target) -> None:
    platform = target.chat.platform
    for skew in (-240.0, 240.0):
        asked = target.chat.ask()
        call = platform.press(asked.card(), "Approve", platform.ann, wrong=Wrong(skew=skew))
        expect(send(target, call._replace(headers={name.upper(): text for name, text in call.headers.items()})), 200)
        assert [each[:2] for each in asked.votes()] == [("user:ann", "approve")]


def test_a_call_of_another_app_of_the_same_tenant_is_no_vote(target: Target) -> None:
    platform = target.chat.platform
    if platform.kind == "dingtalk":
        pytest.skip("its call names no app: the secret is that of the route of one")
    before = target.asked.events()
    expect(send(target, platform.press(target.card, "Approve", platform.ann, wrong=Wrong(app="999"))), 200, 401)
    assert target.asked.events() == before


def send(target: Target, call: Call) -> httpx2.Response:
    return target.chat.platform.post(target.chat.http, call)
