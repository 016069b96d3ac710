"""The documents of a batch: one for each line of a JSONL or CSV file, each with a key."""

import csv
import hashlib
import io
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from runnel.authoring.schema import value_problems
from runnel.core.checks.wording import quoted, shown
from runnel.core.json_types import Json
from runnel.core.workflow import Workflow
from runnel.errors import InputError

STDIN = "-"
KEY_CHARS_MAX = 200
PROBLEMS_MAX = 10
_KEY_BYTES = 12

_canonical = msgspec.json.Encoder(order="deterministic").encode
_RawLine = tuple[int, Json]


class Document(msgspec.Struct, frozen=True):
    """`key` is the same when the file is read again, wherever the line has moved to."""

    line: int
    key: str
    data: bytes

    @property
    def input(self) -> Json:
        return msgspec.json.decode(self.data)


def read_documents(source: str, workflow: Workflow, *, id_field: str | None) -> list[Document]:
    """All of them, judged before the first is submitted; raises InputError with the problems.

    The key is the value at `id_field`, or else a hash of the content: equal lines are told apart
    by their order.
    """
    text = _text(source)
    lines = _csv_lines(text) if source.lower().endswith(".csv") else _json_lines(text, source)
    problems: list[str] = []
    found: dict[str, Document] = {}
    repeated: Counter[str] = Counter()
    for line, value in lines:
        problems += _input_problems(line, value, workflow)
        data = _canonical(value)
        if id_field is None:
            key = hashlib.blake2b(data, digest_size=_KEY_BYTES).hexdigest()
            repeated[key] += 1
            if repeated[key] > 1:
                key = f"{key}#{repeated[key]}"
        else:
            key = _key(line, value, id_field, problems)
            if key in found:
                problems.append(
                    f"line {line}: {id_field} is {quoted(key)}, as in line {found[key].line}"
                )
        found[key] = Document(line, key, data)
    _refuse(source, problems)
    if not found:
        raise InputError(f"--inputs {source}: there is no document in it")
    return list(found.values())


def _text(source: str) -> str:
    try:
        data = sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"--inputs {source}: it is not UTF-8 text; save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"--inputs {source}: it can't be read: {error.strerror}") from error


def _json_lines(text: str, source: str) -> Iterator[_RawLine]:
    """Empty lines are no documents."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
                raise InputError(
                    f"--inputs {source}: line {number} is not JSON: {error}; expected one JSON "
                    "value per line, or a .csv file"
                ) from error


def _csv_lines(text: str) -> Iterator[_RawLine]:
    """Objects whose keys are the names in the first line, and whose values are texts."""
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise InputError(
                    f"--inputs: line {reader.line_num} has another number of columns than the "
                    f"{len(reader.fieldnames or ())} of the first line"
                )
            yield reader.line_num, dict(row)
    except csv.Error as error:
        raise InputError(f"--inputs: line {reader.line_num} is not CSV: {error}") from error


def _input_problems(line: int, value: Json, workflow: Workflow) -> Sequence[str]:
    if workflow.input is None:
        return ()
    found = value_problems(workflow.input, value, where="input")
    return [f"line {line}: {problem}" for problem in found]


def _key(line: int, value: Json, path: str, problems: list[str]) -> str:
    found = value
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    if not isinstance(found, str) or not 0 < len(found) <= KEY_CHARS_MAX:
        problems.append(
            f"line {line}: expected {path} to be a text or a whole number, got {shown(found)}"
        )
        return f"line {line}"
    return found


def _refuse(source: str, problems: Sequence[str]) -> None:
    if not problems:
        return
    listed = "".join(f"\n  - {problem}" for problem in problems[:PROBLEMS_MAX])
    rest = len(problems) - PROBLEMS_MAX
    more = f"\n  and {rest:,} more" if rest > 0 else ""
    noun = "problem" if len(problems) == 1 else "problems"
    raise InputError(f"--inputs {source}: {len(problems):,} {noun}{listed}{more}")
