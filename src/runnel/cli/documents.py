"""Workflow files for the commands: loaded, judged, and their neighbours made importable."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.core.graph import Graph
from runnel.core.workflow import CORE_HANDLERS, Node, Workflow

if TYPE_CHECKING:
    from runnel.settings import Settings


def load_graph(path: Path, settings: "Settings") -> Graph:
    """Raises InvalidWorkflowError with all problems, handlers that do not exist among them.

    What a node's `retry` does not say is what the settings say now: that stays with it.
    """
    from runnel.core.validation import find_problems
    from runnel.errors import InvalidWorkflowError

    workflow = _load(path, settings)
    problems = list(find_problems(workflow))
    if not settings.is_remote:  # the workers of a server may have handlers of their own
        problems += _handler_problems(workflow)
    if problems:
        raise InvalidWorkflowError(problems, source=str(path))
    return Graph(workflow)


def path_of(path: Path) -> Path:
    """The file itself: of `flow.py:name` without the name of the workflow in it."""
    from runnel.authoring.python_paths import python_file

    file = python_file(str(path))
    return path if file is None else file.path


def folder_of(path: Path) -> Path:
    """Where the functions of a workflow are imported from."""
    from runnel.authoring.python_paths import python_file

    file = python_file(str(path))
    return path.parent.resolve() if file is None else file.folder


def _load(path: Path, settings: "Settings") -> Workflow:
    """A Python file is imported, and what it prints meanwhile is no result."""
    from runnel.authoring.load import load_file
    from runnel.authoring.python_paths import python_file
    from runnel.cli.streams import results

    file = python_file(str(path))
    if file is None:
        return load_file(path, retry=settings.retry)
    from runnel.authoring.python_files import load_workflow

    with results():
        return load_workflow(file).to_workflow(retry=settings.retry)


def check_functions(workflow: Workflow, source: Path, settings: "Settings") -> None:
    """Raises InvalidWorkflowError for functions that can't be imported: found now, not after hours.

    Those of `process` mode are left to their process: importing them may be what must not happen
    here. Nothing is imported that the settings do not allow.
    """
    from runnel.authoring.locate import NotImportableError, locate
    from runnel.errors import InvalidWorkflowError, NotAllowedError
    from runnel.runtime.permitted import local_functions

    allowed = local_functions(settings)
    problems = []
    for node in _nodes(workflow):
        function = node.config.get("function")
        is_python = node.handler == "python" and node.config.get("mode") != "process"
        if is_python and isinstance(function, str) and "{{" not in function:
            try:
                allowed.check_name(function)
                locate(function)
            except (NotAllowedError, NotImportableError) as error:
                problems.append(f"node '{node.id}': config.function: {error}")
    if problems:
        raise InvalidWorkflowError(problems, source=str(source))


def make_importable(folders: Iterable[Path | str]) -> None:
    """Puts each folder that exists, and the current one, where `import` looks first."""
    wanted = [str(Path(folder).resolve()) for folder in folders if Path(folder).is_dir()]
    for folder in reversed([*wanted, str(Path.cwd())]):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def _handler_problems(workflow: Workflow) -> Iterator[str]:
    """Only built-in handlers can be reached from here: no worker would ever know another."""
    from runnel.handlers import builtin_registry

    known = {*builtin_registry().names(), *CORE_HANDLERS}
    for node in _nodes(workflow):
        if node.handler not in known:
            yield (
                f"node '{node.id}': no handler '{node.handler}'; there are: "
                f"{', '.join(sorted(known))} (your own functions run by the handler 'python')"
            )


def _nodes(workflow: Workflow) -> Iterator[Node]:
    pending = [workflow]
    while pending:
        current = pending.pop()
        yield from current.nodes
        pending += [node.child for node in current.nodes if node.child is not None]
