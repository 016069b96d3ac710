"""Loads a workflow from a YAML or JSON file, or from a decoded document.

The loader checks only keys and the types of values. `runnel.core.validation` checks the graph.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from runnel.authoring.documents.fields import (
    NODE_TABLE,
    WORKFLOW_TABLE,
    DocumentPath,
    TooManyProblemsError,
    drop_defaults,
)
from runnel.authoring.documents.files import read_data
from runnel.core.ids import NodeId
from runnel.core.message_text import describe_value, quote_name
from runnel.core.retry import RetryPolicy
from runnel.core.templates.errors import TemplateSyntaxError
from runnel.core.templates.nodes import RESERVED_NAMES
from runnel.core.validation.checks import NAME, TEXT, find_json_problems
from runnel.core.validation.references import compile_fields
from runnel.core.validation.structure import CHILD_DEPTH_MAX
from runnel.core.values import Json
from runnel.core.workflow import CHILD_WORKFLOW, Node, Workflow
from runnel.errors import InvalidWorkflowError

# Child workflows: defined inline, in another file, or stored under a name.

ResolveWorkflow: TypeAlias = Callable[[str], Workflow | None]
"""Returns the newest version of a workflow by name; None if there is no such workflow."""


class DocumentOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The place from which a workflow document was read.

    Relative paths in the document start at `directory`. If it is None, the document can't refer to
    files. `trail` lists the files from the outermost document to this document, to detect cycles.
    `depth` counts nested child workflows.
    """

    directory: Path | None
    trail: tuple[Path, ...] = ()
    depth: int = 0


ReadWorkflow: TypeAlias = Callable[[Json, DocumentPath, DocumentOrigin], Workflow | None]


class ChildWorkflowReader:
    """Reads the child workflows of a document. Nodes that name the same file share one Workflow."""

    def __init__(self, read: ReadWorkflow, resolve: ResolveWorkflow | None) -> None:
        self._read = read
        self._resolve = resolve
        self._files: dict[Path, Workflow | None] = {}

    def read_child(
        self, fields: dict[str, Any], place: DocumentPath, origin: DocumentOrigin
    ) -> dict[str, Any]:
        """Returns the fields `child` and `config` of a node, and reports problems to `place`."""
        config: dict[str, Json] = fields.get("config", {})
        sources = [key for key in ("definition", "file", "workflow") if key in config]
        if len(sources) != 1:
            got = " and ".join(map(quote_name, sources)) or "none of them"
            place.refuse(
                "the handler 'workflow' needs exactly one of 'definition', 'file' and 'workflow', "
                f"got {got}"
            )
            return {}
        if origin.depth >= CHILD_DEPTH_MAX:
            place.refuse(f"child workflows are nested deeper than {CHILD_DEPTH_MAX}; flatten them")
            return {}
        key, value = sources[0], config[sources[0]]
        child = self._read_definition(key, value, place.key(key), origin, str(fields.get("id")))
        other_settings = {name: setting for name, setting in config.items() if name != key}
        return {"config": other_settings, "child": child}

    def _read_definition(
        self, key: str, value: Json, place: DocumentPath, origin: DocumentOrigin, name: str
    ) -> Workflow | None:
        if key == "workflow":
            return self._find_by_name(value, place)
        if key == "file":
            return self._find_by_file(value, place, origin)
        if isinstance(value, dict) and "name" not in value:
            value = {"name": name, **value}
        return self._read(value, place, msgspec.structs.replace(origin, depth=origin.depth + 1))

    def _find_by_name(self, value: Json, place: DocumentPath) -> Workflow | None:
        if not NAME.fits(value):
            place.expected("the name of a workflow", value)
        elif self._resolve is None:
            place.refuse(
                "a workflow can't be referred to by name here; write it under 'definition', or "
                "give its 'file'"
            )
        elif (child := self._resolve(value)) is not None:
            return child
        else:
            place.refuse(f"there is no workflow {quote_name(value)}; submit it first")
        return None

    def _find_by_file(
        self, value: Json, place: DocumentPath, origin: DocumentOrigin
    ) -> Workflow | None:
        if not TEXT.fits(value):
            place.expected("the path of a file", value)
            return None
        if origin.directory is None:
            place.refuse(
                "only a document that is a file can refer to files; write the workflow under "
                "'definition'"
            )
            return None
        path = _resolve_path(origin.directory / value)
        if path in origin.trail:
            names = [file.name for file in (*origin.trail[origin.trail.index(path) :], path)]
            place.refuse(f"the files refer to each other: {' → '.join(names)}; break the cycle")
            return None
        if path not in self._files:
            self._files[path] = self._read_file(path, place.file(value), origin)
        return self._files[path]

    def _read_file(
        self, path: Path, place: DocumentPath, origin: DocumentOrigin
    ) -> Workflow | None:
        try:
            data = read_data(path)
        except InvalidWorkflowError as error:
            for problem in error.problems:
                place.refuse(problem)
            return None
        for problem in find_json_problems(data, ""):
            place.refuse(problem)
        if place.problems:
            return None
        trail = (*origin.trail, path)
        child_origin = DocumentOrigin(directory=path.parent, trail=trail, depth=origin.depth + 1)
        return self._read(data, place, child_origin)


