"""`@workflow`: traces a function into the workflow model that the engine runs."""

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import CodeType, FunctionType, ModuleType
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, get_type_hints

import msgspec

from runnel.authoring.calls import AnyFunction
from runnel.authoring.decorators.node_writer import TemplateWriter
from runnel.authoring.decorators.placeholders import (
    DefaultPlaceholder,
    ItemPlaceholder,
    Placeholder,
    ResultPlaceholder,
)
from runnel.authoring.decorators.source_location import (
    collect_notes,
    locate_exception,
    locate_function,
    locate_user_code,
)
from runnel.authoring.decorators.task import TracedCallable, make_item_placeholder
from runnel.authoring.decorators.trace import FunctionParameters, Trace, get_current_trace
from runnel.authoring.decorators.untraceable_code import check_untraceable_code
from runnel.authoring.input_schema import (
    build_input_error,
    find_value_problems,
    is_surely_valid,
)
from runnel.authoring.signatures import compile_signature
from runnel.authoring.single_types import MismatchError, ValueType
from runnel.authoring.storable_values import find_unstorable_path, to_json
from runnel.authoring.type_hints import read_hints
from runnel.authoring.value_types import build_schemas, compile_type
from runnel.core.message_text import describe_value, suggest_name
from runnel.core.retry import RetryPolicy
from runnel.core.validation import find_problems
from runnel.core.validation.checks import RATE_LIMIT_CHECKS, WORKFLOW_CHECKS, find_json_problems
from runnel.core.values import Json
from runnel.core.workflow import CHILD_WORKFLOW, OnFailure, RateLimit, Workflow
from runnel.errors import InputError, InvalidWorkflowError, PayloadError, RunnelError

# The input schema, built from the names, types and defaults of the parameters.

_NO_DEFAULT = inspect.Parameter.empty


def build_input_schema(function: AnyFunction, label: str) -> dict[str, Json] | None:
    """Builds the JSON Schema of the input from a function's parameters.

    Returns None for a function without parameters, which accepts any input. Raises InputError for a
    parameter whose type JSON can't represent.
    """
    parameters = inspect.signature(function).parameters
    if not parameters:
        return None
    hints = _read_type_hints(function, label)
    annotations = {name: hints.get(name, Any) for name in parameters}
    # One call for all types, so that two types with the same name get separate definitions.
    schemas, definitions = _build_schemas(annotations, label)
    required = [name for name, parameter in parameters.items() if parameter.default is _NO_DEFAULT]
    return {
        "type": "object",
        "properties": {
            name: _add_default(schema, parameter)
            for schema, (name, parameter) in zip(schemas, parameters.items(), strict=True)
        },
        **({"required": required} if required else {}),
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }


