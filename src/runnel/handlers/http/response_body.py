"""The body of an HTTP response: decompresses it within a limit, and decodes JSON or text."""

import codecs
import zlib
from collections.abc import Mapping
from email.message import Message

import msgspec

from runnel.core.message_text import shorten
from runnel.core.values import Json
from runnel.errors import ServiceError, ServiceRefusedError

# The header is cut to this length. A longer text is not a media type, and parsing it takes
# quadratic time.
CONTENT_TYPE_CHARS_MAX = 500
SHOWN_WORD_CHARS_MAX = 20
COMPRESSION_OVERHEAD_BYTES = 1_024
# With this value, zlib accepts the headers of gzip and of zlib.
_GZIP_OR_ZLIB_WBITS = zlib.MAX_WBITS | 32
_GZIP_MAGIC = b"\x1f"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Encodings of Python that web pages do not use. Decoding punycode takes quadratic time: 90 KB
# blocked the event loop for 0.4 s.
_REFUSED_CHARSETS = frozenset({"punycode", "idna", "unicode_escape", "raw_unicode_escape"})


class BodyDecompressor:
    """Decompresses a body chunk by chunk, and never produces more than `bytes_max` + 1 bytes."""

    def __init__(self, where: str, headers: Mapping[str, str], *, bytes_max: int) -> None:
        self._where = where
        self._bytes_max = bytes_max
        self._size = 0
        self._compressed_size = 0
        self._decompressor: zlib._Decompress | None = None
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"identity", "", "gzip", "x-gzip", "deflate"}:
            shown = shorten(encoding, SHOWN_WORD_CHARS_MAX)
            raise ServiceRefusedError(
                f"{where} answered with the content encoding '{shown}'; expected gzip or deflate"
            )
        self._is_compressed = encoding not in {"identity", ""}
        self._is_deflate = encoding == "deflate"
        length = headers.get("content-length", "")
        if not self._is_compressed and length.isdigit() and int(length) > bytes_max:
            raise self._build_too_large_error()

    def decompress(self, chunk: bytes) -> bytes:
        """Returns the decompressed chunk; raises ServiceRefusedError over the size limit."""
        if self._is_compressed:
            self._compressed_size += len(chunk)
            # Refuses endless empty gzip parts: compression makes data only slightly larger.
            if self._compressed_size > 2 * self._bytes_max + COMPRESSION_OVERHEAD_BYTES:
                raise self._build_too_large_error()
            chunk = self._decompress_chunk(chunk)
        self._size += len(chunk)
        if self._size > self._bytes_max:
            raise self._build_too_large_error()
        return chunk

    def check_complete(self) -> None:
        """Raises ServiceError if the compressed data is incomplete."""
        if self._decompressor is not None and not self._decompressor.eof:
            raise ServiceError(f"{self._where} ended its response before it was complete")

    def _decompress_chunk(self, chunk: bytes) -> bytes:
        """Decompresses consecutive gzip parts as one body; ignores other data after a part."""
        parts: list[bytes] = []
        bytes_allowed = self._bytes_max - self._size + 1
        while chunk and bytes_allowed > 0:
            if self._decompressor is None:
                # Many servers send `deflate` without a zlib header.
                is_bare = self._is_deflate and chunk[0] & 0x0F != zlib.DEFLATED
                self._decompressor = zlib.decompressobj(
                    -zlib.MAX_WBITS if is_bare else _GZIP_OR_ZLIB_WBITS
                )
            elif self._decompressor.eof and chunk.startswith(_GZIP_MAGIC):
                self._decompressor = zlib.decompressobj(_GZIP_OR_ZLIB_WBITS)
            elif self._decompressor.eof:
                break
            parts.append(self._decompress_part(self._decompressor, chunk, bytes_allowed))
            bytes_allowed -= len(parts[-1])
            chunk = self._decompressor.unused_data
        return b"".join(parts)

    def _decompress_part(
        self, decompressor: "zlib._Decompress", chunk: bytes, bytes_max: int
    ) -> bytes:
        try:
            return decompressor.decompress(chunk, bytes_max)
        except zlib.error as error:
            raise ServiceError(
                f"{self._where} answered with invalid compressed data: {error}"
            ) from error

    def _build_too_large_error(self) -> ServiceRefusedError:
        return ServiceRefusedError(
            f"the response of {self._where} is larger than {self._bytes_max:,} bytes; request less "
            "data, or raise max_response_bytes"
        )


def decode_body(data: bytes, headers: Mapping[str, str], *, kind: str, where: str) -> Json:
    """Decodes a body; raises ServiceError or ServiceRefusedError if that fails.

    With the kind `auto`, the body is JSON if its content type is JSON, otherwise text.
    """
    media_type = Message()
    media_type["content-type"] = headers.get("content-type", "")[:CONTENT_TYPE_CHARS_MAX]
    subtype = media_type.get_content_subtype()
    is_json = subtype == "json" or subtype.endswith("+json")
    if kind == "json" or (kind == "auto" and is_json):
        return _decode_json(data, where) if data or kind == "json" else None
    return _decode_text(data, media_type, where)


def _decode_json(data: bytes, where: str) -> Json:
    try:
        return msgspec.json.decode(data.removeprefix(_BYTE_ORDER_MARK))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ServiceError(f"{where} answered with invalid JSON: {error}") from error


def _decode_text(data: bytes, media_type: Message, where: str) -> str:
    charset = media_type.get_content_charset("utf-8")
    try:
        if codecs.lookup(charset).name.replace("-", "_") in _REFUSED_CHARSETS:
            raise LookupError(charset)
        return data.decode(charset)
    except (UnicodeError, LookupError):
        raise ServiceRefusedError(
            f"{where} answered with {len(data):,} bytes of {media_type.get_content_type()} that "
            f"can't be decoded as {shorten(charset, SHOWN_WORD_CHARS_MAX)}; expected JSON or text"
        ) from None
