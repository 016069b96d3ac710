"""The trace of a workflow's body: records each call of a task as a node of the graph."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypedDict

import msgspec

from runnel.authoring.calls import MODES, AnyFunction
from runnel.authoring.decorators.node_writer import TemplateWriter
from runnel.authoring.decorators.placeholders import (
    Placeholder,
    ResultPlaceholder,
    get_root,
    split_path,
)
from runnel.authoring.decorators.source_location import SourceLocation, locate_user_code
from runnel.authoring.documents import infer_dependencies
from runnel.core.ids import NodeId
from runnel.core.message_text import describe_value, suggest_name
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import CLEAN_UP_RULES, RunWhen, WhenNotMet
from runnel.core.templates.errors import TemplateSyntaxError
from runnel.core.templates.nodes import RESERVED_NAMES
from runnel.core.templates.template import compile_expression
from runnel.core.validation.checks import (
    CACHE_CHECKS,
    NAME,
    NODE_CHECKS,
    RETRY_CHECKS,
    ValueCheck,
)
from runnel.core.values import Json
from runnel.core.workflow import Cache, Node, Workflow
from runnel.errors import InputError

# Options of `@task`: the fields of a node, as keyword arguments.


class NodeOptions(TypedDict, total=False):
    """The options of a node; the docstring of `task` describes them."""

    name: str
    id: str
    retries: int | RetryPolicy
    timeout: float | timedelta
    soft_timeout: float | timedelta
    run_when: str
    when_not_met: str
    resource_tag: str
    concurrency_key: str
    concurrency_limit: int
    queue: str
    cache: bool | float | timedelta | Cache
    mode: str


_MODE_CHECK = ValueCheck("one of " + ", ".join(MODES), lambda value: value in MODES)
_DURATION_FIELDS = {"timeout": "timeout_seconds", "soft_timeout": "soft_timeout_seconds"}
_ENUM_FIELDS: Mapping[str, Callable[[str], StrEnum]] = {
    "run_when": RunWhen,
    "when_not_met": WhenNotMet,
}
_OPTION_CHECKS: Mapping[str, ValueCheck] = {
    "name": NAME,
    "id": NAME,
    "timeout": NODE_CHECKS["timeout_seconds"],
    "soft_timeout": NODE_CHECKS["soft_timeout_seconds"],
    "run_when": NODE_CHECKS["run_when"],
    "when_not_met": NODE_CHECKS["when_not_met"],
    "resource_tag": NODE_CHECKS["resource_tag"],
    "concurrency_limit": NODE_CHECKS["concurrency_limit"],
    "queue": NODE_CHECKS["queue"],
    "mode": _MODE_CHECK,
}


def check_options(options: Mapping[str, Any], *, label: str) -> dict[str, Any]:
    """Returns the options, checked and without None values; raises InputError for a bad option.

    `label` names the callable in the message.
    """
    known = NodeOptions.__annotations__
    checked = {}
    for name, value in options.items():
        if name not in known:
            hint = suggest_name(name, known) or f"; the options are: {', '.join(known)}"
            raise InputError(f"{label}: there is no option '{name}'{hint}")
        if value is None:
            continue
        checked[name] = _check_option(name, value, label)
    return checked


def build_node_fields(options: Mapping[str, Any], default: RetryPolicy) -> dict[str, Any]:
    """Returns the fields of a node that these options set.

    `default` is the retry policy of nodes without the option `retries`.
    """
    fields: dict[str, Any] = {"retry": _build_retry_policy(options.get("retries"), default)}
    for name, value in options.items():
        if name in ("name", "id", "mode", "retries", "concurrency_key"):
            continue
        convert = _ENUM_FIELDS.get(name)
        fields[_DURATION_FIELDS.get(name, name)] = value if convert is None else convert(value)
    return fields


def _check_option(name: str, value: Any, label: str) -> Any:
    if isinstance(value, timedelta) and name in _DURATION_FIELDS:
        value = value.total_seconds()
    if name == "retries":
        if not isinstance(value, RetryPolicy) and not RETRY_CHECKS["max_retries"].fits(value):
            raise InputError(
                f"{label}: retries: expected a whole number ≥ 0 or a RetryPolicy, got "
                f"{describe_value(value)}"
            )
        return value
    if name == "cache":
        return _parse_cache(value, label)
    check = _OPTION_CHECKS.get(name)
    if check is not None and not check.fits(value):
        raise InputError(f"{label}: {name}: expected {check.expected}, got {describe_value(value)}")
    return float(value) if name in _DURATION_FIELDS else value


def _parse_cache(value: Any, label: str) -> Cache | None:
    if isinstance(value, Cache):
        return value
    if isinstance(value, bool):
        return Cache() if value else None
    ttl_s = value.total_seconds() if isinstance(value, timedelta) else value
    if not CACHE_CHECKS["ttl_seconds"].fits(ttl_s):
        raise InputError(
            f"{label}: cache: expected True, seconds above 0, a timedelta or a Cache, got "
            f"{describe_value(value)}"
        )
    return Cache(ttl_seconds=float(ttl_s))


def _build_retry_policy(retries: int | RetryPolicy | None, default: RetryPolicy) -> RetryPolicy:
    if isinstance(retries, RetryPolicy):
        return retries
    return default if retries is None else msgspec.structs.replace(default, max_retries=retries)


NO_ITEMS = object()
BuildConfig = Callable[[TemplateWriter], dict[str, Json]]
_current_trace: ContextVar["Trace | None"] = ContextVar("trace", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    """One call of a task, which becomes a node. `label` names the task in messages.

    `annotation` is the type of the result; None if the type is not known.
    """

    label: str
    handler: str
    options: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[object, ...] = ()
    after: tuple[object, ...] = ()
    child: Workflow | None = None
    annotation: Any = None


class Trace:
    """The nodes that are recorded while the body of one workflow runs.

    `caller` is the trace of the parent workflow if the workflow is a child; otherwise None.
    """

    def __init__(self, name: str, retry: RetryPolicy, caller: "Trace | None" = None) -> None:
        self.name = name
        self.retry = retry
        self.caller = caller
        self.nodes: list[Node] = []
        self._positions: dict[NodeId, int] = {}
        self._numbers: dict[str, int] = {}

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Makes this trace the current trace inside the `with` block."""
        token = _current_trace.set(self)
        try:
            yield
        finally:
            _current_trace.reset(token)

    def has_node(self, root: str) -> bool:
        return root in self._positions

    def add_node(
        self, call: TaskCall, build_config: BuildConfig, items: object = NO_ITEMS
    ) -> ResultPlaceholder:
        """Adds a node and returns the placeholder for its result.

        For a map, `items` is its list. Raises TraceError if the call can't be expressed as a node.
        """
        run_when = RunWhen(call.options.get("run_when", RunWhen.DEFAULT))
        is_lenient = run_when in CLEAN_UP_RULES
        node = Node(
            id=self._id(call),
            handler=call.handler,
            config=build_config(TemplateWriter(self, "", is_lenient=is_lenient)),
            condition=self._condition(call, is_lenient=is_lenient),
            for_each=None if items is NO_ITEMS else self._items(call, items, is_lenient=is_lenient),
            concurrency_key=self._key(call),
            child=call.child,
            **build_node_fields(call.options, self.retry),
        )
        parent_ids = {
            *infer_dependencies(node, self._positions),
            *self._iterate_explicit_parents(call),
        }
        parents = tuple(sorted(parent_ids, key=self._positions.__getitem__))
        self._positions[node.id] = len(self.nodes)
        self.nodes.append(_add_parents(node, parents))
        return ResultPlaceholder(self, node.id, call.annotation)

    def write_output(self, returned: object, location: SourceLocation) -> Json:
        """Returns the value that the body returned, written as the workflow's output template.

        Returns None if the value is the result of the only leaf node: the engine outputs that
        result by default.
        """
        if isinstance(returned, ResultPlaceholder) and get_root(returned) in self._positions:
            parents = {parent for node in self.nodes for parent in node.dependencies}
            leaves = [node.id for node in self.nodes if node.id not in parents]
            if leaves == [get_root(returned)]:
                return None
        return TemplateWriter(self, "the return value", locate=lambda: location).write_tree(
            returned
        )

    def _id(self, call: TaskCall) -> NodeId:
        """Returns the option `id`, or makes an id from the name: `fetch`, then `fetch_2`."""
        if "id" in call.options:
            node_id = NodeId(call.options["id"])
            if node_id in self._positions:
                raise locate_user_code().build_error(
                    f"uses the id '{node_id}' for a second node; give each node a unique id"
                )
            return node_id
        name = str(call.options.get("name", call.label))
        first = f"{name}_node" if name in RESERVED_NAMES else name
        number = self._numbers.get(first, 0) + 1
        while (node_id := NodeId(first if number == 1 else f"{first}_{number}")) in self._positions:
            number += 1
        self._numbers[first] = number
        return node_id

    def _condition(self, call: TaskCall, *, is_lenient: bool) -> str | None:
        writer = TemplateWriter(self, f"the condition of {call.label}", is_lenient=is_lenient)
        sources = [
            writer.check_plain_text(condition)
            if isinstance(condition, str)
            else writer.write_expression(condition)
            for condition in call.conditions
        ]
        return sources[0] if len(sources) == 1 else " and ".join(f"({s})" for s in sources) or None

    def _items(self, call: TaskCall, items: object, *, is_lenient: bool) -> str:
        if not isinstance(items, Placeholder | list | tuple):
            raise locate_user_code().build_error(
                f"maps {call.label} over {describe_value(items)}; expected a list, or a result "
                "that is a list"
            )
        subject = f"the list of {call.label}.map"
        absent = "[]" if isinstance(items, Placeholder) else "none"
        source = TemplateWriter(
            self, subject, is_lenient=is_lenient, absent=absent
        ).write_expression(items)
        try:
            compile_expression(source, where="for_each")
        except TemplateSyntaxError:
            raise locate_user_code().build_error(
                f"maps {call.label} over a list that is too long to store in the workflow; let a "
                "task return it, or pass it as input"
            ) from None
        return source

    def _key(self, call: TaskCall) -> str | None:
        """Returns the concurrency key as a template; None if the call has no such option."""
        key = call.options.get("concurrency_key")
        if not isinstance(key, Placeholder):
            return key
        return str(TemplateWriter(self, f"the concurrency_key of {call.label}").write_tree(key))

    def _iterate_explicit_parents(self, call: TaskCall) -> Iterator[NodeId]:
        pending = list(call.after)
        while pending:
            value = pending.pop()
            holder = split_path(value)[0] if isinstance(value, Placeholder) else None
            if isinstance(value, list | tuple):
                pending += value
            elif isinstance(holder, ResultPlaceholder) and get_root(holder) in self._positions:
                yield NodeId(get_root(holder))
            else:
                raise locate_user_code().build_error(
                    f"passes {call.label}.after a value that is not a result of this workflow; "
                    "expected values that calls of tasks returned"
                )


