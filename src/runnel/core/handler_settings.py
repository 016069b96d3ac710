"""The settings of the handlers that come with Runnel: what `config` may and must hold for each.

A handler that is not in the table is a user's own: nothing is known about its settings. None
stands for a handler that takes any settings.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain

import msgspec

from runnel.core.checks.values import TEXT, Check, at_least, one_of
from runnel.core.checks.wording import did_you_mean, quoted, shown
from runnel.core.json_types import Json
from runnel.core.service_settings import ANYTHING, HTTP, LLM, OBJECT, RULES, SHELL
from runnel.core.workflow import (
    CHILD_WORKFLOW,
    CORE_HANDLERS,
    SLEEP,
    TIMEOUT_S_DEFAULT,
    WAIT_FOR_SIGNAL,
    Node,
)

_FUNCTION = re.compile(r"[\w.]+:[\w.]+")


class Setting(msgspec.Struct, frozen=True):
    """A value with a template in it is judged when it is known, unless it must be literal."""

    check: Check
    is_required: bool = False
    is_literal: bool = False


def _is_function(value: Json) -> bool:
    return isinstance(value, str) and _FUNCTION.fullmatch(value) is not None


FUNCTION = Check(
    "the path of a function as 'module:name'",
    _is_function,
    {"type": "string", "pattern": f"^{_FUNCTION.pattern}$"},
)

DATA_PROCESSOR = "data_processor"
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "pick": ("fields", "missing"),
    "map": ("field", "fields", "set", "missing"),
    "filter": ("field", "op", "value", "where", "match"),
    "merge": ("deep",),
    "aggregate": ("function", "field", "aggregates"),
    "sort": ("by", "descending"),
    "group": ("by", "aggregates"),
}
"""The settings of each operation of `data_processor`, besides `operation` and `data`."""

_HTTP = {name: Setting(check) for name, check in HTTP.items()}
SETTINGS: Mapping[str, Mapping[str, Setting] | None] = {
    "input": None,
    "output": None,
    SLEEP: {"seconds": Setting(at_least(0), is_required=True)},
    WAIT_FOR_SIGNAL: {
        "signal": Setting(TEXT, is_required=True),
        "timeout_seconds": Setting(at_least(0)),
        "on_timeout": Setting(one_of(("fail", "complete")), is_literal=True),
    },
    CHILD_WORKFLOW: {"input": Setting(ANYTHING)},
    "python": {
        "function": Setting(FUNCTION, is_required=True),
        "args": Setting(OBJECT),
        "mode": Setting(one_of(("auto", "thread", "process", "loop"))),
    },
    DATA_PROCESSOR: {
        "operation": Setting(one_of(tuple(OPERATIONS)), is_required=True),
        "data": Setting(ANYTHING, is_required=True),
        **dict.fromkeys(chain.from_iterable(OPERATIONS.values()), Setting(ANYTHING)),
    },
    "call_external_service": _HTTP,
    "external_service": _HTTP,
    "llm_service": {name: Setting(check) for name, check in LLM.items()},
    "shell": {name: Setting(check, is_required=name == "command") for name, check in SHELL.items()},
}
_OF_OPERATIONS = frozenset(chain.from_iterable(OPERATIONS.values()))
_TIMEOUT_INSTEAD = {
    SLEEP: "remove it",
    WAIT_FOR_SIGNAL: "put it into the config",
    CHILD_WORKFLOW: "put it on the child workflow",
}
NO_MAP = frozenset({SLEEP, WAIT_FOR_SIGNAL})


def setting_problems(node: Node) -> Iterator[str]:
    """Without the name of the node, which the caller puts before them."""
    settings = SETTINGS.get(node.handler)
    if settings is not None:
        yield from _against(node.handler, node.config, settings, is_resolved=False)
    if node.handler == DATA_PROCESSOR:
        yield from _of_other_operations(node)
    if node.handler in NO_MAP and node.for_each is not None:
        yield f"for_each: the handler '{node.handler}' waits once and takes no list; remove it"
    if node.handler in CORE_HANDLERS:
        yield from _without_effect(node)
    if node.handler == CHILD_WORKFLOW and node.child is None:
        yield "config: the handler 'workflow' needs a workflow to run: add definition or file"
    if node.handler != CHILD_WORKFLOW and node.child is not None:
        yield (
            f"child: only the handler 'workflow' runs a child workflow, this node's is "
            f"{quoted(node.handler)}"
        )


def config_problems(handler: str, config: Mapping[str, Json]) -> Iterator[str]:
    """As `setting_problems`, for a config in which all templates are filled in."""
    yield from _against(handler, config, SETTINGS.get(handler) or {}, is_resolved=True)


def _without_effect(node: Node) -> Iterator[str]:
    """The engine itself does these handlers: what limits workers would silently do nothing."""
    for name in ("concurrency_key", "resource_tag", "queue", "soft_timeout_seconds"):
        if getattr(node, name) is not None:
            yield (
                f"{name}: the handler '{node.handler}' is run by no worker, so it would have no "
                "effect; remove it"
            )
    if node.timeout_seconds != TIMEOUT_S_DEFAULT:
        instead = _TIMEOUT_INSTEAD[node.handler]
        yield (
            f"timeout_seconds: the handler '{node.handler}' is run by no worker, so it would have "
            f"no effect; {instead}"
        )


def _against(
    handler: str,
    config: Mapping[str, Json],
    settings: Mapping[str, Setting],
    *,
    is_resolved: bool,
) -> Iterator[str]:
    for name, value in config.items():
        setting = settings.get(name)
        if setting is None:
            hint = did_you_mean(name, settings) or f"; it has: {', '.join(settings)}"
            yield f"config.{name}: the handler '{handler}' has no such setting{hint}"
        elif not setting.check.fits(value) and (
            setting.is_literal or is_resolved or not _has_template(value)
        ):
            yield f"config.{name}: expected {setting.check.expected}, got {shown(value)}"
    for name, setting in settings.items():
        if setting.is_required and name not in config:
            yield (
                f"config.{name}: the handler '{handler}' needs it; expected "
                f"{setting.check.expected}"
            )
    if handler in RULES:
        for problem in RULES[handler](config):
            setting = config.get(problem.partition(":")[0])
            if is_resolved or not _has_template(setting):
                yield f"config.{problem}"


def _of_other_operations(node: Node) -> Iterator[str]:
    operation = node.config.get("operation")
    own = OPERATIONS.get(operation) if isinstance(operation, str) else None
    if own is None:
        return
    for name in node.config:
        if name in _OF_OPERATIONS and name not in own:
            known = ", ".join(own)
            yield f"config.{name}: the operation '{operation}' has no such setting; it has: {known}"


def _has_template(value: Json) -> bool:
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, dict):
        return any(map(_has_template, value.values()))
    return isinstance(value, list) and any(map(_has_template, value))
