"""The settings of the built-in handlers: the allowed and required keys of `config` for each
handler.

HANDLER_SETTINGS is the table of these settings. A handler that is not in the table is the user's
own, and its settings are unknown. The entry None marks a handler that accepts any settings.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from urllib.parse import urlsplit

import msgspec

from runnel.core.message_text import describe_value, quote_name, suggest_name
from runnel.core.validation.checks import (
    ABOVE_ZERO,
    BOOLEAN,
    TEXT,
    ValueCheck,
    is_finite_number,
    make_choice_check,
    make_integer_check,
    make_minimum_check,
)
from runnel.core.values import Json
from runnel.core.workflow import (
    CHILD_WORKFLOW,
    CORE_HANDLERS,
    SLEEP,
    TIMEOUT_S_DEFAULT,
    WAIT_FOR_SIGNAL,
    Node,
    Workflow,
)

# -- handlers with external effects: HTTP, language models, programs -----------------------

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
RESPONSE_KINDS = ("auto", "json", "text")
PARSE_KINDS = ("text", "json", "lines")
REDIRECTS_MAX = 20
RESPONSE_BYTES_MAX = 64 * 1024 * 1024

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STATUS_CLASS = re.compile(r"[1-5]xx")
_FRAMING_HEADERS = frozenset(
    {"content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer"}
)
_MOCK_KEYS = {"delay", "response", "status"}


def is_url(value: Json) -> bool:
    """Returns True if the value is an http or https URL with a host and without a password.

    A password in a URL would appear in logs and proxies.
    """
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and has_host and "@" not in parts.netloc


def is_status(value: Json) -> bool:
    if isinstance(value, str):
        return _STATUS_CLASS.fullmatch(value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599  # noqa: PLR2004


def _is_text_or_number(value: Json) -> bool:
    return isinstance(value, str) or is_finite_number(value)


def _are_headers(value: Json) -> bool:
    return isinstance(value, dict) and all(
        _HEADER_NAME.fullmatch(name) and _is_text_or_number(header) and _is_header_text(str(header))
        for name, header in value.items()
    )


def _is_header_text(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _are_params(value: Json) -> bool:
    def fits(param: Json) -> bool:
        return isinstance(param, bool) or _is_text_or_number(param)

    return isinstance(value, dict) and all(
        fits(param) or (isinstance(param, list) and all(map(fits, param)))
        for param in value.values()
    )


def _are_variables(value: Json) -> bool:
    return isinstance(value, dict) and all(
        _VARIABLE.fullmatch(name) and _is_text_or_number(variable) and "\0" not in str(variable)
        for name, variable in value.items()
    )


def _is_auth(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"username", "password"}
        and all(isinstance(credential, str) for credential in value.values())
    )


def _is_delay(value: Json) -> bool:
    if isinstance(value, list):
        is_pair = len(value) == 2 and all(map(is_finite_number, value))  # noqa: PLR2004
        return is_pair and 0 <= value[0] <= value[1]
    return is_finite_number(value) and value >= 0


def _is_mock(value: Json) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, bool)
    status = value.get("status", 200)
    statuses = status if isinstance(status, list) else [status]
    return (
        set(value) <= _MOCK_KEYS
        and _is_delay(value.get("delay", 0))
        and bool(statuses)
        and all(isinstance(code, int) and is_status(code) for code in statuses)
    )


def _are_statuses(value: Json) -> bool:
    return isinstance(value, list) and all(map(is_status, value))


def _are_messages(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: Json) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def _is_command(value: Json) -> bool:
    if isinstance(value, str):
        return bool(value.strip()) and "\0" not in value
    return (
        isinstance(value, list)
        and bool(value)
        and all(_is_text_or_number(argument) and "\0" not in str(argument) for argument in value)
        and bool(str(value[0]).strip())
    )


def _are_codes(value: Json) -> bool:
    return isinstance(value, list) and all(
        isinstance(code, int) and not isinstance(code, bool) and 0 <= code <= 255  # noqa: PLR2004
        for code in value
    )


def _make_maximum_check(maximum: int) -> ValueCheck:
    def fits(value: Json) -> bool:
        return make_integer_check(0).fits(value) and value <= maximum

    schema = {"type": "integer", "minimum": 0, "maximum": maximum}
    return ValueCheck(f"a whole number from 0 to {maximum:,}", fits, schema)


# JSON Schemas for editors. The content may be a template, so a schema names only the type.
_OBJECT = {"type": "object"}
_LIST = {"type": "array"}
_TEXT = {"type": "string"}

ANYTHING = ValueCheck("any value", lambda _: True)
OBJECT = ValueCheck("an object", lambda value: isinstance(value, dict), _OBJECT)
STRING = ValueCheck("a text", lambda value: isinstance(value, str), _TEXT)
URL = ValueCheck("a URL as https://host/path, without a user or password in it", is_url, _TEXT)
HEADERS = ValueCheck(
    "an object of header to text, in ASCII and on one line each", _are_headers, _OBJECT
)
STATUSES = ValueCheck("a list of statuses such as [404, '5xx']", _are_statuses, _LIST)
BYTES = ValueCheck(
    f"a whole number from 1 to {RESPONSE_BYTES_MAX:,}",
    lambda value: make_integer_check(1).fits(value) and value <= RESPONSE_BYTES_MAX,
    {"type": "integer", "minimum": 1, "maximum": RESPONSE_BYTES_MAX},
)
MOCK = ValueCheck(
    "true, false, or an object of delay (seconds, or [least, most]), response and status",
    _is_mock,
    {"type": ["boolean", "object"]},
)
AUTH = ValueCheck("an object of username and password", _is_auth, _OBJECT)
PARAMS = ValueCheck(
    "an object of name to text, number, true or false, or a list of them", _are_params, _OBJECT
)
MESSAGES = ValueCheck("a list of objects with role and content", _are_messages, _LIST)
COMMAND = ValueCheck(
    "a program and its arguments as a list of texts", _is_command, {"type": ["array", "string"]}
)
VARIABLES = ValueCheck("an object of variable to text", _are_variables, _OBJECT)
CODES = ValueCheck("a list of exit codes from 0 to 255", _are_codes, _LIST)

MOCK_ADVICE = "without one, set mock: true, or RUNNEL_MOCK_SERVICES=true"

HTTP_CHECKS: Mapping[str, ValueCheck] = {
    "url": URL,
    "method": make_choice_check(METHODS),
    "headers": HEADERS,
    "params": PARAMS,
    "json": ANYTHING,
    "body": STRING,
    "auth": AUTH,
    "timeout_seconds": ABOVE_ZERO,
    "connect_timeout_seconds": ABOVE_ZERO,
    "ok_statuses": STATUSES,
    "retry_statuses": STATUSES,
    "max_redirects": _make_maximum_check(REDIRECTS_MAX),
    "max_response_bytes": BYTES,
    "response": make_choice_check(RESPONSE_KINDS),
    "mock": MOCK,
}
LLM_CHECKS: Mapping[str, ValueCheck] = {
    "model": TEXT,
    "prompt": STRING,
    "system": STRING,
    "messages": MESSAGES,
    "temperature": ValueCheck(
        "a number from 0 to 2",
        lambda value: is_finite_number(value) and 0 <= value <= 2,  # noqa: PLR2004
        {"type": "number", "minimum": 0, "maximum": 2},
    ),
    "max_tokens": make_integer_check(1),
    "response_format": OBJECT,
    "extra": OBJECT,
    "stream": BOOLEAN,
    "base_url": URL,
    "api_key": TEXT,
    "headers": HEADERS,
    "timeout_seconds": ABOVE_ZERO,
    "connect_timeout_seconds": ABOVE_ZERO,
    "max_response_bytes": BYTES,
    "mock": MOCK,
}
SHELL_CHECKS: Mapping[str, ValueCheck] = {
    "command": COMMAND,
    "shell": BOOLEAN,
    "env": VARIABLES,
    "cwd": TEXT,
    "stdin": STRING,
    "timeout_seconds": ABOVE_ZERO,
    "max_output_bytes": BYTES,
    "parse": make_choice_check(PARSE_KINDS),
    "ok_exit_codes": CODES,
    "no_retry_exit_codes": CODES,
}

HandlerConfig = Mapping[str, Json]


def check_http_config(config: HandlerConfig) -> Iterator[str]:
    """Yields the problems of settings that contradict each other.

    Each problem begins with the name of a setting.
    """
    if "url" not in config and not config.get("mock"):
        yield f"url: expected {URL.expected}; {MOCK_ADVICE}"
    if "json" in config and "body" in config:
        yield "body: expected either json or body, got both"
    if config.get("method", "GET") in {"GET", "HEAD"} and config.keys() & {"json", "body"}:
        yield "method: a request with json or body needs a method such as POST"
    yield from _check_framing_headers(config)
    if "auth" in config and any(
        name.lower() == "authorization" for name in _list_header_names(config)
    ):
        yield "auth: expected either auth or a header Authorization, got both"


def check_llm_config(config: HandlerConfig) -> Iterator[str]:
    yield from _check_framing_headers(config)
    if ("prompt" in config) == ("messages" in config):
        got = "both" if "prompt" in config else "neither"
        yield f"prompt: expected either prompt or messages, got {got}"
    if "system" in config and "messages" in config:
        yield (
            "system: expected only together with prompt; with messages, add a message of "
            "role 'system'"
        )
    if "model" not in config and not config.get("mock"):
        yield f"model: expected {TEXT.expected}; {MOCK_ADVICE}"
    if config.get("mock") is not True and isinstance(config.get("extra"), dict):
        reserved_keys = sorted(set(config["extra"]) & {"model", "messages", "stream"})
        if reserved_keys:
            yield f"extra: '{reserved_keys[0]}' has a setting of its own; use that"


def check_shell_config(config: HandlerConfig) -> Iterator[str]:
    command, by_shell = config.get("command"), config.get("shell", False)
    if isinstance(command, str) and by_shell is False:
        yield ("command: expected a list such as [git, log], got a text; a text needs shell: true")
    if isinstance(command, list) and by_shell is True:
        yield "command: expected a text with shell: true, got a list; a list needs no shell"


def _check_framing_headers(config: HandlerConfig) -> Iterator[str]:
    """Yields a problem for each header that Runnel sets itself.

    With two different values, a proxy and a server could read different requests from one
    connection.
    """
    for name in _list_header_names(config):
        if name.lower() in _FRAMING_HEADERS:
            yield f"headers: Runnel sets '{name}' itself; leave it out"


CONFIG_RULES: Mapping[str, Callable[[HandlerConfig], Iterator[str]]] = {
    "call_external_service": check_http_config,
    "external_service": check_http_config,
    "llm_service": check_llm_config,
    "shell": check_shell_config,
}


def _list_header_names(config: HandlerConfig) -> list[str]:
    headers = config.get("headers")
    return list(headers) if isinstance(headers, dict) else []


# The setting without which a service can't be called.
_SERVICE_ADDRESSES = {
    "call_external_service": "url",
    "external_service": "url",
    "llm_service": "model",
}


def mock_incomplete_services(workflow: Workflow) -> Workflow:
    """Returns the workflow with `mock: true` in each node that names no URL or no model.

    Only the validation uses this workflow. The stored workflow has no `mock`, because a worker may
    run it later with RUNNEL_MOCK_SERVICES off.
    """
    nodes = tuple(map(_mock_if_incomplete, workflow.nodes))
    if all(new is old for new, old in zip(nodes, workflow.nodes, strict=True)):
        return workflow
    return msgspec.structs.replace(workflow, nodes=nodes)


def _mock_if_incomplete(node: Node) -> Node:
    if node.child is not None:
        child = mock_incomplete_services(node.child)
        return node if child is node.child else msgspec.structs.replace(node, child=child)
    address = _SERVICE_ADDRESSES.get(node.handler)
    if address is None or node.config.keys() & {address, "mock"}:
        return node
    return msgspec.structs.replace(node, config={**node.config, "mock": True})


_FUNCTION = re.compile(r"[\w.]+:[\w.]+")


class HandlerSetting(msgspec.Struct, frozen=True):
    """A setting of a handler.

    A value with a template is checked only after the template is resolved.

    If `is_literal`, the value must not contain a template.
    """

    check: ValueCheck
    is_required: bool = False
    is_literal: bool = False


def _is_function(value: Json) -> bool:
    return isinstance(value, str) and _FUNCTION.fullmatch(value) is not None


FUNCTION = ValueCheck(
    "the path of a function as 'module:name'",
    _is_function,
    {"type": "string", "pattern": f"^{_FUNCTION.pattern}$"},
)

DATA_PROCESSOR = "data_processor"
OPERATION_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "pick": ("fields", "missing"),
    "map": ("field", "fields", "set", "missing"),
    "filter": ("field", "op", "value", "where", "match"),
    "merge": ("deep",),
    "aggregate": ("function", "field", "aggregates"),
    "sort": ("by", "descending"),
    "group": ("by", "aggregates"),
}
"""The settings of each operation of `data_processor`, besides `operation` and `data`."""

_HTTP_SETTINGS = {name: HandlerSetting(check) for name, check in HTTP_CHECKS.items()}
HANDLER_SETTINGS: Mapping[str, Mapping[str, HandlerSetting] | None] = {
    "input": None,
    "output": None,
    SLEEP: {"seconds": HandlerSetting(make_minimum_check(0), is_required=True)},
    WAIT_FOR_SIGNAL: {
        "signal": HandlerSetting(TEXT, is_required=True),
        "timeout_seconds": HandlerSetting(make_minimum_check(0)),
        "on_timeout": HandlerSetting(make_choice_check(("fail", "complete")), is_literal=True),
    },
    CHILD_WORKFLOW: {"input": HandlerSetting(ANYTHING)},
    "python": {
        "function": HandlerSetting(FUNCTION, is_required=True),
        "args": HandlerSetting(OBJECT),
        "mode": HandlerSetting(make_choice_check(("auto", "thread", "process", "loop"))),
    },
    DATA_PROCESSOR: {
        "operation": HandlerSetting(make_choice_check(tuple(OPERATION_SETTINGS)), is_required=True),
        "data": HandlerSetting(ANYTHING, is_required=True),
        **dict.fromkeys(chain.from_iterable(OPERATION_SETTINGS.values()), HandlerSetting(ANYTHING)),
    },
    "call_external_service": _HTTP_SETTINGS,
    "external_service": _HTTP_SETTINGS,
    "llm_service": {name: HandlerSetting(check) for name, check in LLM_CHECKS.items()},
    "shell": {
        name: HandlerSetting(check, is_required=name == "command")
        for name, check in SHELL_CHECKS.items()
    },
}
_ALL_OPERATION_SETTINGS = frozenset(chain.from_iterable(OPERATION_SETTINGS.values()))
_TIMEOUT_ADVICE = {
    SLEEP: "remove it",
    WAIT_FOR_SIGNAL: "put it into the config",
    CHILD_WORKFLOW: "put it on the child workflow",
}
NO_MAP_HANDLERS = frozenset({SLEEP, WAIT_FOR_SIGNAL})


def find_setting_problems(node: Node) -> Iterator[str]:
    """Yields the problems of a node's handler settings. The caller adds the name of the node."""
    settings = HANDLER_SETTINGS.get(node.handler)
    if node.handler == DATA_PROCESSOR and "operation" not in node.config:
        yield from _find_lost_operation(node.config)
    elif settings is not None:
        yield from _check_settings(node.handler, node.config, settings, is_resolved=False)
    if node.handler == DATA_PROCESSOR:
        yield from _find_foreign_settings(node)
    if node.handler in NO_MAP_HANDLERS and node.for_each is not None:
        yield (
            f"for_each: the handler '{node.handler}' waits once and takes no list; remove for_each"
        )
    if node.handler in CORE_HANDLERS:
        yield from _find_ineffective_fields(node)
    if node.handler == CHILD_WORKFLOW and node.child is None:
        yield "config: the handler 'workflow' needs a workflow to run: add definition or file"
    if node.handler != CHILD_WORKFLOW and node.child is not None:
        yield (
            f"child: only the handler 'workflow' runs a child workflow, this node's handler is "
            f"{quote_name(node.handler)}"
        )


