"""Child executions that are not final: a tree is over when its root and all of these are."""

from collections.abc import Sequence

from runnel.core.events import ExecutionCreated, ExecutionFinished
from runnel.core.ids import ExecutionId, get_root_id
from runnel.notify.event_bus import CommittedEvents


class UnfinishedChildren:
    """Knows the children that the engine of this process reports, and those of `add`."""

    def __init__(self) -> None:
        self._unfinished: dict[ExecutionId, dict[ExecutionId, None]] = {}

    def add(self, child: ExecutionId) -> None:
        self._unfinished.setdefault(get_root_id(child), {})[child] = None

    def remove(self, child: ExecutionId) -> None:
        root = get_root_id(child)
        children = self._unfinished.get(root, {})
        children.pop(child, None)
        if not children:
            self._unfinished.pop(root, None)

    def update(self, notification: CommittedEvents) -> None:
        execution_id = ExecutionId(notification.execution_id)
        if get_root_id(execution_id) == execution_id:
            return
        for event in notification.events:
            if isinstance(event, ExecutionCreated):
                self.add(execution_id)
            elif isinstance(event, ExecutionFinished):
                self.remove(execution_id)

    def has_any(self, execution_id: ExecutionId) -> bool:
        """Whether the tree of this execution has unfinished children."""
        return get_root_id(execution_id) in self._unfinished

    def list_children(self, execution_id: ExecutionId) -> Sequence[ExecutionId]:
        """List the unfinished children of the execution's tree, oldest first."""
        return list(self._unfinished.get(get_root_id(execution_id), ()))
