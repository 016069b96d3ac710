"""The name by which a worker in another process finds the function of a task."""

from runnel.authoring.calls import AnyFunction
from runnel.authoring.main_module import loaded_module, main_name
from runnel.errors import InputError

IN_SESSION = "__main__:"
"""How the names of functions begin that were typed into a session: no other process has them."""
FUNCTION_OF = "__runnel_function__"
"""The attribute under which a task has its plain function."""


def function_name(function: AnyFunction) -> str:
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
        module = main_name() or module
    name = f"{module}:{qualname}"
    _check_leads_back(name, function)
    return name


def _check_leads_back(name: str, function: AnyFunction) -> None:
    """Whoever looks for the name must find this function, and not another one."""
    module, _, qualname = name.partition(":")
    found: object = loaded_module(module)
    if found is None:
        return  # whoever imports it will be told
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InputError(
            f"workers would find nothing under the name '{name}'; keep the function where it was "
            "defined, under its own name"
        )
    if getattr(found, FUNCTION_OF, found) is not function:
        raise InputError(
            f"workers would find another function under the name '{name}'; give each task a name "
            "of its own, and make @task the outermost decorator"
        )
