"""Checks of single fields and of JSON values, for workflows from files and from Python code."""

import math
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

import msgspec

from runnel.core.message_text import describe_value, quote_name
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import CLEAN_UP_RULES, RunWhen, WhenNotMet
from runnel.core.values import Json, is_number
from runnel.core.workflow import (
    CORE_HANDLERS,
    PRIORITY_MAX,
    Cache,
    Node,
    OnFailure,
    RateLimit,
    Workflow,
)

NAME_CHARS_MAX = 200
# The largest number in a workflow. A float represents whole numbers up to NUMBER_MAX exactly. As
# seconds, NUMBER_MAX is 30,000 years.
NUMBER_MAX = 10**12


class ValueCheck(msgspec.Struct, frozen=True):
    """A check of one value. `expected` completes the message "expected …, got …".

    `schema` is the same check as JSON Schema.
    """

    expected: str
    fits: Callable[[Json], bool]
    schema: Mapping[str, Json] = {}


def is_finite_number(value: Json) -> bool:
    """Returns True if the value is a number in range.

    Returns False for booleans, infinity and NaN.
    """
    return is_number(value) and -NUMBER_MAX <= value <= NUMBER_MAX


def is_name(value: Json) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_CHARS_MAX and value.isprintable()


def make_minimum_check(minimum: int) -> ValueCheck:
    return ValueCheck(
        f"a number ≥ {minimum}",
        lambda value: is_finite_number(value) and value >= minimum,
        {"type": "number", "minimum": minimum},
    )


def make_integer_check(minimum: int) -> ValueCheck:
    def fits(value: Json) -> bool:
        return isinstance(value, int) and is_finite_number(value) and value >= minimum

    return ValueCheck(f"a whole number ≥ {minimum}", fits, {"type": "integer", "minimum": minimum})


def make_choice_check(names: type[StrEnum] | tuple[str, ...]) -> ValueCheck:
    choices = [str(name) for name in names]
    return ValueCheck(
        "one of " + ", ".join(choices),
        lambda value: isinstance(value, str) and value in choices,
        {"enum": choices},
    )


