"""Masks secrets in texts: as they are, in a URL, in JSON, in base64, in hexadecimal, cut in two."""

import base64
import html
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from html.entities import codepoint2name
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from runnel.core.wording import ELLIPSIS

TextMask: TypeAlias = Callable[[str], str]

HIDDEN = "***"
# Shorter ones would be found in innocent words, and guessed anyway.
SECRET_CHARS_MIN = 4
_SECRET_NAMES = re.compile(
    r"passw(or)?d|passphrase|secret|authorization|credential|private_?key|api_?key"
    r"|(access|auth|api|bearer|refresh)_?token",
    re.IGNORECASE,
)
# Bounded: in a text of many URLs and nothing else, each would be searched to the end of all.
_URL_CREDENTIALS = re.compile(r"(?<=://)[^\s@'\"]{1,1000}@")


@lru_cache(maxsize=1_000)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAMES.search(name) is not None


class Redactor:
    """Hides known secrets wherever they appear, what a URL names before its host, and each value
    whose name says that it is a secret.
    """

    def __init__(self, secrets: Iterable[str] = (), *, hide: TextMask | None = None) -> None:
        """`hide` takes further secrets out of a text."""
        # The longest first: one may be part of another.
        known = sorted({secret for secret in secrets if len(secret) >= SECRET_CHARS_MIN}, key=len)
        self._known_pattern = (
            re.compile("|".join(map(re.escape, reversed(known)))) if known else None
        )
        self._hide = hide

    def redact_known(self, text: str) -> str:
        """Without the secrets that were given."""
        if self._hide is not None:
            text = self._hide(text)
        return text if self._known_pattern is None else self._known_pattern.sub(HIDDEN, text)

    def redact_text(self, text: str) -> str:
        text = self.redact_known(text)
        return _URL_CREDENTIALS.sub(f"{HIDDEN}@", text) if "://" in text else text

    def redact_value(self, name: str, value: object) -> object:
        """Numbers and truths as they are, unless one is a secret; everything else as text or as
        what holds texts.
        """
        if _is_secret_name(name):
            return HIDDEN
        if value is None or isinstance(value, bool | int | float):
            return HIDDEN if self.redact_known(str(value)) == HIDDEN else value
        if isinstance(value, dict):
            return {
                self.redact_text(str(key)): self.redact_value(str(key), item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self.redact_value("", item) for item in value]
        return self.redact_text(str(value))


# One line of a key in PEM form says enough; shorter lines may stand in any text.
LINE_CHARS_MIN = 16


# Characters of base64 that have something of what stands before: 0, 1 or 2 bytes of it.
_SHARED_BASE64_CHARS = (0, 2, 3)


_BITS_PER_BYTE, _BITS_PER_BASE64_CHAR = 8, 6


_UTF16_UNIT_MAX = 0xFFFF


# Characters that all of those languages leave as they are.
_UNESCAPED_CHARS = re.compile(r"[A-Za-z0-9._~-]+")


_NAMED_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


class SecretPattern(msgspec.Struct, frozen=True):
    """One way in which a secret is written: `core` is in it, `pattern` is all of it, None for the
    core alone. Nearly no text has the core, and looking for it takes nearly no time.
    """

    core: str
    pattern: str | None = None

    def redact(self, text: str) -> str:
        if self.core not in text:
            return text
        if self.pattern is None:
            return text.replace(self.core, HIDDEN)
        return _compile_pattern(self.pattern).sub(HIDDEN, text)


def build_secret_patterns(value: str) -> list[SecretPattern]:
    """As it is, in a URL, in HTML, in JSON or in a Python text, however often one of them holds
    another; in base64, as hexadecimal digits, and line by line.
    """
    digits = value.encode().hex()
    encoded = sorted(set(_iter_base64_forms(value.encode())), key=len, reverse=True)
    return [
        *map(_build_escaped_pattern, (value, *_find_long_lines(value))),
        *map(SecretPattern, (digits, digits.upper(), *encoded)),
    ]


def list_encoded_forms(value: str) -> list[str]:
    """The usual ones as they are, some of them the same: for the halves of cut texts."""
    written = (json.dumps(value)[1:-1], repr(value)[1:-1], html.escape(value), quote(value))
    data = value.encode()
    in_bytes = (data.hex(), *_iter_base64_forms(data))
    return [value, *_find_long_lines(value), *written, quote(value, safe=""), *in_bytes]


# Large keys take half a second to compile: those that are never seen are never compiled.
_compile_pattern = lru_cache(maxsize=None)(re.compile)


def _find_long_lines(value: str) -> list[str]:
    lines = value.split()
    return [line for line in lines if len(line) >= LINE_CHARS_MIN] if len(lines) > 1 else []


def _build_escaped_pattern(text: str) -> SecretPattern:
    core = max(_UNESCAPED_CHARS.findall(text), key=len, default="")
    return SecretPattern(core, None if core == text else "".join(map(_build_char_pattern, text)))


def _build_char_pattern(char: str) -> str:
    """What any of the languages may write for it."""
    if _UNESCAPED_CHARS.fullmatch(char):
        return re.escape(char)
    code, data = ord(char), char.encode()
    forms = [r"\\*" + re.escape(char), "".join(f"%(?:25)*{byte:02x}" for byte in data)]
    forms += [rf"\\+{_NAMED_ESCAPES[char]}"] if char in _NAMED_ESCAPES else []
    forms += ["".join(rf"\\+u{unit:04x}" for unit in _to_utf16_units(code))]
    forms += ["".join(rf"\\+x{byte:02x}" for byte in data), rf"\\+x{code:02x}"]
    forms += [f"&#0*{code};", f"&#x0*{code:x};", f"&{codepoint2name.get(code, '#')};"]
    forms += [r"\s+", r"\+"] if char.isspace() else []
    return f"(?i:{'|'.join(forms)})"


def _to_utf16_units(code: int) -> tuple[int, ...]:
    """As JSON writes them: two for a character beyond 16 bits."""
    if code <= _UTF16_UNIT_MAX:
        return (code,)
    offset = code - _UTF16_UNIT_MAX - 1
    return (0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF))


