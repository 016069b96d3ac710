"""The body of an answer: unpacked within its limit, then read as JSON or as text."""

import zlib
from collections.abc import Mapping
from email.message import Message

import msgspec

from runnel.core.json_types import Json
from runnel.errors import ServiceError, ServiceRefusedError
from runnel.handlers.shortening import short

# What is longer is no media type; reading one takes the square of its length.
HEADER_CHARS_MAX = 500
WORD_CHARS = 20
# Accepts the headers of gzip and of zlib alike.
_ANY_HEADER = zlib.MAX_WBITS | 32


class Unpacking:
    """Of a body, chunk by chunk: never makes more than `bytes_max` bytes of it, and one."""

    def __init__(self, where: str, headers: Mapping[str, str], *, bytes_max: int) -> None:
        self._where = where
        self._bytes_max = bytes_max
        self._size = 0
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"identity", "", "gzip", "x-gzip", "deflate"}:
            raise ServiceRefusedError(
                f"{where} answered in the encoding '{short(encoding, WORD_CHARS)}'"
            )
        is_packed = encoding not in {"identity", ""}
        self._unpack = zlib.decompressobj(_ANY_HEADER) if is_packed else None
        length = headers.get("content-length", "")
        if self._unpack is None and length.isdigit() and int(length) > bytes_max:
            raise self._too_large()

    def unpack(self, chunk: bytes) -> bytes:
        """Raises ServiceRefusedError beyond the limit, however small it was on the way."""
        if self._unpack is not None:
            chunk = self._unpacked(self._unpack, chunk)
        self._size += len(chunk)
        if self._size > self._bytes_max:
            raise self._too_large()
        return chunk

    def end(self) -> None:
        """Raises ServiceError when what was packed has no end."""
        if self._unpack is not None and self._size and not self._unpack.eof:
            raise ServiceError(f"{self._where} broke off in the middle of its answer")

    def _unpacked(self, unpack: "zlib._Decompress", chunk: bytes) -> bytes:
        try:
            return unpack.decompress(chunk, self._bytes_max - self._size + 1)
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
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ServiceError(f"{where} answered with JSON that can't be read: {error}") from error


def _text(data: bytes, said: Message, where: str) -> str:
    charset = said.get_content_charset("utf-8")
    try:
        return data.decode(charset)
    except (UnicodeError, LookupError):
        raise ServiceRefusedError(
            f"{where} answered with {len(data):,} bytes of {said.get_content_type()} that are "
            f"neither JSON nor text in {short(charset, WORD_CHARS)}"
        ) from None
