"""Reads a document and decodes it as YAML or JSON, by its file name or its first character."""

import json
from pathlib import Path
from typing import NoReturn

from runnel.core.values import Json
from runnel.core.wording import quote_name
from runnel.errors import InvalidWorkflowError

# JSON, stricter than the standard library: NaN and duplicate keys are refused.


def parse_json(text: str, *, source: str) -> Json:
    """Decodes JSON; raises InvalidWorkflowError, with line and column if they are known.

    Uses the standard library, because msgspec silently keeps the last of two equal keys, and a node
    or a part of it would be lost. It is five times slower, which does not matter up to 10 MB.
    """
    try:
        return json.loads(text, object_pairs_hook=_build_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        problem = (
            f"line {error.lineno}, column {error.colno}: not JSON: {_lower_first_letter(error.msg)}"
        )
    except _InvalidJsonError as error:
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply"
    except ValueError:  # more digits than Python reads
        problem = "a number has thousands of digits; put it in quotes"
    raise InvalidWorkflowError([problem], source=source)


class _InvalidJsonError(Exception):
    """Carries a problem out of the parser's hooks."""


def _build_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    mapping = dict(pairs)
    if len(mapping) == len(pairs):
        return mapping
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _InvalidJsonError(
                f"the key {quote_name(key)} is given twice in one object; keep one"
            )
        seen.add(key)
    return mapping


def _refuse_constant(name: str) -> NoReturn:
    raise _InvalidJsonError(f"JSON has no number {name}; use null, or a text")


def _lower_first_letter(message: str) -> str:
    return message[:1].lower() + message[1:]


FILE_BYTES_MAX = 10_000_000
TOO_LARGE_PROBLEM = (
    "it is larger than 10 MB; move large data into separate files, and pass their names"
)
_YAML_SUFFIXES = frozenset({".yaml", ".yml"})


def read_data(path: Path) -> Json:
    """Reads and decodes a file; raises InvalidWorkflowError."""
    source = str(path)
    content = read_bytes(path, bytes_max=FILE_BYTES_MAX + 1)
    return parse_data(_decode_text(content, source), source=source, suffix=path.suffix)


def parse_data(text: str, *, source: str, suffix: str = "") -> Json:
    """Decodes a document; raises InvalidWorkflowError.

    If the suffix is neither .json nor .yaml or .yml, a document that begins with a brace is JSON.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > FILE_BYTES_MAX:
        raise _build_error(source, TOO_LARGE_PROBLEM)
    data = _parse_text(text, source, suffix.lower()) if text.strip() else None
    if data is None:
        raise _build_error(source, "it is empty; expected a workflow with 'name' and 'nodes'")
    return data


def _parse_text(text: str, source: str, suffix: str) -> Json:
    if suffix == ".json" or (suffix not in _YAML_SUFFIXES and text.lstrip().startswith("{")):
        return parse_json(text, source=source)
    # Importing yaml takes about 40 ms, so documents in JSON do without it.
    from runnel.authoring.documents.yaml import parse_yaml

    return parse_yaml(text, source=source)


def read_bytes(path: Path, *, bytes_max: int) -> bytes:
    """Reads the first bytes of a file; raises InvalidWorkflowError if it can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(bytes_max)
    except FileNotFoundError:
        raise _build_error(str(path), "there is no such file; check the path") from None
    except IsADirectoryError:
        raise _build_error(str(path), "it is a directory; name a file in it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _build_error(str(path), f"it can't be read: {reason}") from error


def _decode_text(content: bytes, source: str) -> str:
    if len(content) > FILE_BYTES_MAX:
        raise _build_error(source, TOO_LARGE_PROBLEM)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _build_error(
            source, f"line {line}: it is not UTF-8 text; save it as UTF-8"
        ) from error


def _build_error(source: str, problem: str) -> InvalidWorkflowError:
    return InvalidWorkflowError([problem], source=source)
