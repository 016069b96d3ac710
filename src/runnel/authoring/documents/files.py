"""Reads workflow files and decodes YAML or JSON; the suffix or first character decides which."""

import json
from pathlib import Path
from typing import NoReturn

from runnel.core.message_text import quote_name
from runnel.core.values import Json
from runnel.errors import InvalidWorkflowError

# This JSON parser is stricter than the standard library: it refuses NaN and duplicate keys.


def parse_json(text: str, *, source: str) -> Json:
    """Decodes JSON; raises InvalidWorkflowError, with line and column if they are known.

    Uses the standard library, because msgspec silently keeps only the last of two equal keys: a
    node or a part of a node would be lost. The standard library is five times slower, which does
    not matter up to 10 MB.
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
        problem = "the document is nested too deeply"
    except ValueError:  # a number has more digits than Python converts
        problem = "a number has thousands of digits; put it in quotes"
    raise InvalidWorkflowError([problem], source=source)


class _InvalidJsonError(Exception):
    """A document is not valid JSON. The hooks of the JSON parser raise this error."""


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
    "the document is larger than 10 MB; move large data into separate files, and pass their names"
)
_YAML_SUFFIXES = frozenset({".yaml", ".yml"})


def read_data(path: Path) -> Json:
    """Reads and decodes a file; raises InvalidWorkflowError."""
    source = str(path)
    content = read_bytes(path, bytes_max=FILE_BYTES_MAX + 1)
    return parse_data(_decode_text(content, source), source=source, suffix=path.suffix)


def parse_data(text: str, *, source: str, suffix: str = "") -> Json:
    """Decodes a document; raises InvalidWorkflowError.

    The suffix .json means JSON, and .yaml or .yml means YAML. With any other suffix, a document
    that begins with a brace is JSON, and any other document is YAML.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > FILE_BYTES_MAX:
        raise _build_error(source, TOO_LARGE_PROBLEM)
    data = _parse_text(text, source, suffix.lower()) if text.strip() else None
    if data is None:
        raise _build_error(
            source, "the document is empty; expected a workflow with 'name' and 'nodes'"
        )
    return data


def _parse_text(text: str, source: str, suffix: str) -> Json:
    if suffix == ".json" or (suffix not in _YAML_SUFFIXES and text.lstrip().startswith("{")):
        return parse_json(text, source=source)
    # Importing yaml takes about 40 ms, so JSON documents do not import it.
    from runnel.authoring.documents.yaml import parse_yaml

    return parse_yaml(text, source=source)


def read_bytes(path: Path, *, bytes_max: int) -> bytes:
    """Reads up to `bytes_max` bytes of a file; raises InvalidWorkflowError if reading fails."""
    try:
        with path.open("rb") as file:
            return file.read(bytes_max)
    except FileNotFoundError:
        raise _build_error(str(path), "there is no such file; check the path") from None
    except IsADirectoryError:
        raise _build_error(str(path), "the path is a directory; name a file in it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _build_error(str(path), f"the file can't be read: {reason}") from error


def _decode_text(content: bytes, source: str) -> str:
    if len(content) > FILE_BYTES_MAX:
        raise _build_error(source, TOO_LARGE_PROBLEM)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _build_error(
            source, f"line {line}: the text is not UTF-8; save the file as UTF-8"
        ) from error


def _build_error(source: str, problem: str) -> InvalidWorkflowError:
    return InvalidWorkflowError([problem], source=source)
