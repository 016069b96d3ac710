"""`@workflow`: a function whose body is traced into the model that the engine runs."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
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
from runnel.authoring.decorators.result_types import check_untraceable_code
from runnel.authoring.decorators.source_location import (
    collect_notes,
    locate_exception,
    locate_function,
    locate_user_code,
)
from runnel.authoring.decorators.task import TracedCallable, make_item_placeholder
from runnel.authoring.decorators.trace import FunctionParameters, Trace, get_current_trace
from runnel.core.retry import RetryPolicy
from runnel.core.validation import find_problems
from runnel.core.validation.checks import RATE_LIMIT_CHECKS, WORKFLOW_CHECKS, find_json_problems
from runnel.core.values import Json
from runnel.core.wording import describe_value, suggest_name
from runnel.core.workflow import CHILD_WORKFLOW, OnFailure, RateLimit, Workflow
from runnel.errors import InputError, InvalidWorkflowError, RunnelError

# The input schema, from the signature: names, types and defaults.

_NO_DEFAULT = inspect.Parameter.empty


def build_input_schema(function: AnyFunction, label: str) -> dict[str, Json] | None:
    """A JSON Schema; None for a workflow without parameters, which takes any input.

    Raises InputError for a parameter that no JSON value fits.
    """
    parameters = inspect.signature(function).parameters
    if not parameters:
        return None
    hints = _read_type_hints(function, label)
    annotations = {name: hints.get(name, Any) for name in parameters}
    # All at once, so that two types of one name get a definition each.
    schemas, definitions = _build_schemas(annotations, label)
    required = [name for name, parameter in parameters.items() if parameter.default is _NO_DEFAULT]
    return {
        "type": "object",
        "properties": {
            name: schema | _build_default(parameter)
            for schema, (name, parameter) in zip(schemas, parameters.items(), strict=True)
        },
        **({"required": required} if required else {}),
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }


def collect_defaults(function: AnyFunction) -> Mapping[str, Json]:
    """Of the parameters that have one, as JSON."""
    return {
        name: _to_json(parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not _NO_DEFAULT
    }


def check_parameters(parameters: Iterable[inspect.Parameter], label: str) -> None:
    """Raises InputError for what an object of named values can't fill."""
    for parameter in parameters:
        if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            star = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else "**"
            raise InputError(
                f"workflow {label}: {star}{parameter.name}: the input of a workflow has names that "
                "are known before; write each as a parameter, or take one list or dict"
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
            f"workflow {label}: its type hints can't be read: {error}; import the names that they "
            "use, also at run time"
        ) from error


def _build_schemas(
    hints: Mapping[str, Any], label: str
) -> tuple[Sequence[dict[str, Json]], dict[str, Json]]:
    """One for each, and the definitions that they refer to."""
    try:
        return _build_schema_components(list(hints.values()))
    except TypeError:
        for name, hint in hints.items():
            _check_hint(name, hint, label)
        raise


def _check_hint(name: str, hint: Any, label: str) -> None:
    try:
        _build_schema_components([hint])
    except TypeError as error:
        shown = getattr(hint, "__name__", str(hint))
        raise InputError(
            f"workflow {label}: the input '{name}' is a {shown}, which JSON can't hold; "
            "use a plain type, a TypedDict or a dataclass"
        ) from error


def _build_schema_components(hints: list[Any]) -> tuple[Sequence[dict[str, Json]], dict[str, Json]]:
    return msgspec.json.schema_components(hints, ref_template="#/$defs/{name}")


def _build_default(parameter: inspect.Parameter) -> dict[str, Json]:
    return {} if parameter.default is _NO_DEFAULT else {"default": _to_json(parameter.default)}


