"""`for_each`: evaluates the list, issues a limited number of items at a time, joins results in
order.
"""

from runnel.core.agenda import Agenda
from runnel.core.commands import OutputStored
from runnel.core.decide.decision_context import (
    BlobNeededError,
    DecisionContext,
    ExecutionScope,
    LoadedBlobs,
    evaluate_template,
    preview_json,
)
from runnel.core.decide.outcomes import fail_node
from runnel.core.decide.task_dispatch import has_slot, prepare_shared_values, start_attempt
from runnel.core.effects import StoreOutput
from runnel.core.events import MapStarted, NodeCompleted
from runnel.core.execution import Execution, MapRun
from runnel.core.retry import ErrorInfo
from runnel.core.values import Json, Value, make_value_from_json

# The item number of a ready-queue entry that represents the next items of a map.
NEXT_MAP_ITEMS = -2


def start_map(context: DecisionContext, index: int) -> None:
    items = _evaluate_items(context, index)
    if items is None:
        return
    if isinstance(items, ErrorInfo):
        fail_node(context, index, items)
        return
    shared = prepare_shared_values(context, index, len(items))
    if shared is None:
        return
    node_id = context.execution.graph.nodes[index].node.id
    context.emit(MapStarted(node=node_id, count=len(items), shared=shared))
    context.agenda.get_map(index).items = items
    continue_map(context, index)


def continue_map(context: DecisionContext, index: int) -> None:
    """Joins the results if all items of the map are settled.

    Queues the map's next items if some are not settled.
    """
    map_run = context.execution.maps[index]
    if map_run.is_settled:
        _join_results(context, index, map_run)
    elif map_run.next_item < map_run.count:
        _queue_next_items(context, index)


def issue_next_items(context: DecisionContext, index: int) -> None:
    """Issues items of a map while there are slots.

    After each item, other ready nodes get their turn.
    """
    execution = context.execution
    context.agenda.get_map(index).is_queued = False
    if execution.nodes[index].is_final:
        return
    map_run, window = execution.maps[index], context.inputs.policy.in_flight_max
    while map_run.next_item < map_run.count and len(map_run.active) < window and has_slot(context):
        item = map_run.next_item
        start_attempt(context, index, item)
        if execution.nodes[index].is_final or map_run.next_item == item:
            return
        if context.agenda.ready:
            break
    if map_run.next_item < map_run.count and len(map_run.active) < window:
        _queue_next_items(context, index)


def _queue_next_items(context: DecisionContext, index: int) -> None:
    map_agenda = context.agenda.get_map(index)
    if not map_agenda.is_queued:
        map_agenda.is_queued = True
        context.agenda.ready.append((index, NEXT_MAP_ITEMS))


def on_output_stored(context: DecisionContext, command: OutputStored) -> None:
    index = context.execution.graph.index.get(command.ref.node_id)
    if index is None or context.execution.nodes[index].is_final or context.execution.is_final:
        return
    map_run = context.execution.maps.get(index)
    if map_run is not None and map_run.is_settled:
        _complete_map(context, index, command.output)


def hydrate_maps(execution: Execution, agenda: Agenda, blobs: LoadedBlobs) -> str | None:
    """Evaluates the lists of running maps of a loaded execution.

    Returns the key of a blob that must be loaded first, or None.

    The lists equal those with which the maps started, because a list depends on settled outputs
    only.
    """
    for index in execution.maps:
        if execution.nodes[index].is_final or agenda.get_map(index).items is not None:
            continue
        expression = execution.graph.nodes[index].for_each
        try:
            scope = ExecutionScope(execution, blobs)
            agenda.get_map(index).items = expression.evaluate(scope) if expression else []
        except BlobNeededError as needed:
            return needed.key
    return None


def _evaluate_items(context: DecisionContext, index: int) -> list[Json] | ErrorInfo | None:
    evaluated = evaluate_template(context, index, context.execution.graph.nodes[index].for_each)
    if evaluated is None or isinstance(evaluated, ErrorInfo):
        return evaluated
    items = evaluated.value
    if not isinstance(items, list):
        message = f"for_each gave {preview_json(items)}, expected a list"
        return ErrorInfo(type="TemplateError", message=message, retryable=False)
    items_max = context.inputs.policy.map_items_max
    if len(items) > items_max:
        message = f"for_each gave {len(items)} items, at most {items_max} are allowed"
        return ErrorInfo(type="TemplateError", message=message, retryable=False)
    return items


def _join_results(context: DecisionContext, index: int, map_run: MapRun) -> None:
    """Joins the results of a map to one list.

    The list is inline if it is small, and a blob if it is large.
    """
    results = [result for result in map_run.results if result is not None]
    is_small = map_run.size + 1 <= context.inputs.policy.inline_bytes_max
    if is_small and all(result.blob is None for result in results):
        _complete_map(context, index, join_inline_results(results))
        return
    map_agenda = context.agenda.get_map(index)
    if not map_agenda.is_joining:
        map_agenda.is_joining = True
        ref = context.execution.ref(index)
        key = f"{ref.execution_id}/{ref.node_id}/joined/{context.inputs.nonce}"
        context.effects.append(StoreOutput(ref, key, results))


def _complete_map(context: DecisionContext, index: int, output: Value) -> None:
    node_id = context.execution.graph.nodes[index].node.id
    context.emit(NodeCompleted(node=node_id, output=output))
    context.agenda.maps.pop(index, None)
    context.queue_ready_children(index)


def join_inline_results(results: list[Value]) -> Value:
    return make_value_from_json(b"[" + b",".join(bytes(result.data) for result in results) + b"]")
