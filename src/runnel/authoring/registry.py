"""The handlers that a worker knows by name, and the user code that `--app` names."""

import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
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
    get_import_name,
    resolve_function_name,
)
from runnel.core.values import Json
from runnel.core.workflow import CORE_HANDLERS
from runnel.errors import HandlerNotFoundError, InputError

F = TypeVar("F", bound=AnyFunction)
CallPlanner = Callable[[Json], FunctionCall]
CloseCallback = Callable[[], Awaitable[None]]


class RegisteredHandler(msgspec.Struct, frozen=True, kw_only=True):
    """`plan` turns a resolved config into the call to make; it raises InputError for a bad one."""

    name: str
    plan: CallPlanner
    source: str


class HandlerRegistry:
    def __init__(self) -> None:
        self._handlers: dict[str, RegisteredHandler] = {}
        self._closers: list[CloseCallback] = []

    def handler(self, name: str, *, mode: str = AUTO) -> Callable[[F], F]:
        """`@registry.handler("resize")` above `def resize(config, ctx)`, sync or async."""

        def decorate(function: F) -> F:
            self.register(name, function, mode=mode)
            return function

        return decorate

    def register(self, name: str, function: AnyFunction, *, mode: str = AUTO) -> None:
        """`function(config, ctx)` runs for each task of this handler; see Mode for `mode`."""
        if not callable(function):
            raise InputError(f"handler '{name}': expected a function, got {function!r}")
        chosen = resolve_mode(function, mode)
        if chosen is Mode.PROCESS:
            get_import_name(function)
        self.register_plan(name, _make_planner(function, chosen), source=_format_source(function))

    def register_plan(self, name: str, plan: CallPlanner, *, source: str) -> None:
        """For a handler whose function depends on its config, as that of `python` does."""
        if not name or name != name.strip():
            raise InputError(f"expected a handler's name to be a non-empty text, got {name!r}")
        if name in CORE_HANDLERS:
            raise InputError(f"handler name '{name}' is reserved: the engine itself does it")
        known = self._handlers.get(name)
        if known is not None:
            raise InputError(
                f"a handler named '{name}' is registered already ({known.source}); "
                "choose another name"
            )
        self._handlers[name] = RegisteredHandler(name=name, plan=plan, source=source)

    def on_close(self, close: CloseCallback) -> None:
        """`close` is awaited when a worker ends, on its event loop: to give up connections.

        The registry may serve another worker after that, or another one meanwhile.
        """
        self._closers.append(close)

    async def close(self) -> None:
        for close in self._closers:
            await close()

    def include(self, other: "HandlerRegistry") -> None:
        """Adds all handlers of another registry; the same one twice is one.

        Raises InputError when another handler has the name.
        """
        for handler in other._handlers.values():  # noqa: SLF001  # of its own kind
            known = self._handlers.get(handler.name)
            if known is None or known.source != handler.source:
                self.register_plan(handler.name, handler.plan, source=handler.source)
        self._closers += [close for close in other._closers if close not in self._closers]  # noqa: SLF001

    def get(self, name: str) -> RegisteredHandler:
        """Raises HandlerNotFoundError, which names those that there are."""
        try:
            return self._handlers[name]
        except KeyError:
            raise HandlerNotFoundError(name, self.names()) from None

    def names(self) -> list[str]:
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


# User code for a worker, by the name that `--app` gives: a module, or something in one.
# A HandlerRegistry brings handlers. Tasks and workflows need no registry: workers find the
# functions of tasks by their names. Importing the module shows at once that they can, and by
# naming it the operator allows them.

APP_EXAMPLE = "'my_app:handlers' with 'handlers = HandlerRegistry()' in my_app.py"


class AppError(InputError):
    """What `--app` names can't be used."""

    code = "bad_app"


def load_app(name: str) -> HandlerRegistry:
    """The registry `module:name`, or the only one that `module` holds; empty for tasks alone.

    Imports with the working directory on the path; raises AppError in one sentence.
    """
    module_name, separator, attribute = name.partition(":")
    if not module_name or (separator and not attribute):
        raise AppError(
            f"--app: expected MODULE or MODULE:NAME, got '{name}'; such as {APP_EXAMPLE}"
        )
    module = _import_module(module_name)
    if separator:
        return _find_registry(module, module_name, attribute)
    values = list(vars(module).values())
    registries = {id(value): value for value in values if isinstance(value, HandlerRegistry)}
    if not registries and any(isinstance(value, TracedCallable) for value in values):
        return HandlerRegistry()
    if len(registries) != 1:
        many = f"{len(registries)}; name one" if registries else "none; make one"
        raise AppError(
            f"--app: expected one HandlerRegistry in module '{module_name}', found {many}: "
            f"{APP_EXAMPLE} (functions of the handler 'python' need RUNNEL_ALLOW_PYTHON, and no "
            f"--app)"
        )
    return next(iter(registries.values()))


def list_app_tasks(name: str) -> list[str]:
    """The names of the functions with `@task` that a module has, its own and those it imported."""
    module = _import_module(name.partition(":")[0])
    tasks = [value for value in vars(module).values() if isinstance(value, Task)]
    return sorted({resolve_function_name(task.function) for task in tasks})


def _import_module(module: str) -> object:
    add_working_directory_to_path()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        is_itself = missing == module or module.startswith(f"{missing}.")
        why = "" if is_itself else f", which '{module}' imports"
        raise AppError(
            f"--app: there is no module '{missing}'{why}; it was looked for in {Path.cwd()}, in "
            "PYTHONPATH and in what is installed"
        ) from error
    except (Exception, SystemExit) as error:
        raise AppError(
            f"--app: importing '{module}' raised {type(error).__name__}: {error}"
        ) from error


def _find_registry(module: object, module_name: str, attribute: str) -> HandlerRegistry:
    target = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise AppError(
                f"--app: module '{module_name}' has no '{attribute}'; expected a HandlerRegistry, "
                f"such as {APP_EXAMPLE}"
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
