"""`@task`, and the functions for the body of a workflow: handler, sleep, text, default and more."""

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from string import Formatter
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from runnel.authoring.calls import AUTO, Mode, is_async, resolve_mode
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
from runnel.authoring.signatures import read_result_annotation
from runnel.core.message_text import describe_value
from runnel.core.values import Json
from runnel.core.workflow import SLEEP, WAIT_FOR_SIGNAL, Workflow
from runnel.errors import InputError

# The base class of tasks, workflows and handlers: options, conditions, order and maps.


class TracedCallable:
    """Base class of everything whose call in a workflow adds a node: tasks, workflows, handlers.

    Immutable: `options`, `after` and `when` return a changed copy. `label` names the callable in
    messages and node ids.
    """

    __runnel_kind__ = "task"

    def __init__(self, label: str, handler: str, options: Mapping[str, Any]) -> None:
        self.label = label
        self.handler = handler
        self._options = check_options(options, label=label)
        self._conditions: tuple[object, ...] = ()
        self._after: tuple[object, ...] = ()

    def options(self, **options: Unpack[NodeOptions]) -> Self:
        """Returns a copy with changed options: `fetch.options(retries=5)(url)`.

        Accepts the options of `@task`. Raises InputError for an unknown or wrong option.
        """
        try:
            changed = {**self._options, **check_options(options, label=self.label)}
            self._check_options(changed)
        except InputError as error:
            raise _build_error(f"has an invalid option: {error}") from None
        return self._copy_with(_options=changed)

    def after(self, *results: object) -> Self:
        """Returns a copy that also waits for these results: `notify.after(saved)(user)`.

        Use `after` for an order that the arguments do not express.
        """
        return self._copy_with(_after=(*self._after, *results))

    def _add_condition(self, condition: object) -> Self:
        if isinstance(condition, Text) or not isinstance(condition, Placeholder | str | bool):
            raise _build_error(
                f"has an invalid condition: {self.label}.when: expected a comparison of results, "
                f"such as page['size'] > 3, got {describe_value(condition)}"
            )
        return self._copy_with(_conditions=(*self._conditions, condition))

    def _check_options(self, options: Mapping[str, Any]) -> None:
        if "mode" in options:
            raise InputError(f"{self.label}: only a @task has the option 'mode'; remove it")

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
            annotation=self._get_result_annotation(is_map=items is not NO_ITEMS),
        )
        return trace.add_node(call, lambda writer: self._build_config(writer, arguments), items)

    def _get_result_annotation(self, *, is_map: bool) -> Any:
        """Returns the type of the node's result; None if the type is not known."""
        function = getattr(self, "function", None)
        annotation = None if function is None else read_result_annotation(function)
        return annotation if annotation is None or not is_map else list[annotation]  # type: ignore[valid-type]  # a type at run time

    def _build_config(
        self, writer: TemplateWriter, arguments: Mapping[str, Any]
    ) -> dict[str, Json]:
        """Turns the arguments of a call into the config of the node."""
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
                f"{self.label}.map works only inside a @workflow; elsewhere write "
                f"[{self.label}(item) for item in items]"
            )
        return trace


def _build_error(problem: str) -> InputError:
    """Builds an error that names the line of code, if a workflow is being traced."""
    return (
        InputError(problem)
        if get_current_trace() is None
        else locate_user_code().build_error(problem)
    )


class TracedHandler(TracedCallable):
    """A handler by name, to be called in a workflow: `handler("resize")(width=3)`.

    Use `handler` for built-in handlers such as "call_external_service", and for handlers of a
    HandlerRegistry. `options` are the options of `@task`, without `mode`.
    """

    def __init__(self, name: str, /, **options: Unpack[NodeOptions]) -> None:
        super().__init__(name, name, options)
        self._check_options(self._options)

    def when(self, condition: object) -> Self:
        """Returns a copy that runs only if the condition holds, like `Task.when`."""
        return self._add_condition(condition)

    def __call__(self, **config: Any) -> Any:
        """Adds a node with this config, and returns a placeholder for its result.

        Raises InputError outside of a workflow.
        """
        trace = get_current_trace()
        if trace is None:
            raise InputError(f"{self.label}: a handler can be called only inside a @workflow")
        return self._add_node(trace, config)

    def map(self, items: Any, **config: Any) -> list[Any]:
        """Adds a node that runs the handler once per item; `runnel.item()` is the item.

            handler("resize").map(paths, path=runnel.item(), width=100)

        Returns a placeholder for the list of results, in the order of the items.
        """
        trace = self._require_trace_for_map()
        return self._add_node(trace, config, items=items)  # type: ignore[return-value]  # a placeholder for a list


