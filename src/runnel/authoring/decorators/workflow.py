"""`@workflow`: a function whose body is traced into the model that the engine runs."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, get_type_hints

import msgspec

from runnel.authoring.calls import AnyFunction
from runnel.authoring.decorators.node_writer import Writer
from runnel.authoring.decorators.placeholders import Default, Item, Placeholder, Result
from runnel.authoring.decorators.result_types import check_questions
from runnel.authoring.decorators.source_location import here, noting, raised_at, start_of
from runnel.authoring.decorators.task import Callee, item_of
from runnel.authoring.decorators.trace import Parameters, Trace, current
from runnel.core.validation import find_problems
from runnel.core.validation.checks import RATE_LIMIT, WORKFLOW, json_problems
from runnel.core.values import Json
from runnel.core.wording import did_you_mean, shown
from runnel.core.workflow import CHILD_WORKFLOW, OnFailure, RateLimit, RetryPolicy, Workflow
from runnel.errors import InputError, InvalidWorkflowError, RunnelError

# The input of a decorated workflow, from its signature: names, types and defaults.

_EMPTY = inspect.Parameter.empty


def input_schema(function: AnyFunction, label: str) -> dict[str, Json] | None:
    """A JSON Schema; None for a workflow without parameters, which takes any input.

    Raises InputError for a parameter that no JSON value fits.
    """
    parameters = inspect.signature(function).parameters
    if not parameters:
        return None
    hints = _hints(function, label)
    wanted = {name: hints.get(name, Any) for name in parameters}
    # All at once, so that two types of one name get a definition each.
    schemas, definitions = _schemas(wanted, label)
    required = [name for name, each in parameters.items() if each.default is _EMPTY]
    return {
        "type": "object",
        "properties": {
            name: schema | _default(each)
            for schema, (name, each) in zip(schemas, parameters.items(), strict=True)
        },
        **({"required": required} if required else {}),
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }


def defaults_of(function: AnyFunction) -> Mapping[str, Json]:
    """Of the parameters that have one, as JSON."""
    return {
        name: _as_json(each.default)
        for name, each in inspect.signature(function).parameters.items()
        if each.default is not _EMPTY
    }


def check_parameters(parameters: Iterable[inspect.Parameter], label: str) -> None:
    """Raises InputError for what an object of named values can't fill."""
    for each in parameters:
        if each.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            star = "*" if each.kind is inspect.Parameter.VAR_POSITIONAL else "**"
            raise InputError(
                f"workflow {label}: {star}{each.name}: the input of a workflow has names that are "
                "known before; write each as a parameter, or take one list or dict"
            )
        if each.default is not _EMPTY:
            for problem in json_problems(_as_json(each.default), f"the default of '{each.name}'"):
                raise InputError(f"workflow {label}: {problem}")


