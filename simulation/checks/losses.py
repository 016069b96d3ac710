"""Losses are counted: each that had begun once, no other, and too many of them end a task."""

from collections import Counter

from runnel.core.commands import TaskLost
from runnel.core.events import Event, NodeFailed, TaskWasLost
from runnel.core.execution import Execution
from runnel.core.ids import Token
from runnel.ports.workers import WorkerRecord
from simulation.checks.expected import CRASH_LOOP
from simulation.commit_log import Check, Step, Truth

Place = tuple[str, str, int]

# The only loss that is a crash: who lives, or ended in good order, was not killed by it.
_CRASH = "its worker is dead"


class Losses(Check):
    name = "losses"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._started: dict[Token, str] = {}
        self._killers: set[Token] = set()
        """Those that a worker had when it was found dead, unless it had been told to end."""
        self._losses: Counter[Place] = Counter()

    def started(self, worker: str, token: Token) -> None:
        self._started[token] = worker

    def lost(self, judged: WorkerRecord, *, sign: int, lost: int) -> None:
        if not lost:
            return
        held = [token for token, worker in self._started.items() if worker == judged.worker]
        for token in held:
            del self._started[token]
        if judged.about is None or not judged.about.is_draining:
            self._killers.update(held)

    def happening(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, TaskWasLost):
            self._losses[execution.id, event.node, event.item] += event.was_started
        elif isinstance(event, NodeFailed) and event.error.type == CRASH_LOOP:
            self._check_given_up(execution, event)

    def _check_given_up(self, execution: Execution, event: NodeFailed) -> None:
        losses, most = self._losses[execution.id, event.node, event.item], self._most
        is_map = execution.graph.index[event.node] in execution.maps and event.item < 0
        if not is_map and losses != most + 1:
            name = f"{execution.id}/{event.node}[{event.item}]"
            raise self.broken(f"{name} is given up after {losses} losses, at most {most} may be")

    def committed(self, step: Step) -> None:
        for entry in step.consumed:
            if isinstance(entry.command, TaskLost):
                self._check_verdict(step, entry.command)
        for id_, event in step.events:
            if isinstance(event, TaskWasLost):
                self._check_count((id_, event.node, event.item))

    def _check_verdict(self, step: Step, lost: TaskLost) -> None:
        token = lost.token
        if not self.truth.was_set_back:
            is_killer = lost.reason == _CRASH and token in self._killers
            if lost.was_started is not is_killer:
                raise self.broken(f"{token} is lost, was_started is {lost.was_started}: {lost}")
        told = [
            event.was_started
            for id_, event in step.events
            if isinstance(event, TaskWasLost)
            and (id_, event.node, event.item) == (token.execution_id, token.node_id, token.item)
        ]
        if told and lost.was_started not in told:
            raise self.broken(f"{lost} is kept as {told}")

    def _check_count(self, place: Place) -> None:
        execution = self.truth.executions[place[0]]
        run = execution.run(execution.graph.index[place[1]], place[2])  # type: ignore[index]  # ids are texts
        counted = self._losses[place]
        if run is None or run.is_final:
            return
        if run.losses != counted:
            raise self.broken(f"{place} has lost {counted} workers, {run.losses} are counted")
        if counted > self._most:
            raise self.broken(f"{place} goes on after {counted} losses")

    @property
    def _most(self) -> int:
        return self.truth.plan.losses_max