def get_current_trace() -> Trace | None:
    """Returns the trace of the workflow whose body is running; None outside of a workflow."""
    return _current_trace.get()


def _add_parents(node: Node, parents: tuple[NodeId, ...]) -> Node:
    return msgspec.structs.replace(node, dependencies=parents) if parents else node


# Arguments of a call, by parameter name.

CONTEXT_PARAMETER = "ctx"
_METHOD_PARAMETERS = ("self", "cls")


class FunctionParameters:
    """The parameters of a function that workers call with keyword arguments.

    With `has_context`, the parameter `ctx` is left out, because the worker passes it.
    """

    def __init__(self, function: AnyFunction, *, label: str, has_context: bool) -> None:
        signature = inspect.signature(function)
        self.takes_context = has_context and CONTEXT_PARAMETER in signature.parameters
        parameters = [
            parameter
            for name, parameter in signature.parameters.items()
            if not (has_context and name == CONTEXT_PARAMETER)
        ]
        if (
            "." in getattr(function, "__qualname__", "")
            and parameters
            and parameters[0].name in _METHOD_PARAMETERS
        ):
            raise InputError(
                f"{label}: expected a function, got a method; workers have no object to call it "
                "on, so define a function at the top level of a module"
            )
        self.label = label
        self.signature = signature.replace(
            parameters=parameters, return_annotation=inspect.Signature.empty
        )
        for parameter in parameters:
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise InputError(
                    f"{label}: '{parameter.name}' is positional-only, but arguments are passed by "
                    "name; remove the / from the parameters"
                )

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments by name; raises TraceError if they do not fit the signature."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            known = self.signature.parameters
            unknown = next((name for name in kwargs if name not in known), None)
            problem = str(error)
            if unknown is not None:
                problem = f"there is no parameter '{unknown}'{suggest_name(unknown, known)}"
            raise locate_user_code().build_error(
                f"does not fit {self.label}{self.signature}: {problem}"
            ) from None
        arguments: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            match self.signature.parameters[name].kind:
                case inspect.Parameter.VAR_KEYWORD:
                    arguments.update(value)
                case inspect.Parameter.VAR_POSITIONAL:
                    raise locate_user_code().build_error(
                        f"passes values to *{name} of {self.label}, but tasks take named arguments "
                        "only; pass them as one list"
                    )
                case _:
                    arguments[name] = value
        return arguments
