"""Describes a node or an execution in one short sentence."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from runnel.cli.render.progress import ExecutionProgress, NodeLine
from runnel.cli.render.text import format_duration, join_names
from runnel.core.events import Wait
from runnel.core.rerun import find_undone_results
from runnel.core.states import NodeState

_WAIT_TEXTS = {
    Wait.CHILD: "child execution {detail}",
    Wait.LIMIT: "concurrency key '{detail}'",
    Wait.RATE_LIMIT: "its turn ({detail})",
    Wait.SIGNAL: "signal '{detail}'",
    Wait.SLOT: "a free slot (max_concurrency)",
}


class SignalHints(Protocol):
    """Formats the command that sends a signal, for the user to copy."""

    def signal(self, execution_id: str, name: str) -> str: ...


def describe_reason(line: NodeLine, now: float) -> str:
    """Returns the error, the reason or the wait of a node; empty if the node has none."""
    if line.state is NodeState.WAITING:
        return _describe_wait(line, now)
    if line.state in {NodeState.SKIPPED, NodeState.FAILED, NodeState.CANCELLED}:
        return line.note
    if line.items is not None and line.detail:
        return _describe_item_wait(line, now)
    if line.note and line.attempts > 1 and not line.is_final:
        return f"after {line.note}"
    return ""


def describe_change(line: NodeLine, now: float) -> str:
    """Returns the line that the plain view prints for a changed node."""
    reason = describe_reason(line, now)
    match line.state:
        case NodeState.COMPLETED:
            attempts = f", attempt {line.attempts}" if line.attempts > 1 else ""
            return f"{line.node_id}: completed in {_format_elapsed(line, now)}{attempts}"
        case NodeState.RUNNING if line.items is not None:
            waits = f", {reason}" if reason else ""
            return f"{line.node_id}: {line.items_settled:,} of {line.items:,} items{waits}"
        case NodeState.RUNNING:
            attempt = f", attempt {line.attempts}" if line.attempts > 1 else ""
            return f"{line.node_id}: started{attempt}"
        case NodeState.FAILED:
            return f"{line.node_id}: failed: {reason}"
        case NodeState.SKIPPED:
            return f"{line.node_id}: skipped ({reason})"
        case NodeState.CANCELLED:
            return f"{line.node_id}: cancelled ({reason})"
        case _:
            return f"{line.node_id}: {reason or line.state.lower()}"


def format_elapsed(line: NodeLine, now: float) -> str:
    """Returns the duration of a node as text; empty if the node has not started."""
    if line.started_at is None or line.state in {NodeState.PENDING, NodeState.QUEUED}:
        return ""
    return _format_elapsed(line, now)


def describe_outcome(progress: ExecutionProgress, now: float) -> str:
    """Returns a sentence such as `demo completed in 3.2 s`, with the error of a failure."""
    since = progress.started_at or now
    took = format_duration((progress.finished_at or now) - since)
    error = f": {' '.join(progress.error.split())}" if progress.error else ""
    return f"{progress.name} {progress.state.lower()} in {took}{error}"


def describe_clean_up(progress: ExecutionProgress, children: Sequence[str]) -> str:
    """Returns the sentence that says why the command still waits for a final execution."""
    noun = "execution" if len(children) == 1 else "executions"
    waits = f"waits for the clean-up of child {noun} {join_names(children, 3)}"
    return f"{progress.name} {progress.state.lower()}, {waits}"


def describe_undone(progress: ExecutionProgress, nodes_to_rerun: Iterable[str] = ()) -> str:
    """Returns the sentence about results that a rerun reuses, but clean-up may have undone.

    Returns an empty text if there are no such results.
    """
    lines = progress.lines
    undone = find_undone_results(
        {node_id: line.parents for node_id, line in lines.items()},
        clean_up=[node_id for node_id in lines if _has_cleaned_up(progress, lines[node_id])],
        completed={id_ for id_, line in lines.items() if line.state is NodeState.COMPLETED},
        nodes_to_rerun=[node_id for node_id in nodes_to_rerun if node_id in lines],
    )
    if undone is None:
        return ""
    noun = "node" if len(undone.clean_up) == 1 else "nodes"
    return (
        f"clean-up {noun} {join_names(undone.clean_up, 3)} ran and may have undone "
        f"{join_names(undone.results, 3)}"
    )


def _has_cleaned_up(progress: ExecutionProgress, line: NodeLine) -> bool:
    """Returns True if the code of a clean-up node ran and did not raise Skip."""
    return (
        line.node_id in progress.clean_up_nodes
        and line.started_at is not None
        and line.state is not NodeState.SKIPPED
    )


def get_awaited_signal(line: NodeLine) -> str | None:
    """Returns the name of the signal that a node waits for; None if it waits for no signal."""
    is_signal = line.state is NodeState.WAITING and line.wait is Wait.SIGNAL
    return line.detail if is_signal else None


def _describe_wait(line: NodeLine, now: float) -> str:
    remaining = "" if line.due is None else format_duration(line.due - now)
    if line.wait in (Wait.RETRY, Wait.CRASH):
        cause = line.note if line.wait is Wait.RETRY else line.detail
        due = f" in {remaining}" if remaining else ""
        return f"attempt {line.attempts + 1}{due}, after {cause}"
    if line.wait is Wait.SLEEP:
        return f"sleeps for {remaining} more" if remaining else "sleeps"
    if line.wait is None:
        return "waits"
    limit = f" (at most {remaining} more)" if remaining and line.wait is Wait.SIGNAL else ""
    return f"waits for {_WAIT_TEXTS[line.wait].format(detail=line.detail)}{limit}"


def _describe_item_wait(line: NodeLine, now: float) -> str:
    """Returns the wait of a map's items; the time is first, because a terminal cuts off the end."""
    remaining = "" if line.due is None else f"{format_duration(line.due - now)} more "
    return f"waits {remaining}for {line.detail}"


def _format_elapsed(line: NodeLine, now: float) -> str:
    end = now if line.finished_at is None else line.finished_at
    return format_duration(end - (line.started_at if line.started_at is not None else end))
