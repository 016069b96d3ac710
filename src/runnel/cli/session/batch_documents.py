"""Reads the input documents of a batch from a JSONL or CSV file: one document per line."""

import csv
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import msgspec

from runnel.authoring.documents.files import FILE_BYTES_MAX
from runnel.authoring.input_schema import choose_reading, find_value_problems
from runnel.cli.session.inputs import STDIN
from runnel.core.message_text import describe_value, quote_name
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.errors import InputError

KEY_CHARS_MAX = 200
PROBLEMS_MAX = 10
LINE_BYTES_MAX = FILE_BYTES_MAX
_KEY_BYTES = 12

_encode_canonical = msgspec.json.Encoder(order="deterministic").encode
_RawLine = tuple[int, Json]


class BatchDocument(msgspec.Struct, frozen=True):
    """One input document of a batch; its `key` stays the same if the line moves in the file."""

    line: int
    key: str
    data: bytes

    @property
    def input(self) -> Json:
        return msgspec.json.decode(self.data)


def read_documents(source: str, workflow: Workflow, *, id_field: str | None) -> list[BatchDocument]:
    """Reads and checks all documents of a file; raises InputError with the problems.

    The key of a document is the value at `id_field`; without `id_field`, a hash of the content. If
    lines are equal, a number is added to the hash, in the order of the file.
    """
    _check_id_field(id_field)
    lines = _read_lines(source, workflow.input)
    problems: list[str] = []
    documents: dict[str, BatchDocument] = {}
    repeated: Counter[str] = Counter()
    for line, value in lines:
        problems += _find_input_problems(line, value, workflow)
        data = _encode_canonical(value)
        if id_field is None:
            key = hashlib.blake2b(data, digest_size=_KEY_BYTES).hexdigest()
            repeated[key] += 1
            if repeated[key] > 1:
                key = f"{key}#{repeated[key]}"
        else:
            key = _extract_key(line, value, id_field, problems)
            if key in documents:
                first = documents[key].line
                problems.append(f"line {line}: {id_field} is {quote_name(key)}, as in line {first}")
        documents[key] = BatchDocument(line, key, data)
    _raise_for_problems(source, problems)
    if not documents:
        raise InputError(f"--inputs {source}: the file has no documents")
    return list(documents.values())


def _check_id_field(path: str | None) -> None:
    if path is not None and not all(path.split(".")):
        raise InputError(f"--id-field: expected a name such as id or meta.number, got '{path}'")


def _read_lines(source: str, schema: dict[str, Json] | None) -> Iterator[_RawLine]:
    """Yields the number and value of each line; raises InputError if the file can't be read."""
    is_csv = source.lower().endswith(".csv")
    try:
        with _open_source(source) as file:
            texts = _decode_lines(file, source)
            yield from (
                _parse_csv_lines(texts, source, schema)
                if is_csv
                else _parse_json_lines(texts, source)
            )
    except OSError as error:
        raise InputError(f"--inputs {source}: the file can't be read: {error.strerror}") from error


def _open_source(source: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if source == STDIN else Path(source).open("rb")


def _decode_lines(file: BinaryIO, source: str) -> Iterator[str]:
    """Yields the lines as text, one by one, because the file may be a pipe without an end."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise InputError(
                f"--inputs {source}: line {number} is longer than {LINE_BYTES_MAX // 1_000_000} "
                "MB; keep large data in files and pass their names"
            )
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"--inputs {source}: line {number} is not UTF-8 text; save it as UTF-8"
            ) from error


def _parse_json_lines(texts: Iterator[str], source: str) -> Iterator[_RawLine]:
    """Yields the number and the JSON value of each line; skips empty lines."""
    for number, line in enumerate(texts, start=1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
                raise InputError(
                    f"--inputs {source}: line {number} is not JSON: {error}; expected one JSON "
                    "value per line, or a .csv file"
                ) from error


def _parse_csv_lines(
    texts: Iterator[str], source: str, schema: dict[str, Json] | None
) -> Iterator[_RawLine]:
    """Yields the number and the object of each line; the first line has the keys.

    A value is a text, unless the schema refuses the text and accepts a number, true, false or null.
    """
    reader = csv.reader(texts, strict=True)
    try:
        names = next(reader, [])
        for name, count in Counter(names).items():
            if count > 1:
                raise InputError(
                    f"--inputs {source}: two columns are named '{name}'; give each its own name"
                )
        for cells in reader:
            if cells and len(cells) != len(names):
                raise InputError(
                    f"--inputs {source}: line {reader.line_num} has {len(cells)} columns; "
                    f"expected {len(names)}, as in the first line"
                )
            if cells:
                row = zip(names, cells, strict=True)
                yield reader.line_num, {name: _parse_cell(schema, name, cell) for name, cell in row}
    except csv.Error as error:
        raise InputError(
            f"--inputs {source}: line {reader.line_num} is not CSV: {error}; put a cell with a "
            "comma or a line break in double quotes"
        ) from error


def _parse_cell(schema: dict[str, Json] | None, name: str, text: str) -> Json:
    if schema is None:
        return text
    try:
        return choose_reading(schema, [name], [text, msgspec.json.decode(text)])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text


def _find_input_problems(line: int, value: Json, workflow: Workflow) -> Sequence[str]:
    if workflow.input is None:
        return ()
    problems = find_value_problems(workflow.input, value, where="input")
    return [f"line {line}: {problem}" for problem in problems]


def _extract_key(line: int, value: Json, path: str, problems: list[str]) -> str:
    key = value
    for name in path.split("."):
        key = key.get(name) if isinstance(key, dict) else None
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, str) or not 0 < len(key) <= KEY_CHARS_MAX:
        problems.append(
            f"line {line}: expected {path} to be a text or a whole number, got "
            f"{describe_value(key)}"
        )
        return f"line {line}"
    return key


def _raise_for_problems(source: str, problems: Sequence[str]) -> None:
    if not problems:
        return
    listed = "".join(f"\n  - {problem}" for problem in problems[:PROBLEMS_MAX])
    hidden = len(problems) - PROBLEMS_MAX
    more = f"\n  and {hidden:,} more" if hidden > 0 else ""
    noun = "problem" if len(problems) == 1 else "problems"
    raise InputError(f"--inputs {source}: {len(problems):,} {noun}{listed}{more}")
