"""The forms in which the value of a secret turns up in texts that libraries and services write."""

import base64
import html
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from html.entities import codepoint2name
from urllib.parse import quote

import msgspec

from runnel.telemetry.redaction import HIDDEN

# One line of a key in PEM form says enough; shorter lines may stand in any text.
LINE_CHARS_MIN = 16
# Characters of base64 that have something of what stands before: 0, 1 or 2 bytes of it.
_NOT_OURS = (0, 2, 3)
_BITS, _BITS_OF_BASE64 = 8, 6
_ONE_UNIT_MAX = 0xFFFF
# Characters that all of those languages leave as they are.
_PLAIN = re.compile(r"[A-Za-z0-9._~-]+")
_NAMED = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


class Trace(msgspec.Struct, frozen=True):
    """One way in which a secret is written: `core` is in it, `pattern` is all of it, None for the
    core alone. Nearly no text has the core, and looking for it takes nearly no time.
    """

    core: str
    pattern: str | None = None

    def hide(self, text: str) -> str:
        if self.core not in text:
            return text
        if self.pattern is None:
            return text.replace(self.core, HIDDEN)
        return _compiled(self.pattern).sub(HIDDEN, text)


def traces_of(value: str) -> list[Trace]:
    """As it is, in a URL, in HTML, in JSON or in a Python text, however often one of them holds
    another; in base64, as hexadecimal digits, and line by line.
    """
    digits = value.encode().hex()
    encoded = sorted(set(_in_base64(value.encode())), key=len, reverse=True)
    return [
        *map(_written, (value, *_long_lines(value))),
        *map(Trace, (digits, digits.upper(), *encoded)),
    ]


def shapes_of(value: str) -> list[str]:
    """The usual ones as they are, some of them the same: for the halves of cut texts."""
    written = (json.dumps(value)[1:-1], repr(value)[1:-1], html.escape(value), quote(value))
    data = value.encode()
    in_bytes = (data.hex(), *_in_base64(data))
    return [value, *_long_lines(value), *written, quote(value, safe=""), *in_bytes]


# Large keys take half a second to compile: those that are never seen are never compiled.
_compiled = lru_cache(maxsize=None)(re.compile)


def _long_lines(value: str) -> list[str]:
    lines = value.split()
    return [line for line in lines if len(line) >= LINE_CHARS_MIN] if len(lines) > 1 else []


def _written(text: str) -> Trace:
    core = max(_PLAIN.findall(text), key=len, default="")
    return Trace(core, None if core == text else "".join(map(_forms_of, text)))


def _forms_of(char: str) -> str:
    """What any of the languages may write for it."""
    if _PLAIN.fullmatch(char):
        return re.escape(char)
    code, data = ord(char), char.encode()
    forms = [r"\\*" + re.escape(char), "".join(f"%(?:25)*{byte:02x}" for byte in data)]
    forms += [rf"\\+{_NAMED[char]}"] if char in _NAMED else []
    forms += ["".join(rf"\\+u{unit:04x}" for unit in _units(code))]
    forms += ["".join(rf"\\+x{byte:02x}" for byte in data), rf"\\+x{code:02x}"]
    forms += [f"&#0*{code};", f"&#x0*{code:x};", f"&{codepoint2name.get(code, '#')};"]
    forms += [r"\s+", r"\+"] if char.isspace() else []
    return f"(?i:{'|'.join(forms)})"


def _units(code: int) -> tuple[int, ...]:
    """As JSON writes them: two for a character beyond 16 bits."""
    if code <= _ONE_UNIT_MAX:
        return (code,)
    rest = code - _ONE_UNIT_MAX - 1
    return (0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF))


def _in_base64(data: bytes) -> Iterator[str]:
    """Alone, and as part of more, as in `user:password`: then without what it shares with its
    neighbours, which is at most four bits at each end.
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode().rstrip("=")
        for before, shared in enumerate(_NOT_OURS):
            whole = encode(bytes(before) + data).decode()
            yield whole[shared : _BITS * (before + len(data)) // _BITS_OF_BASE64]
