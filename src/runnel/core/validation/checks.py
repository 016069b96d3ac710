"""What single values must be: one table for workflows from documents and from Python alike."""

import math
from collections.abc import Callable, Iterator, Mapping

import msgspec

from runnel.core.values import Json
from runnel.core.wording import quoted, shown
from runnel.core.workflow import (
    CORE_HANDLERS,
    Cache,
    Node,
    OnFailure,
    RateLimit,
    RetryPolicy,
    RunWhen,
    Workflow,
)

NAME_CHARS_MAX = 200
# Well within what a float holds exactly, and 30,000 years as seconds.
NUMBER_MAX = 10**12


class Check(msgspec.Struct, frozen=True):
    """`expected` completes the sentence "expected …, got …"; `schema` says it in JSON Schema."""

    expected: str
    fits: Callable[[Json], bool]
    schema: Mapping[str, Json] = {}


def is_number(value: Json) -> bool:
    """Neither a boolean, nor infinite, nor NaN, which is not even between two numbers."""
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return is_numeric and -NUMBER_MAX <= value <= NUMBER_MAX


def is_name(value: Json) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_CHARS_MAX and value.isprintable()


def at_least(least: int) -> Check:
    return Check(
        f"a number ≥ {least}",
        lambda value: is_number(value) and value >= least,
        {"type": "number", "minimum": least},
    )


def whole_number(least: int) -> Check:
    def fits(value: Json) -> bool:
        return isinstance(value, int) and is_number(value) and value >= least

    return Check(f"a whole number ≥ {least}", fits, {"type": "integer", "minimum": least})


def one_of(names: type[RunWhen] | type[OnFailure] | tuple[str, ...]) -> Check:
    known = [str(name) for name in names]
    return Check(
        "one of " + ", ".join(known),
        lambda value: isinstance(value, str) and value in known,
        {"enum": known},
    )


ABOVE_ZERO = Check(
    "a number above 0",
    lambda value: is_number(value) and value > 0,
    {"type": "number", "exclusiveMinimum": 0},
)
NAME = Check(
    f"a printable text of 1 to {NAME_CHARS_MAX} characters",
    is_name,
    {"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX},
)
TEXT = Check(
    "a text that is not empty",
    lambda value: isinstance(value, str) and bool(value.strip()),
    {"type": "string", "minLength": 1},
)
LABEL = Check(
    "a text or a number",
    lambda value: isinstance(value, str),
    {"type": ["string", "number"]},
)
BOOLEAN = Check("true or false", lambda value: isinstance(value, bool), {"type": "boolean"})

RETRY: Mapping[str, Check] = {
    "max_retries": whole_number(0),
    "initial_delay": at_least(0),
    "max_delay": at_least(0),
    "exponential_base": at_least(1),
    "jitter": BOOLEAN,
}
RATE_LIMIT: Mapping[str, Check] = {"rate_per_second": ABOVE_ZERO, "burst": whole_number(1)}
NODE: Mapping[str, Check] = {
    "handler": NAME,
    "condition": TEXT,
    "run_when": one_of(RunWhen),
    "timeout_seconds": ABOVE_ZERO,
    "soft_timeout_seconds": ABOVE_ZERO,
    "resource_tag": NAME,
    "concurrency_key": TEXT,
    "concurrency_limit": whole_number(1),
    "for_each": TEXT,
    "queue": NAME,
}
CACHE: Mapping[str, Check] = {"key": TEXT, "ttl_seconds": ABOVE_ZERO}
WORKFLOW: Mapping[str, Check] = {
    "name": NAME,
    "on_failure": one_of(OnFailure),
    "timeout_seconds": ABOVE_ZERO,
    "sla_seconds": ABOVE_ZERO,
    "max_concurrency": whole_number(1),
}


def workflow_values(workflow: Workflow) -> Iterator[str]:
    yield from _unfit(workflow, WORKFLOW)
    for tag, limit in workflow.rate_limits.items():
        yield from _unfit(limit, RATE_LIMIT, f"rate_limits.{tag}.")
    for key, label in workflow.labels.items():
        if not NAME.fits(key) or not LABEL.fits(label):
            yield f"labels: expected texts by name, got {shown(key)}: {shown(label)}"


def node_values(node: Node) -> Iterator[str]:
    yield from _unfit(node, NODE)
    if node.retry is not _DEFAULT_RETRY:
        yield from _unfit(node.retry, RETRY, "retry.")
    if node.cache is not None:
        yield from _cache_values(node, node.cache)
    soft, hard = node.soft_timeout_seconds, node.timeout_seconds
    if is_number(soft) and is_number(hard) and soft is not None and soft >= hard:
        yield (
            f"soft_timeout_seconds: expected less than timeout_seconds ({hard:g}), got {soft:g}; "
            "the soft one has to come first"
        )


def _cache_values(node: Node, cache: Cache) -> Iterator[str]:
    yield from _unfit(cache, CACHE, "cache.")
    if node.handler in CORE_HANDLERS:
        yield f"cache: '{node.handler}' has no result that could be kept; remove it"


def id_problem(node_id: Json) -> str | None:
    """None for an id that is fine by itself."""
    if NAME.fits(node_id):
        return None
    if isinstance(node_id, str) and len(node_id) > NAME_CHARS_MAX:
        return f"node {quoted(node_id)}: the id has {len(node_id)} characters, at most 200 may be"
    return f"a node's id: expected {NAME.expected}, got {shown(node_id)}"


def _unfit(
    holder: Workflow | Node | RetryPolicy | RateLimit | Cache,
    checks: Mapping[str, Check],
    where: str = "",
) -> Iterator[str]:
    defaults = _DEFAULTS[type(holder)]
    for field, check in checks.items():
        value = getattr(holder, field)
        # Most fields are left alone, and a default fits: a million nodes are checked in seconds.
        if value is not defaults[field] and not check.fits(value):
            yield f"{where}{field}: expected {check.expected}, got {shown(value)}"


_DEFAULTS: Mapping[type, Mapping[str, Json]] = {
    kind: {field.name: field.default for field in msgspec.structs.fields(kind)}
    for kind in (Workflow, Node, RetryPolicy, RateLimit, Cache)
}
_DEFAULT_RETRY = _DEFAULTS[Node]["retry"]


# Whether a value is JSON: what can't be stored and read back unchanged is refused by its path.

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
