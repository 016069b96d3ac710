"""The secrets of this process, read once at the start, and the search for them in texts."""

import base64
import html
import json
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from html.entities import codepoint2name
from pathlib import Path
from urllib.parse import quote

import msgspec

from runnel.core.wording import ELLIPSIS
from runnel.settings import SettingsError
from runnel.settings.model import Settings
from runnel.telemetry.redaction import HIDDEN, SECRET_CHARS_MIN

# The forms in which a secret appears in texts that libraries and services write.

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


# Parts of secrets, in texts that were cut: messages are, at an ellipsis.

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


FILE_VARIABLE = "RUNNEL_SECRETS_FILE"
FILE_BYTES_MAX = 1024 * 1024
_LINE_PATTERN = re.compile(r"([a-z_][a-z0-9_]*)\s*=\s*(.*)")


class KnownSecrets:
    """`others` have no name that a task could use, and are hidden all the same."""

    def __init__(self, values: Mapping[str, str], *, others: Iterable[str] = ()) -> None:
        self._values = dict(values)
        secrets = (*self._values.values(), *others)
        # Headers and programs leave out a line break at the end, as files have one.
        bare = (secret.strip() for secret in secrets if len(secret.strip()) >= SECRET_CHARS_MIN)
        known = {*secrets, *bare}
        self._truncated = TruncatedSecrets(
            shape for value in known for shape in list_encoded_forms(value)
        )
        # The longest first: one may be part of another.
        longest = sorted(known, key=len, reverse=True)
        self._patterns = [trace for value in longest for trace in build_secret_patterns(value)]

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def redact(self, text: str) -> str:
        for trace in self._patterns:  # 1 µs a secret for a line of a log, 1 ms for 1 MB
            text = trace.redact(text)
        return self._truncated.redact(text)


def load_worker_secrets(settings: Settings) -> KnownSecrets:
    """Those that tasks may name; the environment wins over the file. Raises SettingsError."""
    path = settings.secrets_file
    kept = {} if path is None else read_secrets_file(path)
    key = settings.llm_api_key
    return KnownSecrets({**kept, **settings.secrets}, others=() if key is None else (key,))


def read_secrets_file(path: Path) -> dict[str, str]:
    """Lines as `api_key = value`; a value in double quotes is a JSON text. Raises SettingsError.

    Only for its owner: who else may read it has the secrets already.
    """
    try:
        with path.open("rb") as file:
            problem = _find_file_problem(os.fstat(file.fileno()), path)
            data = b"" if problem else file.read(FILE_BYTES_MAX + 1)
        lines = data.decode().splitlines()
    except OSError as error:
        raise _secrets_file_error(f"can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _secrets_file_error(f"expected text in UTF-8 in '{path}'") from error
    if problem or len(data) > FILE_BYTES_MAX:
        raise _secrets_file_error(
            problem or f"expected at most {FILE_BYTES_MAX:,} bytes in '{path}'"
        )
    return dict(_parse_lines(lines, path))


def _find_file_problem(status: os.stat_result, path: Path) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return f"expected a file, '{path}' is none"
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return (
            f"expected '{path}' to be its owner's alone, its mode is {mode:o}: chmod 600 '{path}'"
        )
    if status.st_uid not in {os.getuid(), 0}:
        return f"expected '{path}' to belong to the user who runs this, or to root"
    return None


def _parse_lines(lines: Iterable[str], path: Path) -> Iterator[tuple[str, str]]:
    """The sentences never repeat a line: it is a secret, more or less."""
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        where = f"line {number} of '{path}'"
        match = _LINE_PATTERN.fullmatch(text)
        if match is None:
            raise _secrets_file_error(
                f"expected 'name = value' in {where}, the name in lower-case letters"
            )
        value = _parse_value(match[2], where)
        if len(value) < SECRET_CHARS_MIN:
            raise _secrets_file_error(
                f"expected a value of at least {SECRET_CHARS_MIN} characters in {where}"
            )
        yield match[1], value


def _parse_value(text: str, where: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return msgspec.json.decode(text, type=str)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise _secrets_file_error(
            f"expected the quoted value in {where} to be a JSON text"
        ) from error


def _secrets_file_error(problem: str) -> SettingsError:
    return SettingsError([f"{FILE_VARIABLE}: {problem}"])
