"""What the store shows, kept beside it: every commit is followed as it is made, and judged."""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runnel.core.codec import decode_entry
from runnel.core.commands import LIMIT_PREFIX, Command, TaskLost
from runnel.core.concurrency_key import ConcurrencyLimit, evolve_limit
from runnel.core.events import AnyEvent, Event, ExecutionCreated, LimitEvent
from runnel.core.evolve import evolve
from runnel.core.execution import Execution, NodeRun
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash, TaskToken
from runnel.core.values import Json
from runnel.core.workflow import decode_workflow
from runnel.ports.store import Commit, InboxEntry, Lease, LeaseRecord
from runnel.ports.workers import WorkerRecord
from simulation.faults import InvariantViolation, RunStatistics
from simulation.plan import ExecutionOrder, SimulationPlan
from simulation.server import SimulatedServer, StoreObserver, StreamInbox, get_stream_inbox

# Times are sums of floats.
ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True)
class HandlerInvocation:
    """What user code found when it began."""

    template_values: Json
    """What the templates of its config came to."""
    inputs: dict[str, Json]
    execution_input: Json
    rate_limit_tag: str | None
    """The rate limit that its task names."""
    idempotency_key: str
    """By which user code knows that it has been here before."""


class RateTokens:
    """Tokens that were given out, and code that has begun on them; a set-back changes neither."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self._tokens: dict[str, list[float]] = {}

    def add(self, tag: str, at: float) -> None:
        insort(self._tokens.setdefault(tag, []), at)

    def count_issued(self, tag: str) -> int:
        return len(self._tokens.get(tag, ()))

    def count_due(self, tag: str, now: float) -> int:
        return bisect_right(self._tokens.get(tag, []), now)


@dataclass(slots=True)
class CommitStep:
    """One commit: who made it, what it took from the inbox, what it made true."""

    lease: Lease
    commit: Commit
    consumed: Sequence[InboxEntry]
    events: list[tuple[str, AnyEvent]]
    runs_before: dict[TaskToken, NodeRun | None]
    """The node or item of each consumed report, as it was before."""
    known_executions: frozenset[str]
    """The executions that existed before."""
    at: float | None
    """When it was made, by the clock of its owner; None if it tells of no event."""


class InvariantCheck:
    """One invariant. Whatever it remembers is made anew when the store is set back."""

    name = ""

    def __init__(self, truth: "GroundTruth") -> None:
        self.truth = truth

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        """The event is about to change the execution; `at` is the time its owner gave it."""

    def on_commit(self, step: CommitStep) -> None: ...

    def on_task_started(self, worker: str, token: TaskToken) -> None:
        """The store has told a worker to run this attempt."""

    def on_rate_token(self, tag: str, at: float, *, rate_per_second: float, burst: int) -> None:
        """The store has given out a rate token."""

    def on_tasks_lost(self, record: WorkerRecord, *, counter: int, lost_count: int) -> None:
        """The store has taken `lost` tasks from a worker that was `record` to be dead."""

    def on_handler_started(
        self, worker: str, token: TaskToken, invocation: "HandlerInvocation"
    ) -> None:
        """User code of this attempt begins to run."""

    def on_handler_ended(self, worker: str, token: TaskToken) -> None:
        """It does not run any more, however it has ended."""

    def on_end(self) -> None:
        """All faults are over, and everything has come to rest."""

    def make_violation(self, problem: str) -> InvariantViolation:
        return InvariantViolation(self.name, problem)


HOOKS = (
    "on_event",
    "on_commit",
    "on_task_started",
    "on_rate_token",
    "on_tasks_lost",
    "on_handler_started",
    "on_handler_ended",
    "on_end",
)

CheckFactory = Callable[["GroundTruth"], list[InvariantCheck]]
WriteTrace = Callable[[str], None]


class GroundTruth(StoreObserver):
    """`server` is set once there is one: the store tells this, and this looks at the store."""

    server: SimulatedServer

    def __init__(
        self,
        make_checks: CheckFactory,
        plan: SimulationPlan,
        tally: RunStatistics,
        trace: WriteTrace,
    ) -> None:
        self.plan = plan
        self.orders: dict[str, ExecutionOrder] = {
            order.execution_id: order for order in plan.orders
        }
        self.cuts_commits = plan.cuts_commits
        self.concurrency = plan.concurrency
        self.running_handlers: dict[str, list[TaskToken]] = {}
        """User code that runs, by worker."""
        self.rates = RateTokens()
        self.executions: dict[str, Execution] = {}
        self.limits: dict[str, ConcurrencyLimit] = {}
        self.leases: dict[int, Lease] = {}
        self.violation: InvariantViolation | None = None
        self.was_rolled_back = False
        self.tally = tally
        self.trace = trace
        self._make_checks = make_checks
        self._graphs: dict[DefinitionHash, Graph] = {}
        self._committed_at: float | None = None
        self._hooks = self._make_hooks()

    def get_inbox(self, partition: int) -> StreamInbox:
        return get_stream_inbox(self.server.state, partition)

    def find_run(self, token: TaskToken) -> NodeRun | None:
        """The node or item as it is now; None for an item that is settled or has not begun."""
        execution = self.executions.get(token.execution_id)
        if execution is None:
            return None
        return execution.run(execution.graph.index[token.node_id], token.item)

    def is_current(self, token: TaskToken, run: NodeRun | None) -> bool:
        return run is not None and (run.attempt, run.nonce) == (token.attempt, token.nonce)

    # -- what the store tells ------------------------------------------------------------------

    def on_lease_acquired(self, lease: Lease, *, expected: LeaseRecord | None) -> None:
        self.tally.takeovers += expected is not None
        self.leases[lease.partition] = lease
        self.trace(f"{lease.owner} owns partition {lease.partition}, epoch {lease.epoch}")

    def on_commit_refused(self, lease: Lease, commit: Commit) -> None:
        self.tally.refused_commits += 1
        self.trace(f"refused: commit {commit.sequence} of {lease.owner}")

    def on_commit(self, lease: Lease, commit: Commit, consumed: Sequence[InboxEntry]) -> None:
        self.tally.commits += 1
        self.tally.lost_tasks += sum(isinstance(entry.command, TaskLost) for entry in consumed)
        tokens = [token for entry in consumed if (token := get_token(entry.command)) is not None]
        before = {token: self.find_run(token) for token in tokens}
        known = frozenset(self.executions)
        self._committed_at = None
        events = list(self._apply_commit(commit))
        step = CommitStep(lease, commit, consumed, events, before, known, self._committed_at)
        self.trace(_format_commit(step))
        self._run_checks("on_commit", step)

    def on_task_started(self, worker: str, token: TaskToken) -> None:
        self.trace(f"{worker} starts {_format_token(token)}")
        self._run_checks("on_task_started", worker, token)

    def on_task_reported(self, worker: str, report: Command, *, is_accepted: bool) -> None:
        self.tally.refused_reports += not is_accepted
        token = get_token(report)
        summary = (
            f"{type(report).__name__} of {_format_token(token)}" if token else type(report).__name__
        )
        self.trace(f"{worker}: {summary}{'' if is_accepted else ' REFUSED'}")

    def on_worker_declared_dead(
        self, record: WorkerRecord, *, counter: int, lost_count: int
    ) -> None:
        self._run_checks("on_tasks_lost", record, counter=counter, lost_count=lost_count)

    def on_rate_token(self, tag: str, at: float, *, rate_per_second: float, burst: int) -> None:
        self.rates.add(tag, at)
        self._run_checks("on_rate_token", tag, at, rate_per_second=rate_per_second, burst=burst)

    def on_restored(self) -> None:
        """Follows the histories from their beginning: what was lost never happened."""
        self.trace("THE STORE IS SET BACK")
        self.was_rolled_back = True
        self.executions, self.limits = {}, {}
        self._hooks = self._make_hooks()
        for partition in self.server.state.partitions:
            if partition.lease is not None:
                self.leases[partition.number] = partition.lease
        for aggregate_id, entries in self.server.state.histories.items():
            for entry in entries:
                for _ in self._apply_entry(aggregate_id, entry):
                    pass

    def record_violation(self, violation: InvariantViolation) -> None:
        """The first finding is kept: those that follow from it would only hide it."""
        self.violation = self.violation or violation

    def handler_started(self, worker: str, token: TaskToken, invocation: HandlerInvocation) -> None:
        """User code begins to run."""
        self.running_handlers.setdefault(worker, []).append(token)
        self._run_checks("on_handler_started", worker, token, invocation)

    def handler_ended(self, worker: str, token: TaskToken) -> None:
        self.running_handlers[worker].remove(token)
        self._run_checks("on_handler_ended", worker, token)

    def check_end(self) -> None:
        self._run_checks("on_end")

    # -- following -----------------------------------------------------------------------------

    def _run_checks(self, hook: str, *args: Any, **named: Any) -> None:
        if self.violation is not None:
            return
        try:
            for look in self._hooks[hook]:
                look(*args, **named)
        except InvariantViolation as broken:
            self.record_violation(broken)
        except Exception as error:  # noqa: BLE001 - a checker that can't judge has seen something
            self.record_violation(InvariantViolation("simulator", f"a checker raised {error!r}"))

    def _make_hooks(self) -> dict[str, list[Callable[..., None]]]:
        """Without those that a check does not have: most of them look at one thing only."""
        checks = self._make_checks(self)
        return {
            name: [
                getattr(check, name)
                for check in checks
                if getattr(type(check), name) is not getattr(InvariantCheck, name)
            ]
            for name in HOOKS
        }

    def _apply_commit(self, commit: Commit) -> Iterator[tuple[str, AnyEvent]]:
        for history in commit.histories:
            for event in self._apply_entry(history.aggregate_id, history.entry):
                yield history.aggregate_id, event
        for aggregate_id in commit.closed:
            self.limits.pop(aggregate_id, None)

    def _apply_entry(self, aggregate_id: str, data: bytes) -> Iterator[AnyEvent]:
        entry = decode_entry(data)
        self._committed_at = entry.at
        for event in entry.events:
            if isinstance(event, LimitEvent):
                key = aggregate_id.removeprefix(LIMIT_PREFIX)
                evolve_limit(self.limits.setdefault(aggregate_id, ConcurrencyLimit(key)), event)
            elif isinstance(event, ExecutionCreated):
                self._create_execution(event)
            else:
                self._apply_event(self.executions[aggregate_id], event, entry.at)
            yield event

    def _create_execution(self, event: ExecutionCreated) -> None:
        if event.execution_id in self.executions:
            self.record_violation(
                InvariantViolation("settled", f"{event.execution_id} is made twice")
            )
        self.executions[event.execution_id] = Execution(event, self._get_graph(event.definition))

    def _apply_event(self, execution: Execution, event: Event, at: float) -> None:
        self._run_checks("on_event", execution, event, at)
        try:
            evolve(execution, event, at)
        except Exception as error:  # noqa: BLE001 - whatever it is, no such history can be told
            self.record_violation(
                InvariantViolation("settled", f"{execution.id}: {event} can't follow: {error!r}")
            )

    def _get_graph(self, hash_: DefinitionHash) -> Graph:
        if hash_ not in self._graphs:
            definition = self.server.state.definitions[hash_]
            self._graphs[hash_] = Graph(decode_workflow(definition.document))
        return self._graphs[hash_]


def get_token(command: Command | None) -> TaskToken | None:
    """Of a report; None for every other command."""
    token = getattr(command, "token", None)
    return token if isinstance(token, TaskToken) else None


def _format_token(token: TaskToken) -> str:
    item = "" if token.item < 0 else f"[{token.item}]"
    return f"{token.execution_id}/{token.node_id}{item} #{token.attempt}"


def _format_commit(step: CommitStep) -> str:
    read = ", ".join(type(entry.command).__name__ for entry in step.consumed)
    made = ", ".join(f"{id_} {_format_event(event)}" for id_, event in step.events)
    owner = f"{step.lease.owner} p{step.lease.partition}"
    return f"{owner} commits {step.commit.sequence}: read [{read}] made [{made}]"


def _format_event(event: AnyEvent) -> str:
    node = getattr(event, "node", "")
    item = getattr(event, "item", -1)
    return f"{type(event).__name__}({node}{'' if item < 0 else f'[{item}]'})"
