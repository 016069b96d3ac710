"""Checks that no slot of an execution stays empty while a node or item could use the slot."""

from runnel.core.events import Wait
from runnel.core.execution import Execution, NodeRun
from runnel.core.states import IN_FLIGHT_STATES, ExecutionState, NodeState
from simulation.commit_log import CommitStep, GroundTruth, InvariantCheck
from simulation.plan import WINDOW

# The longest allowed time with an empty slot. A new owner first reads its inbox, then finds
# runnable nodes, and each call takes up to 1 s.
IDLE_S_MAX = 5.0


class IdleSlotCheck(InvariantCheck):
    name = "idle"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._idle_since: dict[tuple[str, str], float] = {}

    def on_commit(self, step: CommitStep) -> None:
        """Checks that no slot stays empty for too long.

        The queue for slots can't be checked directly, because it is only in memory.
        """
        now = self.truth.server.clock.monotonic()
        for id_ in {id_ for id_, _ in step.events} & self.truth.executions.keys():
            key = (id_, step.lease.nonce)
            if not _is_idle(self.truth.executions[id_]):
                self._idle_since.pop(key, None)
            elif now - self._idle_since.setdefault(key, now) > IDLE_S_MAX:
                raise self.make_violation(
                    f"{id_} has had an empty slot for {now - self._idle_since[key]:.1f} s"
                )


def _is_idle(execution: Execution) -> bool:
    """Returns True if a slot is empty while a node could run.

    Returns False for executions that may be loading a large value.
    """
    if execution.state is not ExecutionState.RUNNING or execution.outcome is not None:
        return False
    if any(run.output is not None and run.output.blob is not None for run in execution.nodes):
        return False
    slots = min(execution.graph.workflow.max_concurrency or WINDOW, WINDOW)
    return _count_used_slots(execution) < slots and _has_runnable_node(execution)


def _count_used_slots(execution: Execution) -> int:
    runs = [run for index, run in enumerate(execution.nodes) if index not in execution.maps]
    runs += [run for map_run in execution.maps.values() for run in map_run.active.values()]
    return sum(
        run.state in IN_FLIGHT_STATES or run.wait in (Wait.CHILD, Wait.LIMIT) for run in runs
    )


def _has_runnable_node(execution: Execution) -> bool:
    for compiled in execution.graph.nodes:
        run = execution.nodes[compiled.index]
        if run.is_final:
            continue
        map_run = execution.maps.get(compiled.index)
        if map_run is not None:
            has_room = len(map_run.active) < min(WINDOW, map_run.count - map_run.settled)
            if has_room or any(map(_is_waiting_for_slot, map_run.active.values())):
                return True
        elif _is_waiting_for_slot(run):
            return True
        elif run.state is NodeState.PENDING:
            parents = [execution.nodes[parent] for parent in compiled.parents]
            if all(parent.is_final for parent in parents):
                return True
    return False


def _is_waiting_for_slot(run: NodeRun) -> bool:
    return run.wait is Wait.SLOT and not run.is_final
