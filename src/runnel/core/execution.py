"""An execution: a mutable aggregate of frozen node values. Only `evolve` changes an execution.

The working state of decisions is in the execution's `Agenda`.
"""

from collections.abc import Mapping

import msgspec

from runnel.core.events import ExecutionCreated, Wait
from runnel.core.graph import Graph
from runnel.core.ids import NO_ITEM, ExecutionId, NodeRef, Nonce, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.core.run_when import SkipReason
from runnel.core.states import (
    FINAL_EXECUTION_STATES,
    FINAL_NODE_STATES,
    IN_FLIGHT_STATES,
    ExecutionState,
    NodeState,
)
from runnel.core.values import Value


class NodeRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The progress of one node, or of one item of a map.

    `attempt` grows with each issued task, even if the task never started. `failures` counts against
    max_retries. `losses` counts the processes that died while they held the task, and `crashes`
    those of them that held no other task. `crashes` counts against the crash-loop limit. `detail`
    names the awaited signal or child execution. `key` is the concurrency key that the attempt holds
    or waits for.
    """

    state: NodeState = NodeState.PENDING
    attempt: int = 0
    nonce: Nonce = Nonce("")
    failures: int = 0
    losses: int = 0
    crashes: int = 0
    wait: Wait | None = None
    due: float | None = None
    detail: str = ""
    key: str = ""
    output: Value | None = None
    error: ErrorInfo | None = None
    reason: str = ""
    skip: SkipReason | None = None
    worker: str = ""
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_NODE_STATES

    @property
    def losses_together(self) -> int:
        """The number of processes that died while they held this task and other tasks."""
        return self.losses - self.crashes

    @property
    def holds_slot(self) -> bool:
        """Whether the node or item counts against max_concurrency.

        A running or queued node counts, and so does one that waits for a concurrency key or a child
        execution.
        """
        return self.state in IN_FLIGHT_STATES or self.wait in SLOT_WAITS


SLOT_WAITS = frozenset({Wait.CHILD, Wait.LIMIT})
PENDING_RUN = NodeRun()


class MapRun:
    """The progress of a `for_each`.

    Only items that have begun and are not settled have a NodeRun.
    """

    __slots__ = (
        "active",
        "count",
        "next_item",
        "results",
        "settled",
        "shared",
        "size",
    )

    def __init__(self, count: int, shared: Mapping[str, Value] | None = None) -> None:
        self.count = count
        self.shared = shared or {}
        self.next_item = 0
        self.settled = 0
        self.size = 0
        self.active: dict[int, NodeRun] = {}
        self.results: list[Value | None] = [None] * count

    @property
    def is_settled(self) -> bool:
        return self.settled == self.count

    def adopt_results(self, results: Mapping[int, Value]) -> None:
        """Adds results that a rerun reuses. None of the reused items has begun."""
        for item, output in results.items():
            if item < self.count:
                self.results[item] = output
                self.size += output.size + 1
                self.settled += 1
        self.advance_next_item(-1)

    def advance_next_item(self, item: int) -> None:
        """Moves `next_item` after `item`, and past the items that have a reused result."""
        self.next_item = max(self.next_item, item + 1)
        while self.next_item < self.count and self.results[self.next_item] is not None:
            self.next_item += 1


class StoppedAttempt(msgspec.Struct, frozen=True, gc=False):
    """A cancelled attempt whose code, or whose child execution, has not ended.

    `child` is empty for an attempt that a worker runs.
    """

    token: TaskToken
    child: str = ""


class ConfigOverride:
    """A config that replaces a node's config in the definition.

    `needs` are the nodes whose outputs the config reads.
    """

    __slots__ = ("needs", "raw")

    def __init__(self, raw: msgspec.Raw, needs: tuple[int, ...]) -> None:
        self.raw = raw
        self.needs = needs


class Execution:
    """The state of one execution. Nodes are addressed by their index in the graph."""

    __slots__ = (
        "closing_error",
        "configs",
        "created_at",
        "error",
        "finished_at",
        "first_failed",
        "graph",
        "id",
        "in_flight",
        "input",
        "is_abrupt",
        "is_awaited",
        "is_sla_missed",
        "labels",
        "maps",
        "nodes",
        "offloaded_values",
        "outcome",
        "output",
        "parent",
        "priority",
        "rerun_of",
        "reused_items",
        "reused_parts",
        "signal_ids",
        "signal_waiters",
        "signals",
        "started_at",
        "state",
        "stop_due",
        "stopping",
        "unsettled_count",
        "unsettled_parents",
        "version",
    )

    def __init__(self, created: ExecutionCreated, graph: Graph) -> None:
        self.id: ExecutionId = created.execution_id
        self.graph = graph
        self.version = created.version
        self.input = created.input
        self.labels = created.labels
        self.priority = created.priority
        self.parent: TaskToken | None = created.parent
        self.rerun_of: ExecutionId | None = created.rerun_of
        self.created_at = created.created_at
        self.started_at: float | None = None
        self.finished_at: float | None = None
        self.state = ExecutionState.PENDING
        self.output: Value | None = None
        self.error: ErrorInfo | None = None
        self.outcome: ExecutionState | None = None
        self.closing_error: ErrorInfo | None = None
        self.is_abrupt = False
        self.is_awaited = False
        self.first_failed: int | None = None
        self.is_sla_missed = False
        self.nodes: list[NodeRun] = [PENDING_RUN] * len(graph)
        self.unsettled_parents: list[int] = list(graph.parent_counts)
        self.unsettled_count = len(graph)
        self.in_flight = 0
        self.maps: dict[int, MapRun] = {}
        # Dicts instead of sets, here and below, because the garbage collector does not track dicts
        # of this kind.
        self.reused_parts: dict[int, None] = {}
        self.reused_items: dict[int, dict[int, Value]] = {}
        self.configs: dict[int, ConfigOverride] = {}
        self.signals: dict[str, tuple[str, Value]] = {}
        self.signal_ids: dict[str, None] = {}
        self.signal_waiters: dict[str, list[int]] = {}
        # The cancelled attempts that clean-up nodes wait for, by node index and item.
        self.stopping: dict[tuple[int, int], StoppedAttempt] = {}
        self.stop_due = 0.0
        # The blobs that replace large values in the tasks of maps that have begun.
        self.offloaded_values: dict[str, Value] = {}

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_EXECUTION_STATES

    def needs(self, index: int) -> tuple[int, ...]:
        """Returns the nodes whose outputs a task of the node carries."""
        override = self.configs.get(index)
        return self.graph.nodes[index].needs if override is None else override.needs

    def run(self, index: int, item: int = NO_ITEM) -> NodeRun | None:
        """Returns the run of a node or item.

        Returns None for an item that has not begun or is settled.
        """
        if item == NO_ITEM:
            return self.nodes[index]
        map_run = self.maps.get(index)
        return None if map_run is None else map_run.active.get(item)

    def ref(self, index: int, item: int = NO_ITEM) -> NodeRef:
        return NodeRef(self.id, self.graph.nodes[index].node.id, item)

    def token(self, index: int, item: int, run: NodeRun) -> TaskToken:
        return TaskToken(self.id, self.graph.nodes[index].node.id, item, run.attempt, run.nonce)

    def list_in_flight_tokens(self) -> dict[TaskToken, bool]:
        """Returns the tokens of all attempts that a worker holds or may claim, each with True if it
        has started.

        Attempts whose code is being stopped are among them.
        """
        tokens = {
            self.token(index, NO_ITEM, run): run.state is NodeState.RUNNING
            for index, run in enumerate(self.nodes)
            if run.state in IN_FLIGHT_STATES and index not in self.maps
        }
        for index, map_run in self.maps.items():
            for item, run in map_run.active.items():
                if run.state in IN_FLIGHT_STATES:
                    tokens[self.token(index, item, run)] = run.state is NodeState.RUNNING
        for attempt in self.stopping.values():
            if not attempt.child:
                tokens[attempt.token] = True
        return tokens
