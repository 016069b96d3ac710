"""Exports a workflow as the shortest document that loads as an equal workflow."""

from collections.abc import Mapping
from typing import Any

import msgspec

from runnel.authoring.documents import infer_dependencies, map_positions
from runnel.authoring.documents.fields import drop_defaults
from runnel.core.ids import NodeId
from runnel.core.values import Json
from runnel.core.workflow import Node, Workflow

# fmt: off
_NODE_FIELDS = (
    "condition", "run_when", "when_not_met", "timeout_seconds", "soft_timeout_seconds",
    "resource_tag", "concurrency_key", "concurrency_limit", "for_each", "queue", "cache",
)
_WORKFLOW_FIELDS = (
    "on_failure", "timeout_seconds", "sla_seconds", "max_concurrency", "priority", "labels",
    "rate_limits", "input", "output",
)
# fmt: on


def to_document(workflow: Workflow) -> dict[str, Json]:
    """Returns the document; leaves out default values and inferred dependencies."""
    positions = map_positions(workflow.nodes)
    return {
        "name": workflow.name,
        **_collect_changed_fields(workflow, _WORKFLOW_FIELDS),
        "nodes": [_node_to_document(node, positions) for node in workflow.nodes],
    }


def _node_to_document(node: Node, positions: Mapping[NodeId, int]) -> dict[str, Json]:
    document: dict[str, Json] = {"id": node.id, "handler": node.handler}
    child = {} if node.child is None else {"definition": to_document(node.child)}
    if node.config or child:
        document["config"] = {**node.config, **child}
    if node.dependencies != infer_dependencies(node, positions):
        document["dependencies"] = list(node.dependencies)
    retry = _collect_changed_fields(node.retry, node.retry.__struct_fields__)
    if retry:
        document["retry"] = retry
    return document | _collect_changed_fields(node, _NODE_FIELDS)


def _collect_changed_fields(value: msgspec.Struct, fields: tuple[str, ...]) -> dict[str, Json]:
    """Returns the fields that differ from their defaults, as plain JSON values."""
    changed = drop_defaults(type(value), {name: getattr(value, name) for name in fields})
    return {name: _to_plain_json(item) for name, item in changed.items()}


def _to_plain_json(value: Any) -> Json:
    return list(value) if isinstance(value, tuple) else msgspec.to_builtins(value)