def _resolve_path(path: Path) -> Path:
    """Returns the absolute path without symbolic links.

    Returns the path unchanged on an error; reading the file then reports the error.
    """
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path


# Inferred dependencies: a node depends on the nodes that its templates name.


def add_inferred_dependencies(
    nodes: Sequence[Node], *, explicit_ids: frozenset[NodeId]
) -> tuple[Node, ...]:
    """Adds inferred dependencies to the nodes whose id is not in `explicit_ids`."""
    positions = map_positions(nodes)
    return tuple(
        node
        if node.id in explicit_ids
        else _set_dependencies(node, infer_dependencies(node, positions))
        for node in nodes
    )


def map_positions(nodes: Sequence[Node]) -> dict[NodeId, int]:
    return {node.id: position for position, node in enumerate(nodes)}


def infer_dependencies(node: Node, positions: Mapping[NodeId, int]) -> tuple[NodeId, ...]:
    """Returns the nodes that the templates of a node name, in the order of the document.

    Ignores templates with syntax errors, which validation reports.
    """
    roots: set[NodeId] = set()
    for _, compiled in compile_fields(node):
        if not isinstance(compiled, TemplateSyntaxError):
            roots.update(NodeId(reference.root) for reference in compiled.references)
    known = (name for name in roots if name in positions and name not in RESERVED_NAMES)
    return tuple(sorted((name for name in known if name != node.id), key=positions.__getitem__))


def _set_dependencies(node: Node, dependencies: tuple[NodeId, ...]) -> Node:
    return msgspec.structs.replace(node, dependencies=dependencies) if dependencies else node


def read_document(
    data: Json,
    *,
    source: str = "workflow",
    directory: Path | None = None,
    file: Path | None = None,
    resolve: ResolveWorkflow | None = None,
    retry: RetryPolicy | None = None,
) -> Workflow:
    """Turns a decoded document into a workflow; raises InvalidWorkflowError with every problem.

    `source` names the document in messages. `retry` provides the retry settings that nodes leave
    out, also in child workflows. `file` is the path of the document. Paths of child workflows are
    relative to `directory`; the default is the folder of `file`. Without `directory` and `file`,
    the document can't refer to files. Without `resolve`, it can't refer to workflows by name.
    """
    trail = () if file is None else (file.resolve(),)
    if directory is None and file is not None:
        directory = file.parent
    place = DocumentPath()
    workflow = None
    try:
        for problem in find_json_problems(data, ""):
            place.refuse(problem)
        if not place.problems:
            origin = DocumentOrigin(directory=directory, trail=trail)
            workflow = _DocumentReader(resolve, retry or RetryPolicy()).read_workflow(
                data, place, origin
            )
    except TooManyProblemsError:
        workflow = None
    if workflow is None:
        raise InvalidWorkflowError(place.problems, source=source)
    return workflow


