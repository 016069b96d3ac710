"""Masks secrets in texts, also in escaped, encoded and truncated forms.

The forms are URL, HTML, JSON and Python escapes, base64 and hexadecimal.
"""

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

from runnel.core.message_text import ELLIPSIS

TextMask: TypeAlias = Callable[[str], str]

HIDDEN = "***"
# Shorter secrets would match parts of ordinary words, and are easy to guess anyway.
SECRET_CHARS_MIN = 4
_SECRET_NAMES = re.compile(
    r"passw(or)?d|passphrase|secret|authorization|credential|private_?key|api_?key"
    r"|(access|auth|api|bearer|refresh)_?token",
    re.IGNORECASE,
)
# The length is limited. Without a limit, each search in a text of many URLs would run to the end
# of the text.
_URL_CREDENTIALS = re.compile(r"(?<=://)[^\s@'\"]{1,1000}@")


@lru_cache(maxsize=1_000)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAMES.search(name) is not None


class Redactor:
    """Masks known secrets, credentials in URLs, and values whose name suggests a secret.

    `hide` is a function that masks further secrets in a text.
    """

    def __init__(self, secrets: Iterable[str] = (), *, hide: TextMask | None = None) -> None:
        # The longest secret comes first, because a secret may contain another secret.
        known = sorted({secret for secret in secrets if len(secret) >= SECRET_CHARS_MIN}, key=len)
        self._known_pattern = (
            re.compile("|".join(map(re.escape, reversed(known)))) if known else None
        )
        self._hide = hide

    def redact_known(self, text: str) -> str:
        """Returns the text with the known secrets masked."""
        if self._hide is not None:
            text = self._hide(text)
        return text if self._known_pattern is None else self._known_pattern.sub(HIDDEN, text)

    def redact_text(self, text: str) -> str:
        """Returns the text with the known secrets and the credentials in URLs masked."""
        text = self.redact_known(text)
        return _URL_CREDENTIALS.sub(f"{HIDDEN}@", text) if "://" in text else text

    def redact_value(self, name: str, value: object) -> object:
        """Returns the value with secrets masked; masks all of it if the name suggests a secret.

        None, numbers and booleans are unchanged, unless they equal a secret. Texts in dicts and
        lists are masked. All other values are converted to text.
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


# A single line of a PEM key reveals the key, so a line of this length counts as a secret.
# Shorter lines may appear in any text.
LINE_CHARS_MIN = 16
# How many base64 characters depend on the 0, 1 or 2 bytes before the secret.
_SHARED_BASE64_CHARS = (0, 2, 3)
_BITS_PER_BYTE, _BITS_PER_BASE64_CHAR = 8, 6
_UTF16_UNIT_MAX = 0xFFFF
# Characters that no encoding escapes.
_UNESCAPED_CHARS = re.compile(r"[A-Za-z0-9._~-]+")
_NAMED_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


class SecretPattern(msgspec.Struct, frozen=True):
    """One form of a secret. `pattern` is its regular expression; None if `core` is the whole form.

    `core` is a literal part of every match. Searching for `core` first is fast, and almost no text
    contains it.
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
    """Returns the patterns of a secret and of each of its long lines.

    The patterns match URL, HTML, JSON and Python escapes, also nested in each other, and base64 and
    hexadecimal forms.
    """
    digits = value.encode().hex()
    encoded = sorted(set(_iter_base64_forms(value.encode())), key=len, reverse=True)
    return [
        *map(_build_escaped_pattern, (value, *_find_long_lines(value))),
        *map(SecretPattern, (digits, digits.upper(), *encoded)),
    ]


def list_encoded_forms(value: str) -> list[str]:
    """Returns the usual forms of a secret as literal texts, to find truncated secrets.

    The list may contain duplicates.
    """
    escaped = (json.dumps(value)[1:-1], repr(value)[1:-1], html.escape(value), quote(value))
    data = value.encode()
    encoded = (data.hex(), *_iter_base64_forms(data))
    return [value, *_find_long_lines(value), *escaped, quote(value, safe=""), *encoded]