def _iter_base64_forms(data: bytes) -> Iterator[str]:
    """Alone, and as part of more, as in `user:password`: then without what it shares with its
    neighbours, which is at most four bits at each end.
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode().rstrip("=")
        for before, shared in enumerate(_SHARED_BASE64_CHARS):
            whole = encode(bytes(before) + data).decode()
            yield whole[shared : _BITS_PER_BYTE * (before + len(data)) // _BITS_PER_BASE64_CHAR]


# As much of a secret as gives it away: half of a short one, or this many characters.
PART_CHARS_MIN = 4


PART_CHARS_MAX = 8


class TruncatedSecrets:
    """`forms` are the forms of whole secrets, which have been hidden already."""

    def __init__(self, forms: Iterable[str]) -> None:
        self._by_head: dict[str, list[str]] = defaultdict(list)
        self._by_tail: dict[str, list[str]] = defaultdict(list)
        self._chars_max = 0
        for shape in {form for form in forms if len(form) > PART_CHARS_MIN}:
            self._by_head[shape[:PART_CHARS_MIN]].append(shape)
            self._by_tail[shape[-PART_CHARS_MIN:]].append(shape)
            self._chars_max = max(self._chars_max, len(shape))

    def redact(self, text: str) -> str:
        if ELLIPSIS not in text or not self._chars_max:
            return text
        first, *later = text.split(ELLIPSIS)
        pieces = [first, *map(self._redact_tail, later)]
        return ELLIPSIS.join([*map(self._redact_head, pieces[:-1]), pieces[-1]])

    def _redact_head(self, piece: str) -> str:
        """A piece that ends where a secret was cut off: without its beginning."""
        first = max(0, len(piece) - self._chars_max)
        for start in range(first, len(piece) - PART_CHARS_MIN + 1):
            ending = piece[start:]
            for shape in self._by_head.get(ending[:PART_CHARS_MIN], ()):
                if len(ending) >= _get_revealing_length(shape) and shape.startswith(ending):
                    return piece[:start] + HIDDEN
        return piece

    def _redact_tail(self, piece: str) -> str:
        """A piece that begins where a secret was cut off: without its end."""
        for end in range(min(len(piece), self._chars_max), PART_CHARS_MIN - 1, -1):
            begin = piece[:end]
            for shape in self._by_tail.get(begin[-PART_CHARS_MIN:], ()):
                if len(begin) >= _get_revealing_length(shape) and shape.endswith(begin):
                    return HIDDEN + piece[end:]
        return piece


def _get_revealing_length(form: str) -> int:
    return max(PART_CHARS_MIN, min(PART_CHARS_MAX, len(form) // 2))