def find_config_problems(handler: str, config: Mapping[str, Json]) -> Iterator[str]:
    """Yields the problems of a handler's config whose templates are resolved."""
    if handler == DATA_PROCESSOR and "operation" not in config:
        return
    yield from _check_settings(
        handler, config, HANDLER_SETTINGS.get(handler) or {}, is_resolved=True
    )


def _find_ineffective_fields(node: Node) -> Iterator[str]:
    """Yields a problem for each field that has no effect, because no worker runs the handler of the
    node.
    """
    for name in ("concurrency_key", "resource_tag", "queue", "soft_timeout_seconds"):
        if getattr(node, name) is not None:
            yield (
                f"{name}: no worker runs the handler '{node.handler}', so this field would have no "
                "effect; remove it"
            )
    if node.timeout_seconds != TIMEOUT_S_DEFAULT:
        advice = _TIMEOUT_ADVICE[node.handler]
        yield (
            f"timeout_seconds: no worker runs the handler '{node.handler}', so this field would "
            f"have no effect; {advice}"
        )


def _check_settings(
    handler: str,
    config: Mapping[str, Json],
    settings: Mapping[str, HandlerSetting],
    *,
    is_resolved: bool,
) -> Iterator[str]:
    for name, value in config.items():
        setting = settings.get(name)
        if setting is None:
            hint = suggest_name(name, settings) or f"; it has: {', '.join(settings)}"
            yield f"config.{name}: the handler '{handler}' has no such setting{hint}"
        elif not setting.check.fits(value) and (
            setting.is_literal or is_resolved or not _has_template(value)
        ):
            yield f"config.{name}: expected {setting.check.expected}, got {describe_value(value)}"
    for name, setting in settings.items():
        if setting.is_required and name not in config:
            yield (
                f"config.{name}: the handler '{handler}' needs this setting; expected "
                f"{setting.check.expected}"
            )
    if handler in CONFIG_RULES:
        for problem in CONFIG_RULES[handler](config):
            setting = config.get(problem.partition(":")[0])
            if is_resolved or not _has_template(setting):
                yield f"config.{problem}"