def make_item_placeholder(trace: Trace) -> Placeholder:
    """Returns the placeholder for the current item of a map."""
    return ResultPlaceholder(trace, "item")


P = ParamSpec("P")
R = TypeVar("R")

PYTHON_HANDLER = "python"


class Task(TracedCallable, Generic[P, R]):
    """A function decorated with `@task`.

    Inside a workflow, a call adds a node and returns a placeholder for its result. Outside of a
    workflow, a call runs the function, so that tests can call the task directly. `function` is the
    undecorated function.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        label = getattr(function, "__name__", None) or repr(function)
        _check_function(function, label)
        super().__init__(label, PYTHON_HANDLER, options)
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._parameters = FunctionParameters(function, label=label, has_context=True)
        self._check_options(self._options)

    @property
    def function(self) -> Callable[P, R]:
        return self._function

    @property
    def __runnel_function__(self) -> Callable[P, R]:  # `import_function` reads it
        return self._function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        trace = get_current_trace()
        if trace is None:
            return self._function(*args, **kwargs)  # type: ignore[no-any-return]  # the type of the user's function
        return self._add_node(trace, self._parameters.bind(args, kwargs))  # type: ignore[return-value]  # a placeholder for the result

    def when(self, condition: object) -> "Task[P, R | None]":
        """Returns a copy that runs only if the condition holds: `parse.when(page["size"] > 3)`.

        If the condition is false, the node is skipped, and its result is None. The condition is a
        comparison of results, or a text in the expression language of workflow files, such as
        "'x' in fetch.tags". Raises InputError for any other type.
        """
        return self._add_condition(condition)  # type: ignore[return-value]  # R | None is the result of a node that may be skipped

    def map(self, items: Any, *args: Any, **kwargs: Any) -> list[R]:
        """Adds a node that runs the task once per item of a list: `parse.map(page["links"])`.

        The list may be a result that is known only when the workflow runs. Each item is passed as
        the first argument; the other arguments are the same for all items. Returns a placeholder
        for the list of results, in the order of the items. Raises InputError outside of a workflow.
        """
        trace = self._require_trace_for_map()
        arguments = self._parameters.bind((make_item_placeholder(trace), *args), kwargs)
        return self._add_node(trace, arguments, items=items)  # type: ignore[return-value]  # a placeholder for a list

    def _check_options(self, options: Mapping[str, Any]) -> None:
        """Raises InputError for a soft timeout that the function would never notice.

        A task accepts the option `mode`, which all other callables refuse.
        """
        mode = resolve_mode(self._function, options.get("mode", AUTO))
        if "soft_timeout" not in options or mode is Mode.PROCESS:
            return
        if mode is Mode.LOOP and is_async(self._function):
            return
        if mode is Mode.LOOP or not self._parameters.takes_context:
            raise InputError(
                f"{self.label}: soft_timeout: a plain function can't be interrupted, so it would "
                "never learn of the timeout; take the parameter 'ctx', run in a thread and check "
                "ctx.soft_timeout, make the function async, or set mode='process'"
            )

    def _build_config(
        self, writer: TemplateWriter, arguments: Mapping[str, Any]
    ) -> dict[str, Json]:
        try:
            name = resolve_function_name(self._function)
        except InputError as error:
            raise locate_user_code().build_error(
                f"calls a task that workers can't import: {error}"
            ) from None
        config: dict[str, Json] = {"function": name}
        if arguments:
            config["args"] = self._write_arguments(writer, arguments)
        mode = self._options.get("mode", AUTO)
        return config if mode == AUTO else config | {"mode": mode}


class AsyncTask(Task[P, R]):
    """A task whose function is async. The body of a workflow calls the task without `await`."""

    @property
    def function(self) -> Callable[P, Coroutine[Any, Any, R]]:  # type: ignore[override]  # it returns a coroutine
        return self._function


class TaskDecorator:
    """The decorator that `task` returns if it is called with options only."""

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
    """Decorator that makes a function a task, whose calls in a workflow become nodes.

        @task(retries=3, timeout=30)
        def fetch(url: str) -> str: ...

    The function must be defined at the top level of a module, because workers import it by name.
    The function may be async. Arguments and result are stored as JSON, and converted by the
    annotations of the function; without annotations they must be JSON values. A parameter named
    `ctx` receives the Context of the attempt; callers do not pass it.

    Options, all of them optional:

    - `retries`: how often a failed attempt is repeated (default 3), or a RetryPolicy
    - `timeout`: limit of one attempt, in seconds or as timedelta
    - `soft_timeout`: after which time SoftTimeoutError is raised inside the attempt, for clean-up;
      a plain function in a thread can't be interrupted, must take `ctx`, and reads
      `ctx.soft_timeout` instead
    - `cache`: reuses the result of an equal task: True, seconds, a timedelta, or a Cache
    - `run_when`: which states of its parents start the node, for example "one_failed"
    - `when_not_met`: "skip" (default) or "fail", if `run_when` is not met
    - `resource_tag`: the name of the workflow's rate limit that each attempt counts against; each
      value of a template, such as "user-{{ input.user }}", has a rate of its own
    - `concurrency_key` and `concurrency_limit`: how many tasks with an equal key run at a time
    - `queue`: the queue of the tasks; the default is the queue of the handler
    - `mode`: where the function runs: "auto", "loop", "thread" or "process"
    - `name`: the base of node ids (`fetch`, `fetch_2`); `id`: the id of one node

    Raises InputError for a wrong option, and for a function that can't be a task.
    """
    decorate = TaskDecorator(options)
    return decorate if function is None else decorate(function)


def _check_function(function: Any, label: str) -> None:
    if isinstance(function, TracedCallable):
        raise InputError(f"@task: '{function.label}' is already a {function.__runnel_kind__}")
    if not callable(function) or isinstance(function, type):
        raise InputError(
            f"@task: expected a function, got {label}; name the options: @task(retries=3)"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InputError(f"{label}: a task can't yield its result in parts; return a list")


# Functions for the body of a workflow, which accept results of tasks or return placeholders.

SECRETS_ROOT = "secrets"


def text(pattern: str, /, *args: Any, **kwargs: Any) -> str:
    """Formats a text that contains results of tasks: `text("Hello {}!", page["name"])`.

    Works like `str.format` with plain fields: `{}`, `{0}` and `{name}`. Returns a placeholder for
    the text. Outside of a workflow, `text` calls `str.format`. Raises TraceError for a format
    specification such as `{:>10}`, and for a field without an argument.
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
                f"uses a format specification in '{{{name}}}', which is not supported; write {{}} "
                "without it, or format the text inside a task"
            )
        position += not name
        parts.append(_get_format_argument(name or str(position - 1), args, kwargs))
    return Text(trace, tuple(parts))  # type: ignore[return-value]  # a placeholder for a text


