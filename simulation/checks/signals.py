"""Checks that a signal is consumed once, oldest first, and that no node waits for a
stored signal.
"""

from runnel.core.commands import SendSignal
from runnel.core.events import Event, SignalConsumed, SignalReceived, Wait
from runnel.core.execution import Execution
from runnel.core.states import ExecutionState
from simulation.commit_log import CommitStep, GroundTruth, InvariantCheck


class SignalCheck(InvariantCheck):
    name = "signals"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._received: set[tuple[str, str]] = set()
        self._unconsumed: dict[str, dict[str, str]] = {}
        """The names of unconsumed signals by id, the oldest first."""

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, SignalReceived):
            if (execution.id, event.signal_id) in self._received:
                raise self.make_violation(f"{execution.id} gets {event.signal_id} twice")
            self._received.add((execution.id, event.signal_id))
            self._unconsumed.setdefault(execution.id, {})[event.signal_id] = event.name
        elif isinstance(event, SignalConsumed):
            self._consume(execution, event)

    def _consume(self, execution: Execution, event: SignalConsumed) -> None:
        signal_name = execution.graph.node(event.node).node.config["signal"]
        unconsumed = self._unconsumed.get(execution.id, {})
        oldest = next((id_ for id_, name in unconsumed.items() if name == signal_name), None)
        if event.signal_id != oldest:
            raise self.make_violation(
                f"{execution.id}/{event.node} consumes {event.signal_id}, the oldest is {oldest}"
            )
        del unconsumed[oldest]

    def on_commit(self, step: CommitStep) -> None:
        if self.truth.cuts_commits:
            return  # the second commit of a split decision follows
        self._check_order(step)
        for id_ in {id_ for id_, _ in step.events} & self._unconsumed.keys():
            execution = self.truth.executions[id_]
            names = set(self._unconsumed[id_].values())
            if execution.state is ExecutionState.RUNNING and names:
                self._check_waiters(execution, names)

    def _check_order(self, step: CommitStep) -> None:
        """Checks that signals are stored in the order of their arrival."""
        sent: list[tuple[str, str]] = [
            (entry.command.execution_id, entry.command.signal_id)
            for entry in step.consumed
            if isinstance(entry.command, SendSignal)
        ]
        stored = [(id_, e.signal_id) for id_, e in step.events if isinstance(e, SignalReceived)]
        for execution_id in {id_ for id_, _ in stored}:
            remaining = iter(sent)
            if not all(signal in remaining for signal in stored if signal[0] == execution_id):
                raise self.make_violation(f"signals arrived as {sent} and are stored as {stored}")

    def _check_waiters(self, execution: Execution, names: set[str]) -> None:
        for compiled in execution.graph.nodes:
            run = execution.nodes[compiled.index]
            if run.wait is Wait.SIGNAL and not run.is_final and run.detail in names:
                name = f"{execution.id}/{compiled.node.id}"
                raise self.make_violation(f"{name} waits for '{run.detail}', which has arrived")
