"""Checks that each attempt has a reason and is within the retry limit, and that failures count
once.
"""

from collections import Counter

from runnel.core.commands import TaskFailed
from runnel.core.events import Event, NodeFailed, NodeQueued, NodeWaits, RetryPlanned, TaskWasLost
from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM, TaskToken
from simulation.commit_log import CommitStep, GroundTruth, HandlerInvocation, InvariantCheck

_REASONS = (RetryPlanned, TaskWasLost, NodeWaits)
# The types of errors that are retried.
_TRANSIENT_ERRORS = ("ConnectionError", "TaskTimeoutError")


class AttemptCheck(InvariantCheck):
    name = "attempts"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._reasons: Counter[tuple[str, str, int]] = Counter()
        self._started: set[TaskToken] = set()
        self._keys: dict[tuple[str, str, int], str] = {}
        self._owners_of_keys: dict[str, tuple[str, str, int]] = {}

    def on_handler_started(
        self, worker: str, token: TaskToken, invocation: HandlerInvocation
    ) -> None:
        """Checks that the code of a task runs once per nonce, unless a rollback has
        lost its start.
        """
        if token in self._started and not self.truth.was_rolled_back:
            raise self.make_violation(f"{worker} runs the code of {token} a second time")
        self._started.add(token)
        self._check_key(token, invocation.idempotency_key)

    def _check_key(self, token: TaskToken, key: str) -> None:
        """Checks that all attempts of a node or item share an idempotency key that no other node
        has.
        """
        position = (token.execution_id, token.node_id, token.item)
        first_key = self._keys.setdefault(position, key)
        first_position = self._owners_of_keys.setdefault(key, position)
        if (first_key, first_position) != (key, position):
            raise self.make_violation(
                f"{token} has the idempotency key {key}: its first key was {first_key}, "
                f"and {first_position} had this key first"
            )

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, NodeFailed):
            self._check_not_given_up_early(execution, event)
        if not isinstance(event, (*_REASONS, NodeQueued)):
            return
        key = (execution.id, event.node, event.item)
        if isinstance(event, _REASONS):
            self._reasons[key] += 1
        elif event.attempt > 1 + self._reasons[key]:
            raise self.make_violation(
                f"{key} has attempt {event.attempt} after only "
                f"{self._reasons[key]} retries, losses and waits"
            )
        if isinstance(event, RetryPlanned):
            self._check_retry(execution, event)

    def _check_retry(self, execution: Execution, event: RetryPlanned) -> None:
        index = execution.graph.index[event.node]
        run = execution.run(index, event.item)
        retries_max = execution.graph.nodes[index].node.retry.max_retries
        if run is not None and run.failures >= retries_max:
            raise self.make_violation(
                f"{execution.id}/{event.node} is retried after its maximum of {retries_max} retries"
            )

    def _check_not_given_up_early(self, execution: Execution, event: NodeFailed) -> None:
        """Checks that a node fails only after all its retries are used.

        Skips maps and permanent errors.
        """
        index = execution.graph.index[event.node]
        run, policy = execution.run(index, event.item), execution.graph.nodes[index].node.retry
        is_map = index in execution.maps and event.item == NO_ITEM
        helps = event.error.type in (*_TRANSIENT_ERRORS, *policy.retry_on)
        if helps and not is_map and run is not None and run.failures < policy.max_retries:
            name = f"{execution.id}/{event.node}"
            raise self.make_violation(
                f"{name} fails after {run.failures} of {policy.max_retries} retries"
            )

    def on_commit(self, step: CommitStep) -> None:
        for entry in step.consumed:
            if isinstance(entry.command, TaskFailed):
                self._check_counted_once(step, entry.command)

    def _check_counted_once(self, step: CommitStep, command: TaskFailed) -> None:
        token = command.token
        before, after = step.runs_before[token], self.truth.find_run(token)
        if before is None or after is None or not self.truth.is_current(token, before):
            return
        failures = sum(
            isinstance(event, RetryPlanned | NodeFailed)
            and (id_, event.node, event.item) == (token.execution_id, token.node_id, token.item)
            for id_, event in step.events
        )
        if after.failures - before.failures > 1 or failures > 1:
            raise self.make_violation(f"one failure of {token} counts {failures} times")
