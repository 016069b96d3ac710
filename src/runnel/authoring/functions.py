"""Functions by the name under which another process imports them, `module:qualname`, and back."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from runnel.authoring.calls import AnyFunction
from runnel.errors import InputError


def get_main_module_name() -> str | None:
    """`flow` for `python flow.py`, `app.flow` for `python -m app.flow`; None without a file."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    path = Path(getattr(main, "__file__", None) or "")
    return path.stem if path.suffix == ".py" and path.stem.isidentifier() else None


def get_loaded_module(name: str) -> ModuleType | None:
    """What `import name` means here, if it has been imported: `__main__` by its other name too.

    So a script's functions are not imported a second time, next to those that it has.
    """
    module = sys.modules.get(name)
    if module is None and name == get_main_module_name():
        return sys.modules.get("__main__")
    return module


def find_import_folder(name: str) -> Path | None:
    """Where another process has to look for a loaded module; None when it has no file."""
    file = getattr(get_loaded_module(name), "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    levels = name.count(".") + (path.name == "__init__.py")
    return path.parents[levels] if levels < len(path.parents) else path.parent


MAIN_MODULE_PREFIX = "__main__:"
"""How the names of functions begin that were typed into a session: no other process has them."""
SOURCE_LABEL = "runnel.source"
"""The label of an execution with the folder that `resume` puts where `import` looks first."""
TASK_FUNCTION_ATTRIBUTE = "__runnel_function__"
"""The attribute under which a task has its plain function."""


def get_import_name(function: AnyFunction) -> str:
    """`module:qualname`, the name under which another process finds the same function.

    Raises InputError for what has no such name: a lambda, a nested function, a bound object.
    """
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    if not module or not qualname or "<" in qualname:
        raise InputError(
            f"mode 'process' needs a function that another process can import by its name, got "
            f"{qualname or function!r}: define it with def at the top level of a module"
        )
    return f"{module}:{qualname}"


def resolve_function_name(function: AnyFunction) -> str:
    """`module:qualname` of a task's function, which workers import.

    Raises InputError for what no other process could find by it.
    """
    qualname = getattr(function, "__qualname__", None) or repr(function)
    shown = "a lambda" if "<lambda>" in qualname else f"'{qualname}'"
    if "<" in qualname:
        raise InputError(
            f"workers find a task by its name, which {shown} does not have outside of the function "
            "that makes it; define the task with def at the top level of a module"
        )
    module = function.__module__
    if module == "__main__":
        module = get_main_module_name() or module
    name = f"{module}:{qualname}"
    _check_name_finds_function(name, function)
    return name


def _check_name_finds_function(name: str, function: AnyFunction) -> None:
    """Checks that the name leads to this function, and not to another one."""
    module, _, qualname = name.partition(":")
    target: object = get_loaded_module(module)
    if target is None:
        return  # the import will say why
    for part in qualname.split("."):
        target = getattr(target, part, None)
    if target is None:
        raise InputError(
            f"workers would find nothing under the name '{name}'; keep the function where it was "
            "defined, under its own name"
        )
    if getattr(target, TASK_FUNCTION_ATTRIBUTE, target) is not function:
        raise InputError(
            f"workers would find another function under the name '{name}'; give each task a name "
            "of its own, and make @task the outermost decorator"
        )


class NotImportableError(InputError):
    """A function that can't be found by its name; trying again will not find it either."""

    code = "not_importable"


def import_function(name: str) -> AnyFunction:
    """Imports with the working directory on the path; raises NotImportableError in a sentence."""
    module, separator, qualname = name.partition(":")
    if not separator or not module or not qualname:
        raise NotImportableError(
            f"expected a function as 'module:name', got '{name}': for example 'reports.daily:build'"
        )
    target: Any = _import_module(module, name)
    parts = qualname.split(".")
    for number, part in enumerate(parts):
        if not hasattr(target, part):
            # By its name: what it holds may be secret, as that of 'os.environ' is.
            holder = f"{module}:{'.'.join(parts[:number])}" if number else module
            raise NotImportableError(f"can't find '{name}': '{holder}' has no '{part}'")
        target = getattr(target, part)
    target = getattr(target, TASK_FUNCTION_ATTRIBUTE, target)
    if not callable(target):
        raise NotImportableError(f"'{name}' is a {type(target).__name__}, expected a function")
    function: AnyFunction = target
    return function


def _import_module(module: str, name: str) -> object:
    loaded = get_loaded_module(module)
    if loaded is not None:
        return loaded
    add_working_directory_to_path()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        why = "" if missing == module else f" (it imports '{missing}', which is not installed)"
        raise NotImportableError(
            f"can't import '{name}': there is no module '{missing}'{why}; it is looked for in "
            f"{Path.cwd()} and in what is installed"
        ) from error
    except (Exception, SystemExit) as error:
        raise NotImportableError(
            f"can't import '{name}': {module} raised {type(error).__name__}: {error}"
        ) from error


def add_working_directory_to_path() -> None:
    if "" not in sys.path:
        add_import_folder(Path.cwd())


def add_import_folder(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
