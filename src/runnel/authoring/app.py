"""User code for a worker, by the name that `--app` gives: a module, or something in one.

A HandlerRegistry brings handlers. Tasks and workflows need no registry: workers find the functions
of tasks by their names. Importing the module shows at once that they can, and by naming it the
operator allows them.
"""

import importlib
import sys
from pathlib import Path

from runnel.authoring.registry import HandlerRegistry
from runnel.authoring.tracing.callee import Callee
from runnel.authoring.tracing.function_names import function_name
from runnel.authoring.tracing.tasks import Task
from runnel.errors import InputError

EXAMPLE = "'my_app:handlers' with 'handlers = HandlerRegistry()' in my_app.py"


class AppError(InputError):
    """What `--app` names can't be used."""

    code = "bad_app"


def load_app(name: str) -> HandlerRegistry:
    """The registry `module:name`, or the only one that `module` holds; empty for tasks alone.

    Imports with the working directory on the path; raises AppError in one sentence.
    """
    module_name, separator, attribute = name.partition(":")
    if not module_name or (separator and not attribute):
        raise AppError(f"--app: expected MODULE or MODULE:NAME, got '{name}'; such as {EXAMPLE}")
    module = _import(module_name)
    if separator:
        return _named(module, module_name, attribute)
    found = {id(each): each for each in vars(module).values() if isinstance(each, HandlerRegistry)}
    if not found and any(isinstance(each, Callee) for each in vars(module).values()):
        return HandlerRegistry()
    if len(found) != 1:
        many = f"{len(found)}; name one" if found else "none; make one"
        raise AppError(
            f"--app: expected one HandlerRegistry in module '{module_name}', found {many}: "
            f"{EXAMPLE} (functions of the handler 'python' need RUNNEL_ALLOW_PYTHON, and no --app)"
        )
    return next(iter(found.values()))


def tasks_of_app(name: str) -> list[str]:
    """The names of the functions with `@task` that a module has, its own and those it imported."""
    module = _import(name.partition(":")[0])
    tasks = [each for each in vars(module).values() if isinstance(each, Task)]
    return sorted({function_name(each.function) for each in tasks})


def _import(module: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        is_itself = missing == module or module.startswith(f"{missing}.")
        why = "" if is_itself else f", which '{module}' imports"
        raise AppError(
            f"--app: there is no module '{missing}'{why}; it was looked for in {here}, in "
            "PYTHONPATH and in what is installed"
        ) from error
    except (Exception, SystemExit) as error:
        raise AppError(
            f"--app: importing '{module}' raised {type(error).__name__}: {error}"
        ) from error


def _named(module: object, module_name: str, attribute: str) -> HandlerRegistry:
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise AppError(
                f"--app: module '{module_name}' has no '{attribute}'; expected a HandlerRegistry, "
                f"such as {EXAMPLE}"
            )
        found = getattr(found, part)
    if isinstance(found, Callee):
        return HandlerRegistry()
    if not isinstance(found, HandlerRegistry):
        raise AppError(
            f"--app: expected '{module_name}:{attribute}' to be a HandlerRegistry, a task or a "
            f"workflow, got a {type(found).__name__}"
        )
    return found
