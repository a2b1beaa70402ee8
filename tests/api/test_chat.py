"""Chat, both ways: a card shows what is asked, whoever may decide decides there, and everywhere the card says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

import httpx2
import pytest

from hai_flow.store.people import notifications
from tests.support.chats import FeishuPlatform, SlackPlatform, Wrong
from tests.support.chats.world import BOSS, FLOWS, PLATFORMS, Asked, Chat, chatting, settings_of
from tests.support.postgres import Server, connecting, execute, run_apart
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

KEPT_OUT = "the workflow keeps it out of chats"
BEHIND = "SELECT FROM chat_cards c JOIN runs r ON r.id = c.run_id WHERE r.id = $1 AND c.seen < r.seq"


@pytest.fixture(scope="module", params=PLATFORMS, ids=lambda each: each.kind)
def chat(
    request: pytest.FixtureRequest, postgres_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chat]:
    with chatting(request.param(), postgres_server, tmp_path_factory.mktemp("chat")) as made:
        yield made


def test_a_card_shows_question_people_and_deadline_and_decides_once(chat: Chat) -> None:
    asked = chat.ask()
    card = asked.card()
    assert f"Pay {asked.mark}?" in card.text
    assert "role:boss" in card.text
    assert re.search(r"Until: \d{4}-\d\d-\d\d \d\d:\d\d UTC", card.text)
    assert all(len(token) >= 43 for token in card.buttons.values())
    assert "Recorded, as user:ann" in asked.press("Approve", chat.platform.ann)
    assert asked.votes() == [("user:ann", "approve", "chat")]
    assert "Approved by user:ann" in asked.result()
    stored = chat.fetch("SELECT digest FROM chat_buttons")
    assert not [row for row in stored for token in card.buttons.values() if token.encode() in bytes(row[0])]


def test_the_arguments_stand_on_the_card_whole_or_their_digest_does(chat: Chat) -> None:
    asked = chat.ask(n=82000)
    card = asked.card()
    assert '"n": 82000' in card.text or asked.pending["digest"] in card.text
    hidden = chat.ask("long", text="Pay \u202eevil\u202c and \u0430pple")
    text = hidden.card().text
    assert "\u202e" not in text
    assert ("u202e" in text and "u0430pple" in text) or hidden.pending["digest"] in text
    large = chat.ask("long", text="y" * 60_000)
    card = large.card()
    assert large.pending["digest"] in card.text
    assert "yyy" not in card.text, "never a part of them"


def test_a_second_press_of_the_same_button_is_no_vote_and_no_event(chat: Chat) -> None:
    asked = chat.ask("twice")
    card = asked.card()
    asked.press("Approve", chat.platform.ann, card)
    before = asked.events()
    assert "pressed before" in asked.press("Approve", chat.platform.ann, card)
    assert re.search("pressed before|alone", asked.press("Approve", chat.platform.bob, card))
    assert asked.events() == before
    assert [each["subject"] for each in chat.audit("chat.refused")].count(f"pending:{asked.pending['id']}") == 2


def test_a_quorum_is_reached_by_the_buttons_of_each_state_of_the_card(chat: Chat) -> None:
    asked = chat.ask("twice")
    account = chat.platform.bob
    first, second = asked.card(), asked.card(account)
    asked.press("Approve", chat.platform.ann, first)
    if second.id == first.id:  # one card for both, in a room, which changes with the first vote
        token = first.buttons["Approve"]
        second = wait_for(
            lambda: next((c for c in chat.platform.of(asked.mark) if c.buttons.get("Approve", token) != token), None)
        )
    asked.press("Approve", account, second)
    assert [each[0] for each in asked.votes()] == ["user:ann", "user:bob"]
    assert "Approved by user:ann, user:bob" in asked.result()


@pytest.mark.parametrize(
    ("who", "told"),
    [("eve", "it asks role:boss|not for you|alone"), ("req", "started this run|alone")],
    ids=["role", "requester"],
)
def test_the_rules_of_the_question_hold_for_who_presses(chat: Chat, who: str, told: str) -> None:
    asked = chat.ask()
    before = asked.card() and asked.events()
    assert re.search(told, asked.press("Approve", getattr(chat.platform, who)))
    assert asked.events() == before
    assert any(each["by"] == f"user:{who}" for each in chat.audit("chat.refused"))
    assert "Recorded" in asked.press("Approve", chat.platform.ann), "the button is not used up by a refusal"


def test_a_button_that_was_refused_to_one_is_there_for_the_next(chat: Chat) -> None:
    if not chat.platform.takes_rooms:
        pytest.skip("each card of the platform is one person's")
    asked = chat.ask()
    card = asked.card()
    asked.press("Approve", chat.platform.req, card)
    assert "Recorded, as user:ann" in asked.press("Approve", chat.platform.ann, card)


def test_a_person_of_another_workspace_in_a_shared_channel_decides_nothing(chat: Chat) -> None:
    if not isinstance(chat.platform, SlackPlatform):
        pytest.skip("only Slack shares channels")
    asked = chat.ask()
    call = chat.platform.press(asked.card(), "Approve", chat.platform.ann, wrong=Wrong(user_team="T0OTHER"))
    assert "not of the workspace" in chat.platform.last_told(chat.platform.post(chat.http, call), chat.platform.ann)
    assert asked.votes() == []


def test_an_unconnected_account_decides_nothing_whatever_its_name(chat: Chat) -> None:
    asked = chat.ask()
    assert "hai-flow chat connect" in asked.press("Approve", "U0NOBODY", asked.card())
    assert asked.votes() == []
    assert asked.pending["status"] == "open"


def test_who_decides_elsewhere_is_named_on_the_card(chat: Chat) -> None:
    asked = chat.ask()
    card = asked.card()
    answer = chat.http.post(f"/v1/pendings/{asked.pending['id']}/decide", json={"decision": "reject"}, headers=chat.cy)
    assert answer.status_code == 200, answer.text
    assert "Rejected by user:cy" in asked.result()
    assert "decided already" in asked.press("Approve", chat.platform.ann, card) or "not good" in asked.press(
        "Approve", chat.platform.ann, card
    )


def test_a_delegate_decides_in_a_chat_for_who_is_away(chat: Chat) -> None:
    eve, bob, admin = chat.platform.eve, chat.platform.bob, chat.people.person("user:root", roles=["admin"])
    today = datetime.now(UTC).date()
    absence = {"first_day": f"{today}", "last_day": f"{today + timedelta(days=1)}", "delegate": "user:eve"}

    def enter(person: str) -> str:
        answer = expect(chat.http.post("/v1/absences", json={"person": person, **absence}, headers=admin), 201)
        return str(answer.json()["id"])

    def press(workflow: str) -> tuple[Asked, str]:
        asked = chat.ask(workflow)
        cards = wait_for(
            lambda: [each for each in chat.platform.of(asked.mark) if each.buttons and bob not in each.place]
        )
        return asked, asked.press("Approve", eve, cards[0])

    absences = [enter("user:ann")]
    for workflow in ("paying", "addressed"):
        asked, told = press(workflow)
        assert "Recorded, as user:eve for user:ann" in told
        assert "Approved by user:eve for user:ann" in asked.result()
    if chat.platform.takes_dialogs:
        asked, _ = press("reasoned")
        path, rejection = f"/v1/pendings/{asked.pending['id']}/decide", {"decision": "reject", "reason": "No."}
        assert chat.http.post(path, json=rejection, headers=chat.cy).status_code == 200
        submitted = chat.platform.post(chat.http, chat.platform.submit(eve, {"Limit": "50"}))
        assert "decided already" in chat.platform.last_told(submitted, eve)
    absences.append(enter("user:bob"))
    asked, told = press("paying")
    assert ("You decide this for user:ann and for user:bob" in told, asked.votes()) == (True, [])
    for id in absences:
        assert chat.http.delete(f"/v1/absences/{id}", headers=admin).status_code == 204
    ann = chat.people.person("user:ann", roles=BOSS)
    delegation = {"to": "user:eve", "until": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    answer = expect(chat.http.post("/v1/inbox/delegations", json=delegation, headers=ann), 201)
    asked, told = press("addressed")
    assert ("This card is for user:ann alone" in told, asked.votes()) == (True, [])
    if chat.platform.takes_rooms:  # anybody presses on the card in a room
        assert "Recorded, as user:eve for user:ann" in press("paying")[1]
    assert chat.http.delete(f"/v1/inbox/delegations/{answer.json()['id']}", headers=ann).status_code == 204


def test_chat_false_keeps_questions_out_of_chats(chat: Chat) -> None:
    for workflow in ("secretive", "toolish"):
        asked = chat.ask(workflow)
        wait_for(lambda asked=asked: KEPT_OUT in asked.reasons())
        assert chat.platform.of(asked.mark) == []


def test_a_card_for_somebody_who_may_not_decide_has_no_buttons(chat: Chat) -> None:
    asked = chat.ask("personal")
    wait_for(lambda: len(chat.platform.of(asked.mark)) == 2)
    assert sorted(bool(each.buttons) for each in chat.platform.of(asked.mark)) == [False, True]


def test_who_can_mend_a_question_that_nobody_decides_gets_a_card_to_read(chat: Chat) -> None:
    asked, platform = chat.ask("twice"), chat.platform
    asked.card()
    stranded = """
    INSERT INTO notifications (id, tenant, run_id, pending_id, what, notify, status, due_at)
    SELECT 'stranded ' || id, tenant, run_id, id, 'stranded', '{chat}', 'queued', now() FROM pendings WHERE run_id = $1
    """
    chat.fetch(stranded, asked.id)
    count, mends = 1 + platform.takes_rooms, "Nobody can decide this: mend it"
    wait_for(lambda: len([each for each in platform.of(asked.mark) if mends in each.text]) == count)
    chat.fetch("UPDATE notifications SET created_at = now() - interval '31 days' WHERE run_id = $1", asked.id)
    run_apart(_forget_notifications(chat.dsn))
    asked.press("Approve", platform.ann)
    wait_for(lambda: not chat.fetch(BEHIND, asked.id))
    assert [bool(each.buttons) for each in platform.of(asked.mark) if mends in each.text] == [False] * count
    answer = chat.http.post(f"/v1/pendings/{asked.pending['id']}/decide", json={"decision": "reject"}, headers=chat.cy)
    assert answer.status_code == 200, answer.text
    ends = ("Rejected by user:cy", "Somebody is asked to decide")
    wait_for(lambda: all(end in each.text for each in platform.of(asked.mark) for end in ends))


def test_a_room_of_one_reader_has_evidence_and_a_read_only_one_no_buttons(chat: Chat) -> None:
    if not chat.platform.takes_rooms:
        pytest.skip("the platform has no rooms")
    asked, room = chat.ask("rooms"), chat.platform.room
    wait_for(lambda: len(chat.platform.of(asked.mark)) == 3)
    by_place = {each.place: each for each in chat.platform.of(asked.mark)}
    assert {place.removeprefix(room): bool(each.buttons) for place, each in by_place.items()} == {
        "": True, "own": True, "quiet": False,
    }  # fmt: skip
    assert ["because it is so" in by_place[f"{room}{name}"].text for name in ("", "own", "quiet")] == [
        False, True, False,
    ]  # fmt: skip
    assert asked.pending["digest"] in by_place[room].text
    own = by_place[f"{room}own"]
    assert "alone" in asked.press("Approve", chat.platform.bob, own)
    assert "Recorded, as user:ann" in asked.press("Approve", chat.platform.ann, own)
    assert "Approved by user:ann" in asked.result()


@pytest.mark.parametrize("workflow", ["iban", "served"])
def test_personal_values_are_masked_where_anybody_may_read(chat: Chat, workflow: str) -> None:
    """Marked by the workflow, or by the form of a tool that puts the answer into its output."""
    if not chat.platform.takes_rooms:
        pytest.skip("the platform has no rooms")
    asked, room = chat.ask(workflow), chat.platform.room
    if workflow == "served":
        page = f"/v1/pendings?run_id={asked.run}"
        pendings = wait_for(lambda: chat.http.get(page, headers=chat.requester).json()["items"])
        answer = {"values": {"amount": "DE-4711"}}
        expect(chat.http.post(f"/v1/pendings/{pendings[0]['id']}/decide", json=answer, headers=chat.requester), 200)
    wait_for(lambda: len(chat.platform.of(asked.mark)) == 2)
    texts = {each.place.removeprefix(room): each.text for each in chat.platform.of(asked.mark)}
    assert "DE-4711" not in texts[""]
    assert "DE-4711" in texts["own"]


def test_what_needs_more_than_a_press_opens_a_dialog_or_names_the_page(chat: Chat) -> None:
    asked = chat.ask("reasoned")
    if not chat.platform.takes_dialogs:
        card = wait_for(lambda: chat.platform.of(asked.mark))[0]
        assert card.buttons == {}
        assert "flow.example.com" in json.dumps(card.raw)
        return
    assert asked.press("Approve", chat.platform.ann) == ""
    platform = chat.platform
    wrong = platform.post(chat.http, platform.submit(platform.ann, {"Limit": "1000"}))
    assert "100" in platform.read_answer(wrong)
    assert asked.votes() == []
    expect(platform.post(chat.http, platform.submit(platform.ann, {"Limit": "50"})), 200)
    assert [each[:2] for each in asked.votes()] == [("user:ann", "approve")]


def test_a_dialog_with_a_field_of_another_one_decides_nothing(chat: Chat) -> None:
    if not chat.platform.takes_dialogs:
        pytest.skip("the platform has no dialogs")
    asked, platform = chat.ask("reasoned"), chat.platform
    assert asked.press("Approve", platform.ann) == ""
    platform.add_field(platform.ann, "e0", "An argument")
    refused = platform.post(chat.http, platform.submit(platform.ann, {"Limit": "50", "An argument": "7"}))
    assert "no field of this dialog" in platform.read_answer(refused)
    assert asked.votes() == []


def test_a_form_with_too_many_fields_for_a_dialog_opens_its_page(chat: Chat) -> None:
    if not chat.platform.takes_dialogs:
        pytest.skip("the platform has no dialogs")
    asked = chat.ask("wide")
    text = asked.press("Approve", chat.platform.ann)
    assert ("flow.example.com" in text) == (chat.platform.fields_max < 7)
    assert chat.platform.refused == []


def test_a_dialog_edits_arguments(chat: Chat) -> None:
    if not chat.platform.takes_dialogs:
        pytest.skip("the platform has no dialogs")
    asked, platform = chat.ask(), chat.platform
    asked.press("Edit…", platform.bob)
    expect(platform.post(chat.http, platform.submit(platform.bob, {"n": "8"})), 200)
    (edited,) = [each for each in asked.events() if each["type"] == "pending_edited"]
    assert edited["edits"] == {"n": 8}


def test_chat_and_console_deciding_at_once_make_one_vote_and_one_winner(chat: Chat) -> None:
    for _ in range(5):
        asked = chat.ask()
        card, pending = asked.card(), asked.pending
        call = chat.platform.press(card, "Approve", chat.platform.ann)
        with ThreadPoolExecutor(2) as pool:
            pressed = pool.submit(chat.platform.post, chat.http, call)
            decided = pool.submit(
                chat.http.post, f"/v1/pendings/{pending['id']}/decide", json={"decision": "reject"}, headers=chat.cy
            )
            pressed.result(), decided.result()
        (vote,) = asked.votes()
        end = "Approved by user:ann" if vote[0] == "user:ann" else "Rejected by user:cy"
        assert end in asked.result()


def test_a_button_whose_process_died_after_the_vote_serves_nobody_else(chat: Chat) -> None:
    asked, platform = chat.ask("twice"), chat.platform
    card = asked.card(platform.ann)
    own = replace(card, buttons=dict(card.buttons))
    asked.press("Approve", platform.ann, own)
    wait_for(lambda: not chat.fetch(BEHIND, asked.id))  # the button would go with the update of its card
    ((button, taken_by, account),) = chat.fetch(
        "SELECT digest, taken_by, account FROM chat_buttons WHERE used_at IS NOT NULL AND run_id = $1", asked.id
    )
    assert (taken_by, account) == (None, None)
    died = """
    UPDATE chat_buttons SET used_at = NULL, taken_by = $2, taken_at = now() - interval '2 min' WHERE digest = $1
    """
    for who in (platform.ann, platform.bob):
        chat.fetch(died, button, platform.ann)
        told = asked.press("Approve", who, own)
        person = {platform.ann: "user:ann", platform.bob: "user:bob"}[who]
        assert f"Recorded, as {person}" in told or "alone" in told
        assert ("Recorded" in told) == (person in [each[0] for each in asked.votes()])


def test_one_press_that_comes_ten_times_at_once_is_one_vote(chat: Chat) -> None:
    asked = chat.ask("twice")
    call = chat.platform.press(asked.card(chat.platform.ann), "Approve", chat.platform.ann)
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda _: chat.platform.post(chat.http, call), range(10)))
    assert [each[0] for each in asked.votes()] == ["user:ann"]


def test_a_connected_account_decides_as_its_person_and_ends_with_their_key(chat: Chat) -> None:
    account, platform = f"{chat.platform.ann}7", chat.platform
    key, text = chat.people.key("user:dee", roles=BOSS)
    dee = {"Authorization": f"Bearer {text}"}
    given = expect(chat.http.post("/v1/inbox/accounts", json={"channel": "chat"}, headers=dee), 201).json()
    assert given["account"] is None
    for none in ("", f"U{token_hex(4000)}", "U\u202e7"):  # as the code is not used up by
        refused = platform.post(chat.http, platform.say(none, given["send"]))
        assert (refused.status_code, "Connected" in platform.last_told(refused, none)) == (200, False)
    said = platform.post(chat.http, platform.say(account, given["send"]))
    assert "decides as user:dee" in platform.last_told(said, account)
    again = platform.post(chat.http, platform.say(f"{account}7", given["send"]))
    assert "not good" in platform.last_told(again, f"{account}7")
    (listed,) = chat.http.get("/v1/inbox/accounts", headers=dee).json()["items"]
    assert (listed["id"], listed["account"]) == (given["id"], account)
    asked = chat.ask("twice")
    assert "Recorded, as user:dee" in asked.press("Approve", account, asked.card(account))
    assert [each[0] for each in asked.votes()] == ["user:dee"]
    admin = chat.people.person("user:root", roles=["admin"])
    assert chat.http.post(f"/v1/keys/{key.id}/revoke", headers=admin).status_code == 200
    later = chat.ask("twice")
    card = later.card(chat.platform.ann)
    wait_for(lambda: "Nobody here is known" in later.press("Approve", account, card))
    assert later.votes() == []
    assert chat.audit("chat.connected")[0]["by"] == "user:dee"


def test_a_person_of_the_file_whose_last_key_is_revoked_decides_in_no_chat(chat: Chat) -> None:
    key, _ = chat.people.key("user:bob", roles=["requester", "decider", "boss"])
    asked, earlier = chat.ask("twice"), chat.ask("twice")
    card, bob = asked.card(chat.platform.bob), chat.platform.bob
    assert "Recorded" in earlier.press("Approve", bob, earlier.card(bob)), "until then they decide"
    chat.people.revoke(key)
    wait_for(lambda: "the keys of user:bob were revoked" in asked.press("Approve", bob, card))
    assert asked.votes() == []
    untold = chat.ask("bobs")
    wait_for(lambda: untold.reasons() == ["the keys of the person were revoked, or they were erased"])
    chat.people.key("user:bob", roles=["requester", "decider", "boss"])
    wait_for(lambda: "Recorded" in asked.press("Approve", bob, card))
    assert [each[0] for each in asked.votes()] == ["user:bob"]


def test_an_account_stands_in_the_audit_only_where_an_erasure_reaches_it(chat: Chat) -> None:
    account, platform = f"{chat.platform.ann}5", chat.platform
    given = chat.http.post("/v1/inbox/accounts", json={"channel": "chat"}, headers=chat.cy).json()
    platform.post(chat.http, platform.say(account, given["send"]))
    record = next(each for each in chat.audit("chat.connected") if each["subject"] == f"account:{given['id']}")
    assert account in json.dumps(record)
    assert not chat.fetch("SELECT 1 FROM audit WHERE subject LIKE '%' || $1 || '%'", account)
    assert chat.http.delete(f"/v1/inbox/accounts/{given['id']}", headers=chat.cy).status_code == 204


def test_an_agent_connects_no_account(chat: Chat) -> None:
    agent = chat.people.person("agent:bot", roles=BOSS)
    refused = chat.http.post("/v1/inbox/accounts", json={"channel": "chat"}, headers=agent)
    assert (refused.status_code, refused.json()["code"]) == (403, "account_forbidden")


def test_a_second_account_of_a_person_is_no_second_vote(chat: Chat) -> None:
    account, platform = f"{chat.platform.ann}6", chat.platform
    ann = chat.people.person("user:ann", roles=BOSS)
    given = chat.http.post("/v1/inbox/accounts", json={"channel": "chat"}, headers=ann).json()
    platform.post(chat.http, platform.say(account, given["send"]))
    asked = chat.ask("twice")
    asked.press("Approve", platform.ann, asked.card(platform.ann))
    asked.press("Approve", account, wait_for(lambda: asked.card(platform.ann)))
    assert asked.votes() == [("user:ann", "approve", "chat")]


def test_a_person_with_accounts_on_two_platforms_has_one_vote(postgres_server: Server, tmp_path: Path) -> None:
    slack, feishu = SlackPlatform(), FeishuPlatform()
    with ExitStack() as stack:
        files: list[Path] = []
        environment: dict[str, str] = {}
        for platform in (slack, feishu):
            stack.enter_context(platform.serving())
            folder = tmp_path / platform.kind
            folder.mkdir()
            environment |= settings_of(platform, folder)
            files.append(folder / "notify.json")
        notify, other = (json.loads(file.read_text()) for file in files)
        notify["channels"] = {"chat": notify["channels"]["chat"], "other": other["channels"]["chat"]}
        for id, person in notify["people"].items():
            person["accounts"]["other"] = other["people"][id]["accounts"]["chat"]
        files[-1].write_text(json.dumps({key: value for key, value in notify.items() if key != "tenants"}))
        dsn = stack.enter_context(postgres_server.database())
        server = stack.enter_context(serving(dsn, environment=environment))
        http = stack.enter_context(httpx2.Client(base_url=server.url, timeout=30))
        chat = Chat(slack, server, dsn, http)
        both = FLOWS[1].replace("name: twice", "name: both").replace("notify: [chat]", "notify: [chat, other]")
        publisher = chat.people.person("user:pat", roles=["publisher"])
        assert http.post("/v1/workflows", content=both, headers={**YAML, **publisher}).status_code == 201
        asked = chat.ask("both")
        assert "Recorded, as user:ann" in asked.press("Approve", slack.ann)

        def press(account: str) -> str:
            card = wait_for(lambda: [each for each in feishu.of(asked.mark) if "Approve" in each.buttons])[0]
            return feishu.last_told(feishu.post(http, feishu.press(card, "Approve", account), "other"), account)

        press(feishu.ann)
        assert [each[:1] for each in asked.votes()] == [("user:ann",)]
        wait_for(lambda: "Recorded, as user:bob" in press(feishu.bob))  # by the newest card
        assert "Approved by user:ann, user:bob" in asked.result()


def test_a_disconnected_account_decides_nothing_more(chat: Chat) -> None:
    account, platform = f"{chat.platform.ann}8", chat.platform
    given = chat.http.post("/v1/inbox/accounts", json={"channel": "chat"}, headers=chat.cy).json()
    platform.post(chat.http, platform.say(account, given["send"]))
    assert chat.http.delete(f"/v1/inbox/accounts/{given['id']}", headers=chat.cy).status_code == 204
    asked = chat.ask()
    assert "Nobody here is known" in asked.press("Approve", account, asked.card())
    assert asked.votes() == []


def test_a_code_is_of_its_channel_and_its_owner_alone_ends_the_account(chat: Chat) -> None:
    platform = chat.platform
    given = chat.http.post("/v1/inbox/accounts", json={"channel": "chat"}, headers=chat.cy).json()
    elsewhere = platform.post(chat.http, platform.say(f"{platform.ann}9", given["send"]), "@globex/chat")
    assert "not good" in platform.last_told(elsewhere, f"{platform.ann}9")
    stranger = chat.people.person("user:zoe", roles=BOSS)
    assert chat.http.delete(f"/v1/inbox/accounts/{given['id']}", headers=stranger).status_code == 404
    assert chat.http.post("/v1/inbox/accounts", json={"channel": "none"}, headers=stranger).status_code == 404


@pytest.mark.parametrize("fault", [500, 429, "lost", "hang"])
def test_a_card_that_the_platform_fails_to_take_is_there_once_in_the_end(chat: Chat, fault: int | str) -> None:
    chat.ask().card()  # the tokens of the platform are there
    chat.platform.faults = [1.0 if fault == "hang" else fault]
    asked = chat.ask()
    card = asked.card()
    assert "Recorded" in asked.press("Approve", card.place if not chat.platform.takes_rooms else chat.platform.ann)
    places = [each.place for each in chat.platform.of(asked.mark)]
    assert len(places) == len(set(places))
    if chat.platform.takes_rooms:  # a card whose answer is lost changes in WeCom with its own press alone
        assert "Approved by user:ann" in asked.result()


def test_of_two_messages_of_one_card_teams_keeps_the_newer(chat: Chat) -> None:
    if chat.platform.kind != "teams":
        pytest.skip("the others can tell whether they have a card (docs/chat.md)")
    chat.platform.faults = ["lost"]
    asked = chat.ask()
    early = asked.card()
    wait_for(lambda: chat.fetch("SELECT 1 FROM notifications WHERE run_id = $1 AND error IS NOT NULL", asked.id))
    chat.fetch("UPDATE notifications SET due_at = now() WHERE run_id = $1 RETURNING 1", asked.id)
    wait_for(lambda: chat.fetch("SELECT 1 FROM chat_cards WHERE run_id = $1 AND message IS NOT NULL", asked.id))
    assert "Only the card itself decides" in asked.press("Approve", chat.platform.ann, early)
    assert (asked.votes(), early.id in chat.platform.cards) == ([], False)
    assert "Recorded" in asked.press("Approve", chat.platform.ann)
    assert "Approved by user:ann" in asked.result()


def test_a_platform_that_is_away_loses_and_doubles_nothing(chat: Chat) -> None:
    early = chat.ask()
    early.card()
    chat.platform.is_down = True
    late = [chat.ask() for _ in range(3)]
    answer = chat.http.post(f"/v1/pendings/{early.pending['id']}/decide", json={"decision": "reject"}, headers=chat.cy)
    assert answer.status_code == 200
    failed = "SELECT count(*) FROM notifications WHERE run_id = ANY ($1::uuid[]) AND error IS NOT NULL"
    wait_for(lambda: chat.fetch(failed, [each.id for each in late])[0][0] >= len(late))
    chat.platform.is_down = False
    # As if the time until the next try were over, of those that are put off and not under way.
    for table in ("notifications", "chat_cards"):
        chat.fetch(
            f"UPDATE {table} SET due_at = now() "
            "WHERE error IS NOT NULL AND due_at < now() + interval '30 s' RETURNING 1"
        )
    for asked in late:
        asked.card()
        places = [each.place for each in chat.platform.of(asked.mark)]
        assert len(places) == len(set(places))
    assert "Rejected by user:cy" in early.result()


def test_a_server_killed_while_it_sends_or_decides_does_each_once(postgres_server: Server, tmp_path: Path) -> None:
    platform = SlackPlatform()
    with ExitStack() as stack:
        stack.enter_context(platform.serving())
        dsn = stack.enter_context(postgres_server.database())
        environment = settings_of(platform, tmp_path)
        first = stack.enter_context(serving(dsn, environment=environment))
        with httpx2.Client(base_url=first.url, timeout=30) as http:
            chat = Chat(platform, first, dsn, http)
            chat.ask().card()
            platform.faults = [1.5]  # the platform takes the card, and the server does not live to hear of it
            requests = len(platform.requests)
            asked = chat.ask()
            wait_for(lambda: len(platform.requests) > requests)
            first.kill()
        wait_for(lambda: platform.of(asked.mark))
        run_apart(execute(dsn, "UPDATE notifications SET due_at = now() WHERE due_at IS NOT NULL"))
        second = stack.enter_context(serving(dsn, environment=environment))
        with httpx2.Client(base_url=second.url, timeout=30) as http:
            chat.server, chat.http = second, http
            wait_for(lambda: chat.fetch("SELECT 1 FROM chat_cards WHERE message IS NOT NULL AND run_id = $1", asked.id))
            assert len(platform.of(asked.mark)) == 1
            card = asked.card()
            # As if a process had died between taking the button and deciding.
            digest = sha256(card.buttons["Approve"].encode()).digest()
            taken = "UPDATE chat_buttons SET taken_by = $2, taken_at = now() WHERE digest = $1"
            run_apart(execute(dsn, taken, digest, platform.bob))
            assert "Somebody else" in asked.press("Approve", platform.ann, card)
            run_apart(execute(dsn, "UPDATE chat_buttons SET taken_at = now() - interval '2 minutes'"))
            assert "Recorded, as user:ann" in asked.press("Approve", platform.ann, card)
            assert [each[0] for each in asked.votes()] == ["user:ann"]


async def _forget_notifications(dsn: str) -> None:
    async with connecting(dsn) as connection:
        await notifications.forget(connection)
