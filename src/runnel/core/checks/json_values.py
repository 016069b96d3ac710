"""Whether a value is JSON: what can't be stored and read back unchanged is refused by its path."""

import math
from collections.abc import Iterator

from runnel.core.checks.wording import shown
from runnel.core.json_types import Json

DEPTH_MAX = 200
INTEGER_MAX = 2**63 - 1


def json_problems(value: Json, where: str) -> Iterator[str]:
    """Problems in the order of the value; `where` is its own path, "" for a whole document.

    A stack instead of recursion: no depth of the value can exhaust Python's.
    """
    stack: list[tuple[str, Json, int]] = [(where, value, 0)]
    while stack:
        path, item, depth = stack.pop()
        problem = _problem(item, depth)
        if problem is not None:
            yield f"{path}: {problem}" if path else problem
            if depth >= DEPTH_MAX:  # a list that holds itself goes on like this for ever
                return
        elif isinstance(item, list):
            below = [(f"{path}[{i}]", each, depth + 1) for i, each in enumerate(item)]
            stack.extend(reversed(below))
        elif isinstance(item, dict):
            below = [(_below(path, key), each, depth + 1) for key, each in item.items()]
            stack.extend(reversed(below))


def _problem(item: Json, depth: int) -> str | None:
    match item:
        case None | bool():
            return None
        case str():
            return None if item.isascii() or _is_text(item) else _NOT_TEXT
        case int():
            return None if abs(item) <= INTEGER_MAX else "a whole number beyond 64 bits; quote it"
        case float():
            return (
                None if math.isfinite(item) else f"JSON has no number {item}; quote it, or use null"
            )
        case list() | dict() if depth >= DEPTH_MAX:
            return f"nested too deeply: at most {DEPTH_MAX} levels"
        case dict():
            return _key_problem(item)
        case list():
            return None
        case _:
            return f"expected a JSON value, got {shown(item)}; turn it into text or a list"


_NOT_TEXT = "half of a surrogate pair is not a character; remove it"


def _key_problem(item: dict[Json, Json]) -> str | None:
    for key in item:
        if not isinstance(key, str):
            return f"the key {shown(key)} is not a text; put it in quotes"
        if not key.isascii() and not _is_text(key):
            return _NOT_TEXT
    return None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _below(path: str, key: str) -> str:
    step = key if key.isidentifier() else f"[{shown(key)}]"
    return f"{path}.{step}" if path and step is key else f"{path}{step}"