def collect_defaults(function: AnyFunction) -> Mapping[str, Json]:
    """Returns the default values of parameters as JSON, by name."""
    return {
        name: _to_json(parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not _NO_DEFAULT
    }


def check_parameters(parameters: Iterable[inspect.Parameter], label: str) -> None:
    """Raises InputError for *args, **kwargs, and defaults that are not JSON."""
    for parameter in parameters:
        if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            star = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else "**"
            raise InputError(
                f"workflow {label}: {star}{parameter.name} is not supported, because the input "
                "needs fixed names; write one parameter per value, or take one list or dict"
            )
        if parameter.default is not _NO_DEFAULT:
            for problem in find_json_problems(
                _to_json(parameter.default), f"the default of '{parameter.name}'"
            ):
                raise InputError(f"workflow {label}: {problem}")


def _read_type_hints(function: AnyFunction, label: str) -> Mapping[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise InputError(
            f"workflow {label}: the type hints can't be evaluated: {error}; import their names at "
            "run time, not only for type checkers"
        ) from error


def _build_schemas(
    hints: Mapping[str, Any], label: str
) -> tuple[Sequence[dict[str, Json]], dict[str, Json]]:
    """Returns one schema per hint, and the definitions that the schemas refer to."""
    try:
        return build_schemas(list(hints.values()))
    except TypeError:
        for name, hint in hints.items():
            _check_hint(name, hint, label)
        raise


def _check_hint(name: str, hint: Any, label: str) -> None:
    try:
        build_schemas([hint])
    except TypeError as error:
        shown = getattr(hint, "__name__", str(hint))
        raise InputError(
            f"workflow {label}: the parameter '{name}' has type {shown}, which JSON can't "
            "represent; use a plain type, a TypedDict or a dataclass"
        ) from error


def _add_default(schema: dict[str, Json], parameter: inspect.Parameter) -> dict[str, Json]:
    """Returns the schema of a parameter with its default.

    The default is stored in the input, so `name: str = None` also accepts null.
    """
    if parameter.default is _NO_DEFAULT:
        return schema
    default = _to_json(parameter.default)
    if default is None and not is_surely_valid(schema, None):
        schema = {"anyOf": [schema, {"type": "null"}]}
    return schema | {"default": default}


def _to_json(value: object) -> Json:
    """Converts a value to JSON types.

    Returns the value unchanged if that fails; `check_parameters` then refuses the value.
    """
    try:
        return to_json(value)
    except (TypeError, ValueError, OverflowError):
        return value


P = ParamSpec("P")
# Covariant, so that `print(await runnel.run(flow))` type-checks.
R_co = TypeVar("R_co", covariant=True)

_TRACING_HINT = (
    "while the workflow was traced, before any task ran; move code that needs results into a task"
)


class WorkflowOptions(TypedDict, total=False):
    """The options of `@workflow`. Times are in seconds, or timedeltas."""

    name: str
    on_failure: str
    timeout: float | timedelta
    sla: float | timedelta
    max_concurrency: int
    priority: int
    rate_limits: Mapping[str, RateLimit | float]
    labels: Mapping[str, str]


class TracedWorkflow(TracedCallable, Generic[P, R_co]):
    """A function decorated with `@workflow`.

    A call inside another workflow adds a node that runs this workflow as a child execution.
    `function` is the undecorated function.
    """

    __runnel_kind__ = "workflow"

    def __init__(self, function: Callable[P, R_co], options: Mapping[str, Any]) -> None:
        label = getattr(function, "__name__", None) or repr(function)
        _check_function(function, label)
        super().__init__(label, CHILD_WORKFLOW, {})
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.name = str(options.get("name", label))
        self._location = locate_function(getattr(function, "__code__", None))
        self._fields = _parse_options(options, label)
        self._parameters = FunctionParameters(function, label=label, has_context=False)
        check_parameters(self._parameters.signature.parameters.values(), label)
        self._traced: dict[RetryPolicy, tuple[Workflow, list[object]]] = {}

    def to_workflow(self, *, retry: RetryPolicy | None = None) -> Workflow:
        """Traces the function and returns the model that the engine runs.

        `retry` is the policy of tasks without the option `retries`. Runnel calls the function once
        for each policy and caches the workflow. So the function must build the same graph every
        time. Raises TraceError with the line that can't be traced, and InvalidWorkflowError for a
        graph that can't run.
        """
        policy = retry or RetryPolicy()
        workflow = self._find_traced(policy)
        if workflow is None:
            workflow = self._trace(policy, get_current_trace())
            problems = find_problems(workflow)
            if problems:
                source = f"{self._location.display_path}: workflow {describe_value(self.name)}"
                raise InvalidWorkflowError(problems, source=source)
            self._traced[policy] = workflow, collect_used_objects(self.function)
        return workflow

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Json]:
        """Returns the input of an execution; raises InputError if the arguments do not fit."""
        try:
            bound = self._parameters.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(
                f"{self.label}{self._parameters.signature} does not accept this input: {error}"
            ) from None
        return self.encode_input(bound.arguments)

    def decode_result(self, data: bytes) -> Any:
        """Returns the encoded result of an execution in the type that the function returns.

        Raises PayloadError if the result does not fit the annotation.
        """
        signature = compile_signature(self.function)
        kind = None if signature is None else signature.result
        if kind is None:
            return msgspec.json.decode(data)
        try:
            return kind.decode_json(data, "result")
        except MismatchError as error:
            raise PayloadError(
                f"the execution completed, but its result does not fit the annotation of "
                f"{self.label}: {error}"
            ) from None

    def encode_input(self, arguments: Mapping[str, Any], where: str = "input") -> dict[str, Json]:
        """Returns the arguments as JSON; raises InvalidInputError or PayloadError.

        Arguments of plain types are returned unchanged: the client checks them by the schema.
        `where` names the input in the problems.
        """
        encoded = dict(arguments)
        problems: list[str] = []
        for name, kind in _compile_input_types(self.function).items():
            if arguments.get(name) is None:  # the schema decides whether null fits
                continue
            encoded[name] = _encode_argument(arguments[name], f"{where}.{name}")
            problems += _find_type_problems(kind, encoded[name], f"{where}.{name}")
        if problems:
            schema = build_input_schema(self.function, self.label) or {}
            by_schema = find_value_problems(schema, encoded, where=where)
            raise build_input_error(self.name, by_schema or problems)
        return encoded

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        trace = get_current_trace()
        if trace is None:
            raise InputError(
                f"'{self.label}' is a workflow; run it with {self.label}.run(...), or with 'await "
                f"runnel.run({self.label}, ...)' in async code ({self.label}.function is the plain "
                "function)"
            )
        arguments = self._parameters.bind(args, kwargs)
        return self._add_node(trace, arguments, child=self._trace_child(trace))  # type: ignore[return-value]  # a placeholder for the result

    def when(self, condition: object) -> "TracedWorkflow[P, R_co | None]":
        """Returns a copy that runs only if the condition holds, like `Task.when`."""
        return self._add_condition(condition)

    def map(self, items: Any, *args: Any, **kwargs: Any) -> list[R_co]:
        """Adds a node that runs one child execution per item: `crawl.map(sites)`.

        Each item is passed as the first argument. Returns a placeholder for the list of results, in
        the order of the items. Raises InputError outside of a workflow.
        """
        trace = self._require_trace_for_map()
        arguments = self._parameters.bind((make_item_placeholder(trace), *args), kwargs)
        return self._add_node(trace, arguments, items=items, child=self._trace_child(trace))  # type: ignore[return-value]  # a placeholder for a list

    def _build_config(
        self, writer: TemplateWriter, arguments: Mapping[str, Any]
    ) -> dict[str, Json]:
        return {"input": self._write_arguments(writer, arguments)} if arguments else {}

    def _trace_child(self, trace: Trace) -> Workflow:
        trail = [self.label]
        ancestor: Trace | None = trace
        while ancestor is not None:
            trail.append(ancestor.name)
            if ancestor.name == self.name:
                path = " → ".join(reversed(trail))
                raise locate_user_code().build_error(
                    f"calls a workflow from itself: {path}; recursion is not supported, so loop "
                    "inside a task, or use map"
                )
            ancestor = ancestor.caller
        return self._find_traced(trace.retry) or self._trace(trace.retry, trace)

    def _find_traced(self, retry: RetryPolicy) -> Workflow | None:
        """Returns the cached workflow; None if a test has replaced a task since it was traced."""
        if retry not in self._traced:
            return None
        workflow, former = self._traced[retry]
        used = collect_used_objects(self.function)
        is_same = len(used) == len(former) and all(map(operator.is_, used, former))
        return workflow if is_same else None

    def _trace(self, retry: RetryPolicy, caller: Trace | None) -> Workflow:
        check_untraceable_code(self.function)
        trace = Trace(self.name, retry, caller)
        with trace.activate(), collect_notes() as notes:
            try:
                body: Callable[..., object] = self.function
                returned = body(**self._placeholders(trace))
                output = trace.write_output(returned, self._location)
            except RunnelError:
                raise
            except Exception as error:
                message = f"raised {type(error).__name__}: {error}, {_TRACING_HINT}"
                raise locate_exception(error.__traceback__).build_error(message) from error
            if notes.first_error is not None:  # the body caught the error
                raise notes.first_error
        if not trace.nodes:
            raise self._location.build_error("calls no task; a workflow needs at least one task")
        return Workflow(
            name=self.name,
            nodes=tuple(trace.nodes),
            input=build_input_schema(self.function, self.label),
            output=output,
            **self._fields,
        )

    def _placeholders(self, trace: Trace) -> dict[str, Placeholder]:
        workflow_input = ResultPlaceholder(trace, "input")
        # The client stores the defaults in the input. The templates name them too, so that a
        # definition keeps its hash, which keys of earlier runs and pinned versions refer to.
        defaults = collect_defaults(self.function)
        hints = read_hints(self.function)
        placeholders: dict[str, Placeholder] = {}
        for name in self._parameters.signature.parameters:
            placeholders[name] = ItemPlaceholder(workflow_input, name, hints.get(name))
            if name in defaults:
                placeholders[name] = DefaultPlaceholder(placeholders[name], defaults[name])
        return placeholders


@functools.lru_cache(maxsize=1024)
def _compile_input_types(function: AnyFunction) -> Mapping[str, ValueType]:
    """Returns the types of the parameters that are not plain JSON, by name."""
    kinds = {name: compile_type(hint) for name, hint in read_hints(function).items()}
    return {name: kind for name, kind in kinds.items() if name != "return" and not kind.is_plain}


def _encode_argument(value: object, path: str) -> Json:
    try:
        return to_json(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        path = find_unstorable_path(value, path)
        raise PayloadError(f"{path}: the value can't be stored as JSON: {error}") from error


def _find_type_problems(kind: ValueType, value: Json, path: str) -> list[str]:
    try:
        kind.decode(value, path)
    except MismatchError as error:
        return [str(error)]
    return []


def collect_used_objects(function: AnyFunction) -> list[object]:
    """Returns the objects that the names in a function and in its helpers refer to now.

    Includes attributes of modules, classes and objects, and values of dicts and lists. Follows
    functions, methods and workflows that the function names. No code of the user runs.
    """
    found: list[object] = []
    pending: list[tuple[object, tuple[object, ...]]] = [(function, ())]
    seen: set[tuple[int, ...]] = set()
    while pending:
        current, owners = pending.pop()
        current = current.function if isinstance(current, TracedWorkflow) else current
        key = (id(current), *map(id, owners))
        if not isinstance(current, FunctionType) or key in seen:
            continue
        seen.add(key)
        used = _list_named_objects(current, owners)
        found += [item for item, _ in used]
        pending += used
    return found


# `package.module.Class.task` has three levels below the global name.
_ATTRIBUTE_LEVELS = 3
# The values of larger dicts and lists are hardly tasks.
_VALUES_MAX = 100


def _list_named_objects(
    function: FunctionType, owners: tuple[object, ...]
) -> list[tuple[object, tuple[object, ...]]]:
    """Returns the objects that the names refer to, each with the object whose attribute it is.

    `owners` has the object that `self` is in a method, or is empty.
    """
    names = _list_names(function.__code__)
    level: list[object] = [
        function.__globals__[name] for name in names if name in function.__globals__
    ]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty cell
            level.append(cell.cell_contents)
    used: list[tuple[object, tuple[object, ...]]] = [(item, ()) for item in level]
    level += owners
    for _ in range(_ATTRIBUTE_LEVELS):
        inner = [part for item in level for part in _list_parts(item, names)]
        used += inner
        level = [item for item, _ in inner]
        if not level:
            break
    return used


def _list_parts(
    container: object, names: tuple[str, ...]
) -> list[tuple[object, tuple[object, ...]]]:
    if isinstance(container, dict | list | tuple):
        values = container.values() if isinstance(container, dict) else container
        return [(item, ()) for item in values] if len(container) <= _VALUES_MAX else []
    if isinstance(container, ModuleType):
        return [(vars(container)[name], ()) for name in names if name in vars(container)]
    if isinstance(container, TracedCallable | FunctionType) or not hasattr(container, "__dict__"):
        return []
    parts = ((inspect.getattr_static(container, name, None), (container,)) for name in names)
    return [part for part in parts if part[0] is not None]


@functools.cache
def _list_names(code: CodeType) -> tuple[str, ...]:
    """Returns the global names and attributes in the code, also in functions inside it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return (*code.co_names, *(name for part in inner for name in _list_names(part)))


def _check_function(function: Any, label: str) -> None:
    if isinstance(function, TracedCallable):
        raise InputError(f"@workflow: '{function.label}' is already a {function.__runnel_kind__}")
    if not callable(function) or isinstance(function, type):
        raise InputError(
            f"@workflow: expected a function, got {label}; name the options: @workflow(name=...)"
        )
    if inspect.iscoroutinefunction(function):
        raise InputError(
            f"workflow {label}: expected 'def', got 'async def'; the body only describes the "
            "graph, so remove 'async' and every 'await'"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InputError(f"workflow {label}: a workflow can't yield; return one value")


_DURATION_FIELDS = {"timeout": "timeout_seconds", "sla": "sla_seconds"}


def _parse_options(options: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Returns the fields of the workflow that the options set; raises InputError."""
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in WorkflowOptions.__annotations__:
            known = WorkflowOptions.__annotations__
            hint = suggest_name(name, known) or f"; the options are: {', '.join(known)}"
            raise InputError(f"workflow {label}: there is no option '{name}'{hint}")
        if value is None:
            continue
        fields |= _parse_option(name, value, label)
    return {name: value for name, value in fields.items() if name != "name"}


def _parse_option(name: str, value: Any, label: str) -> dict[str, Any]:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    field = _DURATION_FIELDS.get(name, name)
    check = WORKFLOW_CHECKS.get(field)
    if check is not None and not check.fits(value):
        raise InputError(
            f"workflow {label}: {name}: expected {check.expected}, got {describe_value(value)}"
        )
    if name == "rate_limits":
        return {field: {tag: _parse_rate_limit(tag, item, label) for tag, item in value.items()}}
    if name == "labels":
        return {field: {str(key): str(item) for key, item in value.items()}}
    if name == "on_failure":
        return {field: OnFailure(value)}
    return {field: float(value) if name in _DURATION_FIELDS else value}


def _parse_rate_limit(tag: str, limit: Any, label: str) -> RateLimit:
    """Returns the limit as a RateLimit; a number counts as attempts per second."""
    rate_limit = limit if isinstance(limit, RateLimit) else RateLimit(rate_per_second=limit)
    if not RATE_LIMIT_CHECKS["rate_per_second"].fits(rate_limit.rate_per_second):
        raise InputError(
            f"workflow {label}: rate_limits['{tag}']: expected a number above 0 or a RateLimit, "
            f"got {describe_value(rate_limit.rate_per_second)}"
        )
    return rate_limit