# Compiling the pattern of a large key takes half a second. So a pattern is compiled when a text
# first contains its core.
_compile_pattern = lru_cache(maxsize=None)(re.compile)


def _find_long_lines(value: str) -> list[str]:
    lines = value.split()
    return [line for line in lines if len(line) >= LINE_CHARS_MIN] if len(lines) > 1 else []


def _build_escaped_pattern(text: str) -> SecretPattern:
    core = max(_UNESCAPED_CHARS.findall(text), key=len, default="")
    return SecretPattern(core, None if core == text else "".join(map(_build_char_pattern, text)))


def _build_char_pattern(char: str) -> str:
    """Returns a pattern for all escaped forms of a character."""
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
    """Returns the UTF-16 code units of a character, as JSON escapes them: one or two."""
    if code <= _UTF16_UNIT_MAX:
        return (code,)
    offset = code - _UTF16_UNIT_MAX - 1
    return (0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF))


def _iter_base64_forms(data: bytes) -> Iterator[str]:
    """Yields the base64 forms of a secret, alone and inside of longer data (`user:password`).

    Forms inside of longer data leave out characters that also depend on neighbouring bytes, at most
    four bits at each end.
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode().rstrip("=")
        for before, shared in enumerate(_SHARED_BASE64_CHARS):
            encoded = encode(bytes(before) + data).decode()
            yield encoded[shared : _BITS_PER_BYTE * (before + len(data)) // _BITS_PER_BASE64_CHAR]


# A part of a secret is masked if it is at least half as long as the secret. The required length
# stays within these limits.
PART_CHARS_MIN = 4
PART_CHARS_MAX = 8


class TruncatedSecrets:
    """Masks parts of secrets before and after the ellipsis that marks a cut in a text.

    `forms` are the forms of complete secrets, which other code has masked already.
    """

    def __init__(self, forms: Iterable[str]) -> None:
        self._by_head: dict[str, list[str]] = defaultdict(list)
        self._by_tail: dict[str, list[str]] = defaultdict(list)
        self._chars_max = 0
        for form in {form for form in forms if len(form) > PART_CHARS_MIN}:
            self._by_head[form[:PART_CHARS_MIN]].append(form)
            self._by_tail[form[-PART_CHARS_MIN:]].append(form)
            self._chars_max = max(self._chars_max, len(form))

    def redact(self, text: str) -> str:
        if ELLIPSIS not in text or not self._chars_max:
            return text
        first, *later = text.split(ELLIPSIS)
        pieces = [first, *map(self._redact_tail, later)]
        return ELLIPSIS.join([*map(self._redact_head, pieces[:-1]), pieces[-1]])

    def _redact_head(self, piece: str) -> str:
        """Masks the beginning of a secret at the end of a piece."""
        first = max(0, len(piece) - self._chars_max)
        for start in range(first, len(piece) - PART_CHARS_MIN + 1):
            ending = piece[start:]
            for form in self._by_head.get(ending[:PART_CHARS_MIN], ()):
                if len(ending) >= _get_revealing_length(form) and form.startswith(ending):
                    return piece[:start] + HIDDEN
        return piece

    def _redact_tail(self, piece: str) -> str:
        """Masks the end of a secret at the beginning of a piece."""
        for end in range(min(len(piece), self._chars_max), PART_CHARS_MIN - 1, -1):
            beginning = piece[:end]
            for form in self._by_tail.get(beginning[-PART_CHARS_MIN:], ()):
                if len(beginning) >= _get_revealing_length(form) and form.endswith(beginning):
                    return HIDDEN + piece[end:]
        return piece


def _get_revealing_length(form: str) -> int:
    return max(PART_CHARS_MIN, min(PART_CHARS_MAX, len(form) // 2))
