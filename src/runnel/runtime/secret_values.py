"""The secrets of this process: from the environment and from a file, read once, at the start."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from runnel.runtime.cut_secrets import CutSecrets
from runnel.runtime.secret_shapes import shapes_of, traces_of
from runnel.settings import Settings, SettingsError
from runnel.settings.parsers import SECRET_CHARS_MIN

VARIABLE = "RUNNEL_SECRETS_FILE"
FILE_BYTES_MAX = 1024 * 1024
_LINE = re.compile(r"([a-z_][a-z0-9_]*)\s*=\s*(.*)")


class KnownSecrets:
    """`others` have no name that a task could use, and are hidden all the same."""

    def __init__(self, values: Mapping[str, str], *, others: Iterable[str] = ()) -> None:
        self._values = dict(values)
        given = (*self._values.values(), *others)
        # Headers and programs leave out a line break at the end, as files have one.
        bare = (each.strip() for each in given if len(each.strip()) >= SECRET_CHARS_MIN)
        known = {*given, *bare}
        self._cut = CutSecrets(shape for value in known for shape in shapes_of(value))
        # The longest first: one may be part of another.
        longest = sorted(known, key=len, reverse=True)
        self._traces = [trace for value in longest for trace in traces_of(value)]

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def hide(self, text: str) -> str:
        for trace in self._traces:  # 1 µs a secret for a line of a log, 1 ms for 1 MB
            text = trace.hide(text)
        return self._cut.hide(text)


def secrets_of_worker(settings: Settings) -> KnownSecrets:
    """Those that tasks may name; the environment wins over the file. Raises SettingsError."""
    path = settings.secrets_file
    kept = {} if path is None else read_file(path)
    key = settings.llm_api_key
    return KnownSecrets({**kept, **settings.secrets}, others=() if key is None else (key,))


def read_file(path: Path) -> dict[str, str]:
    """Lines as `api_key = value`; a value in double quotes is a JSON text. Raises SettingsError.

    Only for its owner: who else may read it has the secrets already.
    """
    try:
        with path.open("rb") as file:
            problem = _exposed(os.fstat(file.fileno()), path)
            data = b"" if problem else file.read(FILE_BYTES_MAX + 1)
        lines = data.decode().splitlines()
    except OSError as error:
        raise _refused(f"can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _refused(f"expected text in UTF-8 in '{path}'") from error
    if problem or len(data) > FILE_BYTES_MAX:
        raise _refused(problem or f"expected at most {FILE_BYTES_MAX:,} bytes in '{path}'")
    return dict(_parsed(lines, path))


def _exposed(found: os.stat_result, path: Path) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return f"expected a file, '{path}' is none"
    mode = stat.S_IMODE(found.st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return (
            f"expected '{path}' to be its owner's alone, its mode is {mode:o}: chmod 600 '{path}'"
        )
    if found.st_uid not in {os.getuid(), 0}:
        return f"expected '{path}' to belong to the user who runs this, or to root"
    return None


def _parsed(lines: Iterable[str], path: Path) -> Iterator[tuple[str, str]]:
    """The sentences never repeat a line: it is a secret, more or less."""
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        where = f"line {number} of '{path}'"
        found = _LINE.fullmatch(text)
        if found is None:
            raise _refused(f"expected 'name = value' in {where}, the name in lower-case letters")
        value = _value(found[2], where)
        if len(value) < SECRET_CHARS_MIN:
            raise _refused(f"expected a value of at least {SECRET_CHARS_MIN} characters in {where}")
        yield found[1], value


def _value(text: str, where: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return msgspec.json.decode(text, type=str)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise _refused(f"expected the quoted value in {where} to be a JSON text") from error


def _refused(problem: str) -> SettingsError:
    return SettingsError([f"{VARIABLE}: {problem}"])
