"""Nodes of the builder that name their handler, as a document does: they can run anywhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from runnel.authoring.fields import without_defaults
from runnel.core.ids import NodeId
from runnel.core.json_types import Json
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.workflow import Cache, Node, Workflow


class NodeFields(TypedDict, total=False):
    """The fields of a node in a document, besides those that `add_node` names itself."""

    condition: str
    run_when: str
    retry: RetryPolicy
    timeout_seconds: float
    soft_timeout_seconds: float
    resource_tag: str
    concurrency_key: str
    concurrency_limit: int
    for_each: str
    queue: str
    cache: Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainNode:
    """As it was added; `depends_on` None leaves the dependencies to its templates."""

    id: str
    handler: str
    config: dict[str, Json]
    depends_on: tuple[str, ...] | None
    child: Workflow | None
    fields: Mapping[str, Any]

    def node(self, retry: RetryPolicy) -> Node:
        fields = dict(self.fields)
        known = {str(member): member for member in RunWhen}
        if fields.get("run_when") in known:
            fields["run_when"] = known[fields["run_when"]]
        for name in ("timeout_seconds", "soft_timeout_seconds"):
            if isinstance(fields.get(name), int):
                fields[name] = float(fields[name])
        return Node(
            id=NodeId(self.id),
            handler=self.handler,
            config=self.config,
            dependencies=tuple(map(NodeId, self.depends_on or ())),
            child=self.child,
            **without_defaults(Node, {"retry": retry, **fields}),
        )
