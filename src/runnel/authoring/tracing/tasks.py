"""`@task`: a function whose calls in a workflow become nodes, and which is itself elsewhere."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from runnel.authoring.calls import AUTO
from runnel.authoring.tracing.arguments import Parameters
from runnel.authoring.tracing.callee import Callee, item_of
from runnel.authoring.tracing.function_names import function_name
from runnel.authoring.tracing.options import NodeOptions
from runnel.authoring.tracing.spots import here
from runnel.authoring.tracing.trace import current
from runnel.authoring.tracing.writing import Writer
from runnel.core.json_types import Json
from runnel.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

HANDLER = "python"


class Task(Callee, Generic[P, R]):
    """Inside a workflow a call adds a node and returns what stands for its result.

    Outside of one it calls the plain function, which is `function`.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        label = getattr(function, "__name__", None) or repr(function)
        _check_function(function, label)
        super().__init__(label, HANDLER, options)
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._parameters = Parameters(function, label=label, has_context=True)

    @property
    def function(self) -> Callable[P, R]:
        return self._function

    @property
    def __runnel_function__(self) -> Callable[P, R]:  # how `locate` finds it
        return self._function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        trace = current()
        if trace is None:
            return self._function(*args, **kwargs)  # type: ignore[no-any-return]  # of the user's function
        return self._add(trace, self._parameters.bind(args, kwargs))  # type: ignore[return-value]  # its place is taken until then

    def map(self, items: Any, *args: Any, **kwargs: Any) -> list[R]:
        """One task for each item of a list that is known only when the workflow runs.

        The item is the first argument, the others are the same for all; the results are in the
        order of the items.
        """
        trace = self._trace_of_map()
        given = self._parameters.bind((item_of(trace), *args), kwargs)
        return self._add(trace, given, items=items)  # type: ignore[return-value]  # a list when it runs

    def _check_mode(self, options: Mapping[str, Any]) -> None:
        """Each function may have one."""

    def _config(self, writer: Writer, given: Mapping[str, Any]) -> dict[str, Json]:
        try:
            name = function_name(self._function)
        except InputError as error:
            raise here().refusal(f"calls a task that no worker could find: {error}") from None
        config: dict[str, Json] = {"function": name}
        if given:
            config["args"] = self._written(writer, given)
        mode = self._options.get("mode", AUTO)
        return config if mode == AUTO else config | {"mode": mode}


class AsyncTask(Task[P, R]):
    """A task of an async function: in a workflow its result is not awaited."""

    @property
    def function(self) -> Callable[P, Coroutine[Any, Any, R]]:  # type: ignore[override]  # what a call gives differs
        return self._function


class Decorate:
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
def task(**options: Unpack[NodeOptions]) -> Decorate: ...
def task(function: Callable[..., Any] | None = None, /, **options: Unpack[NodeOptions]) -> Any:
    """`@task` or `@task(retries=3, timeout=30)` above a function at the top level of a module."""
    decorate = Decorate(options)
    return decorate if function is None else decorate(function)


def _check_function(function: Any, label: str) -> None:
    if isinstance(function, Callee):
        raise InputError(f"@task: '{function.label}' is a {function.__runnel_kind__} already")
    if not callable(function) or isinstance(function, type):
        raise InputError(
            f"@task: expected a function, got {label}; options are written @task(retries=3)"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InputError(f"{label}: a task returns its result as a whole: return a list, no yield")
