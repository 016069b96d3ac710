"""Reads the input documents of a batch from a JSONL or CSV file: one document per line."""

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import msgspec

from runnel.authoring.documents.files import FILE_BYTES_MAX
from runnel.authoring.input_schema import choose_reading
from runnel.cli.session.inputs import STDIN
from runnel.client.batch import BatchItem, InputNames, build_items
from runnel.client.submissions import format_problems
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.errors import InputError

LINE_BYTES_MAX = FILE_BYTES_MAX
FILE_NAMES = InputNames(
    place="line {}", value="line {}: input", id_option="--id-field", name_option="--name"
)
_RawLine = tuple[int, Json]


def read_documents(source: str, workflow: Workflow, *, id_field: str | None) -> list[BatchItem]:
    """Reads and checks all documents of a file; raises InputError with the problems."""
    lines = _read_lines(source, workflow.input)
    items, problems = build_items(lines, workflow, id_field=id_field, names=FILE_NAMES)
    if problems:
        raise InputError(format_problems(f"--inputs {source}", problems))
    if not items:
        raise InputError(f"--inputs {source}: the file has no documents")
    return items


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
