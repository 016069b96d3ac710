"""JSON, stricter than the standard library by default: no NaN, and no key given twice."""

import json
from typing import NoReturn

from runnel.core.checks.wording import quoted
from runnel.core.json_types import Json
from runnel.errors import InvalidWorkflowError


def parse_json(text: str, *, source: str) -> Json:
    """Raises InvalidWorkflowError, with line and column where they are known.

    By the standard library, because msgspec keeps the last of two equal keys without a word: a
    node, or half of one, would be lost. It is five times slower, which 10 MB do not feel.
    """
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        problem = f"line {error.lineno}, column {error.colno}: not JSON: {_lowered(error.msg)}"
    except _RefusedError as error:
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply"
    except ValueError:  # more digits than Python reads
        problem = "a number of thousands of digits; put it in quotes"
    raise InvalidWorkflowError([problem], source=source)


class _RefusedError(Exception):
    """Carries a problem out of the parser's hooks."""


def _distinct(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _RefusedError(f"the key {quoted(key)} is given twice in one object; keep one")
        seen.add(key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise _RefusedError(f"JSON has no number {name}; use null, or a text")


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]
