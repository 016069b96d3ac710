"""The plan of a seed: its processes, its executions, and its faults with their times."""

from random import Random

import msgspec
from msgspec.structs import replace

from runnel.core.ids import ExecutionId
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from simulation.faults import Fault
from simulation.workload import WorkflowGenerator, add_endless_node, list_signals

# All faults occur within this time. After this time, all faults are repaired, and all executions
# must end.
FAULT_PHASE_S = 15.0
SUBMIT_S_MAX = 9.0
SKEW_S_MAX = 20.0
# The share of seeds without faults. Seeds without faults reveal wasted work and delays.
FAULT_FREE_SHARE = 0.08
# A process that is silent for this time counts as dead.
FAILURE_DETECTION_S = 3.0
# How long clean-up nodes wait for the end of stopped code.
STOP_S_MAX = 3.0
# The maximum number of tasks of one execution in flight, even if its own limit is higher.
WINDOW = 3
# The default crash-loop limit, which is so high that no task reaches it. A plan can set a lower
# limit.
LOSSES_MAX = 10_000


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault at a planned time for the process with the index `target`."""

    at: float
    fault: Fault
    target: int
    lasts_s: float


class ExecutionOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One planned execution, with the times of its submit, signals and cancel.

    With `start_at` the execution is held until that time, and `start_input` may replace its input.
    """

    execution_id: ExecutionId
    workflow: Workflow
    at: float
    signals_at: tuple[float, ...]
    cancel_at: float | None
    input: dict[str, Json] = {}
    start_at: float | None = None
    start_input: dict[str, Json] | None = None
    is_forced: bool = False
    """True if the cancel skips clean-up nodes."""
    repeats_signals: bool = False

    @property
    def final_input(self) -> dict[str, Json]:
        return self.input if self.start_input is None else self.start_input


def make_signal_payload(execution_id: str, signal_id: str) -> Json:
    """Returns a payload that is unique for each signal."""
    return [execution_id, signal_id]


class SimulationPlan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    orchestrators: int
    workers: int
    partitions: int
    concurrency: int
    cuts_commits: bool
    faults: frozenset[Fault]
    acts: tuple[PlannedFault, ...]
    orders: tuple[ExecutionOrder, ...]
    crashes_max: int = LOSSES_MAX
    keeps_exhausted: bool = False

    @property
    def is_fault_free(self) -> bool:
        """True if the plan has no fault and no task that crashes workers.

        Such a run must not waste work.
        """
        return not self.faults and not any(
            _can_kill_workers(order.workflow) for order in self.orders
        )


# The faults of processes and of the store, with their maximum count and their shortest and longest
# duration. Faults of single calls are not listed.
_TIMED_FAULTS: dict[Fault, tuple[int, float, float]] = {
    Fault.CRASH: (4, 0.1, 4.0),
    Fault.PAUSE: (3, 0.5, 9.0),
    Fault.CUT_OFF: (3, 0.5, 9.0),
    Fault.RESTART: (2, 0.0, 1.0),
    Fault.ROLLBACK: (2, 0.2, 4.0),
    Fault.SKEW: (3, 0.0, 0.0),
    Fault.SLOW: (2, 0.2, 4.0),
}


def make_plan(seed: int) -> SimulationPlan:
    """Returns the plan of a seed.

    Each seed enables only some of the faults, because all faults together would hide bugs that a
    few faults reveal. One seed in twelve enables none and must not waste any work.
    """
    rng = Random(f"plan {seed}")
    is_fault_free = rng.random() < FAULT_FREE_SHARE
    faults = frozenset(fault for fault in Fault if rng.random() < 0.45 and not is_fault_free)
    orchestrators, workers = rng.randint(1, 3), rng.randint(1, 3)
    return SimulationPlan(
        seed=seed,
        orchestrators=orchestrators,
        workers=workers,
        partitions=rng.randint(1, 3),
        concurrency=rng.choice([1, 2, 4]),
        cuts_commits=rng.random() < 0.15,
        faults=faults,
        acts=_plan_faults(rng, faults, orchestrators + workers),
        orders=tuple(
            _plan_order(rng, number, is_fault_free=is_fault_free)
            for number in range(rng.randint(1, 4))
        ),
        crashes_max=rng.choice([LOSSES_MAX, LOSSES_MAX, 1, 1, 2]),
        keeps_exhausted=rng.random() < 0.3,
    )


def _plan_faults(rng: Random, faults: frozenset[Fault], processes: int) -> tuple[PlannedFault, ...]:
    acts = [
        PlannedFault(
            at=rng.uniform(0.3, FAULT_PHASE_S - longest),
            fault=fault,
            target=rng.randrange(processes),
            lasts_s=_choose_duration_s(rng, shortest, longest),
        )
        for fault, (count_max, shortest, longest) in _TIMED_FAULTS.items()
        if fault in faults
        for _ in range(rng.randint(1, count_max))
    ]
    return tuple(sorted(acts, key=lambda act: act.at))


def _choose_duration_s(rng: Random, shortest: float, longest: float) -> float:
    """Returns a random duration of a fault.

    The duration is often near the failure timeout. A process is then declared dead just before its
    next heartbeat.
    """
    if longest > FAILURE_DETECTION_S + 1.5 and rng.random() < 0.5:
        return rng.uniform(FAILURE_DETECTION_S, FAILURE_DETECTION_S + 1.5)
    return rng.uniform(shortest, longest)


def _plan_order(rng: Random, number: int, *, is_fault_free: bool) -> ExecutionOrder:
    at = rng.uniform(0, SUBMIT_S_MAX)
    workload = WorkflowGenerator(rng, may_kill=not is_fault_free)
    workflow = workload.make_workflow(f"w{number}")
    fate, in_child = rng.random(), rng.random() < 0.35
    if fate < 0.15:
        workflow = add_endless_node(workflow, in_child=in_child)
    elif fate < 0.25:
        workflow = replace(
            add_endless_node(workflow, in_child=in_child),
            timeout_seconds=rng.choice([2.0, 2.0, 20.0]),
            sla_seconds=rng.choice([None, 0.5, 4.0]),
        )
    signals = len(list_signals(workflow))
    signals += bool(signals) and rng.random() < 0.5
    is_held = rng.random() < 0.15
    is_changed = is_held and rng.random() < 0.5
    return ExecutionOrder(
        execution_id=ExecutionId(f"x{number}"),
        workflow=workflow,
        at=at,
        signals_at=tuple(at + rng.uniform(0, 10.0) for _ in range(signals)),
        cancel_at=at + rng.uniform(0, 8.0) if fate < 0.15 else None,
        input={"n": -1} if is_changed else workload.input,
        start_at=at + rng.uniform(0, 4.0) if is_held else None,
        start_input=workload.input if is_changed else None,
        is_forced=rng.random() < 0.4,
        repeats_signals=rng.random() < 0.4,
    )


def _can_kill_workers(workflow: Workflow) -> bool:
    return any(
        "kills" in node.config or (node.child is not None and _can_kill_workers(node.child))
        for node in workflow.nodes
    )