def default(result: Any, value: Any) -> Any:
    """Replaces a missing result or None by `value`: `default(page["title"], "no title")`.

    A result is missing if its task was skipped, or if the result has no such item. Returns a
    placeholder. Outside of a workflow, `default` returns `value` for None, and any other result
    unchanged.
    """
    if isinstance(result, Placeholder):
        return DefaultPlaceholder(result, value, replaces_null=True)
    return value if result is None else result


def item() -> Any:
    """Returns a placeholder for the current item in the arguments of `handler(...).map`.

    Raises InputError outside of a workflow.
    """
    return make_item_placeholder(_require_trace("item"))


def secret(name: str) -> Any:
    """Returns a placeholder for a secret of the worker, for an argument of a task.

        fetch(url, token=text("Bearer {}", secret("shop_token")))

    The worker inserts the value when the task runs; the value is never stored. Raises InputError
    outside of a workflow.
    """
    return ItemPlaceholder(ResultPlaceholder(_require_trace("secret"), SECRETS_ROOT), name)


class Sleep(TracedHandler):
    """Adds a node that waits for a number of seconds: `sleep(30)`.

    The engine keeps the timer, so no worker is occupied. `seconds` may be a result. Returns a
    placeholder, to be passed to `after` of other tasks. Raises InputError outside of a workflow.
    """

    def __init__(self) -> None:
        super().__init__(SLEEP)

    def __call__(self, seconds: Any) -> Any:  # type: ignore[override]  # the only setting
        return super().__call__(seconds=seconds)


class WaitForSignal(TracedHandler):
    """Adds a node that waits for a signal: `wait_for_signal("approve", timeout=3600)`.

    Returns a placeholder for the payload of the signal. `timeout` is in seconds; without it, the
    node waits until the execution ends. After the timeout, the node fails. With
    `on_timeout="complete"`, the node completes with the result None after the timeout. Raises
    InputError outside of a workflow.
    """

    def __init__(self) -> None:
        super().__init__(WAIT_FOR_SIGNAL)

    def __call__(  # type: ignore[override]  # its settings only
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
            f"has no argument for '{{{name}}}'; add the argument"
        ) from None
    if isinstance(value, Placeholder):
        return value
    return str(value) if isinstance(value, str | int | float) else Constant(value)


def _require_trace(name: str) -> Trace:
    trace = get_current_trace()
    if trace is None:
        raise InputError(f"runnel.{name} can be called only in the body of a @workflow")
    return trace
