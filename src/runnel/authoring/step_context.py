"""What `fn(ctx)` and `condition(ctx)` of a WorkflowDAG get: the context, and earlier outputs."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from runnel.authoring.context import Context

STEP_OUTPUTS = "step_outputs"

Parents = Mapping[str, tuple[str, ...]]
"""The ids of the parents of each step."""


class StepContext(dict[str, Any]):
    """The context that `execute` was given, with `step_outputs` added: each step's own copy.

    `task` is the attempt: its number, idempotency key, logger, and whether it was told to stop.
    """

    def __init__(self, context: Mapping[str, Any], outputs: "StepOutputs", task: Context) -> None:
        super().__init__(context)
        self[STEP_OUTPUTS] = outputs
        self.task = task

    @property
    def step_outputs(self) -> "StepOutputs":
        outputs: StepOutputs = self[STEP_OUTPUTS]
        return outputs


class StepOutputs(Mapping[str, Any]):
    """The outputs of the completed steps above this one, by step id; may be read from any thread.

    A step beside this one may or may not have finished: it is never here, so that what a step
    sees does not depend on who was faster. All that is above has settled, so nothing changes.
    """

    __slots__ = ("_ancestors", "_outputs", "_parents", "_step_id")

    def __init__(self, step_id: str, parents: Parents, outputs: Mapping[str, Any]) -> None:
        self._step_id = step_id
        self._parents = parents
        self._outputs = outputs
        self._ancestors: dict[str, None] | None = None

    def __getitem__(self, step_id: str) -> Any:
        if step_id in self._parents[self._step_id] or step_id in self._above():
            return self._outputs[step_id]
        raise KeyError(step_id)

    def __iter__(self) -> Iterator[str]:
        return (step_id for step_id in self._above() if step_id in self._outputs)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<outputs of {', '.join(self) or 'no steps'}>"

    def _above(self) -> dict[str, None]:
        """Found when it is asked for: most steps read their parents only, in graphs of any size."""
        if self._ancestors is None:
            found: dict[str, None] = {}
            queue = deque(self._parents[self._step_id])
            while queue:
                step_id = queue.popleft()
                if step_id not in found:
                    found[step_id] = None
                    queue.extend(self._parents[step_id])
            self._ancestors = found
        return self._ancestors
