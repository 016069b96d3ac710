"""Reads the input and the workflow that the command line gives an execution."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from runnel.authoring.documents import load_file
from runnel.authoring.documents.files import FILE_BYTES_MAX, parse_data, read_data
from runnel.authoring.input_schema import parse_assignments
from runnel.authoring.python_paths import parse_python_path
from runnel.cli.streams import print_to_stderr, reserve_stdout
from runnel.core.graph import Graph, compile_canonical
from runnel.core.message_text import suggest_name
from runnel.core.templates.parser import OPENING_PATTERN
from runnel.core.templates.template import compile_tree
from runnel.core.validation import find_problems
from runnel.core.validation.handler_settings import HANDLER_SETTINGS
from runnel.core.values import Json
from runnel.core.workflow import Node, Workflow
from runnel.errors import InputError, InvalidWorkflowError, NotAllowedError
from runnel.settings.model import Settings

STDIN = "-"
FILE_SUFFIXES = (".yaml", ".yml", ".json", ".py")


def read_input(
    file: str | None, assignments: Sequence[str], schema: dict[str, Json] | None = None
) -> Json:
    """Returns the input in the file, changed by the assignments; raises InputError."""
    assigned = parse_assignments(assignments, schema=schema)
    if file is None:
        return assigned
    value = read_value(file, "the input")
    if not assigned:
        return value
    return merge_assignments(value, assigned, f"--input-file {file}")


def read_value(file: str, expected: str) -> Json:
    """Returns the value in a file or stdin; raises InputError, which names `expected`."""
    return _read_stdin(expected) if file == STDIN else _read_file(Path(file), expected)


def merge_assignments(value: Json, assignments: dict[str, Json], source: str) -> Json:
    """Returns the object with the assigned values; raises InputError for any other value."""
    if not isinstance(value, dict):
        raise InputError(
            f"--input sets values of an object, but {source} holds {_describe_type(value)}; give "
            "the whole input with --input-file"
        )
    return _merge_objects(value, assignments)


def _read_file(path: Path, expected: str) -> Json:
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty; expected {expected} as JSON or YAML")
    return read_data(path)


def _read_stdin(expected: str) -> Json:
    text = sys.stdin.read(FILE_BYTES_MAX + 1)
    if not text.strip():
        raise InputError(f"stdin is empty; expected {expected} as JSON or YAML")
    return parse_data(text, source="stdin")


def _merge_objects(base: dict[str, Json], overrides: dict[str, Json]) -> dict[str, Json]:
    """Returns both objects merged, nested objects as well; other values are replaced."""
    merged = dict(base)
    for key, value in overrides.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            merged[key] = _merge_objects(known, value)
        else:
            merged[key] = value
    return merged


def _describe_type(value: Json) -> str:
    kinds = {list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "nothing")


def load_graph(path: Path, settings: Settings) -> Graph:
    """Loads, checks and compiles a workflow file; `submit` takes the graph without compiling."""
    return compile_canonical(load_valid_workflow(path, settings))


def load_valid_workflow(path: Path, settings: Settings) -> Workflow:
    """Loads and checks a workflow; raises InvalidWorkflowError with all of its problems.

    An unknown handler is a problem as well. Retry values that a node does not set are copied from
    the current settings into the workflow.
    """
    workflow = _load_workflow(path, settings)
    problems = list(find_problems(workflow, mocks_services=settings.mocks_services))
    if not settings.is_remote:  # workers of a server may have other handlers
        problems += _find_handler_problems(workflow)
    if problems:
        raise InvalidWorkflowError(problems, source=str(path))
    return workflow


def is_workflow_file(text: str) -> bool:
    """Returns True for the path of a workflow file, False for the name of a stored workflow."""
    return text.partition(":")[0].endswith(FILE_SUFFIXES)


def get_file_path(path: Path) -> Path:
    """Returns the path of the file: `flow.py` for `flow.py:name`."""
    file = parse_python_path(str(path))
    return path if file is None else file.path


def get_import_folder(path: Path) -> Path:
    """Returns the folder that the functions of a workflow are imported from."""
    file = parse_python_path(str(path))
    return path.parent.resolve() if file is None else file.folder


def _load_workflow(path: Path, settings: Settings) -> Workflow:
    """Loads a YAML or JSON file, or imports a Python file; prints of the import go to stderr."""
    file = parse_python_path(str(path))
    if file is None:
        return load_file(path, retry=settings.retry)
    # The decorators take 10 ms: only for a Python file.
    from runnel.authoring.python_files import load_workflow

    with reserve_stdout():
        return load_workflow(file).to_workflow(retry=settings.retry)


def print_warnings(workflows: Iterable[Workflow], settings: Settings) -> None:
    """Prints what is probably a mistake, but may also be right for other workers."""
    given = list(workflows)
    _warn_of_missing_secrets(given, settings)
    for workflow in given:
        _warn_of_unlimited_tags(workflow)


def _warn_of_missing_secrets(workflows: Iterable[Workflow], settings: Settings) -> None:
    """Prints a warning for each secret that the workflows use and this process does not have.

    It is no error, because the node may be skipped, and a server's workers have other secrets.
    """
    names = {
        name
        for workflow in workflows
        for node in _iterate_nodes(workflow)
        for name in _list_secret_names(node)
    }
    if not names:
        return
    from runnel.app.secrets import load_worker_secrets  # most workflows use no secrets

    secrets = load_worker_secrets(settings)
    for name in sorted(names):
        if secrets.get(name) is None:
            print_to_stderr(
                f"warning: this process has no secret '{name}'; set "
                f"RUNNEL_SECRET_{name.upper()}, or add it to the file of RUNNEL_SECRETS_FILE"
            )


def _warn_of_unlimited_tags(workflow: Workflow) -> None:
    """Prints a warning for each resource tag that no entry of the `rate_limits` beside it has.

    It is no error, because a worker may have a limit of that name.
    """
    limits = workflow.rate_limits
    for node in workflow.nodes:
        tag = node.resource_tag
        if node.child is not None:
            _warn_of_unlimited_tags(node.child)
        if tag is None or tag in limits or not limits:
            continue
        hint = suggest_name(tag, limits) or f"; it has: {', '.join(limits)}"
        print_to_stderr(
            f"warning: node '{node.id}': rate_limits has no entry '{tag}', so this resource_tag "
            f"limits nothing{hint}{_explain_template_tag(tag)}"
        )


def _explain_template_tag(tag: str) -> str:
    if not OPENING_PATTERN.search(tag):
        return ""
    return "; the entry of a template has the text of the template, and each value its own rate"


def _list_secret_names(node: Node) -> list[str]:
    if "secrets" not in str(node.config):
        return []
    references = compile_tree(node.config).references
    return [
        str(reference.path[0])
        for reference in references
        if reference.root == "secrets" and not reference.via_nodes and reference.path
    ]


def check_functions(workflow: Workflow, source: Path, settings: Settings) -> None:
    """Imports the functions of a workflow; raises InvalidWorkflowError if one is missing.

    Functions of mode `process` are not imported, because only their own process may import them.
    Functions that the settings do not allow are not imported either.
    """
    # `validate` needs neither an engine nor asyncio.
    from runnel.app.wiring import build_local_functions
    from runnel.authoring.functions import NotImportableError, import_function

    allowed = build_local_functions(settings)
    problems = []
    for node in _iterate_nodes(workflow):
        function = node.config.get("function")
        is_python = node.handler == "python" and node.config.get("mode") != "process"
        if is_python and isinstance(function, str) and "{{" not in function:
            try:
                allowed.check_name(function)
                import_function(function)
            except (NotAllowedError, NotImportableError) as error:
                problems.append(f"node '{node.id}': config.function: {error}")
    if problems:
        raise InvalidWorkflowError(problems, source=str(source))


def make_importable(folders: Iterable[Path | str]) -> None:
    """Adds each existing folder and the working directory to the start of the import path."""
    existing = [str(Path(folder).resolve()) for folder in folders if Path(folder).is_dir()]
    for folder in reversed([*existing, str(Path.cwd())]):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def _find_handler_problems(workflow: Workflow) -> Iterator[str]:
    """Yields a problem for each unknown handler: an embedded engine has only built-in handlers."""
    for node in _iterate_nodes(workflow):
        if node.handler not in HANDLER_SETTINGS:
            yield (
                f"node '{node.id}': no handler '{node.handler}'; there are: "
                f"{', '.join(sorted(HANDLER_SETTINGS))} "
                "(your own functions run by the handler 'python')"
            )


def _iterate_nodes(workflow: Workflow) -> Iterator[Node]:
    pending = [workflow]
    while pending:
        current = pending.pop()
        yield from current.nodes
        pending += [node.child for node in current.nodes if node.child is not None]
