"""Bodies that servers compress without being asked: the result of a request that was performed is read all the same.

The content comes out in pieces of a bounded size, so that a caller that counts them can stop at any of them: a kilobyte
may hold a megabyte."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx2

PIECE_BYTES_MAX: Final = 64 * 1024
_GZIP_MARK: Final = b"\x1f\x8b"
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_KINDS: Final = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
_OTHERS: Final = frozenset(
    {"br", "zstd", "x-zstd", "compress", "x-compress", "dcb", "dcz", "lz4", "snappy", "lzma", "xz", "bzip2", "x-bzip2"}
)
"""Ways to compress that can't be read here."""
_CONTINUED: Final = bytes(range(0x80, 0xC0))  # of a character whose beginning stands in the piece before
_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


class NotUnpacked(ValueError):
    """A body that is not packed as its server says."""


class BreaksOff(NotUnpacked):
    """A body of which only the beginning has come."""


def list_encodings(header: str) -> list[str]:
    """The ways to compress in a `Content-Encoding`, in the order in which they were applied, without words that name
    none (`identity`, `aws-chunked`, `utf-8`)."""
    names = (_KINDS.get(name, name) for name in (each.strip().lower() for each in header.split(",")))
    return [name for name in names if name in _KINDS or name in _OTHERS]


class Unpacker:
    """Unpacks a body by its `Content-Encoding`. A body that is marked as gzip and is none is passed on as it is: some
    proxies unpack a body and leave its header. So is a text that is marked as compressed in a way that can't be read
    here."""

    def __init__(self, header: str) -> None:
        names = list_encodings(header)
        self._unreadable = next((name for name in names if name in _OTHERS), "")
        self._layers = [] if self._unreadable else [_Layer(name) for name in reversed(names)]

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The bytes in the next piece of the body. Raises NotUnpacked."""
        if self._unreadable and not is_text(piece):
            raise NotUnpacked(f"it is compressed as {self._unreadable}, which was not asked for")
        return self._through(self._layers, piece)

    def end(self) -> Iterator[bytes]:
        """The rest behind the last piece. Raises BreaksOff for a body that ends too early."""
        for number, layer in enumerate(self._layers, 1):
            for each in layer.end():
                yield from self._through(self._layers[number:], each)

    def _through(self, layers: list[_Layer], piece: bytes) -> Iterator[bytes]:
        if not layers:
            yield piece
            return
        for each in layers[0].feed(piece):
            yield from self._through(layers[1:], each)


def is_text(piece: bytes) -> bool:
    """Whether a piece of a body can be one of a text in UTF-8, which may be cut anywhere."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(piece.lstrip(_CONTINUED))
    except UnicodeDecodeError:
        return False
    return _NO_TEXT.search(piece) is None


async def unpack(packed: AsyncIterator[bytes], header: str) -> AsyncIterator[bytes]:
    """The content of a body that comes in pieces. Raises NotUnpacked, and as `packed` does."""
    unpacker = Unpacker(header)
    async for each in packed:
        for piece in unpacker.feed(each):
            yield piece
    for piece in unpacker.end():
        yield piece


def unpack_response(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The body of a response, unpacked, in pieces of a bounded size. Raises NotUnpacked, and as `aiter_raw` does."""
    return unpack(response.aiter_raw(), response.headers.get("content-encoding", ""))


class _Layer:
    def __init__(self, name: str) -> None:
        self._name = name
        self._head: bytes | None = b""  # until there are two bytes, by which the form is known
        self._inner: zlib._Decompress | None = None
        self._wbits = _GZIP

    def feed(self, piece: bytes) -> Iterator[bytes]:
        if self._head is not None:
            self._head += piece
            if len(self._head) < len(_GZIP_MARK):
                return
            piece = self._begin(self._head)
        yield from self._unpack(piece)

    def end(self) -> Iterator[bytes]:
        if self._head:
            yield from self._unpack(self._begin(self._head))
        if self._inner is not None and not self._inner.eof:
            raise BreaksOff(f"its {self._name} breaks off")

    def _begin(self, head: bytes) -> bytes:
        self._head = None
        if self._name == "deflate":  # which is zlib's form by the standard, and without its header at some servers
            has_header = len(head) > 1 and head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(head[:2]) % 31 == 0
            self._wbits = _ZLIB if has_header else _RAW
        elif not head.startswith(_GZIP_MARK):
            return head
        self._inner = zlib.decompressobj(self._wbits)
        return head

    def _unpack(self, piece: bytes) -> Iterator[bytes]:
        if self._inner is None:
            yield piece
            return
        try:
            while piece:
                if self._inner.eof:
                    if not piece.startswith(_GZIP_MARK[:1]):  # zeros, with which some fill up a block
                        return
                    self._inner = zlib.decompressobj(self._wbits)  # files of gzip may stand one behind another
                if content := self._inner.decompress(piece, PIECE_BYTES_MAX):
                    yield content
                piece = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
            while not self._inner.eof and (content := self._inner.decompress(b"", PIECE_BYTES_MAX)):
                yield content
        except zlib.error as error:
            raise NotUnpacked(f"it is no {self._name}: {error}") from None
