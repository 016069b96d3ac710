"""Follows every commit of the simulated store, computes the correct state, and runs the checks."""

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

# The tolerance for rounding errors in sums of floats.
ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True)
class HandlerInvocation:
    """The arguments that user code received when it started."""

    template_values: Json
    """The resolved templates of the task's config."""
    inputs: dict[str, Json]
    execution_input: Json
    rate_limit_tag: str | None
    """The rate limit of the task."""
    idempotency_key: str


class RateTokens:
    """Counts issued rate tokens, and starts of code that used a token.

    A rollback changes neither count.
    """

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
    """One commit: its lease, the consumed inbox entries and the new events."""

    lease: Lease
    commit: Commit
    consumed: Sequence[InboxEntry]
    events: list[tuple[str, AnyEvent]]
    runs_before: dict[TaskToken, NodeRun | None]
    """The node or item of each consumed report, before the commit."""
    known_executions: frozenset[str]
    """The executions that existed before the commit."""
    at: float | None
    """The time of the commit on its owner's clock; None if it has no event."""


class InvariantCheck:
    """The base class of checks.

    Each check covers one invariant; a rollback of the store creates a new instance.
    """

    name = ""

    def __init__(self, truth: "GroundTruth") -> None:
        self.truth = truth

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        """Runs before an event changes the execution; `at` is the time on the owner's clock."""

    def on_commit(self, step: CommitStep) -> None: ...

    def on_task_started(self, worker: str, token: TaskToken) -> None:
        """Runs after the store assigned this attempt to a worker."""

    def on_rate_token(self, tag: str, at: float, *, rate_per_second: float, burst: int) -> None:
        """Runs after the store issued a rate token."""

    def on_tasks_lost(self, record: WorkerRecord, *, counter: int, lost_count: int) -> None:
        """Runs after the store took `lost_count` tasks from a worker that was declared dead.

        `record` is the state of the worker on which the declaration is based.
        """

    def on_handler_started(
        self, worker: str, token: TaskToken, invocation: "HandlerInvocation"
    ) -> None:
        """Runs before user code of this attempt starts."""

    def on_handler_ended(self, worker: str, token: TaskToken) -> None:
        """Runs after user code of this attempt ended in any way."""

    def on_end(self) -> None:
        """Runs after all faults are repaired and all executions are final."""

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
    """The correct state of all executions, computed from the notifications of the store.

    `server` is set after creation.
    """

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
        """The running user code of each worker."""
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
        """Returns the node or item of the token; None for an item that is settled or has not
        started.
        """
        execution = self.executions.get(token.execution_id)
        if execution is None:
            return None
        return execution.run(execution.graph.index[token.node_id], token.item)

    def is_current(self, token: TaskToken, run: NodeRun | None) -> bool:
        return run is not None and (run.attempt, run.nonce) == (token.attempt, token.nonce)

    # -- notifications from the store ----------------------------------------------------------

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
        known_executions = frozenset(self.executions)
        self._committed_at = None
        events = list(self._apply_commit(commit))
        step = CommitStep(
            lease, commit, consumed, events, before, known_executions, self._committed_at
        )
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
        """Rebuilds the state from the remaining histories after a rollback."""
        self.trace("THE STORE IS ROLLED BACK")
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
        """Stores the first violation.

        Ignores later violations, because they usually follow from the first.
        """
        self.violation = self.violation or violation

    def handler_started(self, worker: str, token: TaskToken, invocation: HandlerInvocation) -> None:
        """Records that user code started."""
        self.running_handlers.setdefault(worker, []).append(token)
        self._run_checks("on_handler_started", worker, token, invocation)

    def handler_ended(self, worker: str, token: TaskToken) -> None:
        self.running_handlers[worker].remove(token)
        self._run_checks("on_handler_ended", worker, token)

    def check_end(self) -> None:
        self._run_checks("on_end")

    # -- state and checks ----------------------------------------------------------------------

    def _run_checks(self, hook: str, *args: Any, **named: Any) -> None:
        if self.violation is not None:
            return
        try:
            for check in self._hooks[hook]:
                check(*args, **named)
        except InvariantViolation as violation:
            self.record_violation(violation)
        except Exception as error:  # noqa: BLE001 - a checker that raises has found a problem
            self.record_violation(InvariantViolation("simulator", f"a checker raised {error!r}"))

    def _make_hooks(self) -> dict[str, list[Callable[..., None]]]:
        """Returns the methods to call for each hook: only those that a check overrides."""
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
                InvariantViolation("settled", f"{event.execution_id} is created twice")
            )
        self.executions[event.execution_id] = Execution(event, self._get_graph(event.definition))

    def _apply_event(self, execution: Execution, event: Event, at: float) -> None:
        self._run_checks("on_event", execution, event, at)
        try:
            evolve(execution, event, at)
        except Exception as error:  # noqa: BLE001 - any error means that the history is invalid
            self.record_violation(
                InvariantViolation("settled", f"{execution.id}: {event} can't follow: {error!r}")
            )

    def _get_graph(self, hash_: DefinitionHash) -> Graph:
        if hash_ not in self._graphs:
            definition = self.server.state.definitions[hash_]
            self._graphs[hash_] = Graph(decode_workflow(definition.document))
        return self._graphs[hash_]


def get_token(command: Command | None) -> TaskToken | None:
    """Returns the token of a report; None for every other command."""
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
