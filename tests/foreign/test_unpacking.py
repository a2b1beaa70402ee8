"""Answers that are compressed though nobody asked for it: the call was made, so what came is read."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.errors import StepError
from hai_flow.models.vocabulary import Endpoint
from hai_flow.primitives.unpacking import PIECE_BYTES_MAX, NotUnpacked, Unpacker
from tests.foreign.test_mcp import OK, Odd, serving
from tests.foreign.transcripts import DONE, end, stream, text
from tests.models.test_dialects import Asking
from tests.steps.test_http import failure as http_failure
from tests.steps.test_http import perform
from tests.steps.test_mcp import call, failure
from tests.support.service import Received, Reply, Service


def _deflate_raw(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


PACKERS: Final[dict[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "gzip": ("gzip", gzip.compress),
    "an old name in capitals": ("X-GZIP", gzip.compress),
    "two files of gzip": ("gzip", lambda body: gzip.compress(body[:5]) + gzip.compress(body[5:])),
    "gzip that is filled up": ("gzip", lambda body: gzip.compress(body) + b"\0" * 100),
    "deflate": ("deflate", zlib.compress),
    "deflate without a header": ("deflate", _deflate_raw),
    "both": ("deflate, gzip", lambda body: gzip.compress(zlib.compress(body))),
    "identity": ("identity", bytes),
    "a header that is left over": ("gzip", bytes),
    "a word that names no compression": ("aws-chunked, UTF-8", bytes),
    "gzip and such a word": ("gzip, utf-8", gzip.compress),
}
UNREADABLE: Final[dict[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "br": ("br", lambda body: b"\x8b\x06\x80" + body + b"\x03"),
    "zstd": ("zstd", lambda body: b"\x28\xb5\x2f\xfd\x20" + body),
    "gzip and zstd": ("gzip, ZSTD", lambda body: b"\x28\xb5\x2f\xfd\x20" + gzip.compress(body)),
    "compress": ("compress", lambda body: b"\x1f\x9d\x90" + body),
}
"""Ways to compress that can't be read here."""
LEFT_OVER: Final = {f"{name} that is left over": (UNREADABLE[name][0], bytes) for name in ("br", "zstd", "compress")}


def _unpack(header: str, pieces: list[bytes]) -> bytes:
    unpacker = Unpacker(header)
    return b"".join([*(each for piece in pieces for each in unpacker.feed(piece)), *unpacker.end()])


@pytest.mark.parametrize("packed_as", PACKERS)
@given(data=st.data())
def test_a_packed_body_that_is_cut_anywhere_is_the_same_body(packed_as: str, data: st.DataObject) -> None:
    header, pack = PACKERS[packed_as]
    body = b"{" + data.draw(st.binary(max_size=300)) * data.draw(st.integers(1, 500))
    packed = pack(body)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(packed)), max_size=8)))
    pieces = [packed[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(packed)], strict=True)]
    assert _unpack(header, pieces) == body


@pytest.mark.parametrize("packed_as", ["gzip", "deflate", "deflate without a header", "both"])
def test_a_packed_body_that_breaks_off_is_none(packed_as: str) -> None:
    header, pack = PACKERS[packed_as]
    packed = pack(b'{"paid": true}' * 9)
    for size in range(2, len(packed) - 1):
        with pytest.raises(NotUnpacked):
            _unpack(header, [packed[:size]])


