"""The forms in which the value of a secret turns up in texts that libraries and services write."""

import base64
import html
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import msgspec

# One line of a key in PEM form says enough; shorter lines may stand in any text.
LINE_CHARS_MIN = 16
_ESCAPE = re.compile(r"%[0-9A-F]{2}")
# Characters of base64 that have something of what stands before: 0, 1 or 2 bytes of it.
_NOT_OURS = (0, 2, 3)


def shapes_of(value: str) -> list[str]:
    """As it is, in a URL, in HTML, in JSON, in a Python text, in base64 and as hexadecimal digits;
    and line by line. Some may be the same.
    """
    data = value.encode()
    lines = (line for line in value.split() if len(line) >= LINE_CHARS_MIN)
    in_bytes = (repr(data)[2:-1], data.hex(), data.hex().upper())
    return [value, *lines, *in_bytes, *_in_text(value), *_in_url(value), *_in_base64(data)]


def _in_text(value: str) -> Iterator[str]:
    for written in (msgspec.json.encode(value).decode()[1:-1], json.dumps(value)[1:-1]):
        yield written
        yield written.replace("/", "\\/")
    yield repr(value)[1:-1]
    yield html.escape(value)
    yield html.escape(value, quote=False)


def _in_url(value: str) -> Iterator[str]:
    for written in (quote(value), quote(value, safe=""), quote_plus(value)):
        yield written
        yield _ESCAPE.sub(lambda found: found[0].lower(), written)


def _in_base64(data: bytes) -> Iterator[str]:
    """Alone, and as part of more, as in `user:password`: then without what it shares with its
    neighbours, which is at most four bits at each end.
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode().rstrip("=")
        for before, shared in enumerate(_NOT_OURS):
            whole = encode(bytes(before) + data).decode()
            yield whole[shared : 8 * (before + len(data)) // 6]
