"""What a server tells of itself and of its workflows."""

import msgspec

from runnel.core.ids import DefinitionHash


class StoredWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a workflow; `workflow_definition_id` is the hash of its content."""

    name: str
    version: int
    workflow_definition_id: DefinitionHash
    nodes: int


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """`parts` says of each why it is not ready; None when it is."""

    status: str
    parts: dict[str, str | None]

    @property
    def is_ready(self) -> bool:
        return not any(self.parts.values())


class About(msgspec.Struct, frozen=True, kw_only=True):
    """`engine` is `embedded`, or `redis` with workers around it."""

    version: str
    engine: str

    @property
    def has_workers(self) -> bool:
        return self.engine != "embedded"