ABOVE_ZERO = ValueCheck(
    "a number above 0",
    lambda value: is_finite_number(value) and value > 0,
    {"type": "number", "exclusiveMinimum": 0},
)
NAME = ValueCheck(
    f"a printable text of 1 to {NAME_CHARS_MAX} characters",
    is_name,
    {"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX},
)
TEXT = ValueCheck(
    "a text that is not empty",
    lambda value: isinstance(value, str) and bool(value.strip()),
    {"type": "string", "minLength": 1},
)
LABEL = ValueCheck(
    "a text or a number",
    lambda value: isinstance(value, str),
    {"type": ["string", "number"]},
)
PRIORITY = ValueCheck(
    f"a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}",
    lambda value: type(value) is int and -PRIORITY_MAX <= value <= PRIORITY_MAX,
    {"type": "integer", "minimum": -PRIORITY_MAX, "maximum": PRIORITY_MAX},
)
BOOLEAN = ValueCheck("true or false", lambda value: isinstance(value, bool), {"type": "boolean"})

RETRY_CHECKS: Mapping[str, ValueCheck] = {
    "max_retries": make_integer_check(0),
    "initial_delay": make_minimum_check(0),
    "max_delay": make_minimum_check(0),
    "exponential_base": make_minimum_check(1),
    "jitter": BOOLEAN,
}
RATE_LIMIT_CHECKS: Mapping[str, ValueCheck] = {
    "rate_per_second": ABOVE_ZERO,
    "burst": make_integer_check(1),
}
NODE_CHECKS: Mapping[str, ValueCheck] = {
    "handler": NAME,
    "condition": TEXT,
    "run_when": make_choice_check(RunWhen),
    "when_not_met": make_choice_check(WhenNotMet),
    "timeout_seconds": ABOVE_ZERO,
    "soft_timeout_seconds": ABOVE_ZERO,
    "resource_tag": NAME,
    "concurrency_key": TEXT,
    "concurrency_limit": make_integer_check(1),
    "for_each": TEXT,
    "queue": NAME,
}
CACHE_CHECKS: Mapping[str, ValueCheck] = {"key": TEXT, "ttl_seconds": ABOVE_ZERO}
WORKFLOW_CHECKS: Mapping[str, ValueCheck] = {
    "name": NAME,
    "on_failure": make_choice_check(OnFailure),
    "timeout_seconds": ABOVE_ZERO,
    "sla_seconds": ABOVE_ZERO,
    "max_concurrency": make_integer_check(1),
    "priority": PRIORITY,
}


# The ends of addresses such as /v1/workflows/NAME/run. The API could not tell a workflow named
# `x/run` from the address that runs the workflow `x`.
RESERVED_NAME_ENDS = (
    *("/run", "/batch", "/versions", "/active", "/activate", "/graph"),
    "/triggers/webhook",
)


def check_workflow_fields(workflow: Workflow) -> Iterator[str]:
    yield from _check_fields(workflow, WORKFLOW_CHECKS)
    if NAME.fits(workflow.name) and workflow.name.endswith(RESERVED_NAME_ENDS):
        ends = ", ".join(RESERVED_NAME_ENDS)
        yield (
            f"name: {describe_value(workflow.name)} ends like an address of the API; expected a "
            f"name that does not end with one of {ends}"
        )
    for tag, limit in workflow.rate_limits.items():
        yield from _check_fields(limit, RATE_LIMIT_CHECKS, f"rate_limits.{tag}.")
    for key, label in workflow.labels.items():
        if not NAME.fits(key) or not LABEL.fits(label):
            entry = f"{describe_value(key)}: {describe_value(label)}"
            yield f"labels: expected texts by name, got {entry}"


def check_node_fields(node: Node) -> Iterator[str]:
    yield from _check_fields(node, NODE_CHECKS)
    if node.retry is not _DEFAULT_RETRY:
        yield from _check_fields(node.retry, RETRY_CHECKS, "retry.")
    if node.cache is not None:
        yield from _check_cache(node, node.cache)
    if node.when_not_met is WhenNotMet.FAIL and node.run_when in CLEAN_UP_RULES:
        yield (
            f"when_not_met: 'fail' has no use with run_when {node.run_when}; use it with default, "
            "all_completed or none_failed"
        )
    soft, hard = node.soft_timeout_seconds, node.timeout_seconds
    if is_finite_number(soft) and is_finite_number(hard) and soft is not None and soft >= hard:
        yield (
            f"soft_timeout_seconds: expected less than timeout_seconds ({hard:g}), got {soft:g}; "
            "the soft timeout has to come first"
        )


def _check_cache(node: Node, cache: Cache) -> Iterator[str]:
    yield from _check_fields(cache, CACHE_CHECKS, "cache.")
    if node.handler in CORE_HANDLERS:
        yield f"cache: '{node.handler}' has no result to cache; remove cache"


def check_node_id(node_id: Json) -> str | None:
    """Returns the problem of a node id, or None if the id is valid."""
    if NAME.fits(node_id):
        return None
    if isinstance(node_id, str) and len(node_id) > NAME_CHARS_MAX:
        return (
            f"node {quote_name(node_id)}: the id has {len(node_id)} characters, at most 200 are "
            "allowed"
        )
    return f"a node's id: expected {NAME.expected}, got {describe_value(node_id)}"


def _check_fields(
    holder: Workflow | Node | RetryPolicy | RateLimit | Cache,
    checks: Mapping[str, ValueCheck],
    where: str = "",
) -> Iterator[str]:
    defaults = _DEFAULTS[type(holder)]
    for field, check in checks.items():
        value = getattr(holder, field)
        # Most fields have their default, which is valid. Skipping defaults makes it possible to
        # check a million nodes in seconds.
        if value is not defaults[field] and not check.fits(value):
            yield f"{where}{field}: expected {check.expected}, got {describe_value(value)}"


_DEFAULTS: Mapping[type, Mapping[str, Json]] = {
    kind: {field.name: field.default for field in msgspec.structs.fields(kind)}
    for kind in (Workflow, Node, RetryPolicy, RateLimit, Cache)
}
_DEFAULT_RETRY = _DEFAULTS[Node]["retry"]


# -- finds values that JSON can't represent, and reports them by path -----------------------

DEPTH_MAX = 200
INTEGER_MAX = 2**63 - 1


def find_json_problems(value: Json, where: str) -> Iterator[str]:
    """Yields the problems of a value that can't be stored unchanged as JSON, in document order.

    `where` is the path of the value, or "" for a whole document.

    The function uses a list instead of recursion, so that no depth exhausts Python's stack.
    """
    stack: list[tuple[str, Json, int]] = [(where, value, 0)]
    while stack:
        path, item, depth = stack.pop()
        problem = _find_value_problem(item, depth)
        if problem is not None:
            yield f"{path}: {problem}" if path else problem
            if depth >= DEPTH_MAX:  # a list that contains itself would never end
                return
        elif isinstance(item, list):
            nested_items = [(f"{path}[{i}]", part, depth + 1) for i, part in enumerate(item)]
            stack.extend(reversed(nested_items))
        elif isinstance(item, dict):
            nested_items = [(_join_path(path, key), part, depth + 1) for key, part in item.items()]
            stack.extend(reversed(nested_items))


def _find_value_problem(item: Json, depth: int) -> str | None:
    match item:
        case None | bool():
            return None
        case str():
            return None if item.isascii() or _is_encodable(item) else _NOT_TEXT_PROBLEM
        case int():
            return None if abs(item) <= INTEGER_MAX else "a whole number beyond 64 bits; quote it"
        case float():
            return (
                None if math.isfinite(item) else f"JSON has no number {item}; quote it, or use null"
            )
        case list() | dict() if depth >= DEPTH_MAX:
            return f"nested too deeply: at most {DEPTH_MAX} levels"
        case dict():
            return _find_key_problem(item)
        case list():
            return None
        case _:
            return f"expected a JSON value, got {describe_value(item)}; turn it into text or a list"


_NOT_TEXT_PROBLEM = "half of a surrogate pair is not a character; remove it"


def _find_key_problem(item: dict[Json, Json]) -> str | None:
    for key in item:
        if not isinstance(key, str):
            return f"the key {describe_value(key)} is not a text; put it in quotes"
        if not key.isascii() and not _is_encodable(key):
            return _NOT_TEXT_PROBLEM
    return None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _join_path(path: str, key: str) -> str:
    step = key if key.isidentifier() else f"[{describe_value(key)}]"
    return f"{path}.{step}" if path and step is key else f"{path}{step}"
