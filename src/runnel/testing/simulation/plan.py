"""What a seed means: who takes part, what is asked of them, and what will go wrong when."""

from random import Random

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.workflow import Workflow
from runnel.testing.simulation.faults import Fault
from runnel.testing.simulation.workload import random_workflow, signals_of, with_endless_node

# All faults happen in this time; after it everything is repaired, and has to come to its end.
TROUBLE_S = 15.0
SUBMIT_S_MAX = 9.0
SKEW_S_MAX = 20.0


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """A fault at a planned time: to process number `target`, for `lasts_s`."""

    at: float
    fault: Fault
    target: int
    lasts_s: float


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that is asked for, the signals that it will get, and when it is cancelled."""

    execution_id: ExecutionId
    workflow: Workflow
    at: float
    signals_at: tuple[float, ...]
    cancel_at: float | None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    orchestrators: int
    workers: int
    partitions: int
    concurrency: int
    cuts_commits: bool
    faults: frozenset[Fault]
    acts: tuple[Act, ...]
    orders: tuple[Order, ...]


# Faults that happen to processes and to the store, not to single calls: how often, how long.
_ACTS: dict[Fault, tuple[int, float, float]] = {
    Fault.CRASH: (4, 0.1, 4.0),
    Fault.PAUSE: (3, 0.5, 9.0),
    Fault.CUT_OFF: (2, 0.5, 9.0),
    Fault.RESTART: (2, 0.0, 1.0),
    Fault.ROLLBACK: (1, 0.05, 2.0),
    Fault.SKEW: (3, 0.0, 0.0),
    Fault.SLOW: (2, 0.2, 4.0),
}


def make_plan(seed: int) -> Plan:
    """Each seed switches on some of the faults: all of them together hide what few would show."""
    chance = Random(f"plan {seed}")
    faults = frozenset(fault for fault in Fault if chance.random() < 0.45)
    orchestrators, workers = chance.randint(1, 3), chance.randint(1, 3)
    return Plan(
        seed=seed,
        orchestrators=orchestrators,
        workers=workers,
        partitions=chance.randint(1, 3),
        concurrency=chance.choice([1, 2, 4]),
        cuts_commits=chance.random() < 0.15,
        faults=faults,
        acts=_acts(chance, faults, orchestrators + workers),
        orders=tuple(_order(chance, number) for number in range(chance.randint(1, 5))),
    )


def _acts(chance: Random, faults: frozenset[Fault], processes: int) -> tuple[Act, ...]:
    acts = [
        Act(
            at=chance.uniform(0.3, TROUBLE_S - longest),
            fault=fault,
            target=chance.randrange(processes),
            lasts_s=chance.uniform(shortest, longest),
        )
        for fault, (most, shortest, longest) in _ACTS.items()
        if fault in faults
        for _ in range(chance.randint(1, most))
    ]
    return tuple(sorted(acts, key=lambda act: act.at))


def _order(chance: Random, number: int) -> Order:
    at = chance.uniform(0, SUBMIT_S_MAX)
    workflow = random_workflow(chance, f"w{number}")
    cancelled = chance.random() < 0.15
    if cancelled:
        workflow = with_endless_node(workflow)
    return Order(
        execution_id=ExecutionId(f"x{number}"),
        workflow=workflow,
        at=at,
        signals_at=tuple(at + chance.uniform(0, 10.0) for _ in range(signals_of(workflow))),
        cancel_at=at + chance.uniform(0, 8.0) if cancelled else None,
    )
