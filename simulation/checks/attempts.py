"""Attempts stay within their bounds: each has a reason, and each failure counts once."""

from collections import Counter

from runnel.core.commands import TaskFailed
from runnel.core.events import Event, NodeFailed, NodeQueued, NodeWaits, RetryPlanned, TaskWasLost
from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM, Token
from simulation.commit_log import Check, Given, Step, Truth

_REASONS = (RetryPlanned, TaskWasLost, NodeWaits)
# Errors that may be gone the next time.
_PASSING = ("ConnectionError", "TaskTimeoutError")


class Attempts(Check):
    name = "attempts"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._reasons: Counter[tuple[str, str, int]] = Counter()
        self._begun: set[Token] = set()
        self._keys: dict[tuple[str, str, int], str] = {}
        self._places: dict[str, tuple[str, str, int]] = {}

    def code_begins(self, worker: str, token: Token, given: Given) -> None:
        """Once for each nonce, but for a store that has forgotten that it has begun."""
        if token in self._begun and not self.truth.was_set_back:
            raise self.broken(f"{worker} runs the code of {token} once more")
        self._begun.add(token)
        self._check_key(token, given.key)

    def _check_key(self, token: Token, key: str) -> None:
        """The same for each attempt of a node or item, and nobody else's."""
        place = (token.execution_id, token.node_id, token.item)
        known = self._keys.setdefault(place, key), self._places.setdefault(key, place)
        if known != (key, place):
            raise self.broken(f"{token} has the idempotency key {key}, known were {known}")

    def happening(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, NodeFailed):
            self._check_given_up(execution, event)
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

    def _check_given_up(self, execution: Execution, event: NodeFailed) -> None:
        """What might have helped was tried as often as it may be; a map is judged by its items."""
        index = execution.graph.index[event.node]
        run, policy = execution.run(index, event.item), execution.graph.nodes[index].node.retry
        is_map = index in execution.maps and event.item == NO_ITEM
        helps = event.error.type in (*_PASSING, *policy.retry_on)
        if helps and not is_map and run is not None and run.failures < policy.max_retries:
            name = f"{execution.id}/{event.node}"
            raise self.broken(f"{name} is given up after {run.failures} of {policy.max_retries}")

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
