"""Finding a function by its name, `module:qualname`, as workflows and child processes give it."""

import importlib
import sys
from pathlib import Path
from typing import Any

from runnel.authoring.calls import AnyFunction
from runnel.authoring.main_module import loaded_module
from runnel.authoring.tracing.function_names import FUNCTION_OF
from runnel.errors import InputError


class NotImportableError(InputError):
    """A function that can't be found by its name; trying again will not find it either."""

    code = "not_importable"


def locate(name: str) -> AnyFunction:
    """Imports with the working directory on the path; raises NotImportableError in a sentence."""
    module, separator, qualname = name.partition(":")
    if not separator or not module or not qualname:
        raise NotImportableError(
            f"expected a function as 'module:name', got '{name}': for example 'reports.daily:build'"
        )
    found: Any = _import(module, name)
    parts = qualname.split(".")
    for number, part in enumerate(parts):
        if not hasattr(found, part):
            # By its name: what it holds may be secret, as that of 'os.environ' is.
            holder = f"{module}:{'.'.join(parts[:number])}" if number else module
            raise NotImportableError(f"can't find '{name}': '{holder}' has no '{part}'")
        found = getattr(found, part)
    found = getattr(found, FUNCTION_OF, found)
    if not callable(found):
        raise NotImportableError(f"'{name}' is a {type(found).__name__}, expected a function")
    function: AnyFunction = found
    return function


def _import(module: str, name: str) -> object:
    loaded = loaded_module(module)
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