class _DocumentReader:
    def __init__(self, resolve: ResolveWorkflow | None, retry: RetryPolicy) -> None:
        self._children = ChildWorkflowReader(self.read_workflow, resolve)
        self._retry = retry

    def read_workflow(
        self, data: Json, place: DocumentPath, origin: DocumentOrigin
    ) -> Workflow | None:
        """Returns the workflow; None if this document, or an earlier document, has problems."""
        fields = WORKFLOW_TABLE.read(data, place)
        nodes, explicit_ids = self._read_nodes(fields.pop("nodes", []), place.key("nodes"), origin)
        if place.problems:
            return None
        nodes = add_inferred_dependencies(nodes, explicit_ids=explicit_ids)
        return Workflow(nodes=nodes, **drop_defaults(Workflow, fields))

    def _read_nodes(
        self, data: Json, place: DocumentPath, origin: DocumentOrigin
    ) -> tuple[Sequence[Node], frozenset[NodeId]]:
        """Returns the nodes, and the ids of the nodes with explicit dependencies."""
        nodes: list[Node] = []
        explicit_ids: set[NodeId] = set()
        for node_place, value in _iterate_node_entries(data, place):
            fields = NODE_TABLE.read(value, node_place)
            if fields.get("handler") == CHILD_WORKFLOW:
                fields |= self._children.read_child(fields, node_place.key("config"), origin)
            fields["retry"] = self._build_retry_policy(fields.get("retry", {}))
            if "id" in fields and "handler" in fields:
                nodes.append(Node(**drop_defaults(Node, fields)))
                if "dependencies" in fields:
                    explicit_ids.add(fields["id"])
        return nodes, frozenset(explicit_ids)

    def _build_retry_policy(self, changes: Mapping[str, Any]) -> RetryPolicy:
        """Returns the default policy with the changes of one node.

        All nodes without retry settings, which are most nodes, share one object.
        """
        return msgspec.structs.replace(self._retry, **changes) if changes else self._retry


def _iterate_node_entries(data: Json, place: DocumentPath) -> Iterator[tuple[DocumentPath, Json]]:
    """Yields the entries of a list of nodes, or of an object of nodes by id."""
    if isinstance(data, list):
        for index, value in enumerate(data):
            yield place.item(index), value
    elif isinstance(data, dict):
        for node_id, value in data.items():
            yield from _iterate_named_entry(node_id, value, place.key(node_id))
    else:
        place.expected("a list of nodes, or an object of nodes by id", data)


def _iterate_named_entry(
    node_id: str, value: Json, place: DocumentPath
) -> Iterator[tuple[DocumentPath, Json]]:
    if not isinstance(value, dict):
        place.expected("an object with 'handler'", value)
        return
    inner_ids = {key: value[key] for key in ("id", "node_id") if key in value}
    for key, inner_id in inner_ids.items():
        if inner_id != node_id:
            place.refuse(
                f"the node has two ids: its key is {quote_name(node_id)}, its '{key}' is "
                f"{describe_value(inner_id)}; keep one"
            )
            return
    yield place, value if inner_ids else {"id": node_id, **value}


def load_file(
    path: Path | str, *, resolve: ResolveWorkflow | None = None, retry: RetryPolicy | None = None
) -> Workflow:
    """Loads a workflow from a YAML or JSON file: `load_file("flow.yaml")`.

    `resolve` returns a stored workflow by name, for nodes that refer to a child workflow by name.
    `retry` provides the retry settings that nodes leave out.

    Returns the Workflow. Raises InvalidWorkflowError with every problem of keys and values. The
    graph is checked later, when the workflow is run or submitted.
    """
    file = Path(path)
    return read_document(read_data(file), source=str(path), file=file, resolve=resolve, retry=retry)
