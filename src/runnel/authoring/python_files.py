"""Decorated workflows in Python files: `flow.py`, or `flow.py:name` when there are several."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from runnel.authoring.decorators.source_location import locate_exception
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.functions import add_import_folder
from runnel.core.wording import suggest_or_list_names
from runnel.errors import InvalidWorkflowError, RunnelError

PYTHON_SUFFIX = ".py"


class PythonFile(NamedTuple):
    """`folder` is where `module` is imported from: that of its package, if it is in one."""

    path: Path
    name: str | None
    folder: Path
    module: str


def parse_python_path(text: str) -> PythonFile | None:
    """None for a path that is of another kind of file."""
    file, separator, name = text.rpartition(":")
    if not separator or not file.endswith(PYTHON_SUFFIX):
        file, name = text, ""
    if not file.endswith(PYTHON_SUFFIX):
        return None
    path = Path(file)
    parts, folder = [path.stem], path.resolve().parent
    while _is_package(folder):
        parts.append(folder.name)
        folder = folder.parent
    return PythonFile(path, name or None, folder, ".".join(reversed(parts)))


def _is_package(folder: Path) -> bool:
    try:
        return (folder / "__init__.py").is_file()
    except OSError:
        return False  # it can't be read: told when it is tried


def load_workflow(file: PythonFile) -> TracedWorkflow[..., Any]:
    """Imports the file; raises InvalidWorkflowError in one sentence."""
    module = _import_module(file)
    workflows = {
        name: value for name, value in vars(module).items() if isinstance(value, TracedWorkflow)
    }
    if file.name is not None:
        if file.name not in workflows:
            raise _build_error(
                file,
                f"there is no workflow '{file.name}' in it{_format_known_workflows(workflows)}",
            )
        return workflows[file.name]
    own = {
        id(workflow): workflow
        for workflow in workflows.values()
        if workflow.function.__module__ == file.module
    }
    if len(own) == 1:
        return next(iter(own.values()))
    if own:
        names = ", ".join(f"{file.path}:{workflow.label}" for workflow in own.values())
        raise _build_error(file, f"there are {len(own)} workflows in it; name one: {names}")
    raise _build_error(
        file, "there is no workflow in it; expected a function with @workflow above it"
    )


def _import_module(file: PythonFile) -> ModuleType:
    _check_readable(file)
    if not all(part.isidentifier() for part in file.module.split(".")):
        raise _build_error(
            file,
            f"workers import it by its name, and '{file.module}' can't be one; rename it with "
            "letters, digits and _",
        )
    add_import_folder(file.folder)
    try:
        module = importlib.import_module(file.module)
    except RunnelError:
        raise
    except SyntaxError as error:
        where = f" (line {error.lineno})" if error.lineno else ""
        raise _build_error(file, f"it is not Python: {error.msg}{where}") from error
    except SystemExit as error:
        raise _build_error(
            file,
            f"importing it ends the program{_format_location(error)}; put what only a script does "
            f"below "
            'if __name__ == "__main__":',
        ) from error
    except Exception as error:
        raise _build_error(
            file, f"importing it raised {type(error).__name__}: {error}{_format_location(error)}"
        ) from error
    other = Path(getattr(module, "__file__", None) or "")
    if other.resolve() != file.path.resolve():
        raise _build_error(
            file,
            f"the name '{file.module}' is that of another module, {str(other) or 'of Python'}; "
            "rename the file",
        )
    return module


def _check_readable(file: PythonFile) -> None:
    try:
        file.path.open("rb").close()
    except FileNotFoundError:
        raise _build_error(file, "there is no such file; check the path") from None
    except IsADirectoryError:
        raise _build_error(file, "it is a directory; name the file in it") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _build_error(file, f"it can't be read: {why}") from error


def _format_location(error: BaseException) -> str:
    spot = locate_exception(error.__traceback__)
    return f" ({Path(spot.file).name}, line {spot.line})" if spot.line else ""


def _format_known_workflows(workflows: dict[str, TracedWorkflow[..., Any]]) -> str:
    return (
        suggest_or_list_names("", workflows)
        if workflows
        else "; expected a function with @workflow above it"
    )


def _build_error(file: PythonFile, problem: str) -> InvalidWorkflowError:
    return InvalidWorkflowError([problem], source=str(file.path))
