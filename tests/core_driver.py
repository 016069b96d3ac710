"""Drives the pure core with queue, timers and follow-up commands in plain dicts: no
engine, no I/O.
"""

from collections import deque
from collections.abc import Callable

from runnel.core.agenda import Agenda
from runnel.core.codec import HistoryEntry, decode_entry, encode_entry
from runnel.core.commands import (
    TASK_ENDINGS,
    AcquireLimit,
    BlobLoaded,
    CancelExecution,
    Command,
    CreateExecution,
    OutputStored,
    ReleaseLimit,
    ResumeExecution,
    SendSignal,
    StartExecution,
    TakeOver,
    TaskCompleted,
    TaskDeferred,
    TaskFailed,
    TaskLost,
    TaskStarted,
    TaskStopped,
    TimerFired,
    ValuesShared,
)
from runnel.core.concurrency_key import ConcurrencyLimit, decide_limit
from runnel.core.decide import create, decide
from runnel.core.decide.decision_context import DecisionInputs
from runnel.core.decide.maps import hydrate_maps
from runnel.core.effects import (
    ClearTimer,
    DeadLetter,
    Decision,
    DropTask,
    Effect,
    IssueTask,
    LoadBlob,
    PutDeadLetter,
    SendCommand,
    SetTimer,
    ShareValues,
    StopTask,
    StoreOutput,
    TaskMessage,
    TimerKey,
)
from runnel.core.evolve import replay
from runnel.core.execution import Execution
from runnel.core.graph import Graph
from runnel.core.ids import (
    NO_ITEM,
    DefinitionHash,
    ExecutionId,
    NodeId,
    NodeRef,
    Nonce,
    TaskToken,
)
from runnel.core.rerun import select_reused_results
from runnel.core.retry import ErrorInfo
from runnel.core.states import NodeState
from runnel.core.validation import build_graph
from runnel.core.values import Json, make_blob_reference, make_inline_value
from runnel.core.workflow import EnginePolicy, Node, Workflow
from simulation.invariants import check_invariants

ROOT = ExecutionId("e1")
TRANSIENT = ErrorInfo(type="ConnectionError", message="refused", types=("ConnectionError",))
PERMANENT = ErrorInfo(type="ValueError", message="bad", types=("ValueError",))


