"""`for_each`: a list known only now, its items issued through a window, results joined in order."""

from runnel.core.commands import OutputStored
from runnel.core.decide.ending import fail_node
from runnel.core.decide.issue import has_slot, issue, shared_values
from runnel.core.decide.turn import BlobNeededError, ExecutionScope, Turn, Values, evaluate, shown
from runnel.core.decide.waits import begin_core_handler
from runnel.core.effects import StoreOutput
from runnel.core.events import MapStarted, NodeCompleted
from runnel.core.execution import Execution, MapRun
from runnel.core.values import Json, Value, from_bytes
from runnel.core.workflow import CORE_HANDLERS, ErrorInfo

# Stands in the line of ready work for "the next items of this map".
MAP_NEXT = -2


def start_map(turn: Turn, index: int) -> None:
    items = _items(turn, index)
    if items is None:
        return
    if isinstance(items, ErrorInfo):
        fail_node(turn, index, items)
        return
    shared = shared_values(turn, index, len(items))
    if shared is None:
        return
    node_id = turn.execution.graph.nodes[index].node.id
    turn.emit(MapStarted(node=node_id, count=len(items), shared=shared))
    turn.execution.maps[index].items = items
    continue_map(turn, index)


def continue_map(turn: Turn, index: int) -> None:
    """Joins a map that is done, otherwise puts its next items in line."""
    found = turn.execution.maps[index]
    if found.is_settled:
        _join(turn, index, found)
    elif found.next_item < found.count:
        _stand_in_line(turn, index, found)


def issue_next_items(turn: Turn, index: int) -> None:
    """Issues items while there are slots; what is ready together takes turns by the line."""
    execution = turn.execution
    found = execution.maps[index]
    found.is_in_line = False
    if execution.nodes[index].is_final:
        return
    window = turn.moment.policy.window
    while found.next_item < found.count and len(found.active) < window and has_slot(turn):
        item = found.next_item
        _issue_item(turn, index, item)
        if execution.nodes[index].is_final or found.next_item == item:
            return
        if execution.ready:
            break
    if found.next_item < found.count and len(found.active) < window:
        _stand_in_line(turn, index, found)


def _stand_in_line(turn: Turn, index: int, found: MapRun) -> None:
    if not found.is_in_line:
        found.is_in_line = True
        turn.execution.ready.append((index, MAP_NEXT))


def on_output_stored(turn: Turn, command: OutputStored) -> None:
    index = turn.execution.graph.index.get(command.ref.node_id)
    if index is None or turn.execution.nodes[index].is_final or turn.execution.is_final:
        return
    found = turn.execution.maps.get(index)
    if found is not None and found.is_settled:
        turn.emit(NodeCompleted(node=command.ref.node_id, output=command.output))
        turn.settled(index)


def hydrate(execution: Execution, values: Values) -> str | None:
    """Evaluates the lists of running maps after a load; the key of a blob that it needs first.

    The lists are those that the maps were started with: they depend on settled outputs only.
    """
    for index, found in execution.maps.items():
        if found.items is None and not execution.nodes[index].is_final:
            expression = execution.graph.nodes[index].for_each
            try:
                scope = ExecutionScope(execution, values)
                found.items = expression.evaluate(scope) if expression else []
            except BlobNeededError as needed:
                return needed.key
    return None


def _issue_item(turn: Turn, index: int, item: int) -> None:
    if turn.execution.graph.nodes[index].node.handler in CORE_HANDLERS:
        begin_core_handler(turn, index, item)
        return
    error = issue(turn, index, item)
    if error is not None:
        fail_node(turn, index, error, item=item)


def _items(turn: Turn, index: int) -> list[Json] | ErrorInfo | None:
    found = evaluate(turn, index, turn.execution.graph.nodes[index].for_each)
    if found is None or isinstance(found, ErrorInfo):
        return found
    items = found.value
    if not isinstance(items, list):
        message = f"for_each gave {shown(items)}, expected a list"
        return ErrorInfo(type="TemplateError", message=message, retryable=False)
    most = turn.moment.policy.map_items_max
    if len(items) > most:
        message = f"for_each gave {len(items)} items, at most {most} are allowed"
        return ErrorInfo(type="TemplateError", message=message, retryable=False)
    return items


def _join(turn: Turn, index: int, found: MapRun) -> None:
    """The results as one list: inline when small, written aside first when not."""
    results = [result for result in found.results if result is not None]
    is_small = found.size + 1 <= turn.moment.policy.inline_bytes_max
    if is_small and all(result.blob is None for result in results):
        node_id = turn.execution.graph.nodes[index].node.id
        turn.emit(NodeCompleted(node=node_id, output=join_inline(results)))
        turn.settled(index)
        return
    if not found.is_joining:
        found.is_joining = True
        ref = turn.execution.ref(index)
        key = f"{ref.execution_id}/{ref.node_id}/joined/{turn.moment.nonce}"
        turn.effects.append(StoreOutput(ref, key, results))


def join_inline(results: list[Value]) -> Value:
    return from_bytes(b"[" + b",".join(bytes(result.data) for result in results) + b"]")
