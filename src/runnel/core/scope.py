"""What templates see when the core itself evaluates them: conditions, lists, keys, results."""

from typing import Protocol

import msgspec

from runnel.core.execution import Execution
from runnel.core.ids import NodeId
from runnel.core.json_types import Json
from runnel.core.states import NodeState
from runnel.core.templates import MissingValueError
from runnel.core.values import Value

NO_ITEM_VALUE = object()


class BlobNeededError(Exception):
    """Not an error of the user's: evaluating must wait until this blob has been loaded."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Values(Protocol):
    """The blobs that are at hand."""

    def peek(self, key: str) -> bytes | None:
        """None when the blob has not been loaded (yet)."""


class ExecutionScope:
    """Decodes an output when an expression reaches it, and only then."""

    def __init__(
        self, execution: Execution, values: Values, *, item: object = NO_ITEM_VALUE
    ) -> None:
        self._execution = execution
        self._values = values
        self._item = item

    def lookup(self, root: str) -> Json:
        if root == "input":
            return self._decode(self._execution.input)
        if root == "execution":
            return describe(self._execution)
        if root == "item" and self._item is not NO_ITEM_VALUE:
            return self._item
        index = self._execution.graph.index.get(NodeId(root))
        if index is None:
            raise MissingValueError(root)
        run = self._execution.nodes[index]
        if run.state is not NodeState.COMPLETED or run.output is None:
            raise no_output(root, run.state)
        return self._decode(run.output)

    def _decode(self, value: Value) -> Json:
        if value.blob is None:
            return value.decode()
        data = self._values.peek(value.blob)
        if data is None:
            raise BlobNeededError(value.blob)
        return msgspec.json.decode(data)


def describe(execution: Execution) -> Json:
    """The `execution` of templates."""
    return {
        "id": execution.id,
        "workflow": execution.graph.workflow.name,
        "version": execution.version,
        "started_at": execution.started_at,
        "labels": execution.labels,
    }


def no_output(root: str, state: str) -> MissingValueError:
    error = MissingValueError(root)
    error.problem = f"'{root}' has no output: it is {state}; add | default(…) if it may be missing"
    return error
