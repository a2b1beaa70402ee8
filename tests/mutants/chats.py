"""Bugs of decisions in chats: a call that is not proven, a press that may not decide, a card that says too much."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_ATTACKS: Final = "tests/attacks/test_chat.py"
_CHAT: Final = "tests/api/test_chat.py"
_UNPROVEN: Final = f"{_ATTACKS}::test_a_call_that_is_not_proven_is_refused_and_says_nothing"
_REFUSED: Final = f"{_ATTACKS}::test_a_call_that_may_not_act_is_no_vote_and_its_sender_is_told_why"

reading = Room("hai_flow/notify/chat/reading.py", _UNPROVEN)
reading.bug("a call of any age is taken").edit(" or abs(int(text) * unit - now) > CLOCK_SECONDS", "")
reading.bug("a signature is not compared").edit(
    "if not hmac.compare_digest(", "if not actual and not hmac.compare_digest("
)
slack = Room("hai_flow/notify/chat/slack.py", _REFUSED)
slack.bug("a person of another workspace may press").edit(
    'if team != self._settings["team"] or of_user != team:', 'if team != self._settings["team"] and of_user != team:'
).by(f"{_CHAT}::test_a_person_of_another_workspace_in_a_shared_channel_decides_nothing")
teams = Room("hai_flow/notify/chat/teams.py", _REFUSED)
teams.bug("a bot of another tenant may press").edit(
    'if tenants - {""} != {self._settings["tenant_id"]} or not account:', "if not account:"
)
wecom = Room("hai_flow/notify/chat/wecom.py", _UNPROVEN)
wecom.bug("the receiver in the ciphertext is not looked at").edit(
    'if plain[20 + length :] != self._settings["corp_id"].encode():', "if not plain:"
).by(f"{_ATTACKS}::test_a_message_of_wecom_for_another_receiver_is_not_proven")
wecom.bug("the last member of a name counts, which may be of the text that a person wrote").edit(
    "in reversed(ElementTree.fromstring(text))", "in ElementTree.fromstring(text)"
).by(f"{_ATTACKS}::test_members_in_the_text_that_a_person_wrote_are_not_those_of_wecom")
wecom.bug("a message that was caught is read by the question whether the address is ours").edit(
    'if echo.lstrip().startswith(b"<"):', "if False:"
).by(f"{_ATTACKS}::test_a_message_of_wecom_for_another_receiver_is_not_proven")
slack.bug("the history is asked for in JSON, and a card is there twice").edit(
    '"conversations.history", query, is_form=True', '"conversations.history", query'
).by("tests/notify/test_calls.py::test_a_card_whose_answer_was_lost_is_found_in_the_history_of_slack")
slack.bug("another app of the workspace may press").edit('if app != self._settings["app"]:', "if not app:").by(
    f"{_ATTACKS}::test_a_call_of_another_app_of_the_same_tenant_is_no_vote"
)
lists = Room("hai_flow/notify/chat/reading.py", "tests/notify/test_calls.py")
lists.bug("a member that is no list is gone through").edit(
    "members if isinstance(members, list) else []", "members or []"
)
desk = Room("hai_flow/api/rest/inbound/chat.py", _REFUSED)
desk.bug("an account may be called anything").edit("0 < len(text) <= ACCOUNT_MAX and ", "").by(
    f"{_CHAT}::test_a_connected_account_decides_as_its_person_and_ends_with_their_key"
)
desk.bug("a field of another dialog is dropped").edit(
    "if _FIELD.fullmatch(name) and name not in fields), None):", "if name is fields), None):"
).by(f"{_CHAT}::test_a_dialog_with_a_field_of_another_one_decides_nothing")
desk.bug("the next person gets the outcome of the one whose process died").edit(
    "sha256(button + person.encode())", "sha256(button)"
).by(f"{_CHAT}::test_a_button_whose_process_died_after_the_vote_serves_nobody_else")
desk.bug("the audit names the account where no erasure reaches it").edit(
    'subject=f"account:{row.id}", account=account', 'subject=f"account:{row.id}:{account}"'
).by(f"{_CHAT}::test_an_account_stands_in_the_audit_only_where_an_erasure_reaches_it")
desk.bug("a dialog is sent by somebody else than opened it").edit(
    "if button.account not in (None, press.account):", "if False:"
).by(f"{_ATTACKS}::test_a_dialog_that_is_sent_twice_or_by_somebody_else_is_one_vote")
desk.bug("an account with a NUL reaches the database").edit("text.isprintable()", "True")
desk.bug("a copy of a card decides").edit('press.message != card.message.split(" ")[0]:', "not press.message:")
desk.bug("a channel of another tenant knows the button").edit(
    "button.tenant != self._tenant or not self", "not self"
).by(f"{_ATTACKS}::test_a_channel_of_another_tenant_does_not_know_the_button")
desk.bug("a used button goes on to decide").edit("if button.is_used:\n", "if False:\n").by(
    f"{_CHAT}::test_a_second_press_of_the_same_button_is_no_vote_and_no_event"
)
desk.bug("a refusal uses the button up").edit(
    "            await chat.give_back_button(theirs.pool, digest, press.account)\n", ""
).by(f"{_CHAT}::test_a_button_that_was_refused_to_one_is_there_for_the_next")
desk.bug("a refusal leaves nothing in the audit").edit(
    "if theirs is not None:\n            with contextlib", "if False:\n            with contextlib"
).by(f"{_CHAT}::test_the_rules_of_the_question_hold_for_who_presses")
desk.bug("a dialog is opened that the platform shows cut").edit(" or not press.dialogs.admit(fields)", "").by(
    f"{_CHAT}::test_a_form_with_too_many_fields_for_a_dialog_opens_its_page"
)
dialogs = Room("hai_flow/notify/chat/contract.py", "tests/notify/test_cards.py")
dialogs.bug("a value longer than its field is shown").edit("            and len(field.value) <= self.value\n", "")
dialogs.bug("more fields than the platform takes").edit("len(fields) <= self.fields and ", "")
cards = Room("hai_flow/notify/chat/cards.py", "tests/notify/test_cards.py")
cards.bug("a part of the arguments is shown").edit(
    "arguments = None\n    digest", "arguments = arguments[:arguments_max]\n    digest"
)
cards.bug("a card hides that a rule has voted").edit(' by rule {vote.rule.id}"', '"')
cards.bug("hidden signs of arguments are shown as they are").edit("escape_json(indent(each))", "indent(each)")
drawing = Room("hai_flow/runtime/people/chat_cards.py", _CHAT)
drawing.bug("chat: false is not looked at").edit("return plan.chat and (tool", "return True or (tool").by(
    f"{_CHAT}::test_chat_false_keeps_questions_out_of_chats"
)
drawing.bug("a card is not brought up to date").edit("if drawn.digest != row.content:\n", "if False:\n").by(
    f"{_CHAT}::test_who_decides_elsewhere_is_named_on_the_card"
)
drawing.bug("a card that says that nobody can decide has buttons").edit("row.what != STRANDED and ", "").by(
    f"{_CHAT}::test_who_can_mend_a_question_that_nobody_decides_gets_a_card_to_read"
)
notices = Room("hai_flow/store/people/notifications.py", _CHAT)
notices.bug("a card forgets why it was sent").edit("AND c.due_at IS NOT NULL", "AND false").by(
    f"{_CHAT}::test_who_can_mend_a_question_that_nobody_decides_gets_a_card_to_read"
)
drawing.bug("the reader of a card is known by one of their ids").edit("aliases=ids[1:], ", "").by(
    f"{_CHAT}::test_a_delegate_decides_in_a_chat_for_who_is_away"
)
titles = Room("hai_flow/primitives/titles.py", "tests/notify/test_titles.py")
titles.bug("a gate without a title is called by the name of its tool").edit('(title and title != f"{tool}?")', "title")
titles.bug("the address of a request is cut at its last dot").edit('if "://" in tool:', "if False:")