def _find_lost_operation(config: Mapping[str, Json]) -> Iterator[str]:
    """Yields a problem if a `data_processor` without an operation seems to need one.

    Without an operation, the handler returns its config, so any key is allowed.
    """
    operations = ", ".join(OPERATION_SETTINGS)
    for name in config:
        if suggest_name(name, ("operation",)):
            yield (
                f"config.{name}: the handler '{DATA_PROCESSOR}' has no such setting"
                f"{suggest_name(name, ('operation',))}"
            )
        elif "data" in config and name in _ALL_OPERATION_SETTINGS:
            yield (
                f"config.operation: '{name}' beside data is a setting of an operation; expected "
                f"one of {operations}"
            )
            return


def _find_foreign_settings(node: Node) -> Iterator[str]:
    operation = node.config.get("operation")
    operation_settings = OPERATION_SETTINGS.get(operation) if isinstance(operation, str) else None
    if operation_settings is None:
        return
    for name in node.config:
        if name in _ALL_OPERATION_SETTINGS and name not in operation_settings:
            hint = f"it has: {', '.join(operation_settings)}"
            yield f"config.{name}: the operation '{operation}' has no such setting; {hint}"


def _has_template(value: Json) -> bool:
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, dict):
        return any(map(_has_template, value.values()))
    return isinstance(value, list) and any(map(_has_template, value))
