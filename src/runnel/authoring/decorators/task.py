"""`@task`: a function whose calls in a workflow become nodes, and which is itself elsewhere."""

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from string import Formatter
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from runnel.authoring.calls import AUTO
from runnel.authoring.decorators.node_writer import TemplateWriter
from runnel.authoring.decorators.placeholders import (
    Constant,
    DefaultPlaceholder,
    ExpressionPart,
    ItemPlaceholder,
    Placeholder,
    ResultPlaceholder,
    Text,
)
from runnel.authoring.decorators.source_location import locate_user_code
from runnel.authoring.decorators.trace import (
    NO_ITEMS,
    FunctionParameters,
    NodeOptions,
    TaskCall,
    Trace,
    check_options,
    get_current_trace,
)
from runnel.authoring.functions import resolve_function_name
from runnel.core.values import Json
from runnel.core.wording import describe_value
from runnel.core.workflow import SLEEP, WAIT_FOR_SIGNAL, Workflow
from runnel.errors import InputError

# The base of tasks, workflows and built-in waits: options, conditions, order, maps.


class TracedCallable:
    """`label` is its name in messages and ids; each change makes a new one."""

    __runnel_kind__ = "task"

    def __init__(self, label: str, handler: str, options: Mapping[str, Any]) -> None:
        self.label = label
        self.handler = handler
        self._options = check_options(options, label=label)
        self._conditions: tuple[object, ...] = ()
        self._after: tuple[object, ...] = ()

    def options(self, **options: Unpack[NodeOptions]) -> Self:
        """The same with other options, for one call: `fetch.options(retries=5)(url)`."""
        try:
            new = check_options(options, label=self.label)
            self._check_mode(new)
        except InputError as error:
            raise _build_error(f"has a wrong option: {error}") from None
        return self._copy_with(_options={**self._options, **new})

    def after(self, *results: object) -> Self:
        """Runs after these as well, though it takes nothing from them."""
        return self._copy_with(_after=(*self._after, *results))

    def when(self, condition: object) -> Self:
        """Runs only if the condition holds then, otherwise it is skipped, and its result is None.

        A comparison of results, or a text in the language of `condition` in a document.
        """
        if isinstance(condition, Text) or not isinstance(condition, Placeholder | str | bool):
            raise _build_error(
                f"has a wrong condition: {self.label}.when: expected a comparison of results, such "
                f"as page['size'] > 3, got {describe_value(condition)}"
            )
        return self._copy_with(_conditions=(*self._conditions, condition))

    def _check_mode(self, options: Mapping[str, Any]) -> None:
        if "mode" in options:
            raise InputError(f"{self.label}: mode: only functions have one; remove it")

    def _copy_with(self, **fields: object) -> Self:
        changed = copy.copy(self)
        vars(changed).update(fields)
        return changed

    def _add_node(
        self,
        trace: Trace,
        arguments: Mapping[str, Any],
        *,
        items: object = NO_ITEMS,
        child: Workflow | None = None,
    ) -> ResultPlaceholder:
        call = TaskCall(
            label=self.label,
            handler=self.handler,
            options=self._options,
            conditions=tuple(
                str(condition).lower() if isinstance(condition, bool) else condition
                for condition in self._conditions
            ),
            after=self._after,
            child=child,
        )
        return trace.add_node(call, lambda writer: self._build_config(writer, arguments), items)

    def _build_config(
        self, writer: TemplateWriter, arguments: Mapping[str, Any]
    ) -> dict[str, Json]:
        """The arguments as the handler's settings."""
        return self._write_arguments(writer, arguments)

    def _write_arguments(
        self, writer: TemplateWriter, arguments: Mapping[str, Any]
    ) -> dict[str, Json]:
        return {
            name: writer.with_subject(f"argument '{name}' of {self.label}").write_tree(value)
            for name, value in arguments.items()
        }

    def _require_trace_for_map(self) -> Trace:
        trace = get_current_trace()
        if trace is None:
            raise InputError(
                f"{self.label}.map: maps are made inside a @workflow; elsewhere write "
                f"[{self.label}(item) for item in items]"
            )
        return trace


