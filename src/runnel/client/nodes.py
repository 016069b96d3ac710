"""Builds the detail of one node: its attempts, config, inputs, output and items."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from runnel.client.shown_values import (
    SHOWN_BYTES_MAX,
    ShownValue,
    ValueToShow,
    list_node_output,
    load_shown_values,
)
from runnel.core import events as e
from runnel.core.codec import decode_entry
from runnel.core.decide.decision_context import NO_ITEM_VALUE, BlobNeededError, ExecutionScope
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM, NodeId, format_node_name
from runnel.core.message_text import escape_unprintable, suggest_or_list_names
from runnel.core.states import NodeState
from runnel.core.templates.errors import TemplateError
from runnel.core.templates.template import TemplateTree, compile_tree
from runnel.core.values import Json, Value
from runnel.errors import NotFoundError, PayloadError, WrongStateError
from runnel.ports import Backend
from runnel.ports.records import BlobStore
from runnel.views import make_timestamp
from runnel.views.execution import describe_wait, summarize_waiting_items
from runnel.views.node import (
    AttemptOutcome,
    AttemptView,
    ItemsPage,
    ItemView,
    NodeDetail,
    TimedEvent,
    build_attempts,
    build_error_view,
    iter_node_events,
)
from runnel.views.value import build_output_url

T = TypeVar("T")

RESOLVE_ERRORS = (TemplateError, PayloadError)
NO_ATTEMPT = AttemptView(number=0, outcome=AttemptOutcome.QUEUED)

_STATE_BY_OUTCOME = {
    AttemptOutcome.QUEUED: NodeState.QUEUED,
    AttemptOutcome.RUNNING: NodeState.RUNNING,
    AttemptOutcome.WAITING: NodeState.WAITING,
    AttemptOutcome.COMPLETED: NodeState.COMPLETED,
    AttemptOutcome.SKIPPED: NodeState.SKIPPED,
    AttemptOutcome.FAILED: NodeState.FAILED,
    AttemptOutcome.CANCELLED: NodeState.CANCELLED,
    AttemptOutcome.LOST: NodeState.WAITING,
    AttemptOutcome.DEFERRED: NodeState.WAITING,
}


async def read_node(
    backend: Backend,
    execution: Execution,
    node_id: str,
    *,
    item: int | None,
    items_after: int,
    items_limit: int,
) -> NodeDetail:
    """Returns the detail of a node, or of one item of a map.

    Raises NotFoundError for a node or an item that the execution does not have.
    """
    index = find_node_index(execution, node_id)
    if item is not None:
        _check_item(execution, index, item)
    entries = await backend.archive.load(execution.id)
    inspector = _NodeInspector(execution, index, entries, backend)
    page = None
    if item is None and index in execution.maps:
        page = await inspector.build_items_page(items_after, items_limit)
    return await inspector.build_detail(NO_ITEM if item is None else item, page)


def find_node_index(execution: Execution, node_id: str) -> int:
    """Returns the index of a node; raises NotFoundError if the execution does not have it."""
    index = execution.graph.index.get(NodeId(node_id))
    if index is None:
        hint = suggest_or_list_names(node_id, execution.graph.index).strip(" ();")
        raise NotFoundError("node", escape_unprintable(node_id), hint=hint)
    return index


def find_item_output(
    execution: Execution, entries: Sequence[bytes], node_id: str, item: int
) -> Value:
    """Returns the output of an item of a map.

    Raises NotFoundError for a node or an item that the execution does not have, and WrongStateError
    if the item has not completed.
    """
    _check_item(execution, find_node_index(execution, node_id), item)
    node = NodeId(node_id)
    value = _find_completed_output(iter_node_events(entries, node), item)
    value = value or _find_reused_outputs(entries, node).get(item)
    if value is None:
        name = format_node_name(node, item)
        raise WrongStateError(
            f"item {name} of execution {execution.id} has not completed: it has no output"
        )
    return value


def _check_item(execution: Execution, index: int, item: int) -> None:
    map_run = execution.maps.get(index)
    if map_run is None or not 0 <= item < map_run.count:
        reason = (
            "the node is not a map" if map_run is None else f"the map has {map_run.count:,} items"
        )
        name = format_node_name(execution.graph.nodes[index].node.id, item)
        raise NotFoundError("item", name, hint=reason)


class _NodeInspector:
    def __init__(
        self, execution: Execution, index: int, entries: Sequence[bytes], backend: Backend
    ) -> None:
        self._execution = execution
        self._index = index
        self._node = execution.graph.nodes[index]
        self._blobs = backend.blobs
        self._events = list(iter_node_events(entries, self._node.node.id))
        self._reused_outputs = _find_reused_outputs(entries, self._node.node.id)

    async def build_detail(self, item: int, page: ItemsPage | None) -> NodeDetail:
        execution, node = self._execution, self._node
        attempts = build_attempts(self._events, item=item)
        run = execution.nodes[self._index] if item == NO_ITEM else None
        state = self._get_item_state(item, attempts) if run is None else run.state
        last = attempts[-1] if attempts else NO_ATTEMPT
        config, config_error = await self._resolve_config(item, has_attempts=bool(attempts))
        inputs = await self._load_inputs()
        output = await self._load_output(item)
        waits_for, due = self._describe_wait(run, item)
        error = last.error if run is None else build_error_view(run.error)
        return NodeDetail(
            execution_id=execution.id,
            node_id=node.node.id,
            item=None if item == NO_ITEM else item,
            handler=node.node.handler,
            status=state,
            attempts=attempts,
            config=config,
            config_error=config_error,
            inputs={name: shown.content for name, shown in inputs.items()},
            output=output.content,
            error=None if state is NodeState.COMPLETED else error,
            reason=self._get_reason(run, item, last),
            waits_for=waits_for,
            due=make_timestamp(due),
            started_at=make_timestamp(run.started_at) if run else last.started_at,
            finished_at=make_timestamp(run.finished_at) if run else last.finished_at,
            dependencies={
                execution.graph.nodes[parent].node.id: execution.nodes[parent].state
                for parent in node.parents
            },
            child_id=last.child_id,
            is_cached=last.is_cached,
            items=page,
            output_preview=output.preview,
            input_previews={
                name: shown.preview for name, shown in inputs.items() if shown.preview is not None
            },
        )

    async def build_items_page(self, after: int, limit: int) -> ItemsPage:
        map_run = self._execution.maps[self._index]
        numbers = range(max(0, after + 1), min(map_run.count, max(0, after + 1) + limit))
        by_item: dict[int, list[TimedEvent]] = {item: [] for item in numbers}
        for timed in self._events:
            item = getattr(timed.event, "item", NO_ITEM)
            if item in by_item:
                by_item[item].append(timed)
        outputs = await load_shown_values(
            [self._list_item_output(item, by_item[item]) for item in numbers], self._blobs
        )
        views = [
            self._build_item_view(item, by_item[item], output)
            for item, output in zip(numbers, outputs, strict=True)
        ]
        is_last = not numbers or numbers[-1] == map_run.count - 1
        return ItemsPage(
            count=map_run.count,
            settled=map_run.settled,
            items=views,
            next=None if is_last else numbers[-1],
        )

    def _list_item_output(self, item: int, events: Sequence[TimedEvent]) -> ValueToShow:
        value = _find_completed_output(events, item) or self._reused_outputs.get(item)
        return list_node_output(self._execution.id, self._node.node.id, value, item=item)

    def _build_item_view(
        self, item: int, events: Sequence[TimedEvent], output: ShownValue
    ) -> ItemView:
        attempts = build_attempts(events, item=item)
        last = attempts[-1] if attempts else NO_ATTEMPT
        return ItemView(
            item=item,
            status=self._get_item_state(item, attempts),
            attempts=len(attempts),
            worker=last.worker,
            started_at=last.started_at,
            finished_at=last.finished_at,
            error=last.error,
            output=output.content,
            child_id=last.child_id,
            output_preview=output.preview,
        )

    def _get_item_state(self, item: int, attempts: Sequence[AttemptView]) -> NodeState:
        if not attempts:
            if item in self._reused_outputs:
                return NodeState.COMPLETED
            is_over = self._execution.nodes[self._index].is_final
            return NodeState.CANCELLED if is_over else NodeState.PENDING
        last = attempts[-1]
        run = self._execution.run(self._index, item)
        return _STATE_BY_OUTCOME[last.outcome] if run is None else run.state

    async def _resolve_config(self, item: int, *, has_attempts: bool) -> tuple[Json, str | None]:
        if not has_attempts:
            return None, None
        try:
            resolver = ConfigResolver(self._execution, self._blobs)
            config = await resolver.resolve_config(self._index, item)
        except RESOLVE_ERRORS as error:
            return None, str(error)
        size = len(msgspec.json.encode(config))
        if size > SHOWN_BYTES_MAX:
            return None, f"the config has {size:,} bytes: too large to show"
        return config, None

    async def _load_inputs(self) -> dict[str, ShownValue]:
        nodes, runs = self._execution.graph.nodes, self._execution.nodes
        values = {
            nodes[parent].node.id: list_node_output(
                self._execution.id, nodes[parent].node.id, runs[parent].output
            )
            for parent in self._node.parents
            if runs[parent].output is not None
        }
        shown = await load_shown_values([*values.values()], self._blobs)
        return dict(zip(values, shown, strict=True))

    async def _load_output(self, item: int) -> ShownValue:
        number = None if item == NO_ITEM else item
        url = build_output_url(self._execution.id, self._node.node.id, number)
        value = ValueToShow(self._find_output(item), url, SHOWN_BYTES_MAX)
        return (await load_shown_values([value], self._blobs))[0]

    def _find_output(self, item: int) -> Value | None:
        if item == NO_ITEM:
            return self._execution.nodes[self._index].output
        return _find_completed_output(self._events, item) or self._reused_outputs.get(item)

    def _get_reason(self, run: NodeRun | None, item: int, last: AttemptView) -> str | None:
        if run is not None:
            return run.reason or None
        if item in self._reused_outputs:
            return f"taken over from {self._execution.rerun_of}"
        return last.reason or None

    def _describe_wait(self, run: NodeRun | None, item: int) -> tuple[str | None, float | None]:
        if run is None:
            active = self._execution.run(self._index, item)
            return (None, None) if active is None else (describe_wait(active), active.due)
        if run.state is NodeState.PENDING and not self._execution.is_final:
            nodes, runs = self._execution.graph.nodes, self._execution.nodes
            parents = self._node.parents
            names = [nodes[parent].node.id for parent in parents if not runs[parent].is_final]
            return (f"nodes {', '.join(names)}" if names else None), None
        map_run = self._execution.maps.get(self._index)
        waiting = None if map_run is None else summarize_waiting_items(self._node.node.id, map_run)
        if waiting is not None:
            return waiting.text, waiting.due
        return describe_wait(run), run.due


def _find_completed_output(events: Iterable[TimedEvent], item: int) -> Value | None:
    for timed in events:
        if isinstance(timed.event, e.NodeCompleted) and timed.event.item == item:
            return timed.event.output
    return None


def _find_reused_outputs(entries: Sequence[bytes], node: NodeId) -> Mapping[int, Value]:
    """Returns the outputs of map items that a rerun reuses from the former execution, by item."""
    return {
        taken.item: taken.output
        for data in entries
        if b"NodesTaken" in data
        for event in decode_entry(data).events
        if isinstance(event, e.NodesTaken)
        for taken in event.taken
        if taken.node == node and taken.item != NO_ITEM and taken.output is not None
    }


# The evaluated config of a node is not stored. To show the config, its templates are evaluated
# again over the same outputs, which never change. Secrets are not stored either; the config shows
# their names.

# The most bytes of blobs that are loaded to show one config. A task may load more, but a reader
# can't use so much text.
LOADED_BYTES_MAX = 16 * 1024 * 1024
SECRETS_ROOT = "secrets"


class ConfigResolver:
    """Evaluates the configs of one execution's nodes; loads the blobs to which templates refer."""

    def __init__(self, execution: Execution, blobs: BlobStore) -> None:
        self._execution = execution
        self._blobs = blobs
        self._loaded: dict[str, bytes] = {}

    def peek(self, key: str) -> bytes | None:
        return self._loaded.get(key)

    async def resolve_config(self, index: int, item: int = NO_ITEM) -> Json:
        """Returns the evaluated config of a node or item.

        Raises TemplateError, and PayloadError if the templates refer to more than 16 MB of blobs.
        """
        given = self._execution.configs.get(index)
        tree = self._execution.graph.nodes[index].config
        if given is not None:
            tree = compile_tree(msgspec.json.decode(given.raw))
        value = NO_ITEM_VALUE if item == NO_ITEM else await self.resolve_item(index, item)
        scope = _MaskedSecretsScope(self._execution, self, tree, value)
        return await self._evaluate(lambda: tree.resolve(scope))

    async def resolve_item(self, index: int, item: int) -> Json:
        """Returns an element of the `for_each` list; raises the same errors as `resolve_config`."""
        expression = self._execution.graph.nodes[index].for_each
        if expression is None:
            return None
        scope = ExecutionScope(self._execution, self)
        items: Json = await self._evaluate(lambda: expression.evaluate(scope))
        return items[item] if isinstance(items, list) and item < len(items) else None

    async def _evaluate(self, evaluate: Callable[[], T]) -> T:
        while True:
            try:
                return evaluate()
            except BlobNeededError as needed:
                self._loaded[needed.key] = await self._blobs.get(needed.key)
            if sum(map(len, self._loaded.values())) > LOADED_BYTES_MAX:
                raise PayloadError(
                    f"the config refers to more than {LOADED_BYTES_MAX:,} bytes: too large to show"
                )


class _MaskedSecretsScope(ExecutionScope):
    def __init__(
        self, execution: Execution, blobs: ConfigResolver, tree: TemplateTree, item: object
    ) -> None:
        super().__init__(execution, blobs, item=item)
        self._secrets = {
            str(reference.path[0]): f"{{{{ secrets.{reference.path[0]} }}}}"
            for reference in tree.references
            if reference.root == SECRETS_ROOT and reference.path
        }

    def lookup(self, root: str) -> Json:
        return self._secrets if root == SECRETS_ROOT else super().lookup(root)
