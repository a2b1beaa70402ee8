"""The body of a webhook's request as a value, in whatever form, charset or encoding its sender gives it."""

from __future__ import annotations

import gzip
import zlib
from typing import Any, cast

import pytest

from hai_flow.errors import Rejected
from hai_flow.primitives.unpacking import list_encodings
from hai_flow.wire.posted_json import Limits
from hai_flow.wire.webhook_body import FORM, MULTIPART, OPENAPI_BODY, Call, content_of, read_first_headers

DEEP: Any = '{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}'  # what is nested deeper than 64 levels is its JSON text
for _ in range(64):
    DEEP = {"a": DEEP}
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


def test_a_repeated_header_has_its_first_value_and_thousands_are_read() -> None:
    many = [(f"x-{number}", "") for number in range(100_000)]
    headers = read_first_headers([("a", "1"), *many, ("a", "2")])
    assert (headers["a"], len(headers)) == ("1", 100_001)


def test_every_documented_type_is_read_and_only_json_must_be_json() -> None:
    (body,) = OPENAPI_BODY.values()
    kinds = cast(Any, body)["content"]
    forms = {FORM: (b"a=1", {"a": "1"}), MULTIPART: (PARTS, {"id": ["17", ""], "file": "\r\nA\ufffd"})}
    for kind in {*kinds} - {"application/json"}:
        content, value = forms.get(kind, (b"<paid/>", "<paid/>"))
        headers = {"content-type": f"{kind.replace('*', 'csv')}; boundary=x"}
        assert content_of(Call(headers, content), Limits()).value == value
        assert kinds[kind]["schema"]["type"] == ("object" if kind in forms else "string")
    with pytest.raises(Rejected):
        content_of(Call({"content-type": "application/json"}, b"<paid/>"), Limits())
    for name in ("gzip", "deflate"):
        assert name in cast(Any, body)["description"]
        assert list_encodings(name) == [name]


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("", b"[1]", [1]),
        ("application/json", b"", None),
        (FORM, b"a=1&b=%C3%A4&c=", {"a": "1", "b": "ä", "c": ""}),
        (FORM, b"a=\xff&b=%00", {"a": "\ufffd", "b": "\ufffd"}),
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
    assert content_of(Call({"content-type": f"{kind}; charset=utf-8"}, body), Limits()).value == value


@pytest.mark.parametrize(
    ("headers", "body", "value"),
    [
        ({"content-type": FORM}, b"a=1&a=2&b=", {"a": ["1", "2"], "b": ""}),
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
        ({"content-type": f"{FORM}; charset=gbk"}, b"a=%D6%D0&b=\xb9\xfa", {"a": "中", "b": "国"}),
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
    assert content_of(Call(headers, body), Limits()).value == value


@pytest.mark.parametrize(
    "bomb", ["[" * 100_000 + "1" + "]" * 100_000, '{"a":' * 20_000 + "1" + "}" * 20_000], ids=["lists", "objects"]
)
def test_a_body_of_100000_levels_is_kept_with_too_deep_parts_as_text(bomb: str) -> None:
    value, notes = content_of(Call({}, f'{{"id": 1, "bomb": {bomb}}}'.encode()), Limits())
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
        content_of(Call(headers, body), Limits())
    assert refused.value.status == status
    assert refused.value.detail


@pytest.mark.parametrize(
    ("kind", "body"),
    [("application/json", b"{"), ("", b"\xff"), ("", b'{"a": 1, "a": 2}'), (FORM, b"&".join([b"a=1"] * 1001))],
)
def test_a_body_that_is_neither_is_refused(kind: str, body: bytes) -> None:
    with pytest.raises(Rejected) as refused:
        content_of(Call({"content-type": kind}, body), Limits())
    assert refused.value.status in (400, 413, 422)
