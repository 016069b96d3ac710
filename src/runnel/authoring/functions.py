"""Builds and checks import names of functions (`module:qualname`), and imports the functions."""

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from runnel.authoring.calls import AnyFunction
from runnel.errors import InputError


def get_main_module_name() -> str | None:
    """Returns the import name of the module that runs as `__main__`; None if it has no file.

    The name is `flow` for `python flow.py`, and `app.flow` for `python -m app.flow`.
    """
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    path = Path(getattr(main, "__file__", None) or "")
    return path.stem if path.suffix == ".py" and path.stem.isidentifier() else None


def get_loaded_module(name: str) -> ModuleType | None:
    """Returns the loaded module with this name; None if no such module is loaded.

    Returns `__main__` for its import name too, so that a running script is not imported again.
    """
    module = sys.modules.get(name)
    if module is None and name == get_main_module_name():
        return sys.modules.get("__main__")
    return module


def find_import_folder(name: str) -> Path | None:
    """Returns the folder that must be on `sys.path` to import a loaded module.

    Returns None if the module is not loaded or has no file.
    """
    file = getattr(get_loaded_module(name), "__file__", None)
    return None if file is None else _resolve_import_folder(name, file)


@functools.lru_cache(maxsize=256)  # each run of a workflow asks, and resolving takes 40 µs
def _resolve_import_folder(name: str, file: str) -> Path:
    path = Path(file).resolve()
    levels = name.count(".") + (path.name == "__init__.py")
    return path.parents[levels] if levels < len(path.parents) else path.parent


MAIN_MODULE_PREFIX = "__main__:"
"""Prefix of the import names of functions that an interactive session defines.

Other processes can't import such functions.
"""
SOURCE_LABEL = "runnel.source"
"""Label of an execution. Its value is the folder that `runnel resume` puts first on `sys.path`."""
TASK_FUNCTION_ATTRIBUTE = "__runnel_function__"
"""Attribute of a task that holds its undecorated function."""


def get_import_name(function: AnyFunction) -> str:
    """Returns `module:qualname`, from which another process imports the same function.

    Raises InputError for a lambda, a nested function, or an object without a qualified name.
    """
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    if not module or not qualname or "<" in qualname:
        raise InputError(
            f"mode 'process': expected a function that another process can import by name, got "
            f"{qualname or function!r}; define it with def at the top level of a module"
        )
    return f"{module}:{qualname}"


def can_import_elsewhere(function: AnyFunction) -> bool:
    """Returns True if a child process can import the same function by its name.

    Returns False for lambdas, nested functions, bound methods and functions of an interactive
    session.
    """
    try:
        name = get_import_name(function)
        _check_name_finds_function(name, function)
    except InputError:
        return False
    has_file = getattr(sys.modules.get("__main__"), "__file__", None) is not None
    return has_file or not name.startswith(MAIN_MODULE_PREFIX)


def resolve_function_name(function: AnyFunction) -> str:
    """Returns `module:qualname` of a task's function, from which workers import it.

    Raises InputError if workers could not import this function by the name.
    """
    qualname = getattr(function, "__qualname__", None) or repr(function)
    if "<" in qualname:
        is_lambda = "<lambda>" in qualname
        reason = "a lambda has no name" if is_lambda else f"'{qualname}' is inside a function"
        raise InputError(
            f"{reason}, so workers can't import it; define the task with def at the top level of a "
            "module"
        )
    module = function.__module__
    if module == "__main__":
        module = get_main_module_name() or module
    name = f"{module}:{qualname}"
    _check_name_finds_function(name, function)
    return name


def _check_name_finds_function(name: str, function: AnyFunction) -> None:
    """Raises InputError if the import name refers to nothing or to another function."""
    module, _, qualname = name.partition(":")
    target: object = get_loaded_module(module)
    if target is None:
        return  # the worker's import reports the reason
    for part in qualname.split("."):
        target = getattr(target, part, None)
    if target is None:
        raise InputError(
            f"workers would import the task as '{name}', which does not exist; keep the function "
            "in the module that defines it, under its own name"
        )
    if getattr(target, TASK_FUNCTION_ATTRIBUTE, target) is not function:
        raise InputError(
            f"workers would import another function as '{name}'; give each task a unique name, and "
            "make @task the outermost decorator"
        )


class NotImportableError(InputError):
    """No function can be imported by the given name. A retry would not help."""

    code = "not_importable"

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


def import_function(name: str) -> AnyFunction:
    """Imports and returns the function `module:qualname`; raises NotImportableError on failure.

    The import path includes the working directory.
    """
    module, separator, qualname = name.partition(":")
    if not separator or not module or not qualname:
        raise NotImportableError(
            f"expected a function as 'module:name', such as 'reports.daily:build', got '{name}'",
            name=name,
        )
    target: Any = _import_module(module, name)
    parts = qualname.split(".")
    for number, part in enumerate(parts):
        if not hasattr(target, part):
            # The message shows the holder's name only: its content may be secret, as in os.environ.
            holder = f"{module}:{'.'.join(parts[:number])}" if number else module
            raise NotImportableError(f"can't find '{name}': '{holder}' has no '{part}'", name=name)
        target = getattr(target, part)
    target = getattr(target, TASK_FUNCTION_ATTRIBUTE, target)
    if not callable(target):
        raise NotImportableError(
            f"'{name}' is a {type(target).__name__}, expected a function", name=name
        )
    function: AnyFunction = target
    return function


def _import_module(module: str, name: str) -> object:
    loaded = get_loaded_module(module)
    if loaded is not None:
        return loaded
    add_working_directory_to_path()
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        problem = describe_import_error(error, module)
        raise NotImportableError(f"can't import '{name}': {problem}", name=name) from error


def describe_import_error(error: BaseException, module: str) -> str:
    """Explains in one sentence why the import of a module failed."""
    if not isinstance(error, ModuleNotFoundError):
        return f"importing '{module}' raised {type(error).__name__}: {error}"
    missing = error.name or module
    is_itself = missing == module or module.startswith(f"{missing}.")
    importer = "" if is_itself else f", which '{module}' imports"
    return (
        f"there is no module '{missing}'{importer}; Python searched {Path.cwd()}, PYTHONPATH and "
        "the installed packages"
    )


def add_working_directory_to_path() -> None:
    if "" not in sys.path:
        add_import_folder(Path.cwd())


def add_import_folder(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
