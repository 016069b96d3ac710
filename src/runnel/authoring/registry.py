"""HandlerRegistry: the handlers of a worker by name. Also loads the user code of `--app`."""

import importlib
import sys
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import TypeVar

import msgspec

from runnel.authoring.calls import (
    AUTO,
    AnyFunction,
    ContextPlace,
    FunctionCall,
    Mode,
    resolve_mode,
)
from runnel.authoring.decorators.task import Task, TracedCallable
from runnel.authoring.functions import (
    add_working_directory_to_path,
    describe_import_error,
    get_import_name,
    resolve_function_name,
)
from runnel.core.values import Json
from runnel.core.workflow import CORE_HANDLERS
from runnel.errors import HandlerNotFoundError, InputError

F = TypeVar("F", bound=AnyFunction)
CallPlanner = Callable[[Json], FunctionCall]
MockCheck = Callable[[Json], bool]
CloseCallback = Callable[[], Awaitable[None]]


class RegisteredHandler(msgspec.Struct, frozen=True, kw_only=True):
    """A handler with its name.

    `plan` turns a resolved config into a FunctionCall; it raises InputError for a bad config.
    `source` is the module or function that the handler comes from. `is_mocked` returns True for a
    config whose result is made up, and so must not be cached.
    """

    name: str
    plan: CallPlanner
    source: str
    is_mocked: MockCheck = lambda _config: False


class HandlerRegistry:
    """The handlers that a worker can run, by name.

        handlers = HandlerRegistry()

        @handlers.handler("resize")
        def resize(config, ctx): ...

    Start workers with `--app module:handlers`.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, RegisteredHandler] = {}
        self._closers: list[CloseCallback] = []

    def handler(self, name: str, *, mode: str = AUTO) -> Callable[[F], F]:
        """Decorator that registers a sync or async `function(config, ctx)`; see `register`."""

        def decorate(function: F) -> F:
            self.register(name, function, mode=mode)
            return function

        return decorate

    def register(self, name: str, function: AnyFunction, *, mode: str = AUTO) -> None:
        """Registers `function(config, ctx)` as the handler `name`; the function may be async.

        `config` is the config of the node with all templates filled in, `ctx` the Context. `mode`
        says where the function runs: "auto" (default: async functions on the event loop, others in
        a thread), "loop", "thread" or "process". The return value is the output of the node.

        Raises InputError if the name is taken or reserved, or the function can't run in this mode.
        """
        if not callable(function):
            raise InputError(f"handler '{name}': expected a function, got {function!r}")
        resolved_mode = resolve_mode(function, mode)
        if resolved_mode is Mode.PROCESS:
            get_import_name(function)
        planner = _make_planner(function, resolved_mode)
        self.register_plan(name, planner, source=_format_source(function))

    def register_plan(
        self,
        name: str,
        plan: CallPlanner,
        *,
        source: str,
        is_mocked: MockCheck = lambda _config: False,
    ) -> None:
        """Registers a handler whose function depends on its config, such as `python`.

        Raises InputError if the name is taken or reserved.
        """
        if not name or name != name.strip():
            raise InputError(
                f"handler name: expected a text without leading or trailing spaces, got {name!r}"
            )
        if name in CORE_HANDLERS:
            raise InputError(f"handler name '{name}' is reserved; choose another name")
        known = self._handlers.get(name)
        if known is not None:
            raise InputError(
                f"handler name '{name}' is taken by {known.source}; choose another name"
            )
        self._handlers[name] = RegisteredHandler(
            name=name, plan=plan, source=source, is_mocked=is_mocked
        )

    def on_close(self, close: CloseCallback) -> None:
        """Registers a callback that a worker awaits, on its event loop, before the worker ends.

        A callback can close connections. Several workers may use one registry at the same time.
        """
        self._closers.append(close)

    async def close(self) -> None:
        """Awaits every callback of `on_close`."""
        for close in self._closers:
            await close()

    def include(self, other: "HandlerRegistry") -> None:
        """Adds all handlers of another registry; skips handlers that this registry already has.

        Raises InputError if a different handler has the same name.
        """
        for handler in other._handlers.values():  # noqa: SLF001  # an object of the same class
            known = self._handlers.get(handler.name)
            if known is None or known.source != handler.source:
                self.register_plan(
                    handler.name,
                    handler.plan,
                    source=handler.source,
                    is_mocked=handler.is_mocked,
                )
        self._closers += [close for close in other._closers if close not in self._closers]  # noqa: SLF001

    def get(self, name: str) -> RegisteredHandler:
        """Returns the handler; raises HandlerNotFoundError, which lists the known names."""
        try:
            return self._handlers[name]
        except KeyError:
            raise HandlerNotFoundError(name, self.names()) from None

    def names(self) -> list[str]:
        """Returns the names of all handlers, sorted."""
        return sorted(self._handlers)

    def __contains__(self, name: str) -> bool:
        return name in self._handlers


def _make_planner(function: AnyFunction, mode: Mode) -> CallPlanner:
    def plan(config: Json) -> FunctionCall:
        return FunctionCall(
            function=function, mode=mode, positional=(config,), place=ContextPlace.LAST
        )

    return plan


def _format_source(function: AnyFunction) -> str:
    module = getattr(function, "__module__", type(function).__module__)
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


# `--app MODULE` or `--app MODULE:NAME` names the user code of a worker. The worker adds the
# handlers of a HandlerRegistry. Tasks and workflows need no registry, because workers import the
# functions of tasks by name. If `--app` names a module with tasks, the worker imports the module
# when it starts, and allows the handler `python` to call the functions of the module, and the tasks
# of modules that it imports.

APP_EXAMPLE = "'my_app:handlers' with 'handlers = HandlerRegistry()' in my_app.py"


class AppError(InputError):
    """The user code that `--app` names can't be loaded."""

    code = "bad_app"


