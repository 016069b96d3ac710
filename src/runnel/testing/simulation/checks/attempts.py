"""Attempts stay within their bounds: each has a reason, and each failure counts once."""

from collections import Counter

from runnel.core.commands import TaskFailed
from runnel.core.events import Event, NodeFailed, NodeQueued, NodeWaits, RetryPlanned, TaskWasLost
from runnel.core.execution import Execution
from runnel.testing.simulation.truth import Check, Step, Truth

_REASONS = (RetryPlanned, TaskWasLost, NodeWaits)


class Attempts(Check):
    name = "attempts"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._reasons: Counter[tuple[str, str, int]] = Counter()

    def happening(self, execution: Execution, event: Event, at: float) -> None:
        if not isinstance(event, (*_REASONS, NodeQueued)):
            return
        key = (execution.id, event.node, event.item)
        if isinstance(event, _REASONS):
            self._reasons[key] += 1
        elif event.attempt > 1 + self._reasons[key]:
            raise self.broken(f"{key} has attempt {event.attempt} for {self._reasons[key]} reasons")
        if isinstance(event, RetryPlanned):
            self._check_retry(execution, event)

    def _check_retry(self, execution: Execution, event: RetryPlanned) -> None:
        index = execution.graph.index[event.node]
        run = execution.run(index, event.item)
        most = execution.graph.nodes[index].node.retry.max_retries
        if run is not None and run.failures >= most:
            raise self.broken(f"{execution.id}/{event.node} is tried again after {most} retries")

    def committed(self, step: Step) -> None:
        for entry in step.consumed:
            if isinstance(entry.command, TaskFailed):
                self._check_counted_once(step, entry.command)

    def _check_counted_once(self, step: Step, command: TaskFailed) -> None:
        token = command.token
        before, after = step.before[token], self.truth.run_of(token)
        if before is None or after is None or not self.truth.is_current(token, before):
            return
        failures = sum(
            isinstance(event, RetryPlanned | NodeFailed)
            and (id_, event.node, event.item) == (token.execution_id, token.node_id, token.item)
            for id_, event in step.events
        )
        if after.failures - before.failures > 1 or failures > 1:
            raise self.broken(f"one failure of {token} counts {failures} times")