def _hints(function: AnyFunction, label: str) -> Mapping[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise InputError(
            f"workflow {label}: its type hints can't be read: {error}; import the names that they "
            "use, also at run time"
        ) from error


def _schemas(
    wanted: Mapping[str, Any], label: str
) -> tuple[Sequence[dict[str, Json]], dict[str, Json]]:
    """One for each, and the definitions that they refer to."""
    try:
        return _components(list(wanted.values()))
    except TypeError:
        for name, hint in wanted.items():
            _check(name, hint, label)
        raise


def _check(name: str, hint: Any, label: str) -> None:
    try:
        _components([hint])
    except TypeError as error:
        shown = getattr(hint, "__name__", str(hint))
        raise InputError(
            f"workflow {label}: the input '{name}' is a {shown}, which JSON can't hold; "
            "use a plain type, a TypedDict or a dataclass"
        ) from error


def _components(hints: list[Any]) -> tuple[Sequence[dict[str, Json]], dict[str, Json]]:
    return msgspec.json.schema_components(hints, ref_template="#/$defs/{name}")


def _default(parameter: inspect.Parameter) -> dict[str, Json]:
    return {} if parameter.default is _EMPTY else {"default": _as_json(parameter.default)}


def _as_json(value: object) -> Json:
    """The value itself where that can't be done: it is refused with its name then."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return value


P = ParamSpec("P")
R = TypeVar("R")

_UNTRACED = (
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


class TracedWorkflow(Callee, Generic[P, R]):
    """Called inside another workflow, it becomes a node that runs it as a child execution."""

    __runnel_kind__ = "workflow"

    def __init__(self, function: Callable[P, R], options: Mapping[str, Any]) -> None:
        label = getattr(function, "__name__", None) or repr(function)
        _check_function(function, label)
        super().__init__(label, CHILD_WORKFLOW, {})
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.name = str(options.get("name", label))
        self._spot = start_of(getattr(function, "__code__", None))
        self._fields = _fields(options, label)
        self._parameters = Parameters(function, label=label, has_context=False)
        check_parameters(self._parameters.signature.parameters.values(), label)
        self._traced: dict[RetryPolicy, Workflow] = {}

    def to_workflow(self, *, retry: RetryPolicy | None = None) -> Workflow:
        """The model that the engine runs; `retry` fills in what tasks do not say about theirs.

        Raises TraceError with the line that can't be traced, and InvalidWorkflowError for a graph
        that can't run. The body is run once: it must give the same graph every time.
        """
        policy = retry or RetryPolicy()
        found = self._traced.get(policy)
        if found is None:
            found = self._trace(policy, current())
            problems = find_problems(found)
            if problems:
                source = f"{self._spot.shown_file}: workflow {shown(self.name)}"
                raise InvalidWorkflowError(problems, source=source)
            self._traced[policy] = found
        return found

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
        trace = current()
        if trace is None:
            raise InputError(
                f"'{self.label}' is a workflow: write {self.label}.run(...), or 'await "
                f"runnel.run({self.label}, ...)' in async code; {self.label}.function is the plain "
                "function"
            )
        given = self._parameters.bind(args, kwargs)
        return self._add(trace, given, child=self._child(trace))  # type: ignore[return-value]  # its place is taken until then

    def map(self, items: Any, *args: Any, **kwargs: Any) -> list[R]:
        """One child execution for each item, which is the first argument."""
        trace = self._trace_of_map()
        given = self._parameters.bind((item_of(trace), *args), kwargs)
        return self._add(trace, given, items=items, child=self._child(trace))  # type: ignore[return-value]  # a list when it runs

    def _config(self, writer: Writer, given: Mapping[str, Any]) -> dict[str, Json]:
        return {"input": self._written(writer, given)} if given else {}

    def _child(self, trace: Trace) -> Workflow:
        trail = [self.label]
        around: Trace | None = trace
        while around is not None:
            trail.append(around.name)
            if around.name == self.name:
                path = " → ".join(reversed(trail))
                raise here().refusal(
                    f"calls a workflow inside itself: {path}; a graph has an end: repeat inside a "
                    "task, or use map"
                )
            around = around.around
        return self._traced.get(trace.retry) or self._trace(trace.retry, trace)

    def _trace(self, retry: RetryPolicy, around: Trace | None) -> Workflow:
        check_questions(self.function)
        trace = Trace(self.name, retry, around)
        with trace.running(), noting() as notes:
            try:
                body: Callable[..., object] = self.function
                returned = body(**self._placeholders(trace))
                output = trace.output(returned, self._spot)
            except RunnelError:
                raise
            except Exception as error:
                message = f"raised {type(error).__name__}: {error}, {_UNTRACED}"
                raise raised_at(error.__traceback__).refusal(message) from error
            if notes.refused is not None:  # the body has caught it
                raise notes.refused
        if not trace.nodes:
            raise self._spot.refusal("calls no task; a workflow needs at least one")
        return Workflow(
            name=self.name,
            nodes=tuple(trace.nodes),
            input=input_schema(self.function, self.label),
            output=output,
            **self._fields,
        )

    def _placeholders(self, trace: Trace) -> dict[str, Placeholder]:
        given = Result(trace, "input")
        defaults = defaults_of(self.function)
        found: dict[str, Placeholder] = {}
        for name in self._parameters.signature.parameters:
            found[name] = Item(given, name)
            if name in defaults:
                found[name] = Default(found[name], defaults[name])
        return found


def _check_function(function: Any, label: str) -> None:
    if isinstance(function, Callee):
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


_NAMES = {"timeout": "timeout_seconds", "sla": "sla_seconds"}


def _fields(options: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Raises InputError, which names the option."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in WorkflowOptions.__annotations__:
            known = WorkflowOptions.__annotations__
            hint = did_you_mean(name, known) or f"; there are: {', '.join(known)}"
            raise InputError(f"workflow {label}: there is no option '{name}'{hint}")
        if value is None:
            continue
        found |= _field(name, value, label)
    return {name: value for name, value in found.items() if name != "name"}


def _field(name: str, value: Any, label: str) -> dict[str, Any]:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    field = _NAMES.get(name, name)
    check = WORKFLOW.get(field)
    if check is not None and not check.fits(value):
        raise InputError(f"workflow {label}: {name}: expected {check.expected}, got {shown(value)}")
    if name == "rate_limits":
        return {field: {tag: _rate_limit(tag, each, label) for tag, each in value.items()}}
    if name == "labels":
        return {field: {str(key): str(each) for key, each in value.items()}}
    if name == "on_failure":
        return {field: OnFailure(value)}
    return {field: float(value) if name in _NAMES else value}


def _rate_limit(tag: str, limit: Any, label: str) -> RateLimit:
    """A number is so many a second."""
    found = limit if isinstance(limit, RateLimit) else RateLimit(rate_per_second=limit)
    if not RATE_LIMIT["rate_per_second"].fits(found.rate_per_second):
        raise InputError(
            f"workflow {label}: rate_limits['{tag}']: expected a number above 0 or a RateLimit, "
            f"got {shown(found.rate_per_second)}"
        )
    return found
