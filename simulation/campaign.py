"""Runs many seeds, shrinks the plans of failed runs, and checks that faults and
features occurred.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from msgspec.structs import replace

from runnel.core.workflow import Node, Workflow
from simulation.faults import COUNTER_NAMES, Fault, Feature, RunStatistics
from simulation.plan import ExecutionOrder, SimulationPlan, make_plan
from simulation.world import SimulationRun, simulate

# Shrinking: finding the smallest plan that still violates the same check.

SHRINK_RUNS_MAX = 150


def shrink(run: SimulationRun) -> SimulationRun:
    """Returns the run of a smaller plan that fails the same check.

    Removes parts of the plan, one at a time, as long as the same check fails.
    """
    runs_left = SHRINK_RUNS_MAX
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for plan in _generate_smaller_plans(run.plan):
            if runs_left <= 0:
                return run
            runs_left -= 1
            tried = simulate(plan)
            if _is_same_violation(tried, run):
                run, is_smaller = tried, True
                break
    return run


def _is_same_violation(tried: SimulationRun, original: SimulationRun) -> bool:
    return (
        tried.violation is not None
        and original.violation is not None
        and tried.violation.check == original.violation.check
    )


def _generate_smaller_plans(plan: SimulationPlan) -> Iterator[SimulationPlan]:
    """Yields copies of the plan with one part removed, large parts first."""
    if len(plan.orders) > 1:
        for order in plan.orders:
            yield replace(plan, orders=tuple(other for other in plan.orders if other is not order))
    for fault in sorted(plan.faults):
        acts = tuple(act for act in plan.acts if act.fault is not fault)
        yield replace(plan, faults=plan.faults - {fault}, acts=acts)
    for act in plan.acts:
        yield replace(plan, acts=tuple(other for other in plan.acts if other is not act))
    if plan.orchestrators > 1:
        yield replace(plan, orchestrators=plan.orchestrators - 1)
    if plan.workers > 1:
        yield replace(plan, workers=plan.workers - 1)
    if plan.partitions > 1:
        yield replace(plan, partitions=1)


# Reports: the plan of a failed run, its violation, and the last lines of its trace.

TRACE_LINES_MAX = 40
LINE_CHARS_MAX = 300


def describe_violation(run: SimulationRun, shrunk: SimulationRun) -> str:
    plan = shrunk.plan
    processes = f"{plan.orchestrators} orchestrators, {plan.workers} workers"
    lines = [
        f"seed {run.plan.seed} broke an invariant: {run.violation}",
        f"  smallest failing plan: {processes}, {plan.partitions} partitions",
        f"  faults: {', '.join(sorted(plan.faults)) or 'none'}",
        *(f"    {act.at:7.2f} {act.fault} {act.target} {act.lasts_s:.2f} s" for act in plan.acts),
        *(line for order in plan.orders for line in _describe_order(order)),
        f"  its violation: {shrunk.violation}",
        *(f"  {line[:LINE_CHARS_MAX]}" for line in _select_last_lines(shrunk)),
        f"  again: make sim SEED={run.plan.seed} COUNT=1",
    ]
    return "\n".join(lines)


def _describe_order(order: ExecutionOrder) -> list[str]:
    signals = "".join(f", signal at {at:.2f}" for at in order.signals_at)
    times = {
        "started at": order.start_at,
        "cancelled at": order.cancel_at,
    }
    actions = "".join(f", {name} {at:.2f}" for name, at in times.items() if at is not None)
    force = " with force" if order.cancel_at is not None and order.is_forced else ""
    repeats = ", each signal twice" if order.signals_at and order.repeats_signals else ""
    head = f"  {order.execution_id} submitted at {order.at:.2f}{signals}{repeats}{actions}{force}"
    return [f"{head}, input {order.final_input}", *_describe_workflow(order.workflow, "    ")]


def _describe_workflow(workflow: Workflow, indent: str) -> list[str]:
    limits = {
        "max_concurrency": workflow.max_concurrency,
        "timeout": workflow.timeout_seconds,
        "sla": workflow.sla_seconds,
    }
    options = "".join(f", {name} {value}" for name, value in limits.items() if value is not None)
    lines = [f"{indent}{workflow.name}: {workflow.on_failure}{options}"]
    for node in workflow.nodes:
        lines.append(f"{indent}  {_describe_node(node)}")
        if node.child is not None:
            lines += _describe_workflow(node.child, f"{indent}    ")
    return lines


def _describe_node(node: Node) -> str:
    after = f" after {', '.join(node.dependencies)}" if node.dependencies else ""
    fields = {
        "run_when": node.run_when if node.run_when != "default" else None,
        "condition": node.condition,
        "for_each": node.for_each,
        "key": node.concurrency_key,
        "tag": node.resource_tag,
        "retries": node.retry.max_retries or None,
    }
    options = "".join(f", {name} {value}" for name, value in fields.items() if value is not None)
    return f"{node.id}: {node.handler}{after}{options} {node.config or ''}"


def _select_last_lines(run: SimulationRun) -> list[str]:
    """Returns the last lines of the trace.

    If the violation names executions, leaves out the others.
    """
    problem = "" if run.violation is None else run.violation.problem
    named = [order.execution_id for order in run.plan.orders if order.execution_id in problem]
    unnamed = {order.execution_id for order in run.plan.orders} - set(named) if named else set()
    lines = [
        line
        for line in run.trace
        if not any(f" {id_}/" in line or f"[{id_} " in line for id_ in unnamed)
    ]
    return lines[-TRACE_LINES_MAX:]


SEEDS_PER_CHUNK = 25
# A run with less activity than this is inconclusive.
STEPS_MIN = 50
COMMITS_MIN = 1
# The minimum of each counter per 100 seeds. Each fault must occur FAULTS_PER_HUNDRED_MIN times per
# 100 seeds.
PER_HUNDRED_MIN = {
    "takeovers": 20,
    "refused_commits": 5,
    "lost_tasks": 20,
    "refused_reports": 5,
    "late_calls": 20,
    "executions": 100,
    "killed_workers": 10,
    "commits": 500,
    "steps": 10_000,
}
FAULTS_PER_HUNDRED_MIN = 10
FEATURES_PER_HUNDRED_MIN: dict[Feature, float] = {
    Feature.JOIN: 20,
    Feature.MAP: 60,
    Feature.MAP_OF_CHILDREN: 2,
    Feature.RETRY: 100,
    Feature.EXHAUSTED: 25,
    Feature.CHILD: 15,
    Feature.CHILD_RETRY: 4,
    Feature.SIGNAL: 10,
    Feature.SIGNAL_TIMEOUT: 2,
    Feature.CANCEL: 10,
    Feature.FORCED_CANCEL: 3,
    Feature.TIMEOUT: 6,
    Feature.SLA: 3,
    Feature.HELD_START: 10,
    Feature.SKIP: 40,
    Feature.SKIP_BY_ITSELF: 4,
    Feature.KEY_WAIT: 15,
    Feature.RATE_PARK: 10,
    Feature.RATE_WAIT: 0.5,
    Feature.CRASH_LOOP: 1,
    Feature.DEAD_LETTER: 20,
    Feature.OFFLOADED_VALUE: 50,
    Feature.SHARED_VALUE: 25,
    Feature.FAULT_FREE: 1,
}
# Faults that have no effect if their target does not exist at the planned time.
OPTIONAL_FAULTS = frozenset(
    {
        Fault.CLAIM_ANSWER_LOST,
        Fault.CRASH,
        Fault.PAUSE,
        Fault.CUT_OFF,
        Fault.RESTART,
        Fault.ROLLBACK,
        Fault.SKEW,
        Fault.SLOW,
    }
)
HUNDRED = 100


class CampaignResult:
    """The combined result of several seeds."""

    def __init__(self) -> None:
        self.seeds = 0
        self.tally = RunStatistics()
        self.findings: list[str] = []
        """A report for each broken invariant."""
        self.inconclusive_seeds: list[str] = []
        """A reason for each seed that proves nothing."""

    def add(self, other: "CampaignResult") -> None:
        self.seeds += other.seeds
        self.tally.add(other.tally)
        self.findings += other.findings
        self.inconclusive_seeds += other.inconclusive_seeds

    def find_rare_features(self) -> list[str]:
        """Returns the faults and features that occurred too rarely; empty for less than a hundred
        seeds.
        """
        if self.seeds < HUNDRED:
            return []
        counts = self.tally.counts()
        minimums: list[tuple[str, int, float]] = [
            (name, counts[name], PER_HUNDRED_MIN[name]) for name in COUNTER_NAMES
        ]
        minimums += [(fault, self.tally.faults[fault], FAULTS_PER_HUNDRED_MIN) for fault in Fault]
        minimums += [
            (feature, self.tally.features[feature], FEATURES_PER_HUNDRED_MIN[feature])
            for feature in Feature
        ]
        return [
            f"{name}: {number} in {self.seeds} seeds, expected at least {minimum} per {HUNDRED}"
            for name, number, minimum in minimums
            if number < minimum * self.seeds // HUNDRED
        ]

    def format_summary(self) -> str:
        faults, broken = self.tally.faults.total(), len(self.findings)
        count = len(self.inconclusive_seeds)
        inconclusive = f" ({count} prove nothing)" if count else ""
        return f"{self.seeds:,} seeds{inconclusive}, {faults:,} faults, {broken} broken invariants"


def run_seeds(seeds: Iterable[int]) -> CampaignResult:
    outcome = CampaignResult()
    for seed in seeds:
        run = simulate(make_plan(seed))
        outcome.seeds += 1
        outcome.tally.add(run.tally)
        if run.violation is not None:
            outcome.findings.append(describe_violation(run, shrink(run)))
        else:
            outcome.inconclusive_seeds += _explain_inconclusive(run)
    return outcome


def run_campaign(first: int, count: int, *, processes: int) -> Iterator[CampaignResult]:
    """Yields the results of a few seeds at a time, in the order of the seeds."""
    chunks = [
        range(start, min(start + SEEDS_PER_CHUNK, first + count))
        for start in range(first, first + count, SEEDS_PER_CHUNK)
    ]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run_seeds, chunks)


def _explain_inconclusive(run: SimulationRun) -> list[str]:
    """Returns the reasons why a run proves nothing: missing faults, or too little activity."""
    problems = [
        f"{fault} was planned and never happened"
        for fault in sorted(run.plan.faults - OPTIONAL_FAULTS)
        if not run.tally.faults[fault]
    ]
    if run.tally.steps < STEPS_MIN or run.tally.commits < COMMITS_MIN:
        problems.append(f"only {run.tally.steps} steps and {run.tally.commits} commits")
    reasons = "; ".join(problems)
    return [f"seed {run.plan.seed} proves nothing: {reasons}"] if problems else []
