"""Child executions that are not final: a tree is over when its root and all of these are."""

from collections.abc import Sequence

from runnel.core.events import ExecutionCreated, ExecutionFinished
from runnel.core.ids import ExecutionId, root_of
from runnel.runtime.hub import Happened


class Offspring:
    """Known by what the engine of this process tells of them, and by `add`."""

    def __init__(self) -> None:
        self._unfinished: dict[ExecutionId, dict[ExecutionId, None]] = {}

    def add(self, child: ExecutionId) -> None:
        self._unfinished.setdefault(root_of(child), {})[child] = None

    def end(self, child: ExecutionId) -> None:
        root = root_of(child)
        of_tree = self._unfinished.get(root, {})
        of_tree.pop(child, None)
        if not of_tree:
            self._unfinished.pop(root, None)

    def see(self, what: Happened) -> None:
        execution_id = ExecutionId(what.execution_id)
        if root_of(execution_id) == execution_id:
            return
        for event in what.events:
            if isinstance(event, ExecutionCreated):
                self.add(execution_id)
            elif isinstance(event, ExecutionFinished):
                self.end(execution_id)

    def has(self, execution_id: ExecutionId) -> bool:
        """Whether there are any `of` it."""
        return root_of(execution_id) in self._unfinished

    def of(self, execution_id: ExecutionId) -> Sequence[ExecutionId]:
        """Those of the tree that this execution belongs to, oldest first."""
        return list(self._unfinished.get(root_of(execution_id), ()))
