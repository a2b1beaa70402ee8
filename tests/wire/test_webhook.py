"""What a request to a webhook proves, by each scheme; and that nothing near it proves the same."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import zlib
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.errors import Rejected
from hai_flow.primitives.unpacking import can_unpack
from hai_flow.wire import webhook
from hai_flow.wire.posted_json import Limits
from hai_flow.wire.webhook import Call, Scheme

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
    return webhook.is_genuine(call, scheme, header, secret, now)


def known_key(secret: str) -> str:
    return "whsec_" + base64.b64encode(secret.encode()).decode()


@pytest.mark.parametrize("scheme", SCHEMES)
@given(body=st.binary(max_size=200))
def test_who_knows_the_secret_is_believed(scheme: Scheme, body: bytes) -> None:
    assert genuine(signed(scheme, body), scheme)
    if scheme == "standard":
        assert genuine(signed(scheme, body), scheme, secret=known_key(SECRET))


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


def test_the_proof_may_stand_in_a_header_of_its_own() -> None:
    own = Call({"x-shop": digest(SECRET.encode(), BODY).hex().upper()}, BODY)
    assert genuine(own, "github", header="X-Shop")
    assert not genuine(own, "github")
    assert genuine(Call({"x-token": SECRET}, BODY), "token", header="X-Token")
    assert not genuine(Call({"authorization": SECRET}, BODY), "token")


def test_a_repeated_request_is_the_same_event_and_another_one_is_not() -> None:
    for scheme in ("github", "stripe", "standard"):
        known = webhook.identity(signed(scheme), scheme, "")
        assert known == webhook.identity(signed(scheme), scheme, "")
    assert webhook.identity(signed("github"), "github", "") != webhook.identity(signed("github", b"2"), "github", "")
    assert webhook.identity(signed("stripe"), "stripe", "") != webhook.identity(signed("stripe", at=5), "stripe", "")
    assert webhook.identity(signed("token"), "token", "") is None


@given(st.text("t=v1, \t\x0b\x0c\x1c\x85\xa0", max_size=12), st.text(" \t\x85\xa0", max_size=3))
def test_a_header_that_is_written_another_way_is_the_same_event(before: str, around: str) -> None:
    call = signed("stripe")
    time, *signatures = call.headers["stripe-signature"].split(",")
    again = Call({"stripe-signature": ",".join([before, *signatures, around + time.replace("=", around + "=")])}, BODY)
    if genuine(again, "stripe"):
        assert webhook.identity(again, "stripe", "") == webhook.identity(call, "stripe", "")


def test_a_repeated_header_has_its_first_value_and_thousands_are_read() -> None:
    many = [(f"x-{number}", "") for number in range(100_000)]
    headers = webhook.read_first_headers([("a", "1"), *many, ("a", "2")])
    assert (headers["a"], len(headers)) == ("1", 100_001)


def test_a_secret_that_is_nothing_but_its_prefix_is_none() -> None:
    for scheme in SCHEMES:
        assert not genuine(signed(scheme, secret="whsec_"), scheme, secret="whsec_")
    assert not genuine(signed("standard", secret=""), "standard", secret="whsec_")


def test_a_workflow_sees_no_header_that_is_a_secret() -> None:
    given = {"authorization": "Bearer x", "cookie": "a=b", "x-token": "s", "x-github-event": "push"}
    assert webhook.filter_headers(Call(given, b""), "token", "X-Token") == {"x-github-event": "push"}


def test_every_documented_type_is_read_and_only_json_must_be_json() -> None:
    (body,) = webhook.OPENAPI_BODY.values()
    kinds = cast(Any, body)["content"]
    forms = {webhook.FORM: (b"a=1", {"a": "1"}), webhook.MULTIPART: (PARTS, {"id": ["17", ""], "file": "\r\nA\ufffd"})}
    for kind in {*kinds} - {"application/json"}:
        content, value = forms.get(kind, (b"<paid/>", "<paid/>"))
        headers = {"content-type": f"{kind.replace('*', 'csv')}; boundary=x"}
        assert webhook.content_of(Call(headers, content), Limits()).value == value
        assert kinds[kind]["schema"]["type"] == ("object" if kind in forms else "string")
    with pytest.raises(Rejected):
        webhook.content_of(Call({"content-type": "application/json"}, b"<paid/>"), Limits())
    for name in ("gzip", "deflate"):
        assert name in cast(Any, body)["description"]
        assert can_unpack(name)


DEEP: Any = '{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}'  # what is nested deeper than 64 levels is its JSON text
for _ in range(64):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("", b"[1]", [1]),
        ("application/json", b"", None),
        (webhook.FORM, b"a=1&b=%C3%A4&c=", {"a": "1", "b": "ä", "c": ""}),
        (webhook.FORM, b"a=\xff&b=%00", {"a": "\ufffd", "b": "\ufffd"}),
        ("application/json", b'\xef\xbb\xbf{"id": 1234567890123456789}', {"id": "1234567890123456789"}),
        ("application/json", b'{"a":' * 70 + b"1" + b"}" * 70, DEEP),
        (
            "application/json",
            b'{"n": [NaN, 1e400], "t": "\\u0000\\ud800"}',
            {"n": ["NaN", "1e400"], "t": "\ufffd\ufffd"},
        ),
    ],
)
def test_a_body_is_a_form_or_json(kind: str, body: bytes, value: Any) -> None:
    assert webhook.content_of(Call({"content-type": f"{kind}; charset=utf-8"}, body), Limits()).value == value


PARTS = (
    b'preamble\r\n--x\r\nContent-Disposition: form-data; name="id"\r\n\r\n17\r\n'
    b'--x\r\nContent-Disposition: form-data; filename="a.txt"; name=file\r\n'
    b"Content-Type: text/plain\r\n\r\n\r\nA\x00\r\n"
    b'--x\r\ncontent-disposition: form-data; name="id"\r\n\r\n\r\n--x--\r\n'
)
MISLEADING = (
    b"--x\r\nX-Note: a; name=evil\r\n"
    b'Content-Disposition: form-data; filename="; name=worse"; name="id"\r\n\r\n17\r\n--x--\r\n'
)


@pytest.mark.parametrize(
    ("headers", "body", "value"),
    [
        ({"content-type": webhook.FORM}, b"a=1&a=2&b=", {"a": ["1", "2"], "b": ""}),
        ({"content-type": "Multipart/Form-Data; boundary=x"}, PARTS, {"id": ["17", ""], "file": "\r\nA\ufffd"}),
        ({"content-type": 'multipart/form-data; boundary="x"'}, b"--x--", {}),
        ({"content-type": "multipart/form-data; boundary=x"}, MISLEADING, {"id": "17"}),
        ({"content-type": "application/json; charset=ISO-8859-1"}, b'{"a": "\xe4"}', {"a": "ä"}),
        ({"content-type": 'application/json; charset="shift_jis"'}, '"日本"'.encode("shift_jis"), "日本"),
        ({"content-type": "application/json; charset=nobody-knows"}, b'"\xc3\xa4"', "ä"),
        ({"content-type": "text/plain; charset=unicode_escape"}, b"\\x41", "\\x41"),
        ({"content-type": "text/plain; charset=punycode"}, b"bcher-kva", "bcher-kva"),
        ({}, '\ufeff{"a": 1}'.encode("utf-16-le"), {"a": 1}),
        ({}, '{"a": 1}'.encode("utf-32-be"), {"a": 1}),
        ({"content-type": f"{webhook.FORM}; charset=gbk"}, b"a=%D6%D0&b=\xb9\xfa", {"a": "中", "b": "国"}),
        ({"content-encoding": "gzip"}, gzip.compress(b'{"a": 1}', mtime=0), {"a": 1}),
        ({"content-encoding": "deflate"}, zlib.compress(b"[1]"), [1]),
        ({"content-encoding": "gzip"}, b'{"a": 1}', {"a": 1}),
        ({"content-type": "text/plain"}, b"paid\x00", "paid\ufffd"),
        ({"content-type": "text/plain"}, b" 17 ", 17),
        ({"content-type": "application/soap+xml"}, b"<paid/>", "<paid/>"),
        ({"content-type": "application/json"}, b" \r\n", None),
        ({"content-type": "application/octet-stream"}, b'{"a": 1}', {"a": 1}),
        ({"content-type": "application/json"}, b'{"a": 1, "a": 1, "b": null, "b": 2}', {"a": 1, "b": 2}),
    ],
)
def test_a_body_is_read_by_whatever_its_sender_calls_it(headers: dict[str, str], body: bytes, value: Any) -> None:
    assert webhook.content_of(Call(headers, body), Limits()).value == value


@pytest.mark.parametrize(
    "bomb", ["[" * 100_000 + "1" + "]" * 100_000, '{"a":' * 20_000 + "1" + "}" * 20_000], ids=["lists", "objects"]
)
def test_a_body_of_100000_levels_is_kept_with_too_deep_parts_as_text(bomb: str) -> None:
    value, notes = webhook.content_of(Call({}, f'{{"id": 1, "bomb": {bomb}}}'.encode()), Limits())
    assert value["id"] == 1
    inner = value["bomb"]
    for _ in range(63):
        (inner,) = inner.values() if isinstance(inner, dict) else inner
    assert bomb[bomb.index(inner) - 1] in "[:"
    assert f"{inner[0]}{inner[-1]}" in ("[]", "{}")
    assert "deeper than 64" in notes[0]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-encoding": "gzip"}, gzip.compress(b"x" * 5_000_000, mtime=0), 413),
        ({"content-encoding": "gzip"}, gzip.compress(b"{}", mtime=0)[:-9], 400),
        ({"content-type": "multipart/form-data"}, b"--x--", 400),
        ({"content-type": "multipart/form-data; boundary=x"}, b"--x\r\n\r\nno name\r\n--x--", 400),
        ({"content-type": "multipart/form-data; boundary=x"}, PARTS[:-9], 400),
        ({"content-type": "multipart/form-data; boundary=x"}, b"--x\r\n\r\n\r\n" * 5000, 400),
        ({}, b"[" * 100_000, 400),
    ],
    ids=lambda each: str(each)[:60],
)
def test_a_body_that_can_not_be_read_is_refused_in_a_sentence(
    headers: dict[str, str], body: bytes, status: int
) -> None:
    with pytest.raises(Rejected) as refused:
        webhook.content_of(Call(headers, body), Limits())
    assert refused.value.status == status
    assert refused.value.detail


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{"),
        ("", b"\xff"),
        ("", b'{"a": 1, "a": 2}'),
        (webhook.FORM, b"&".join([b"a=1"] * 1001)),
    ],
)
def test_a_body_that_is_neither_is_refused(kind: str, body: bytes) -> None:
    with pytest.raises(Rejected) as refused:
        webhook.content_of(Call({"content-type": kind}, body), Limits())
    assert refused.value.status in (400, 413, 422)
