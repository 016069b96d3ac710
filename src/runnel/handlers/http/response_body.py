"""The body of an answer: unpacked within its limit, then read as JSON or as text."""

import codecs
import zlib
from collections.abc import Mapping
from email.message import Message

import msgspec

from runnel.core.values import Json
from runnel.errors import ServiceError, ServiceRefusedError
from runnel.handlers.permissions import short

# What is longer is no media type; reading one takes the square of its length.
HEADER_CHARS_MAX = 500
WORD_CHARS = 20
PACKED_BYTES_MORE = 1_024
# Accepts the headers of gzip and of zlib alike.
_ANY_HEADER = zlib.MAX_WBITS | 32
_GZIP = b"\x1f"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Encodings of Python's that no web page has. Reading the first takes the square of its length:
# 90 KB took 0.4 s, on the event loop.
_NOT_FOR_TEXTS = frozenset({"punycode", "idna", "unicode_escape", "raw_unicode_escape"})


class Unpacking:
    """Of a body, chunk by chunk: never makes more than `bytes_max` bytes of it, and one."""

    def __init__(self, where: str, headers: Mapping[str, str], *, bytes_max: int) -> None:
        self._where = where
        self._bytes_max = bytes_max
        self._size = 0
        self._size_packed = 0
        self._unpack: zlib._Decompress | None = None
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"identity", "", "gzip", "x-gzip", "deflate"}:
            shown = short(encoding, WORD_CHARS)
            raise ServiceRefusedError(f"{where} answered in the encoding '{shown}'")
        self._is_packed = encoding not in {"identity", ""}
        self._is_deflate = encoding == "deflate"
        length = headers.get("content-length", "")
        if not self._is_packed and length.isdigit() and int(length) > bytes_max:
            raise self._too_large()

    def unpack(self, chunk: bytes) -> bytes:
        """Raises ServiceRefusedError beyond the limit, however small it was on the way."""
        if self._is_packed:
            self._size_packed += len(chunk)
            # Endless parts with nothing in them: what can't be packed takes only a little more.
            if self._size_packed > 2 * self._bytes_max + PACKED_BYTES_MORE:
                raise self._too_large()
            chunk = self._unpacked(chunk)
        self._size += len(chunk)
        if self._size > self._bytes_max:
            raise self._too_large()
        return chunk

    def end(self) -> None:
        """Raises ServiceError when what was packed has no end."""
        if self._unpack is not None and not self._unpack.eof:
            raise ServiceError(f"{self._where} broke off in the middle of its answer")

    def _unpacked(self, chunk: bytes) -> bytes:
        """Several packed parts, one after the other, are one body; what else follows is not."""
        parts: list[bytes] = []
        left = self._bytes_max - self._size + 1
        while chunk and left > 0:
            if self._unpack is None:
                # Many servers send what they call deflate without a header: it begins otherwise.
                is_bare = self._is_deflate and chunk[0] & 0x0F != zlib.DEFLATED
                self._unpack = zlib.decompressobj(-zlib.MAX_WBITS if is_bare else _ANY_HEADER)
            elif self._unpack.eof and chunk.startswith(_GZIP):
                self._unpack = zlib.decompressobj(_ANY_HEADER)
            elif self._unpack.eof:
                break
            parts.append(self._decompressed(self._unpack, chunk, left))
            left -= len(parts[-1])
            chunk = self._unpack.unused_data
        return b"".join(parts)

    def _decompressed(self, unpack: "zlib._Decompress", chunk: bytes, left: int) -> bytes:
        try:
            return unpack.decompress(chunk, left)
        except zlib.error as error:
            raise ServiceError(f"{self._where} answered what can't be unpacked: {error}") from error

    def _too_large(self) -> ServiceRefusedError:
        return ServiceRefusedError(
            f"the answer of {self._where} is larger than {self._bytes_max:,} bytes; ask for less, "
            "or raise max_response_bytes"
        )


def content_of(data: bytes, headers: Mapping[str, str], *, kind: str, where: str) -> Json:
    """`auto` is JSON if the answer says that it is. Raises ServiceError for what can't be read."""
    said = Message()
    said["content-type"] = headers.get("content-type", "")[:HEADER_CHARS_MAX]
    subtype = said.get_content_subtype()
    is_json = subtype == "json" or subtype.endswith("+json")
    if kind == "json" or (kind == "auto" and is_json):
        return _json(data, where) if data or kind == "json" else None
    return _text(data, said, where)


def _json(data: bytes, where: str) -> Json:
    try:
        return msgspec.json.decode(data.removeprefix(_BYTE_ORDER_MARK))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ServiceError(f"{where} answered with JSON that can't be read: {error}") from error


def _text(data: bytes, said: Message, where: str) -> str:
    charset = said.get_content_charset("utf-8")
    try:
        if codecs.lookup(charset).name.replace("-", "_") in _NOT_FOR_TEXTS:
            raise LookupError(charset)
        return data.decode(charset)
    except (UnicodeError, LookupError):
        raise ServiceRefusedError(
            f"{where} answered with {len(data):,} bytes of {said.get_content_type()} that are "
            f"neither JSON nor text in {short(charset, WORD_CHARS)}"
        ) from None