def load_app(name: str) -> HandlerRegistry:
    """Returns the registry `module:name`, or the only registry of `module`; raises AppError.

    Returns an empty registry for a task, a workflow, or a module with tasks only. The import path
    includes the working directory.
    """
    module_name, separator, attribute = name.partition(":")
    if not module_name or (separator and not attribute):
        raise AppError(
            f"--app: expected MODULE or MODULE:NAME, got '{name}'; for example {APP_EXAMPLE}"
        )
    module = _import_module(module_name)
    if separator:
        return _find_registry(module, module_name, attribute)
    values = list(vars(module).values())
    registries = {id(value): value for value in values if isinstance(value, HandlerRegistry)}
    if len(registries) > 1:
        raise AppError(
            f"--app: expected one HandlerRegistry in module '{module_name}', found "
            f"{len(registries)}; choose one, as in {APP_EXAMPLE}"
        )
    if registries:
        return next(iter(registries.values()))
    if any(isinstance(value, TracedCallable) for value in (*values, *_list_imported(module))):
        return HandlerRegistry()
    raise AppError(
        f"--app: expected a HandlerRegistry, a task or a workflow in module '{module_name}' or in "
        f"a module that it imports, found none; create one, as in {APP_EXAMPLE}, or a task with "
        "@task (for functions without @task, set RUNNEL_ALLOW_PYTHON instead of --app)"
    )


def list_app_tasks(name: str) -> list[str]:
    """Returns the import names of all tasks of the module, and of modules that it imports."""
    module = _import_module(name.partition(":")[0])
    values = (*vars(module).values(), *_list_imported(module))
    tasks = [value for value in values if isinstance(value, Task)]
    return sorted({resolve_function_name(task.function) for task in tasks})


def _list_imported(module: object) -> list[object]:
    """Returns the values of all modules that `module` imports as modules.

    `import shop.tasks` binds the package `shop`, so the loaded modules of a package count as well.
    """
    imported = {value.__name__ for value in vars(module).values() if isinstance(value, ModuleType)}
    loaded = [
        other
        for name, other in list(sys.modules.items())
        if name in imported or any(name.startswith(f"{package}.") for package in imported)
    ]
    return [value for other in loaded for value in vars(other).values()]


def _import_module(module: str) -> object:
    add_working_directory_to_path()
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise AppError(f"--app: {describe_import_error(error, module)}") from error


def _find_registry(module: object, module_name: str, attribute: str) -> HandlerRegistry:
    target = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise AppError(
                f"--app: module '{module_name}' has no '{attribute}'; expected a HandlerRegistry, "
                f"for example {APP_EXAMPLE}"
            )
        target = getattr(target, part)
    if isinstance(target, TracedCallable):
        return HandlerRegistry()
    if not isinstance(target, HandlerRegistry):
        raise AppError(
            f"--app: expected '{module_name}:{attribute}' to be a HandlerRegistry, a task or a "
            f"workflow, got a {type(target).__name__}"
        )
    return target
