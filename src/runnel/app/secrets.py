"""The secrets of this process: read once at the start, and redacted from texts."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from runnel.settings import SettingsError
from runnel.settings.model import Settings
from runnel.telemetry.redaction import (
    SECRET_CHARS_MIN,
    TruncatedSecrets,
    build_secret_patterns,
    list_encoded_forms,
)

FILE_VARIABLE = "RUNNEL_SECRETS_FILE"
FILE_BYTES_MAX = 1024 * 1024
_LINE_PATTERN = re.compile(r"([a-z_][a-z0-9_]*)\s*=\s*(.*)")


class KnownSecrets:
    """Named secrets for tasks. `unnamed` secrets are only redacted."""

    def __init__(self, values: Mapping[str, str], *, unnamed: Iterable[str] = ()) -> None:
        self._values = dict(values)
        secrets = (*self._values.values(), *unnamed)
        # A secret from a file may end with a line break, which headers and programs leave out.
        bare = (secret.strip() for secret in secrets if len(secret.strip()) >= SECRET_CHARS_MIN)
        known = {*secrets, *bare}
        self._truncated = TruncatedSecrets(
            shape for value in known for shape in list_encoded_forms(value)
        )
        # Longest first, because one secret may be a part of another.
        longest = sorted(known, key=len, reverse=True)
        self._patterns = [trace for value in longest for trace in build_secret_patterns(value)]

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def redact(self, text: str) -> str:
        for trace in self._patterns:  # per secret: 1 µs for a log line, 1 ms for 1 MB
            text = trace.redact(text)
        return self._truncated.redact(text)


def load_worker_secrets(settings: Settings) -> KnownSecrets:
    """Returns the secrets of file and environment; the environment wins. Raises SettingsError."""
    path = settings.secrets_file
    kept = {} if path is None else read_secrets_file(path)
    key = settings.llm_api_key
    return KnownSecrets({**kept, **settings.secrets}, unnamed=() if key is None else (key,))


def read_secrets_file(path: Path) -> dict[str, str]:
    """Parses lines such as `api_key = value`; a value in double quotes is a JSON text.

    Raises SettingsError, also for a file that other users may read.
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
        return f"expected a regular file, '{path}' is not one"
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return (
            f"expected '{path}' to be readable by its owner only, its mode is {mode:o}: "
            f"chmod 600 '{path}'"
        )
    if status.st_uid not in {os.getuid(), 0}:
        return f"expected '{path}' to belong to the user of this process, or to root"
    return None


def _parse_lines(lines: Iterable[str], path: Path) -> Iterator[tuple[str, str]]:
    """Yields names and values. Errors never quote a line, because it may contain a secret."""
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
