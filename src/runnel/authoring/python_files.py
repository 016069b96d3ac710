"""Loads a decorated workflow from a Python file: `flow.py`, or `flow.py:name` to choose one."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from runnel.authoring.decorators.source_location import locate_exception
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.documents.files import read_bytes
from runnel.authoring.functions import add_import_folder
from runnel.authoring.python_paths import PythonFile
from runnel.core.message_text import suggest_or_list_names
from runnel.errors import InvalidWorkflowError, RunnelError


def load_workflow(file: PythonFile) -> TracedWorkflow[..., Any]:
    """Imports the file and returns its workflow; raises InvalidWorkflowError.

    Without a name, the file must define exactly one workflow.
    """
    module = _import_module(file)
    workflows = {
        name: value for name, value in vars(module).items() if isinstance(value, TracedWorkflow)
    }
    if file.name is not None:
        if file.name not in workflows:
            raise _build_error(
                file,
                f"the file has no workflow '{file.name}'{_format_known_workflows(workflows)}",
            )
        return workflows[file.name]
    own_workflows = {
        id(workflow): workflow
        for workflow in workflows.values()
        if workflow.function.__module__ == file.module
    }
    if len(own_workflows) == 1:
        return next(iter(own_workflows.values()))
    if own_workflows:
        names = ", ".join(f"{file.path}:{workflow.label}" for workflow in own_workflows.values())
        raise _build_error(
            file, f"the file has {len(own_workflows)} workflows; choose one of: {names}"
        )
    raise _build_error(file, "the file has no workflow; expected a function with @workflow")


def _import_module(file: PythonFile) -> ModuleType:
    read_bytes(file.path, bytes_max=0)  # raises if the file can't be read
    if not all(part.isidentifier() for part in file.module.split(".")):
        raise _build_error(
            file,
            f"workers import the file as module '{file.module}', which is not a valid module name; "
            "rename the file, using letters, digits and _ only",
        )
    add_import_folder(file.folder)
    try:
        module = importlib.import_module(file.module)
    except RunnelError:
        raise
    except SyntaxError as error:
        where = f" (line {error.lineno})" if error.lineno else ""
        raise _build_error(file, f"the file is not valid Python: {error.msg}{where}") from error
    except SystemExit as error:
        raise _build_error(
            file,
            f"importing the file ends the program{_format_location(error)}; move the code that "
            'runs as a script below if __name__ == "__main__":',
        ) from error
    except Exception as error:
        raise _build_error(
            file,
            f"importing the file raised {type(error).__name__}: {error}{_format_location(error)}",
        ) from error
    other = Path(getattr(module, "__file__", None) or "")
    if other.resolve() != file.path.resolve():
        raise _build_error(
            file,
            f"the module name '{file.module}' is already taken by {str(other) or 'Python'}; rename "
            "the file",
        )
    return module


def _format_location(error: BaseException) -> str:
    location = locate_exception(error.__traceback__)
    return f" ({Path(location.file).name}, line {location.line})" if location.line else ""


def _format_known_workflows(workflows: dict[str, TracedWorkflow[..., Any]]) -> str:
    return (
        suggest_or_list_names("", workflows)
        if workflows
        else "; expected a function with @workflow"
    )


def _build_error(file: PythonFile, problem: str) -> InvalidWorkflowError:
    return InvalidWorkflowError([problem], source=str(file.path))