def _build_error(problem: str) -> InputError:
    """With its line when it is one of a workflow."""
    return (
        InputError(problem)
        if get_current_trace() is None
        else locate_user_code().build_error(problem)
    )


class TracedHandler(TracedCallable):
    """`handler("resize")(width=3)`: a node of a handler that is known by its name."""

    def __init__(self, name: str, /, **options: Unpack[NodeOptions]) -> None:
        super().__init__(name, name, options)
        self._check_mode(self._options)

    def __call__(self, **config: Any) -> Any:
        """Its config; what it will give."""
        trace = get_current_trace()
        if trace is None:
            raise InputError(f"{self.label}: this handler is called inside a @workflow only")
        return self._add_node(trace, config)

    def map(self, items: Any, **config: Any) -> list[Any]:
        """One task for each item, which `runnel.item` stands for in the config."""
        trace = self._require_trace_for_map()
        return self._add_node(trace, config, items=items)  # type: ignore[return-value]  # a list when it runs


def make_item_placeholder(trace: Trace) -> Placeholder:
    """What stands for one item of a map."""
    return ResultPlaceholder(trace, "item")


P = ParamSpec("P")
R = TypeVar("R")

PYTHON_HANDLER = "python"


class Task(TracedCallable, Generic[P, R]):
    """Inside a workflow a call adds a node and returns what stands for its result.

    Outside of one it calls the plain function, which is `function`.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        label = getattr(function, "__name__", None) or repr(function)
        _check_function(function, label)
        super().__init__(label, PYTHON_HANDLER, options)
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._parameters = FunctionParameters(function, label=label, has_context=True)

    @property
    def function(self) -> Callable[P, R]:
        return self._function

    @property
    def __runnel_function__(self) -> Callable[P, R]:  # how `locate` finds it
        return self._function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        trace = get_current_trace()
        if trace is None:
            return self._function(*args, **kwargs)  # type: ignore[no-any-return]  # of the user's function
        return self._add_node(trace, self._parameters.bind(args, kwargs))  # type: ignore[return-value]  # its place is taken until then

    def map(self, items: Any, *args: Any, **kwargs: Any) -> list[R]:
        """One task for each item of a list that is known only when the workflow runs.

        The item is the first argument, the others are the same for all; the results are in the
        order of the items.
        """
        trace = self._require_trace_for_map()
        arguments = self._parameters.bind((make_item_placeholder(trace), *args), kwargs)
        return self._add_node(trace, arguments, items=items)  # type: ignore[return-value]  # a list when it runs

    def _check_mode(self, options: Mapping[str, Any]) -> None:
        """Each function may have one."""

    def _build_config(
        self, writer: TemplateWriter, arguments: Mapping[str, Any]
    ) -> dict[str, Json]:
        try:
            name = resolve_function_name(self._function)
        except InputError as error:
            raise locate_user_code().build_error(
                f"calls a task that no worker could find: {error}"
            ) from None
        config: dict[str, Json] = {"function": name}
        if arguments:
            config["args"] = self._write_arguments(writer, arguments)
        mode = self._options.get("mode", AUTO)
        return config if mode == AUTO else config | {"mode": mode}


class AsyncTask(Task[P, R]):
    """A task of an async function: in a workflow its result is not awaited."""

    @property
    def function(self) -> Callable[P, Coroutine[Any, Any, R]]:  # type: ignore[override]  # what a call gives differs
        return self._function


class TaskDecorator:
    """`task(...)` with options, before it has its function."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        kind = AsyncTask if inspect.iscoroutinefunction(function) else Task
        return kind(function, self._options)


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(**options: Unpack[NodeOptions]) -> TaskDecorator: ...
def task(function: Callable[..., Any] | None = None, /, **options: Unpack[NodeOptions]) -> Any:
    """`@task` or `@task(retries=3, timeout=30)` above a function at the top level of a module."""
    decorate = TaskDecorator(options)
    return decorate if function is None else decorate(function)


