"""Many seeds, and the proof that they did something."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from runnel.testing.simulation.faults import COUNTED, Fault, Feature, Tally
from runnel.testing.simulation.plan import make_plan
from runnel.testing.simulation.shrink import shrink
from runnel.testing.simulation.story import tell
from runnel.testing.simulation.world import Run, simulate

SEEDS_AT_ONCE = 25
# One seed: enough happened to be worth judging.
STEPS_MIN = 50
COMMITS_MIN = 1
# Many seeds: of each kind of fault and of each of these, at least so many for every 100 of them.
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
    Feature.HELD: 10,
    Feature.SKIP: 40,
    Feature.SKIP_BY_ITSELF: 4,
    Feature.KEY_WAIT: 15,
    Feature.RATE_PARK: 10,
    Feature.RATE_WAIT: 0.5,
    Feature.CRASH_LOOP: 1,
    Feature.DEAD_LETTER: 20,
    Feature.LARGE: 50,
    Feature.SHARED: 25,
    Feature.CALM: 1,
}
# Whether these happen depends on what is there to be hit.
MAY_FAIL = frozenset(
    {
        Fault.LOST_CLAIM,
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


class Outcome:
    """What a number of seeds came to."""

    def __init__(self) -> None:
        self.seeds = 0
        self.tally = Tally()
        self.findings: list[str] = []
        """Broken invariants, each as its story."""
        self.idle_seeds: list[str] = []
        """Seeds that prove nothing, each with its reason."""

    def add(self, other: "Outcome") -> None:
        self.seeds += other.seeds
        self.tally.add(other.tally)
        self.findings += other.findings
        self.idle_seeds += other.idle_seeds

    def idle(self) -> list[str]:
        """What happened too seldom to have proved anything; for at least a hundred seeds."""
        if self.seeds < HUNDRED:
            return []
        counts = self.tally.counts()
        wanted: list[tuple[str, int, float]] = [
            (name, counts[name], PER_HUNDRED_MIN[name]) for name in COUNTED
        ]
        wanted += [(fault, self.tally.faults[fault], FAULTS_PER_HUNDRED_MIN) for fault in Fault]
        wanted += [
            (feature, self.tally.features[feature], FEATURES_PER_HUNDRED_MIN[feature])
            for feature in Feature
        ]
        return [
            f"{name}: {found} in {self.seeds} seeds, expected at least {least} per {HUNDRED}"
            for name, found, least in wanted
            if found < least * self.seeds // HUNDRED
        ]

    def last_line(self) -> str:
        faults, broken = self.tally.faults.total(), len(self.findings)
        idle = f" ({len(self.idle_seeds)} prove nothing)" if self.idle_seeds else ""
        return f"{self.seeds:,} seeds{idle}, {faults:,} faults, {broken} broken invariants"


def run_seeds(seeds: Iterable[int]) -> Outcome:
    outcome = Outcome()
    for seed in seeds:
        run = simulate(make_plan(seed))
        outcome.seeds += 1
        outcome.tally.add(run.tally)
        if run.broken is not None:
            outcome.findings.append(tell(run, shrink(run)))
        else:
            outcome.idle_seeds += _too_little(run)
    return outcome


def run_many(first: int, count: int, *, processes: int) -> Iterator[Outcome]:
    """The outcomes of a few seeds at a time, in no order."""
    chunks = [
        range(start, min(start + SEEDS_AT_ONCE, first + count))
        for start in range(first, first + count, SEEDS_AT_ONCE)
    ]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run_seeds, chunks)


def _too_little(run: Run) -> list[str]:
    """A seed has to inject what it planned, and to get some work done."""
    problems = [
        f"{fault} was planned and never happened"
        for fault in sorted(run.plan.faults - MAY_FAIL)
        if not run.tally.faults[fault]
    ]
    if run.tally.steps < STEPS_MIN or run.tally.commits < COMMITS_MIN:
        problems.append(f"only {run.tally.steps} steps and {run.tally.commits} commits")
    reasons = "; ".join(problems)
    return [f"seed {run.plan.seed} proves nothing: {reasons}"] if problems else []
