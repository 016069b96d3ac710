"""Reads the text of a document and decodes it: YAML or JSON, by its name or first character."""

import json
from pathlib import Path
from typing import NoReturn

from runnel.core.values import Json
from runnel.core.wording import quote_name
from runnel.errors import InvalidWorkflowError

# JSON, stricter than the standard library: no NaN, and no key given twice.


def parse_json(text: str, *, source: str) -> Json:
    """Raises InvalidWorkflowError, with line and column where they are known.

    By the standard library, because msgspec keeps the last of two equal keys without a word: a
    node, or half of one, would be lost. It is five times slower, which 10 MB do not feel.
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
        problem = "a number of thousands of digits; put it in quotes"
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
    "it is larger than 10 MB; keep large data in files of its own, and pass their names"
)
_YAML_SUFFIXES = frozenset({".yaml", ".yml"})


def read_data(path: Path) -> Json:
    """What a file holds, decoded; raises InvalidWorkflowError with the one reason why not."""
    source = str(path)
    return parse_data(_decode_text(_read_bytes(path), source), source=source, suffix=path.suffix)


def parse_data(text: str, *, source: str, suffix: str = "") -> Json:
    """Decodes a document; without a telling suffix, one that begins with a brace is JSON."""
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
    # Importing yaml takes about 40 ms, which those who write JSON or Python need not pay.
    from runnel.authoring.documents.yaml import parse_yaml

    return parse_yaml(text, source=source)


def _read_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise _build_error(str(path), "it is a directory; name the file in it")
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise _build_error(str(path), "there is no such file; check the path") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _build_error(str(path), f"it can't be read: {why}") from error


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
