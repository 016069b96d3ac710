"""What the store shows, kept beside it: every commit is followed as it is made, and judged."""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runnel.core.codec import decode_entry
from runnel.core.commands import LIMIT_PREFIX, Command, TaskLost
from runnel.core.concurrency_key import Limit, evolve_limit
from runnel.core.events import AnyEvent, Event, ExecutionCreated, LimitEvent
from runnel.core.evolve import evolve
from runnel.core.execution import Execution, NodeRun
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash, Token
from runnel.core.values import Json
from runnel.core.workflow import decode_workflow
from runnel.ports.store import Commit, InboxEntry, Lease, LeaseRecord
from runnel.ports.workers import WorkerRecord
from simulation.faults import Broken, Tally
from simulation.plan import Order, Plan
from simulation.server import Server, StreamInbox, Watcher, stream


@dataclass(frozen=True, slots=True)
class Given:
    """What user code found when it began."""

    of: Json
    """What the templates of its config came to."""
    inputs: dict[str, Json]
    execution_input: Json
    tag: str | None
    """The rate limit that its task names."""
    key: str
    """By which user code knows that it has been here before."""


class Rates:
    """Tokens that were given out, and code that has begun on them; a set-back changes neither."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self._tokens: dict[str, list[float]] = {}

    def add(self, tag: str, at: float) -> None:
        insort(self._tokens.setdefault(tag, []), at)

    def given(self, tag: str) -> int:
        return len(self._tokens.get(tag, ()))

    def due(self, tag: str, now: float) -> int:
        return bisect_right(self._tokens.get(tag, []), now)


@dataclass(slots=True)
class Step:
    """One commit: who made it, what it took from the inbox, what it made true."""

    lease: Lease
    commit: Commit
    consumed: Sequence[InboxEntry]
    events: list[tuple[str, AnyEvent]]
    before: dict[Token, NodeRun | None]
    """The node or item of each consumed report, as it was before."""
    known: frozenset[str]
    """The executions that existed before."""
    at: float | None
    """When it was made, by the clock of its owner; None if it tells of no event."""


class Check:
    """One invariant. Whatever it remembers is made anew when the store is set back."""

    name = ""

    def __init__(self, truth: "Truth") -> None:
        self.truth = truth

    def happening(self, execution: Execution, event: Event, at: float) -> None:
        """The event is about to change the execution; `at` is the time its owner gave it."""

    def committed(self, step: Step) -> None: ...

    def started(self, worker: str, token: Token) -> None:
        """The store has told a worker to run this attempt."""

    def rated(self, tag: str, at: float, *, rate_per_second: float, burst: int) -> None:
        """The store has given out a rate token."""

    def lost(self, judged: WorkerRecord, *, sign: int, lost: int) -> None:
        """The store has taken `lost` tasks from a worker that was `judged` to be dead."""

    def code_begins(self, worker: str, token: Token, given: "Given") -> None:
        """User code of this attempt begins to run."""

    def code_ends(self, worker: str, token: Token) -> None:
        """It does not run any more, however it has ended."""

    def ended(self) -> None:
        """All faults are over, and everything has come to rest."""

    def broken(self, problem: str) -> Broken:
        return Broken(self.name, problem)


HOOKS = ("happening", "committed", "started", "rated", "lost", "code_begins", "code_ends", "ended")

MakeChecks = Callable[["Truth"], list[Check]]
Tell = Callable[[str], None]


class Truth(Watcher):
    """`server` is set once there is one: the store tells this, and this looks at the store."""

    server: Server

    def __init__(
        self,
        make_checks: MakeChecks,
        plan: Plan,
        tally: Tally,
        tell: Tell,
    ) -> None:
        self.plan = plan
        self.orders: dict[str, Order] = {order.execution_id: order for order in plan.orders}
        self.cuts_commits = plan.cuts_commits
        self.concurrency = plan.concurrency
        self.code: dict[str, list[Token]] = {}
        """User code that runs, by worker."""
        self.rates = Rates()
        self.executions: dict[str, Execution] = {}
        self.limits: dict[str, Limit] = {}
        self.leases: dict[int, Lease] = {}
        self.broken: Broken | None = None
        self.was_set_back = False
        self.tally = tally
        self.tell = tell
        self._make_checks = make_checks
        self._graphs: dict[DefinitionHash, Graph] = {}
        self._at: float | None = None
        self._hooks = self._make_hooks()

    def inbox(self, partition: int) -> StreamInbox:
        return stream(self.server.state, partition)

    def run_of(self, token: Token) -> NodeRun | None:
        """The node or item as it is now; None for an item that is settled or has not begun."""
        execution = self.executions.get(token.execution_id)
        if execution is None:
            return None
        return execution.run(execution.graph.index[token.node_id], token.item)

    def is_current(self, token: Token, run: NodeRun | None) -> bool:
        return run is not None and (run.attempt, run.nonce) == (token.attempt, token.nonce)

    # -- what the store tells ------------------------------------------------------------------

    def acquired(self, lease: Lease, *, over: LeaseRecord | None) -> None:
        self.tally.takeovers += over is not None
        self.leases[lease.partition] = lease
        self.tell(f"{lease.owner} owns partition {lease.partition}, epoch {lease.epoch}")

    def refused(self, lease: Lease, commit: Commit) -> None:
        self.tally.refused_commits += 1
        self.tell(f"refused: commit {commit.sequence} of {lease.owner}")

    def committed(self, lease: Lease, commit: Commit, consumed: Sequence[InboxEntry]) -> None:
        self.tally.commits += 1
        self.tally.lost_tasks += sum(isinstance(each.command, TaskLost) for each in consumed)
        tokens = [token for entry in consumed if (token := token_of(entry.command)) is not None]
        before = {token: self.run_of(token) for token in tokens}
        known = frozenset(self.executions)
        self._at = None
        events = list(self._follow(commit))
        step = Step(lease, commit, consumed, events, before, known, self._at)
        self.tell(_story(step))
        self._judge("committed", step)

    def started(self, worker: str, token: Token) -> None:
        self.tell(f"{worker} starts {_named(token)}")
        self._judge("started", worker, token)

    def reported(self, worker: str, report: Command, *, is_taken: bool) -> None:
        self.tally.refused_reports += not is_taken
        token = token_of(report)
        what = f"{type(report).__name__} of {_named(token)}" if token else type(report).__name__
        self.tell(f"{worker}: {what}{'' if is_taken else ' REFUSED'}")

    def judged_dead(self, judged: WorkerRecord, *, sign: int, lost: int) -> None:
        self._judge("lost", judged, sign=sign, lost=lost)

    def rated(self, tag: str, at: float, *, rate_per_second: float, burst: int) -> None:
        self.rates.add(tag, at)
        self._judge("rated", tag, at, rate_per_second=rate_per_second, burst=burst)

    def restored(self) -> None:
        """Follows the histories from their beginning: what was lost never happened."""
        self.tell("THE STORE IS SET BACK")
        self.was_set_back = True
        self.executions, self.limits = {}, {}
        self._hooks = self._make_hooks()
        for partition in self.server.state.partitions:
            if partition.lease is not None:
                self.leases[partition.number] = partition.lease
        for aggregate_id, entries in self.server.state.histories.items():
            for entry in entries:
                for _ in self._follow_entry(aggregate_id, entry):
                    pass

    def found(self, broken: Broken) -> None:
        """The first finding is kept: those that follow from it would only hide it."""
        self.broken = self.broken or broken

    def begins(self, worker: str, token: Token, given: Given) -> None:
        """User code begins to run."""
        self.code.setdefault(worker, []).append(token)
        self._judge("code_begins", worker, token, given)

    def ends(self, worker: str, token: Token) -> None:
        self.code[worker].remove(token)
        self._judge("code_ends", worker, token)

    def end(self) -> None:
        self._judge("ended")

    # -- following -----------------------------------------------------------------------------

    def _judge(self, hook: str, *args: Any, **named: Any) -> None:
        if self.broken is not None:
            return
        try:
            for look in self._hooks[hook]:
                look(*args, **named)
        except Broken as broken:
            self.found(broken)
        except Exception as error:  # noqa: BLE001 - a checker that can't judge has seen something
            self.found(Broken("simulator", f"a checker raised {error!r}"))

    def _make_hooks(self) -> dict[str, list[Callable[..., None]]]:
        """Without those that a check does not have: most of them look at one thing only."""
        checks = self._make_checks(self)
        return {
            name: [
                getattr(check, name)
                for check in checks
                if getattr(type(check), name) is not getattr(Check, name)
            ]
            for name in HOOKS
        }

    def _follow(self, commit: Commit) -> Iterator[tuple[str, AnyEvent]]:
        for history in commit.histories:
            for event in self._follow_entry(history.aggregate_id, history.entry):
                yield history.aggregate_id, event
        for aggregate_id in commit.closed:
            self.limits.pop(aggregate_id, None)

    def _follow_entry(self, aggregate_id: str, data: bytes) -> Iterator[AnyEvent]:
        entry = decode_entry(data)
        self._at = entry.at
        for event in entry.events:
            if isinstance(event, LimitEvent):
                key = aggregate_id.removeprefix(LIMIT_PREFIX)
                evolve_limit(self.limits.setdefault(aggregate_id, Limit(key)), event)
            elif isinstance(event, ExecutionCreated):
                self._create(event)
            else:
                self._apply(self.executions[aggregate_id], event, entry.at)
            yield event

    def _create(self, event: ExecutionCreated) -> None:
        if event.execution_id in self.executions:
            self.found(Broken("settled", f"{event.execution_id} is made twice"))
        self.executions[event.execution_id] = Execution(event, self._graph(event.definition))

    def _apply(self, execution: Execution, event: Event, at: float) -> None:
        self._judge("happening", execution, event, at)
        try:
            evolve(execution, event, at)
        except Exception as error:  # noqa: BLE001 - whatever it is, no such history can be told
            self.found(Broken("settled", f"{execution.id}: {event} can't follow: {error!r}"))

    def _graph(self, hash_: DefinitionHash) -> Graph:
        if hash_ not in self._graphs:
            definition = self.server.state.definitions[hash_]
            self._graphs[hash_] = Graph(decode_workflow(definition.document))
        return self._graphs[hash_]


def token_of(command: Command | None) -> Token | None:
    """Of a report; None for every other command."""
    token = getattr(command, "token", None)
    return token if isinstance(token, Token) else None


def _named(token: Token) -> str:
    item = "" if token.item < 0 else f"[{token.item}]"
    return f"{token.execution_id}/{token.node_id}{item} #{token.attempt}"


def _story(step: Step) -> str:
    read = ", ".join(type(entry.command).__name__ for entry in step.consumed)
    made = ", ".join(f"{id_} {_short(event)}" for id_, event in step.events)
    owner = f"{step.lease.owner} p{step.lease.partition}"
    return f"{owner} commits {step.commit.sequence}: read [{read}] made [{made}]"


def _short(event: AnyEvent) -> str:
    node = getattr(event, "node", "")
    item = getattr(event, "item", -1)
    return f"{type(event).__name__}({node}{'' if item < 0 else f'[{item}]'})"
