"""Reads a document, as decoded from YAML or JSON, into a workflow; all problems in one answer.

Only the shape is judged here: the keys, and what each value may be. Whether the graph can run is
for `runnel.core.validation`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from runnel.authoring.children import Children, Origin, Resolve
from runnel.authoring.fields import without_defaults
from runnel.authoring.inference import with_inferred
from runnel.authoring.node_fields import NODE_TABLE
from runnel.authoring.place import Place, TooManyProblemsError
from runnel.authoring.workflow_fields import WORKFLOW_TABLE
from runnel.core.checks.json_values import json_problems
from runnel.core.checks.wording import quoted, shown
from runnel.core.ids import NodeId
from runnel.core.json_types import Json
from runnel.core.retry import RetryPolicy
from runnel.core.workflow import CHILD_WORKFLOW, Node, Workflow
from runnel.errors import InvalidWorkflowError


def read_document(
    data: Json,
    *,
    source: str = "workflow",
    directory: Path | None = None,
    file: Path | None = None,
    resolve: Resolve | None = None,
    retry: RetryPolicy | None = None,
) -> Workflow:
    """Raises InvalidWorkflowError; `source` is what it calls the document.

    `retry` fills in what the nodes, those of child workflows too, do not say about theirs.

    Files of child workflows are looked for from `directory`, by default that of `file`, the
    document's own; a document with neither (it came over the network) can't name files. Without
    `resolve` it can't name workflows either.
    """
    trail = () if file is None else (file.resolve(),)
    if directory is None and file is not None:
        directory = file.parent
    place = Place()
    workflow = None
    try:
        for problem in json_problems(data, ""):
            place.refuse(problem)
        if not place.problems:
            origin = Origin(directory=directory, trail=trail)
            workflow = _Reader(resolve, retry or RetryPolicy()).workflow(data, place, origin)
    except TooManyProblemsError:
        workflow = None
    if workflow is None:
        raise InvalidWorkflowError(place.problems, source=source)
    return workflow


class _Reader:
    def __init__(self, resolve: Resolve | None, retry: RetryPolicy) -> None:
        self._children = Children(self.workflow, resolve)
        self._retry = retry

    def workflow(self, data: Json, place: Place, origin: Origin) -> Workflow | None:
        """None when there are problems, here or anywhere before."""
        found = WORKFLOW_TABLE.read(data, place)
        drafts, stated = self._drafts(found.pop("nodes", []), place.key("nodes"), origin)
        if place.problems:
            return None
        nodes = with_inferred(drafts, unless=stated)
        return Workflow(nodes=nodes, **without_defaults(Workflow, found))

    def _drafts(
        self, data: Json, place: Place, origin: Origin
    ) -> tuple[list[Node], frozenset[NodeId]]:
        """The nodes, and the ids of those that state their dependencies."""
        nodes: list[Node] = []
        stated: set[NodeId] = set()
        for below, value in _entries(data, place):
            found = NODE_TABLE.read(value, below)
            if found.get("handler") == CHILD_WORKFLOW:
                found |= self._children.of(found, below.key("config"), origin)
            found["retry"] = self._policy(found.get("retry", {}))
            if "id" in found and "handler" in found:
                nodes.append(Node(**without_defaults(Node, found)))
                if "dependencies" in found:
                    stated.add(found["id"])
        return nodes, frozenset(stated)

    def _policy(self, said: Mapping[str, Any]) -> RetryPolicy:
        """One object for all nodes that say nothing: most do not."""
        return msgspec.structs.replace(self._retry, **said) if said else self._retry


def _entries(data: Json, place: Place) -> Iterator[tuple[Place, Json]]:
    """A list of nodes, or an object of nodes by id."""
    if isinstance(data, list):
        for index, value in enumerate(data):
            yield place.item(index), value
    elif isinstance(data, dict):
        for node_id, value in data.items():
            yield from _named_entry(node_id, value, place.key(node_id))
    else:
        place.expected("a list of nodes, or an object of nodes by id", data)


def _named_entry(node_id: str, value: Json, place: Place) -> Iterator[tuple[Place, Json]]:
    if not isinstance(value, dict):
        place.expected("an object with 'handler'", value)
        return
    own = {key: value[key] for key in ("id", "node_id") if key in value}
    for key, other in own.items():
        if other != node_id:
            place.refuse(f"the key says {quoted(node_id)}, '{key}' says {shown(other)}; keep one")
            return
    yield place, value if own else {"id": node_id, **value}
