"""Checks that each loss of a started task counts once, and that too many crashes fail the task."""

from collections import Counter

from runnel.core.commands import TaskLost
from runnel.core.events import Event, NodeFailed, TaskWasLost
from runnel.core.execution import Execution
from runnel.core.ids import TaskToken
from runnel.core.retry import LOSSES_TOGETHER_MAX
from runnel.ports.workers import WorkerRecord
from simulation.checks.expected import CRASH_LOOP
from simulation.commit_log import CommitStep, GroundTruth, InvariantCheck

NodePosition = tuple[str, str, int]

# The reason of the only loss that counts as a crash: the worker of the task is dead. A task can't
# have crashed a worker that is alive or was stopped cleanly.
_CRASH_REASON = "its worker is dead"


class LostTaskCheck(InvariantCheck):
    name = "losses"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._started: dict[TaskToken, str] = {}
        self._killers: dict[TaskToken, bool] = {}
        """Tasks of workers that were declared dead while they were not draining.

        The value of a task is True if its worker had started no other task.
        """
        self._losses: Counter[NodePosition] = Counter()
        self._crashes: Counter[NodePosition] = Counter()

    def on_task_started(self, worker: str, token: TaskToken) -> None:
        self._started[token] = worker

    def on_tasks_lost(self, record: WorkerRecord, *, counter: int, lost_count: int) -> None:
        if not lost_count:
            return
        held = [token for token, worker in self._started.items() if worker == record.worker]
        for token in held:
            del self._started[token]
        if record.about is None or not record.about.is_draining:
            self._killers.update(dict.fromkeys(held, lost_count == 1))

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, TaskWasLost):
            self._losses[execution.id, event.node, event.item] += event.was_started
            self._crashes[execution.id, event.node, event.item] += event.was_alone
        elif isinstance(event, NodeFailed) and event.error.type == CRASH_LOOP:
            self._check_crash_loop(execution, event)

    def _check_crash_loop(self, execution: Execution, event: NodeFailed) -> None:
        position = execution.id, event.node, event.item
        crashes = self._crashes[position]
        together = self._losses[position] - crashes
        is_map = execution.graph.index[event.node] in execution.maps and event.item < 0
        is_due = crashes == self._crashes_max + 1 or together == LOSSES_TOGETHER_MAX + 1
        if not is_map and not is_due:
            name = f"{execution.id}/{event.node}[{event.item}]"
            raise self.make_violation(
                f"{name} fails after {crashes} crashes, the limit is {self._crashes_max}"
            )

    def on_commit(self, step: CommitStep) -> None:
        for entry in step.consumed:
            if isinstance(entry.command, TaskLost):
                self._check_verdict(step, entry.command)
        for id_, event in step.events:
            if isinstance(event, TaskWasLost):
                self._check_count((id_, event.node, event.item))

    def _check_verdict(self, step: CommitStep, lost: TaskLost) -> None:
        token = lost.token
        if not self.truth.was_rolled_back:
            is_killer = lost.reason == _CRASH_REASON and token in self._killers
            was_alone = is_killer and self._killers[token]
            if (lost.was_started, lost.was_alone) != (is_killer, was_alone):
                raise self.make_violation(
                    f"{token}: started {is_killer}, alone {was_alone}, but it is lost as {lost}"
                )
        reported = [
            (event.was_started, event.was_alone)
            for id_, event in step.events
            if isinstance(event, TaskWasLost)
            and (id_, event.node, event.item) == (token.execution_id, token.node_id, token.item)
        ]
        if reported and (lost.was_started, lost.was_alone) not in reported:
            raise self.make_violation(f"{lost} is recorded as {reported}")

    def _check_count(self, position: NodePosition) -> None:
        execution = self.truth.executions[position[0]]
        run = execution.run(execution.graph.index[position[1]], position[2])  # type: ignore[index]  # ids are texts
        counted = self._losses[position], self._crashes[position]
        if run is None or run.is_final:
            return
        if (run.losses, run.crashes) != counted:
            raise self.make_violation(
                f"{position} has {counted} losses and crashes, the engine counts "
                f"{(run.losses, run.crashes)}"
            )
        if run.crashes > self._crashes_max or run.losses_together > LOSSES_TOGETHER_MAX:
            raise self.make_violation(
                f"{position} continues after {run.crashes} crashes and {run.losses} losses"
            )

    @property
    def _crashes_max(self) -> int:
        return self.truth.plan.crashes_max