def _check_function(function: Any, label: str) -> None:
    if isinstance(function, TracedCallable):
        raise InputError(f"@task: '{function.label}' is a {function.__runnel_kind__} already")
    if not callable(function) or isinstance(function, type):
        raise InputError(
            f"@task: expected a function, got {label}; options are written @task(retries=3)"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InputError(f"{label}: a task returns its result as a whole: return a list, no yield")


# Functions that a workflow's body can apply to results.

SECRETS_ROOT = "secrets"


def text(pattern: str, /, *args: Any, **kwargs: Any) -> str:
    """`text("Hello {}!", page["name"])`: as `str.format`, with results that are not there yet.

    Outside of a workflow it is `str.format` itself.
    """
    trace = get_current_trace()
    if trace is None:
        return pattern.format(*args, **kwargs)
    parts: list[ExpressionPart] = []
    position = 0
    for literal, name, form, conversion in Formatter().parse(pattern):
        if literal:
            parts.append(literal)
        if name is None:
            continue
        if form or conversion:
            raise locate_user_code().build_error(
                f"formats '{{{name}}}' in a way that only Python knows; write {{}} alone, or make "
                "the text in a task"
            )
        position += not name
        parts.append(_get_format_argument(name or str(position - 1), args, kwargs))
    return Text(trace, tuple(parts))  # type: ignore[return-value]  # a text when it runs


def default(result: Any, value: Any) -> Any:
    """The result, or the value when there is none: its task was skipped, or has no such item."""
    if not isinstance(result, Placeholder):
        return result
    return DefaultPlaceholder(result, value)


def item() -> Any:
    """What stands for one item inside `handler(...).map(items, …)`."""
    return make_item_placeholder(_require_trace("item"))


def secret(name: str) -> Any:
    """What stands for a secret that only the worker knows, in an argument of a task.

    `text("Bearer {}", secret("shop_token"))`: it is never stored, and filled in when the task runs.
    """
    return ItemPlaceholder(ResultPlaceholder(_require_trace("secret"), SECRETS_ROOT), name)


class Sleep(TracedHandler):
    """`sleep(30)`: waits, and occupies no worker meanwhile."""

    def __init__(self) -> None:
        super().__init__(SLEEP)

    def __call__(self, seconds: Any) -> Any:  # type: ignore[override]  # its one setting
        return super().__call__(seconds=seconds)


class WaitForSignal(TracedHandler):
    """`wait_for_signal("approve", timeout=3600)`: gives the signal's payload.

    With `on_timeout="complete"` it gives null when no signal came in time, otherwise it fails.
    """

    def __init__(self) -> None:
        super().__init__(WAIT_FOR_SIGNAL)

    def __call__(  # type: ignore[override]  # its settings by name
        self, signal: Any, *, timeout: Any = None, on_timeout: str | None = None
    ) -> Any:
        settings = {"timeout_seconds": timeout, "on_timeout": on_timeout}
        config = {name: value for name, value in settings.items() if value is not None}
        return super().__call__(signal=signal, **config)


sleep = Sleep()
wait_for_signal = WaitForSignal()
handler = TracedHandler


def _get_format_argument(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ExpressionPart:
    try:
        value = args[int(name)] if name.isdecimal() else kwargs[name]
    except (IndexError, KeyError):
        raise locate_user_code().build_error(
            f"has nothing to put into '{{{name}}}'; give it as argument"
        ) from None
    if isinstance(value, Placeholder):
        return value
    return str(value) if isinstance(value, str | int | float) else Constant(value)


def _require_trace(name: str) -> Trace:
    trace = get_current_trace()
    if trace is None:
        raise InputError(f"runnel.{name} is for the body of a @workflow")
    return trace
