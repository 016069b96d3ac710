"""The smallest plan that still breaks the same thing: what is left is what matters."""

from collections.abc import Iterator

from msgspec.structs import replace

from runnel.testing.simulation.plan import Plan
from runnel.testing.simulation.world import Run, simulate

RUNS_MAX = 150


def shrink(run: Run) -> Run:
    """Leaves out one thing after the other, as long as the same check fails."""
    left = RUNS_MAX
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for plan in _smaller(run.plan):
            if left <= 0:
                return run
            left -= 1
            tried = simulate(plan)
            if _is_same(tried, run):
                run, is_smaller = tried, True
                break
    return run


def _is_same(tried: Run, wanted: Run) -> bool:
    return (
        tried.broken is not None
        and wanted.broken is not None
        and tried.broken.check == wanted.broken.check
    )


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Large pieces first."""
    if len(plan.orders) > 1:
        for order in plan.orders:
            yield replace(plan, orders=tuple(each for each in plan.orders if each is not order))
    for fault in sorted(plan.faults):
        acts = tuple(act for act in plan.acts if act.fault is not fault)
        yield replace(plan, faults=plan.faults - {fault}, acts=acts)
    for act in plan.acts:
        yield replace(plan, acts=tuple(each for each in plan.acts if each is not act))
    if plan.orchestrators > 1:
        yield replace(plan, orchestrators=plan.orchestrators - 1)
    if plan.workers > 1:
        yield replace(plan, workers=plan.workers - 1)
    if plan.partitions > 1:
        yield replace(plan, partitions=1)
