"""Events folded into a progress: what the live view and the plain lines are made from."""

from collections.abc import Callable, Sequence
from typing import Any

from runnel.cli.progress import NodeLine, Progress
from runnel.core import events as e
from runnel.core.ids import NO_ITEM
from runnel.core.states import ExecutionState, NodeState


def fold(progress: Progress, at: float, events: Sequence[e.AnyEvent]) -> None:
    for event in events:
        apply = _APPLY.get(type(event))
        if apply is not None:
            apply(progress, event, at)


def _on_execution_started(progress: Progress, _event: e.ExecutionStarted, at: float) -> None:
    progress.state, progress.started_at = ExecutionState.RUNNING, at


def _on_taken(progress: Progress, event: e.NodesTaken, at: float) -> None:
    """Nothing happens, so nothing is said: they are shown as they were."""
    for taken in event.taken:
        line = progress.lines[taken.node]
        if taken.item == NO_ITEM:
            line.finished_at, line.note = at, taken.detail or str(taken.skip or "")
            is_done = taken.skip is None
            progress.move(line, NodeState.COMPLETED if is_done else NodeState.SKIPPED)
        else:
            line.items_settled += 1


def _on_finished(progress: Progress, event: e.ExecutionFinished, at: float) -> None:
    progress.state, progress.finished_at = event.state, at
    progress.error = str(event.error or "")


def _on_closing(progress: Progress, event: e.ExecutionClosing, at: float) -> None:
    reason = str(event.error or event.outcome)
    for node_id, line in progress.lines.items():
        is_spared = node_id in progress.clean_up and not event.is_abrupt
        if line.state is NodeState.PENDING and not is_spared:
            progress.settle(line, NodeState.CANCELLED, at, note=reason)


def _on_queued(progress: Progress, event: e.NodeQueued, _at: float) -> None:
    if event.item == NO_ITEM:
        progress.queue(event.node, event.attempt)
    else:
        _end_wait_of_items(progress.lines[event.node])


def _on_started(progress: Progress, event: e.NodeStarted, _at: float) -> None:
    if event.item == NO_ITEM:
        progress.start(event.node, progress.lines[event.node].attempts, event.started_at)


def _on_completed(progress: Progress, event: e.NodeCompleted, at: float) -> None:
    line = progress.lines[event.node]
    if event.item != NO_ITEM:
        _settle_item(progress, line)
        return
    line.started_at = event.started_at or line.started_at
    progress.settle(line, NodeState.COMPLETED, at)


def _on_failed(progress: Progress, event: e.NodeFailed, at: float) -> None:
    line = progress.lines[event.node]
    if event.item != NO_ITEM:
        _settle_item(progress, line)
        return
    line.started_at = event.started_at or line.started_at
    progress.settle(line, NodeState.FAILED, at, note=str(event.error))


def _on_skipped(progress: Progress, event: e.NodeSkipped, at: float) -> None:
    line = progress.lines[event.node]
    if event.item != NO_ITEM:
        _settle_item(progress, line)
        return
    progress.settle(line, NodeState.SKIPPED, at, note=event.detail or str(event.reason))


def _on_cancelled(progress: Progress, event: e.NodeCancelled, at: float) -> None:
    line = progress.lines[event.node]
    if event.item != NO_ITEM:
        _settle_item(progress, line)
    elif not line.is_final:
        progress.settle(line, NodeState.CANCELLED, at, note=event.reason)


def _on_retry_planned(progress: Progress, event: e.RetryPlanned, _at: float) -> None:
    if event.item == NO_ITEM:
        line = progress.lines[event.node]
        progress.move(line, NodeState.WAITING)
        line.wait, line.due, line.note = e.Wait.RETRY, event.due, str(event.error)
        progress.changed.append(line)


def _on_waits(progress: Progress, event: e.NodeWaits, at: float) -> None:
    if event.item != NO_ITEM:
        return
    line = progress.lines[event.node]
    line.started_at = line.started_at or at
    line.attempts = line.attempts if event.attempt is None else event.attempt
    progress.move(line, NodeState.WAITING)
    line.wait, line.due, line.detail = event.wait, event.due, event.detail
    progress.changed.append(line)


def _on_map_started(progress: Progress, event: e.MapStarted, at: float) -> None:
    line = progress.lines[event.node]
    line.attempts, line.started_at, line.items = 1, at, event.count
    progress.move(line, NodeState.RUNNING)
    progress.changed.append(line)


def _end_wait_of_items(line: NodeLine) -> None:
    line.detail, line.due = "", None


def _settle_item(progress: Progress, line: NodeLine) -> None:
    _end_wait_of_items(line)
    line.items_settled += 1
    progress.changed.append(line)


# Any: each function takes the one event type that it is registered for.
_APPLY: dict[type, Callable[[Progress, Any, float], None]] = {
    e.NodesTaken: _on_taken,
    e.ExecutionStarted: _on_execution_started,
    e.ExecutionFinished: _on_finished,
    e.ExecutionClosing: _on_closing,
    e.NodeQueued: _on_queued,
    e.NodeStarted: _on_started,
    e.NodeCompleted: _on_completed,
    e.NodeFailed: _on_failed,
    e.NodeSkipped: _on_skipped,
    e.NodeCancelled: _on_cancelled,
    e.RetryPlanned: _on_retry_planned,
    e.NodeWaits: _on_waits,
    e.MapStarted: _on_map_started,
}
