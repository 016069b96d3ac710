"""The delay after a single failure, on virtual time: the figures of the failure matrix."""

import re
from collections.abc import Set as AbstractSet

import pytest

from runnel.core.ids import ExecutionId, NodeId
from runnel.core.workflow import Node, Workflow
from simulation.deployment import DEAD_AFTER_S, HEARTBEAT_INTERVAL_S, LEASE_S
from simulation.faults import Fault
from simulation.plan import ExecutionOrder, PlannedFault, SimulationPlan
from simulation.workload import WORK, make_work_config
from simulation.world import SimulationRun, simulate

STEP_S = 2.0
FAULT_AT = 2.5
FOREVER_S = 12.0
# Two polls: one reads the last heartbeat, one finds it unchanged.
POLLS_S = 2 * LEASE_S / 6
OWNER, WORKER = 0, 2


def chain_of_three() -> Workflow:
    nodes = tuple(
        Node(
            id=NodeId(f"n{number}"),
            handler=WORK,
            config=make_work_config(takes_s=STEP_S),
            dependencies=(NodeId(f"n{number - 1}"),) if number else (),
        )
        for number in range(3)
    )
    return Workflow(name="chain", nodes=nodes)


def run_with(
    fault: Fault | None, *, target: int | None = None, lasts_s: float = FOREVER_S
) -> SimulationRun:
    """Runs one chain on two orchestrators and two workers, with one fault in its second node.

    Without a `target`, the fault affects single calls at random.
    """
    acts: tuple[PlannedFault, ...] = ()
    if fault is not None and target is not None:
        acts = (PlannedFault(at=FAULT_AT, fault=fault, target=target, lasts_s=lasts_s),)
    return simulate(make_plan_of_one_chain(acts, frozenset() if fault is None else {fault}))


def make_plan_of_one_chain(
    acts: tuple[PlannedFault, ...], faults: AbstractSet[Fault], *, partitions: int = 1
) -> SimulationPlan:
    order = ExecutionOrder(
        execution_id=ExecutionId("x"),
        workflow=chain_of_three(),
        at=0.1,
        signals_at=(),
        cancel_at=None,
    )
    return SimulationPlan(
        seed=0,
        orchestrators=2,
        workers=2,
        partitions=partitions,
        concurrency=1,
        cuts_commits=False,
        faults=frozenset(faults),
        acts=acts,
        orders=(order,),
    )


def when(run: SimulationRun, pattern: str, *, after: float = 0.0) -> float:
    """Returns the time of the first trace line that matches the pattern."""
    for line in run.trace:
        at = float(line.split()[0])
        if at > after and re.search(pattern, line):
            return at
    raise AssertionError(f"{pattern!r} never happened:\n" + "\n".join(run.trace))


def finished(run: SimulationRun) -> float:
    assert run.violation is None
    return when(run, "ExecutionFinished")


@pytest.fixture(scope="module")
def undisturbed_s() -> float:
    return finished(run_with(None))


def test_a_dead_owner_is_replaced_within_its_lease() -> None:
    run = run_with(Fault.CRASH, target=OWNER)

    taken_over_s = when(run, "owns partition 0, epoch 2") - FAULT_AT

    assert run.violation is None
    assert LEASE_S / 2 <= taken_over_s <= LEASE_S


def test_an_orchestrator_that_dies_after_each_start_gets_no_partition() -> None:
    first_at, lifetime_s, starts = 8.0, 0.4 * LEASE_S, 6
    acts = tuple(
        PlannedFault(
            at=first_at + number * lifetime_s, fault=Fault.CRASH, target=OWNER + 1, lasts_s=0.1
        )
        for number in range(starts)
    )

    run = simulate(make_plan_of_one_chain(acts, {Fault.CRASH}, partitions=4))

    moves = [line.split() for line in run.trace if " owns partition " in line]
    taken_over = [
        float(at)
        for at, owner, *_ in moves
        if first_at < float(at) < acts[-1].at + LEASE_S and owner == "o1"
    ]
    given_up = [owner for at, owner, *_ in moves if first_at < float(at) < acts[-1].at]
    assert run.violation is None
    assert len(taken_over) == 2
    assert max(taken_over) - first_at <= LEASE_S
    assert set(given_up) == {"o1"}


def test_an_owner_that_shuts_down_is_replaced_at_the_next_poll() -> None:
    run = run_with(Fault.RESTART, target=OWNER, lasts_s=0.5)

    assert run.violation is None
    assert when(run, "owns partition 0, epoch 2") - FAULT_AT <= POLLS_S


def test_a_paused_owner_can_not_write_after_a_takeover() -> None:
    run = run_with(Fault.PAUSE, target=OWNER, lasts_s=2 * LEASE_S)
    taken_over = when(run, "owns partition 0, epoch 2")

    former_owner = re.search(r"(o\d+) owns partition 0, epoch 1", "\n".join(run.trace))
    assert former_owner is not None
    with pytest.raises(AssertionError, match="never happened"):
        when(run, f"{former_owner[1]} p0 commits", after=taken_over)
    assert run.violation is None


@pytest.mark.parametrize("worker", [WORKER, WORKER + 1])
def test_tasks_of_a_dead_worker_run_again_after_the_heartbeat_timeout(
    worker: int, undisturbed_s: float
) -> None:
    run = run_with(Fault.CRASH, target=worker)

    held_up_s = finished(run) - undisturbed_s

    assert held_up_s <= DEAD_AFTER_S + STEP_S


def test_a_lost_claim_response_is_detected_within_three_heartbeats() -> None:
    run = run_with(Fault.CLAIM_ANSWER_LOST)

    lost_after_s = when(run, r"TaskWasLost\(n0\)") - when(run, "starts x/n0 #1")

    assert run.tally.faults[Fault.CLAIM_ANSWER_LOST] >= 1
    assert lost_after_s <= 3 * HEARTBEAT_INTERVAL_S
    assert run.violation is None


def test_a_stalled_store_delays_executions_by_its_pause_and_a_lease(undisturbed_s: float) -> None:
    run = run_with(Fault.SLOW, target=0, lasts_s=4.0)

    assert finished(run) - undisturbed_s <= 4.0 + LEASE_S + POLLS_S


def test_a_rolled_back_store_runs_the_lost_work_again(undisturbed_s: float) -> None:
    run = run_with(Fault.ROLLBACK, target=0, lasts_s=2.0)

    assert (
        finished(run) - undisturbed_s
        <= 2.0 + LEASE_S + POLLS_S + 3 * HEARTBEAT_INTERVAL_S + 2 * STEP_S
    )
