"""What a request to a webhook proves, by each scheme; and that nothing near it proves the same."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.wire.webhook_body import Call
from hai_flow.wire.webhook_signatures import Scheme, filter_headers, identity, is_genuine

SECRET: Final = "a secret that both know"
NOW: Final = 1_772_452_800_000
BODY: Final = b'{"order": "A1"}'
SCHEMES: Final[list[Scheme]] = ["github", "stripe", "standard", "token"]


def digest(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def signed(scheme: Scheme, body: bytes = BODY, *, at: int = NOW // 1000, secret: str = SECRET) -> Call:
    """The request as a sender that knows the secret makes it."""
    key = secret.encode()
    match scheme:
        case "github":
            headers = {"x-hub-signature-256": "sha256=" + digest(key, body).hex()}
        case "stripe":
            headers = {"stripe-signature": f"t={at},v1={digest(key, f'{at}.'.encode() + body).hex()},v0=00"}
        case "standard":
            content = f"msg_1.{at}.".encode() + body
            signature = base64.b64encode(digest(key, content)).decode()
            headers = {"webhook-id": "msg_1", "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}
        case "token":
            headers = {"authorization": f"Bearer {secret}"}
    return Call(headers, body)


def genuine(call: Call, scheme: Scheme, *, header: str = "", secret: str = SECRET, now: int = NOW) -> bool:
    return is_genuine(call, scheme, header, secret, now)


def encode_secret(secret: str) -> str:
    return "whsec_" + base64.b64encode(secret.encode()).decode()


@pytest.mark.parametrize("scheme", SCHEMES)
@given(body=st.binary(max_size=200))
def test_who_knows_the_secret_is_believed(scheme: Scheme, body: bytes) -> None:
    assert genuine(signed(scheme, body), scheme)
    if scheme == "standard":
        assert genuine(signed(scheme, body), scheme, secret=encode_secret(SECRET))


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_who_does_not_is_not_whatever_is_sent(scheme: Scheme, data: st.DataObject) -> None:
    right = signed(scheme)
    name = data.draw(st.sampled_from(sorted(right.headers)))
    value = data.draw(st.text(st.characters(max_codepoint=255)))
    if name != "webhook-timestamp" and value.strip() not in right.headers[name]:
        assert not genuine(Call({**right.headers, name: value}, BODY), scheme)
    assert not genuine(Call({key: value for key, value in right.headers.items() if key != name}, BODY), scheme)
    assert not genuine(right, scheme, secret=data.draw(st.text().filter(lambda text: text != SECRET)))
    if scheme != "token":
        assert not genuine(Call(right.headers, data.draw(st.binary().filter(lambda body: body != BODY))), scheme)


def test_nobody_is_believed_where_the_deployment_has_no_secret() -> None:
    for scheme in SCHEMES:
        assert not genuine(signed(scheme, secret=""), scheme, secret="")


@pytest.mark.parametrize("scheme", ["stripe", "standard"])
@pytest.mark.parametrize(("away", "good"), [(-299, True), (299, True), (-302, False), (302, False)])
def test_a_signed_time_is_good_for_five_minutes(scheme: Scheme, away: int, good: bool) -> None:
    assert genuine(signed(scheme, at=NOW // 1000 + away), scheme) is good


@pytest.mark.parametrize("time", ["", "-5", "1e9", "１７７２４５２８００", "9" * 400])
def test_what_is_no_time_is_refused(time: str) -> None:
    call = Call({"stripe-signature": f"t={time},v1={digest(SECRET.encode(), time.encode() + b'.' + BODY).hex()}"}, BODY)
    assert not genuine(call, "stripe")


def test_a_sender_that_changes_its_key_signs_with_both() -> None:
    call = signed("standard")
    both = {**call.headers, "webhook-signature": f"v1,AAAA {call.headers['webhook-signature']} v1a,BBBB"}
    assert genuine(Call(both, BODY), "standard")


def test_svix_has_other_names_for_the_headers_of_standard_webhooks() -> None:
    call = signed("standard")
    svix = {name.replace("webhook-", "svix-"): value for name, value in call.headers.items()}
    for header in ("", "Svix-Signature"):
        assert genuine(Call(svix, BODY), "standard", header=header)
        assert identity(Call(svix, BODY), "standard", header) == "msg_1"
        assert not genuine(Call(svix, BODY + b" "), "standard", header=header)
        assert not genuine(Call({**svix, "svix-id": "msg_2"}, BODY), "standard", header=header)
    mixed = {**call.headers, "svix-id": "msg_2", "svix-timestamp": "5", "svix-signature": "v1,AAAA"}
    assert genuine(Call(mixed, BODY), "standard")
    assert identity(Call(mixed, BODY), "standard", "") == "msg_1"
    assert not genuine(Call(mixed, BODY), "standard", header="svix-signature")
    turned = {**svix, "webhook-id": "msg_2", "webhook-timestamp": "5", "webhook-signature": "v1,AAAA"}
    assert genuine(Call(turned, BODY), "standard", header="svix-signature")
    assert identity(Call(turned, BODY), "standard", "svix-signature") == "msg_1"
    own = {**call.headers, "x-shop-signature": call.headers["webhook-signature"]}
    assert genuine(Call(own, BODY), "standard", header="X-Shop-Signature")


def test_the_proof_may_stand_in_a_header_of_its_own() -> None:
    own = Call({"x-shop": digest(SECRET.encode(), BODY).hex().upper()}, BODY)
    assert genuine(own, "github", header="X-Shop")
    assert not genuine(own, "github")
    assert genuine(Call({"x-token": SECRET}, BODY), "token", header="X-Token")
    assert not genuine(Call({"authorization": SECRET}, BODY), "token")


def test_a_repeated_request_is_the_same_event_and_another_one_is_not() -> None:
    for scheme in ("github", "stripe", "standard"):
        known = identity(signed(scheme), scheme, "")
        assert known == identity(signed(scheme), scheme, "")
    assert identity(signed("github"), "github", "") != identity(signed("github", b"2"), "github", "")
    assert identity(signed("stripe"), "stripe", "") != identity(signed("stripe", at=5), "stripe", "")
    assert identity(signed("token"), "token", "") is None


@given(st.text("t=v1, \t\x0b\x0c\x1c\x85\xa0", max_size=12), st.text(" \t\x85\xa0", max_size=3))
def test_a_header_that_is_written_another_way_is_the_same_event(before: str, around: str) -> None:
    call = signed("stripe")
    time, *signatures = call.headers["stripe-signature"].split(",")
    again = Call({"stripe-signature": ",".join([before, *signatures, around + time.replace("=", around + "=")])}, BODY)
    if genuine(again, "stripe"):
        assert identity(again, "stripe", "") == identity(call, "stripe", "")


def test_a_secret_that_is_nothing_but_its_prefix_is_none() -> None:
    for scheme in SCHEMES:
        assert not genuine(signed(scheme, secret="whsec_"), scheme, secret="whsec_")
    assert not genuine(signed("standard", secret=""), "standard", secret="whsec_")


def test_a_workflow_sees_no_header_that_is_a_secret() -> None:
    given = {"authorization": "Bearer x", "cookie": "a=b", "x-token": "s", "x-github-event": "push"}
    assert filter_headers(Call(given, b""), "token", "X-Token") == {"x-github-event": "push"}
