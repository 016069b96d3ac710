"""Finding a function by its name, `module:qualname`, as workflows and child processes give it."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from runnel.authoring.calls import AnyFunction
from runnel.errors import InputError

# Modules by the name under which another process imports them, `__main__` among them.


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
    found = sys.modules.get(name)
    if found is None and name == get_main_module_name():
        return sys.modules.get("__main__")
    return found


def find_import_folder(name: str) -> Path | None:
    """Where another process has to look for a loaded module; None when it has no file."""
    file = getattr(get_loaded_module(name), "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    levels = name.count(".") + (path.name == "__init__.py")
    return path.parents[levels] if levels < len(path.parents) else path.parent


# The name by which a worker in another process finds the function of a task.

MAIN_MODULE_PREFIX = "__main__:"
"""How the names of functions begin that were typed into a session: no other process has them."""
TASK_FUNCTION_ATTRIBUTE = "__runnel_function__"
"""The attribute under which a task has its plain function."""


def resolve_function_name(function: AnyFunction) -> str:
    """`module:qualname`; raises InputError for what no other process could find by it."""
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
    """Whoever looks for the name must find this function, and not another one."""
    module, _, qualname = name.partition(":")
    found: object = get_loaded_module(module)
    if found is None:
        return  # whoever imports it will be told
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InputError(
            f"workers would find nothing under the name '{name}'; keep the function where it was "
            "defined, under its own name"
        )
    if getattr(found, TASK_FUNCTION_ATTRIBUTE, found) is not function:
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
    found: Any = _import_module(module, name)
    parts = qualname.split(".")
    for number, part in enumerate(parts):
        if not hasattr(found, part):
            # By its name: what it holds may be secret, as that of 'os.environ' is.
            holder = f"{module}:{'.'.join(parts[:number])}" if number else module
            raise NotImportableError(f"can't find '{name}': '{holder}' has no '{part}'")
        found = getattr(found, part)
    found = getattr(found, TASK_FUNCTION_ATTRIBUTE, found)
    if not callable(found):
        raise NotImportableError(f"'{name}' is a {type(found).__name__}, expected a function")
    function: AnyFunction = found
    return function


def _import_module(module: str, name: str) -> object:
    loaded = get_loaded_module(module)
    if loaded is not None:
        return loaded
    _put_working_directory_on_path()
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


def _put_working_directory_on_path() -> None:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