@pytest.mark.slow
def test_a_small_body_that_holds_a_large_one_comes_out_in_small_pieces() -> None:
    packed = gzip.compress(gzip.compress(b"\0" * 100_000_000))
    unpacker = Unpacker("gzip, gzip")
    tracemalloc.start()
    sizes = [len(next(pieces)) for pieces in [unpacker.feed(packed)] for _ in range(20)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(sizes) <= PIECE_BYTES_MAX
    assert peak < 4 * 1024 * 1024


# --- servers of MCP ---------------------------------------------------------------------------------------------------


class Packing(Odd):
    """A server whose answers to calls are packed; `events`: as a stream of server-sent events."""

    def __init__(self, header: str, pack: Callable[[bytes], bytes], *, events: bool = False) -> None:
        super().__init__([{"name": "t", "description": "Pays", "inputSchema": {"type": "object"}}], OK)
        self._header, self._pack, self._events = header, pack, events

    def __call__(self, received: Received) -> Reply:
        reply = super().__call__(received)
        if not received.body or json.loads(received.body).get("method") != "tools/call":
            return reply
        body = b"event: message\ndata: " + reply.body + b"\n\n" if self._events else reply.body
        headers = (*reply.headers, ("Content-Encoding", self._header))
        if not self._events:
            return replace(reply, body=self._pack(body), headers=headers)
        return replace(reply, type="text/event-stream", pieces=_say(self._pack(body)), body=b"", headers=headers)


async def _say(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 7):
        yield body[at : at + 7]


@pytest.mark.parametrize("events", [False, True], ids=["json", "events"])
@pytest.mark.parametrize("packed_as", [*PACKERS, *LEFT_OVER])
async def test_a_packed_answer_of_a_server_is_the_result_of_its_one_call(packed_as: str, events: bool) -> None:
    odd = Packing(*(PACKERS | LEFT_OVER)[packed_as], events=events)
    async with serving(odd) as (runner, declared):
        assert await call(runner, "t", declared) == "ok"
    assert odd.calls == ["t"]


@pytest.mark.parametrize("events", [False, True], ids=["json", "events"])
@pytest.mark.parametrize(
    ("header", "pack"),
    [("gzip", lambda body: gzip.compress(body)[:-12]), *UNREADABLE.values(), ("deflate", bytes)],
    ids=["a part of gzip", *UNREADABLE, "no deflate"],
)
async def test_an_answer_that_can_not_be_unpacked_fails_its_step_for_good(header: str, pack: Any, events: bool) -> None:
    odd = Packing(header, pack, events=events)
    async with serving(odd) as (runner, declared):
        fault = await failure(runner, "t", declared)
    code = "step.in_doubt" if header == "gzip" else "tool.invalid_result"  # of a part nobody knows what it would say
    assert (fault.code, fault.retriable) == (code, False)
    assert code == "step.in_doubt" or header.lower().rpartition(" ")[2] in str(fault)
    assert odd.calls == ["t"]


# --- models -----------------------------------------------------------------------------------------------------------


def _endpoint_at(service: Service) -> Endpoint:
    return Endpoint("smart", "openai", "m", service.url("/v1"), "sk-1")


@pytest.mark.parametrize("packed_as", PACKERS)
async def test_a_packed_answer_of_a_model_is_its_answer(packed_as: str) -> None:
    header, pack = PACKERS[packed_as]
    body = pack(stream(*text("Hel", "lo."), end(), DONE))
    reply = Reply(200, body, "text/event-stream", (("Content-Encoding", header),))
    async with Service(lambda _: reply) as service:
        turn, _ = await Asking().of(_endpoint_at(service))
    assert turn.text == "Hello."


@pytest.mark.parametrize("packed_as", PACKERS)
async def test_what_a_model_s_server_says_in_a_packed_error_is_in_the_error(packed_as: str) -> None:
    header, pack = PACKERS[packed_as]
    body = pack(b'{"error": {"message": "no such model: m"}}')
    reply = Reply(404, body, headers=(("Content-Encoding", header),))
    async with Service(lambda _: reply) as service:
        with pytest.raises(StepError, match="no such model: m"):
            await Asking().of(_endpoint_at(service))


@pytest.mark.parametrize("packed_as", UNREADABLE)
async def test_an_unreadable_compression_of_a_model_is_told_by_its_name(packed_as: str) -> None:
    header, pack = UNREADABLE[packed_as]
    body = stream(*text("Hel", "lo."), end(), DONE)
    for status, packed in ((200, pack(body)), (404, pack(b'{"error": {"message": "no"}}'))):
        reply = Reply(status, packed, "text/event-stream", (("Content-Encoding", header),))
        async with Service(lambda _, reply=reply: reply) as service:
            with pytest.raises(StepError, match=f"compressed as {header.lower().rpartition(' ')[2]}, which was not"):
                await Asking().of(_endpoint_at(service))


# --- services ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed_as", PACKERS)
async def test_a_packed_answer_to_a_post_finishes_the_step(packed_as: str) -> None:
    header, pack = PACKERS[packed_as]
    reply = Reply(201, pack(b'{"paid": true}'), headers=(("Content-Encoding", header),))
    async with Service(lambda _: reply) as service:
        output = await perform({"post": service.url("/pay"), "body": {}})
    assert (output["status"], output["json"]) == (201, {"paid": True})


async def test_a_packed_answer_that_breaks_off_is_an_error_with_what_came() -> None:
    body = json.dumps({"paid": True, "note": list(range(9000))}).encode()
    packed = gzip.compress(body)
    reply = Reply(201, packed[: len(packed) // 2], headers=(("Content-Encoding", "gzip"),))
    async with Service(lambda _: reply) as service:
        fault = await http_failure({"post": service.url("/pay"), "body": {}})
    assert (fault.code, fault.retriable) == ("http.invalid_response", False)
    assert (fault.data["status"], fault.data["text"][:14]) == (201, '{"paid": true,')


@pytest.mark.parametrize("packed_as", UNREADABLE)
async def test_an_unreadable_compression_of_a_post_is_told_by_its_name(packed_as: str) -> None:
    header, pack = UNREADABLE[packed_as]
    reply = Reply(201, pack(b'{"paid": true}'), headers=(("Content-Encoding", header),))
    async with Service(lambda _: reply) as service:
        fault = await http_failure({"post": service.url("/pay"), "body": {}})
    assert (fault.code, fault.retriable, fault.data["status"]) == ("http.invalid_response", False, 201)
    assert f"compressed as {header.lower().rpartition(' ')[2]}, which was not asked for" in fault.message


@pytest.mark.parametrize("packed_as", [*UNREADABLE, "a part of gzip"])
async def test_a_refusal_whose_body_can_not_be_unpacked_is_what_its_status_says(packed_as: str) -> None:
    header, pack = UNREADABLE.get(packed_as, ("gzip", lambda body: gzip.compress(body)[:-12]))
    reply = Reply(503, pack(b'{"error": "busy"}'), headers=(("Content-Encoding", header), ("Retry-After", "7")))
    async with Service(lambda _: reply) as service:
        fault = await http_failure({"post": service.url("/pay"), "body": {}})
    assert (fault.code, fault.retriable, fault.retry_after) == ("http.status", True, 7)
    assert packed_as == "a part of gzip" or header.lower().rpartition(" ")[2] in fault.data["text"]


@pytest.mark.parametrize("packed_as", UNREADABLE)
@given(data=st.data())
def test_a_body_that_can_not_be_unpacked_is_told_however_it_is_cut(packed_as: str, data: st.DataObject) -> None:
    header, pack = UNREADABLE[packed_as]
    packed = pack('{"paid": "Zürich, 東京"}'.encode() * 9)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(packed)), max_size=8)))
    pieces = [packed[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(packed)], strict=True)]
    with pytest.raises(NotUnpacked, match="which was not asked for"):
        _unpack(header, pieces)


@pytest.mark.parametrize("left_over", LEFT_OVER)
@given(data=st.data())
def test_a_text_with_a_left_over_header_is_read_however_it_is_cut(left_over: str, data: st.DataObject) -> None:
    body = data.draw(st.text(st.characters(categories=["L", "N", "P", "S", "Z"]), max_size=200)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    pieces = [body[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert _unpack(LEFT_OVER[left_over][0], pieces) == body