def _to_json(value: object) -> Json:
    """The value itself where that can't be done: it is refused with its name then."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return value


P = ParamSpec("P")
R = TypeVar("R")

_TRACING_HINT = (
    "while the workflow was traced, before anything has run: what needs results belongs into a task"
)


class WorkflowOptions(TypedDict, total=False):
    """The fields of a workflow; times are in seconds, or timedeltas."""

    name: str
    on_failure: str
    timeout: float | timedelta
    sla: float | timedelta
    max_concurrency: int
    rate_limits: Mapping[str, RateLimit | float]
    labels: Mapping[str, str]


class TracedWorkflow(TracedCallable, Generic[P, R]):
    """Called inside another workflow, it becomes a node that runs it as a child execution."""

    __runnel_kind__ = "workflow"

    def __init__(self, function: Callable[P, R], options: Mapping[str, Any]) -> None:
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
        self._traced: dict[RetryPolicy, Workflow] = {}

    def to_workflow(self, *, retry: RetryPolicy | None = None) -> Workflow:
        """The model that the engine runs; `retry` fills in what tasks do not say about theirs.

        Raises TraceError with the line that can't be traced, and InvalidWorkflowError for a graph
        that can't run. The body is run once: it must give the same graph every time.
        """
        policy = retry or RetryPolicy()
        workflow = self._traced.get(policy)
        if workflow is None:
            workflow = self._trace(policy, get_current_trace())
            problems = find_problems(workflow)
            if problems:
                source = f"{self._location.display_path}: workflow {describe_value(self.name)}"
                raise InvalidWorkflowError(problems, source=source)
            self._traced[policy] = workflow
        return workflow

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Json]:
        """The input of an execution; raises InputError as a call of the function would."""
        try:
            bound = self._parameters.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(
                f"{self.label}{self._parameters.signature} can't be run with this input: {error}"
            ) from None
        return dict(bound.arguments)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        trace = get_current_trace()
        if trace is None:
            raise InputError(
                f"'{self.label}' is a workflow: write {self.label}.run(...), or 'await "
                f"runnel.run({self.label}, ...)' in async code; {self.label}.function is the plain "
                "function"
            )
        arguments = self._parameters.bind(args, kwargs)
        return self._add_node(trace, arguments, child=self._trace_child(trace))  # type: ignore[return-value]  # its place is taken until then

    def map(self, items: Any, *args: Any, **kwargs: Any) -> list[R]:
        """One child execution for each item, which is the first argument."""
        trace = self._require_trace_for_map()
        arguments = self._parameters.bind((make_item_placeholder(trace), *args), kwargs)
        return self._add_node(trace, arguments, items=items, child=self._trace_child(trace))  # type: ignore[return-value]  # a list when it runs

    def _build_config(
        self, writer: TemplateWriter, arguments: Mapping[str, Any]
    ) -> dict[str, Json]:
        return {"input": self._write_arguments(writer, arguments)} if arguments else {}

    def _trace_child(self, trace: Trace) -> Workflow:
        trail = [self.label]
        around: Trace | None = trace
        while around is not None:
            trail.append(around.name)
            if around.name == self.name:
                path = " → ".join(reversed(trail))
                raise locate_user_code().build_error(
                    f"calls a workflow inside itself: {path}; a graph has an end: repeat inside a "
                    "task, or use map"
                )
            around = around.caller
        return self._traced.get(trace.retry) or self._trace(trace.retry, trace)

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
            if notes.first_error is not None:  # the body has caught it
                raise notes.first_error
        if not trace.nodes:
            raise self._location.build_error("calls no task; a workflow needs at least one")
        return Workflow(
            name=self.name,
            nodes=tuple(trace.nodes),
            input=build_input_schema(self.function, self.label),
            output=output,
            **self._fields,
        )

    def _placeholders(self, trace: Trace) -> dict[str, Placeholder]:
        workflow_input = ResultPlaceholder(trace, "input")
        defaults = collect_defaults(self.function)
        placeholders: dict[str, Placeholder] = {}
        for name in self._parameters.signature.parameters:
            placeholders[name] = ItemPlaceholder(workflow_input, name)
            if name in defaults:
                placeholders[name] = DefaultPlaceholder(placeholders[name], defaults[name])
        return placeholders


def _check_function(function: Any, label: str) -> None:
    if isinstance(function, TracedCallable):
        raise InputError(f"@workflow: '{function.label}' is a {function.__runnel_kind__} already")
    if not callable(function) or isinstance(function, type):
        raise InputError(
            f"@workflow: expected a function, got {label}; options are written @workflow(name=...)"
        )
    if inspect.iscoroutinefunction(function):
        raise InputError(
            f"workflow {label}: its body only says what runs after what, so it awaits nothing; "
            "write 'def' instead of 'async def', and remove 'await'"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InputError(f"workflow {label}: it returns its result as a whole; remove 'yield'")


_DURATION_FIELDS = {"timeout": "timeout_seconds", "sla": "sla_seconds"}


def _parse_options(options: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Raises InputError, which names the option."""
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in WorkflowOptions.__annotations__:
            known = WorkflowOptions.__annotations__
            hint = suggest_name(name, known) or f"; there are: {', '.join(known)}"
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
    """A number is so many a second."""
    rate_limit = limit if isinstance(limit, RateLimit) else RateLimit(rate_per_second=limit)
    if not RATE_LIMIT_CHECKS["rate_per_second"].fits(rate_limit.rate_per_second):
        raise InputError(
            f"workflow {label}: rate_limits['{tag}']: expected a number above 0 or a RateLimit, "
            f"got {describe_value(rate_limit.rate_per_second)}"
        )
    return rate_limit
