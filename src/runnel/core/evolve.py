"""Applies events to executions, with one function per event. A replay uses the same functions."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from runnel.core import events as e
from runnel.core.codec import decode_entry
from runnel.core.execution import (
    PENDING_RUN,
    ConfigOverride,
    Execution,
    MapRun,
    NodeRun,
    StoppedAttempt,
)
from runnel.core.graph import Graph
from runnel.core.ids import NO_ITEM, DefinitionHash
from runnel.core.states import NODE_MOVES, NodeState, check_execution_move, check_node_move
from runnel.core.states import ExecutionState as X
from runnel.core.templates.template import compile_tree
from runnel.core.values import NULL, Value
from runnel.errors import BrokenInvariantError

S = NodeState
# Bound to names, because each access to a member of an enum takes 0.1 µs.
_QUEUED, _COMPLETED, _SIGNAL = S.QUEUED, S.COMPLETED, e.Wait.SIGNAL
FROM_CACHE = "from the cache"
# The state that a reported task passes through, even if no event has recorded it as RUNNING.
RUNNING_RUN = NodeRun(state=S.RUNNING)


def evolve(execution: Execution, event: e.Event, at: float) -> None:
    """Applies one event to the execution.

    Raises IllegalMoveError if the table of state changes does not allow it.
    """
    _APPLIERS[type(event)](execution, event, at)


def replay(
    entries: Iterable[bytes], get_graph: Callable[[DefinitionHash], Graph]
) -> Execution | None:
    """Returns the execution that the history entries describe, or None if there are no entries."""
    execution: Execution | None = None
    for data in entries:
        entry = decode_entry(data)
        for event in entry.events:
            if isinstance(event, e.ExecutionCreated):
                execution = Execution(event, get_graph(event.definition))
            elif execution is None:
                raise BrokenInvariantError("a history does not begin with ExecutionCreated")
            else:
                _APPLIERS[type(event)](execution, event, entry.at)
    return execution


def rebuild_execution(entries: Sequence[bytes], graph: Graph) -> Execution:
    """Returns the execution that a non-empty history describes.

    `graph` is the graph of its definition.
    """
    execution = replay(entries, lambda _hash: graph)
    if execution is None:
        raise BrokenInvariantError("there is no history to rebuild an execution from")
    return execution


def read_definition_hash(entries: Sequence[bytes]) -> DefinitionHash:
    """Returns the definition hash of a non-empty history."""
    first = decode_entry(entries[0]).events[0]
    if not isinstance(first, e.ExecutionCreated):
        raise BrokenInvariantError("a history does not begin with ExecutionCreated")
    return first.definition


def find_last_end(entries: Sequence[bytes]) -> e.ExecutionFinished | None:
    """Returns the event that ended an execution, read from the end of its history."""
    ends = (e.find_end(decode_entry(data).events) for data in reversed(entries))
    return next((end for end in ends if end is not None), None)


def _on_started(execution: Execution, event: e.ExecutionStarted, at: float) -> None:
    check_execution_move(execution.id, execution.state, X.RUNNING)
    execution.state = X.RUNNING
    execution.started_at = at
    if event.input is not None:
        execution.input = event.input


def _on_nodes_taken(execution: Execution, event: e.NodesTaken, at: float) -> None:
    execution.reused_parts[event.part] = None
    reason = f"taken over from {execution.rerun_of}"
    for reused in event.taken:
        index = execution.graph.index[reused.node]
        run = execution.nodes[index]
        if reused.item != NO_ITEM:
            execution.reused_items.setdefault(index, {})[reused.item] = reused.output or NULL
        elif reused.skip is None:
            changed = replace(
                run, state=S.COMPLETED, output=reused.output, reason=reason, finished_at=at
            )
            _settle(execution, index, run, changed)
        else:
            detail = reused.detail or str(reused.skip)
            changed = replace(run, state=S.SKIPPED, skip=reused.skip, reason=detail, finished_at=at)
            _settle(execution, index, run, changed)
    for node_id, raw in event.configs.items():
        index = execution.graph.index[node_id]
        needs = execution.graph.find_needs(index, compile_tree(msgspec.json.decode(raw)))
        execution.configs[index] = ConfigOverride(raw, needs)


def _on_queued(execution: Execution, event: e.NodeQueued, _at: float) -> None:
    index = execution.graph.index[event.node]
    run = _get_run(execution, index, event.item)
    changed = replace(
        run,
        state=_QUEUED,
        attempt=event.attempt,
        nonce=event.nonce,
        key=event.key,
        wait=None,
        due=None,
        started_at=None,
        worker="",
    )
    _move(execution, index, event.item, run, changed)


def _on_task_started(execution: Execution, event: e.NodeStarted, _at: float) -> None:
    index = execution.graph.index[event.node]
    run = _get_run(execution, index, event.item)
    changed = replace(run, state=S.RUNNING, worker=event.worker, started_at=event.started_at)
    _move(execution, index, event.item, run, changed)


def _on_completed(execution: Execution, event: e.NodeCompleted, at: float) -> None:
    index = execution.graph.index[event.node]
    if event.item != NO_ITEM:
        _settle_item(execution, index, event.item)
        _add_result(execution.maps[index], event.item, event.output)
        return
    run = execution.nodes[index]
    was_queued = run.state is _QUEUED
    changed = replace(
        run,
        state=_COMPLETED,
        output=event.output,
        wait=None,
        due=None,
        reason=FROM_CACHE if event.is_cached else "",
        worker=event.worker if was_queued else run.worker,
        started_at=event.started_at if was_queued else run.started_at,
        finished_at=at,
    )
    _settle(execution, index, RUNNING_RUN if was_queued else run, changed)
    if index in execution.maps:
        execution.maps[index].results = []


def _on_failed(execution: Execution, event: e.NodeFailed, at: float) -> None:
    index = execution.graph.index[event.node]
    run = _get_run(execution, index, event.item)
    if event.started_at is not None:
        run = _mark_running(execution, index, event)
    if event.item != NO_ITEM:
        _settle_item(execution, index, event.item)
        return
    if execution.first_failed is None:
        execution.first_failed = index
    # The final failure counts too, because `failures` is the number of all failed attempts.
    changed = replace(
        run,
        state=S.FAILED,
        error=event.error,
        failures=run.failures + 1,
        wait=None,
        due=None,
        finished_at=at,
    )
    _settle(execution, index, run, changed)


def _on_skipped(execution: Execution, event: e.NodeSkipped, at: float) -> None:
    index = execution.graph.index[event.node]
    run = _mark_running(execution, index, event)
    if event.item != NO_ITEM:
        _settle_item(execution, index, event.item)
        _add_result(execution.maps[index], event.item, NULL)
        return
    changed = replace(
        run,
        state=S.SKIPPED,
        skip=event.reason,
        reason=event.detail or str(event.reason),
        finished_at=at,
    )
    _settle(execution, index, run, changed)


def _on_cancelled(execution: Execution, event: e.NodeCancelled, at: float) -> None:
    index = execution.graph.index[event.node]
    run = _get_run(execution, index, event.item)
    if event.stop_due is not None:
        child = run.detail if run.wait is e.Wait.CHILD else ""
        attempt = StoppedAttempt(execution.token(index, event.item, run), child)
        execution.stopping[index, event.item] = attempt
        execution.stop_due = event.stop_due
    if event.item != NO_ITEM:
        _settle_item(execution, index, event.item)
        return
    changed = replace(
        run, state=S.CANCELLED, reason=event.reason, wait=None, due=None, finished_at=at
    )
    _settle(execution, index, run, changed)


def _on_code_ended(execution: Execution, event: e.CodeEnded, _at: float) -> None:
    execution.stopping.pop((execution.graph.index[event.node], event.item), None)


def _on_retry_planned(execution: Execution, event: e.RetryPlanned, _at: float) -> None:
    index = execution.graph.index[event.node]
    run = _get_run(execution, index, event.item)
    changed = replace(
        run,
        state=S.WAITING,
        wait=e.Wait.RETRY,
        due=event.due,
        error=event.error,
        failures=run.failures + 1,
        key="",
    )
    _move(execution, index, event.item, run, changed)


def _on_lost(execution: Execution, event: e.TaskWasLost, _at: float) -> None:
    index = execution.graph.index[event.node]
    run = _get_run(execution, index, event.item)
    changed = replace(
        run, losses=run.losses + event.was_started, crashes=run.crashes + event.was_alone
    )
    _set_run(execution, index, event.item, changed)


def _on_waits(execution: Execution, event: e.NodeWaits, at: float) -> None:
    index = execution.graph.index[event.node]
    run = _get_run(execution, index, event.item)
    is_limit = event.wait is e.Wait.LIMIT
    changed = replace(
        run,
        state=S.WAITING,
        wait=event.wait,
        due=event.due,
        detail=event.detail,
        key=event.detail if is_limit else "",
        attempt=run.attempt if event.attempt is None else event.attempt,
        nonce=run.nonce if event.nonce is None else event.nonce,
        started_at=at if event.wait in _CORE_WAITS else run.started_at,
    )
    _move(execution, index, event.item, run, changed)
    if event.wait is e.Wait.SIGNAL:
        execution.signal_waiters.setdefault(event.detail, []).append(index)


_CORE_WAITS = frozenset({e.Wait.SLEEP, e.Wait.SIGNAL, e.Wait.CHILD})


def _on_map_started(execution: Execution, event: e.MapStarted, at: float) -> None:
    index = execution.graph.index[event.node]
    run = execution.nodes[index]
    check_node_move(event.node, run.state, S.RUNNING)
    execution.nodes[index] = replace(run, state=S.RUNNING, attempt=1, started_at=at)
    map_run = execution.maps[index] = MapRun(event.count, event.shared)
    execution.offloaded_values.update(event.shared)
    map_run.adopt_results(execution.reused_items.pop(index, {}))


def _on_signal(execution: Execution, event: e.SignalReceived, _at: float) -> None:
    execution.signal_ids[event.signal_id] = None
    execution.signals[event.signal_id] = (event.name, event.payload)


def _on_signal_consumed(execution: Execution, event: e.SignalConsumed, _at: float) -> None:
    del execution.signals[event.signal_id]


def _on_closing(execution: Execution, event: e.ExecutionClosing, at: float) -> None:
    """Cancels all nodes that have not begun. A graph of any size needs only this one event."""
    reason = e.describe_closing(event.outcome, event.error)
    spares_clean_up = execution.state is X.RUNNING and not event.is_abrupt
    execution.outcome = execution.outcome or event.outcome
    execution.closing_error = execution.closing_error or event.error
    execution.is_abrupt = execution.is_abrupt or event.is_abrupt
    execution.is_awaited = execution.is_awaited or event.is_awaited
    cancelled = replace(PENDING_RUN, state=S.CANCELLED, reason=reason, finished_at=at)
    for compiled in execution.graph.nodes:
        run = execution.nodes[compiled.index]
        if run.state is S.PENDING and not (spares_clean_up and compiled.is_clean_up):
            _settle(execution, compiled.index, run, cancelled)


def _on_sla_missed(execution: Execution, _event: e.SlaMissed, _at: float) -> None:
    execution.is_sla_missed = True


def _on_finished(execution: Execution, event: e.ExecutionFinished, at: float) -> None:
    check_execution_move(execution.id, execution.state, event.state)
    execution.state = event.state
    execution.finished_at = at
    execution.output = event.output
    execution.error = event.error


def _get_run(execution: Execution, index: int, item: int) -> NodeRun:
    if item == NO_ITEM:
        return execution.nodes[index]
    return execution.maps[index].active.get(item, PENDING_RUN)


def _mark_running(
    execution: Execution, index: int, event: e.NodeCompleted | e.NodeFailed | e.NodeSkipped
) -> NodeRun:
    """Returns the run of a reported task. A run that is still QUEUED is returned as RUNNING."""
    run = _get_run(execution, index, event.item)
    if run.state is S.QUEUED:
        return replace(run, state=S.RUNNING, worker=event.worker, started_at=event.started_at)
    return run


def _move(execution: Execution, index: int, item: int, before: NodeRun, after: NodeRun) -> None:
    check_node_move(execution.graph.nodes[index].node.id, before.state, after.state)
    execution.in_flight += after.holds_slot - before.holds_slot
    _set_run(execution, index, item, after)


def _set_run(execution: Execution, index: int, item: int, run: NodeRun) -> None:
    if item == NO_ITEM:
        execution.nodes[index] = run
        return
    map_run = execution.maps[index]
    map_run.active[item] = run
    map_run.advance_next_item(item)


def _settle(execution: Execution, index: int, before: NodeRun, after: NodeRun) -> None:
    """Settles a node, in O(children).

    A node settles once: the table allows no move out of a settled state.
    """
    compiled = execution.graph.nodes[index]
    if after.state not in NODE_MOVES[before.state]:
        check_node_move(compiled.node.id, before.state, after.state)
    if index not in execution.maps:
        execution.in_flight -= execution.nodes[index].holds_slot
    if before.wait is _SIGNAL:
        execution.signal_waiters[before.detail].remove(index)
    execution.nodes[index] = after
    execution.unsettled_count -= 1
    for child in compiled.children:
        execution.unsettled_parents[child] -= 1


def _settle_item(execution: Execution, index: int, item: int) -> None:
    map_run = execution.maps[index]
    if map_run.results[item] is not None:
        node_id = execution.graph.nodes[index].node.id
        raise BrokenInvariantError(f"item {item} of '{node_id}' is settled twice")
    execution.in_flight -= map_run.active.pop(item, PENDING_RUN).holds_slot
    map_run.advance_next_item(item)
    map_run.settled += 1


def _add_result(map_run: MapRun, item: int, output: Value) -> None:
    map_run.results[item] = output
    map_run.size += output.size + 1


# The parameter type is Any, because each function takes only the event type of its key.
_APPLIERS: dict[type, Callable[[Execution, Any, float], None]] = {
    e.ExecutionStarted: _on_started,
    e.NodesTaken: _on_nodes_taken,
    e.NodeQueued: _on_queued,
    e.NodeStarted: _on_task_started,
    e.NodeCompleted: _on_completed,
    e.NodeFailed: _on_failed,
    e.NodeSkipped: _on_skipped,
    e.NodeCancelled: _on_cancelled,
    e.CodeEnded: _on_code_ended,
    e.RetryPlanned: _on_retry_planned,
    e.TaskWasLost: _on_lost,
    e.NodeWaits: _on_waits,
    e.MapStarted: _on_map_started,
    e.SignalReceived: _on_signal,
    e.SignalConsumed: _on_signal_consumed,
    e.ExecutionClosing: _on_closing,
    e.SlaMissed: _on_sla_missed,
    e.ExecutionFinished: _on_finished,
}