class CoreDriver:
    """Applies commands and their effects in memory.

    `nonces` is the prefix of the nonces of its batches. The code of a stopped task ends at once,
    unless `is_code_slow`; then it is in `stopping` until a test calls `end_code`.
    """

    def __init__(
        self,
        workflow: Workflow,
        *,
        policy: EnginePolicy | None = None,
        nonces: str = "n",
        is_code_slow: bool = False,
    ) -> None:
        self.is_code_slow = is_code_slow
        self.stopping: list[TaskToken] = []
        self.loses_messages_to_root = False
        self.policy = policy or EnginePolicy()
        self._nonces = nonces
        self.graph = build_graph(workflow)
        self.graphs = dict(_build_graphs(workflow))
        self.executions: dict[str, Execution] = {}
        self.agendas: dict[str, Agenda] = {}
        self.limits: dict[str, ConcurrencyLimit] = {}
        self.histories: dict[str, list[bytes]] = {}
        self.tasks: dict[TaskToken, TaskMessage] = {}
        self.dropped: list[TaskToken] = []
        self.issued: list[TaskToken] = []
        self.timers: dict[TimerKey, SetTimer] = {}
        self.dead_letters: list[DeadLetter] = []
        self.blobs: dict[str, bytes] = {}
        self.loaded: dict[str, bytes] = {}
        self.now = 1_000.0
        # Executions loaded after a takeover and not resumed yet: their ready queue is not derived
        # again.
        self._unresumed: set[str] = set()
        self._batches = 0

    # -- actions of a test -----------------------------------------------------------------------

    def start(
        self, input_: Json = None, *, is_held: bool = False, priority: int | None = None
    ) -> "CoreDriver":
        self.send(
            CreateExecution(
                execution_id=ROOT,
                workflow=self.graph.workflow.name,
                definition=self.graph.hash,
                version=1,
                input=make_inline_value({} if input_ is None else input_),
                priority=priority,
                is_held=is_held,
                created_at=self.now,
            )
        )
        return self

    def rerun(self, former: Execution, *again: str, input_: Json = None) -> "CoreDriver":
        """Reruns `former` instead of `start`, as a client does; `input_` replaces the
        former input.
        """
        value = former.input if input_ is None else make_inline_value(input_)
        nodes = [NodeId(name) for name in again]
        taken = select_reused_results(
            former, self.graph, nodes_to_rerun=nodes, is_same_input=input_ is None
        )
        self.send(
            CreateExecution(
                execution_id=ROOT,
                workflow=self.graph.workflow.name,
                definition=self.graph.hash,
                version=1,
                input=value,
                rerun_of=ExecutionId("e0"),
                is_held=True,
                created_at=self.now,
            )
        )
        self.send(TakeOver(execution_id=ROOT, taken=list(taken)))
        self.send(StartExecution(execution_id=ROOT))
        return self

    def finish(self, node: str, output: Json = None, *, item: int = NO_ITEM) -> None:
        token = self.token(node, item)
        self.send(
            TaskCompleted(
                token=token, output=make_inline_value(output), worker="w", started_at=self.now
            )
        )

    def fail(self, node: str, error: ErrorInfo = PERMANENT, *, item: int = NO_ITEM) -> None:
        token = self.token(node, item)
        self.send(TaskFailed(token=token, error=error, worker="w", started_at=self.now))

    def send_completed(self, token: TaskToken, output: Json = None) -> None:
        self.send(TaskCompleted(token=token, output=make_inline_value(output)))

    def send_failed(self, token: TaskToken, error: ErrorInfo = PERMANENT) -> None:
        self.send(TaskFailed(token=token, error=error))

    def finish_with_blob(self, node: str, output: Json) -> None:
        data = bytes(make_inline_value(output).data)
        self.blobs[f"blob-{node}"] = data
        value = make_blob_reference(f"blob-{node}", len(data))
        self.send(TaskCompleted(token=self.token(node), output=value))

    def trigger(self, input_: Json) -> None:
        self.send(StartExecution(execution_id=ROOT, input=make_inline_value(input_)))

    def lose(
        self,
        node: str,
        *,
        item: int = NO_ITEM,
        was_started: bool = True,
        was_alone: bool = False,
    ) -> None:
        token = self.token(node, item)
        self.send(
            TaskLost(token=token, reason="gone", was_started=was_started, was_alone=was_alone)
        )

    def lose_token(self, token: TaskToken, *, was_started: bool) -> None:
        self.send(TaskLost(token=token, reason="gone", was_started=was_started))

    def complete_with_blob(self, token: TaskToken, output: Json) -> None:
        key = f"{token.execution_id}/{token.node_id}/{token.item}/{token.attempt}"
        data = bytes(make_inline_value(output).data)
        self.blobs[key] = data
        self.send(TaskCompleted(token=token, output=make_blob_reference(key, len(data))))

    def start_task(self, node: str) -> None:
        token = self.token(node)
        self.send(TaskStarted(token=token, worker="w", started_at=self.now))

    def defer(self, node: str, seconds: float) -> None:
        self.send(TaskDeferred(token=self.token(node), until=self.now + seconds))

    def cancel(self, *, is_forced: bool = False) -> None:
        self.send(CancelExecution(execution_id=ROOT, is_forced=is_forced))

    def end_code(self, *nodes: str) -> None:
        """Ends the code of the stopped tasks of these nodes, or of all stopped tasks."""
        for token in list(self.stopping):
            if not nodes or token.node_id in nodes:
                self.stopping.remove(token)
                self.send(TaskStopped(token=token))

    def signal(self, name: str, payload: Json = None, *, signal_id: str = "s1") -> None:
        self.send(
            SendSignal(
                execution_id=ROOT,
                name=name,
                payload=make_inline_value(payload),
                signal_id=signal_id,
            )
        )

    def finish_all(
        self, output: Callable[[TaskMessage], Json] = lambda _task: None
    ) -> "CoreDriver":
        """Completes tasks, oldest first, until there are none."""
        while self.tasks:
            token, task = next(iter(self.tasks.items()))
            self.send(TaskCompleted(token=token, output=make_inline_value(output(task))))
        return self

    def advance(self, seconds: float) -> None:
        """Advances the time and fires due timers, earliest first."""
        self.now += seconds
        while due := sorted(
            (timer for timer in self.timers.values() if timer.due <= self.now),
            key=lambda timer: timer.due,
        ):
            timer = self.timers.pop(due[0].key)
            key = timer.key
            ref = NodeRef(key.execution_id, key.node_id, key.item)
            self.send(TimerFired(ref=ref, kind=key.kind, attempt=timer.attempt))

    def take_over(self, *, tasks_survive: bool = False) -> None:
        """Replaces the owner: only stored data survives, and everything else is derived again."""
        self.executions, self.agendas = {}, {}
        self._unresumed = {id_ for id_ in self.histories if not id_.startswith("limit:")}
        self.timers = {} if not tasks_survive else self.timers
        self.loaded = {}
        if not tasks_survive:
            self.tasks, self.limits = {}, {}
        for execution_id in list(self.histories):
            if execution_id.startswith("limit:"):
                continue
            execution = self.execution(execution_id)
            for token in execution.list_in_flight_tokens():
                if token not in self.tasks and not (tasks_survive and token in self.stopping):
                    self.send(TaskLost(token=token, reason="process ended"))
            self.send(ResumeExecution(execution_id=ExecutionId(execution_id)))

    def stop_only(self, token: TaskToken) -> None:
        """Stops a task without the decision that cancels its node, as a half-written commit."""
        self.tasks.pop(token, None)
        self.send(TaskStopped(token=token))

    # -- state for a test ------------------------------------------------------------------------

    @property
    def root(self) -> Execution:
        return self.execution(ROOT)

    def execution(self, execution_id: str) -> Execution:
        if execution_id not in self.executions:
            rebuilt, agenda = self.rebuilt(execution_id), Agenda()
            while (needed := hydrate_maps(rebuilt, agenda, self)) is not None:
                self.loaded[needed] = self.blobs[needed]
            self.executions[execution_id], self.agendas[execution_id] = rebuilt, agenda
        return self.executions[execution_id]

    def all_executions(self) -> list[Execution]:
        """Returns the root and all its descendants."""
        return [self.execution(id_) for id_ in self.histories if not id_.startswith("limit:")]

    def decoded_history(self) -> list[HistoryEntry]:
        return [decode_entry(entry) for entry in self.histories[ROOT]]

    def rebuilt(self, execution_id: str = ROOT) -> Execution:
        """Returns the execution that the stored history describes."""
        execution = replay(self.histories[execution_id], self.graphs.__getitem__)
        if execution is None:
            raise AssertionError(f"no history of {execution_id}")
        return execution

    def states(self) -> dict[str, NodeState]:
        return {
            compiled.node.id: self.root.nodes[compiled.index].state for compiled in self.graph.nodes
        }

    def token(self, node: str, item: int = NO_ITEM) -> TaskToken:
        for token in self.tasks:
            if token.node_id == node and token.item == item and token.execution_id == ROOT:
                return token
        raise AssertionError(f"no task of '{node}' is issued, only {[*self.tasks]}")

    def queued(self) -> list[str]:
        return [token.node_id for token in self.tasks]

    def output(self) -> Json:
        value = self.root.output
        if value is None:
            return None
        return value.decode() if value.blob is None else self.blobs[value.blob]

    # -- the part of the engine ------------------------------------------------------------------

    def send(self, command: Command) -> None:
        self._batches += 1
        if isinstance(command, TASK_ENDINGS):
            self.tasks.pop(command.token, None)
        following = deque([command])
        while following:
            current = following.popleft()
            decision = self._decide(current)
            for effect in decision.effects:
                self._apply(effect, following)

    def _decide(self, command: Command) -> Decision:
        inputs = DecisionInputs(
            self.now, Nonce(f"{self._nonces}{self._batches}"), self, self.policy
        )
        aggregate_id = command.aggregate_id
        if isinstance(command, AcquireLimit | ReleaseLimit):
            limit = self.limits.setdefault(aggregate_id, ConcurrencyLimit(command.key))
            return self._stored(aggregate_id, decide_limit(limit, command))
        if aggregate_id in self.histories:
            execution = self.execution(aggregate_id)
            decision = decide(execution, self.agendas[aggregate_id], command, inputs)
        elif isinstance(command, CreateExecution):
            graph, agenda = self.graphs[command.definition], Agenda()
            execution, decision = create(command, graph, agenda, inputs)
            self.executions[aggregate_id], self.agendas[aggregate_id] = execution, agenda
        else:
            return Decision()
        if isinstance(command, ResumeExecution):
            self._unresumed.discard(aggregate_id)
        if aggregate_id not in self._unresumed:
            check_invariants(execution, self.agendas[aggregate_id])
        return self._stored(aggregate_id, decision)

    def _stored(self, aggregate_id: str, decision: Decision) -> Decision:
        if decision.events:
            entry = encode_entry(self.now, decision.events)
            self.histories.setdefault(aggregate_id, []).append(entry)
        return decision

    def _apply(self, effect: Effect, following: deque[Command]) -> None:
        match effect:
            case IssueTask(task=task):
                self.tasks[task.token] = task
                self.issued.append(task.token)
            case DropTask(token=token):
                self.tasks.pop(token, None)
                self.dropped.append(token)
            case StopTask(token=token):
                self._stop_task(token, following)
            case SetTimer(key=key):
                self.timers[key] = effect
            case ClearTimer(key=key):
                self.timers.pop(key, None)
            case SendCommand(command=command):
                if not (self.loses_messages_to_root and command.aggregate_id == ROOT):
                    following.append(command)
            case PutDeadLetter(letter=letter):
                self.dead_letters.append(letter)
            case LoadBlob(execution_id=execution_id, key=key):
                self.loaded[key] = self.blobs[key]
                following.append(BlobLoaded(execution_id=execution_id))
            case StoreOutput(ref=ref, key=key, parts=parts):
                data = b",".join(
                    bytes(part.data) if part.blob is None else self.blobs[part.blob]
                    for part in parts
                )
                self.blobs[key] = data if ref.node_id == "" else b"[" + data + b"]"
                stored = make_blob_reference(key, len(self.blobs[key]))
                following.append(OutputStored(ref=ref, output=stored))
            case ShareValues(execution_id=execution_id, values=values):
                shared = {
                    name: make_blob_reference(effect.make_key(name), values[name].size)
                    for name in values
                }
                self.blobs.update(
                    {effect.make_key(name): bytes(values[name].data) for name in values}
                )
                following.append(ValuesShared(execution_id=execution_id, values=shared))

    def _stop_task(self, token: TaskToken, following: deque[Command]) -> None:
        self.tasks.pop(token, None)
        self.dropped.append(token)
        if not self.is_code_slow:
            following.append(TaskStopped(token=token))
        elif token not in self.stopping:
            self.stopping.append(token)

    def peek(self, key: str) -> bytes | None:
        """Implements LoadedBlobs: returns a blob that was requested and loaded."""
        return self.loaded.get(key)


def _build_graphs(workflow: Workflow) -> list[tuple[DefinitionHash, Graph]]:
    graphs = [(graph.hash, graph) for graph in [Graph(workflow)]]
    for node in workflow.nodes:
        if node.child is not None:
            graphs += _build_graphs(node.child)
    return graphs


def make_node(id_: str, *parents: str, handler: str = "work", **fields: object) -> Node:
    dependencies = tuple(NodeId(parent) for parent in parents)
    return Node(id=NodeId(id_), handler=handler, dependencies=dependencies, **fields)  # type: ignore[arg-type]


def make_workflow(*nodes: Node, **fields: object) -> Workflow:
    return Workflow(name="test", nodes=nodes, **fields)  # type: ignore[arg-type]
