"""Input and labels of an execution, as the command line gives them."""

import sys
from collections.abc import Sequence
from pathlib import Path

from runnel.authoring.files import FILE_BYTES_MAX, parse_data, read_data
from runnel.authoring.inputs import parse_assignments
from runnel.cli.words import RESERVED_LABELS
from runnel.core.json_types import Json
from runnel.errors import InputError

STDIN = "-"


def read_input(
    file: str | None, assignments: Sequence[str], schema: dict[str, Json] | None = None
) -> Json:
    """The file's value with the assignments laid over it; raises InputError."""
    given = parse_assignments(assignments, schema=schema)
    if file is None:
        return given
    value = read_value(file, "the input")
    if not given:
        return value
    return lay_over(value, given, f"--input-file {file}")


def read_value(file: str, what: str) -> Json:
    """What a file or stdin holds; raises InputError, which says `what` was expected."""
    return _read_stdin(what) if file == STDIN else _read_file(Path(file), what)


def lay_over(value: Json, given: dict[str, Json], source: str) -> Json:
    """Raises InputError when there is nothing that values could be added to."""
    if not isinstance(value, dict):
        raise InputError(
            f"--input adds to an object, but {source} holds {_kind(value)}; give the whole input "
            "by --input-file"
        )
    return _laid_over(value, given)


def read_labels(words: Sequence[str], *, allows_reserved: bool = False) -> dict[str, str]:
    labels: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--label: expected KEY=VALUE, got '{word}'")
        if key.startswith(RESERVED_LABELS) and not allows_reserved:
            raise InputError(
                f"--label: names that begin with '{RESERVED_LABELS}' are reserved, got '{key}'"
            )
        labels[key.strip()] = value
    return labels


def _read_file(path: Path, what: str) -> Json:
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{path}: it is empty; expected {what} as JSON or YAML")
    return read_data(path)


def _read_stdin(what: str) -> Json:
    text = sys.stdin.read(FILE_BYTES_MAX + 1)
    if not text.strip():
        raise InputError(f"stdin is empty; expected {what} as JSON or YAML")
    return parse_data(text, source="stdin")


def _laid_over(below: dict[str, Json], above: dict[str, Json]) -> dict[str, Json]:
    """Objects are merged, everything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            merged[key] = _laid_over(known, value)
        else:
            merged[key] = value
    return merged


def _kind(value: Json) -> str:
    kinds = {list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "nothing")
