"""One execution for a person: what it is, how it went, what came out."""

from collections.abc import Iterator

from runnel.cli.looks import LOOKS
from runnel.cli.tables import Cell, print_styled, print_table
from runnel.cli.words import (
    compact,
    count,
    duration,
    local_time,
    pretty,
    short,
    shown_labels,
)
from runnel.core.json_types import Json
from runnel.core.states import NodeState
from runnel.views import ExecutionView, NodeView

VALUE_CHARS_MAX = 60
NODES_MAX = 200
TRACEBACKS_MAX = 3


def print_execution(view: ExecutionView, now: float) -> None:
    look = LOOKS[view.status]
    print_styled(
        [
            Cell(f"{look.glyph} {view.workflow}", "bold"),
            Cell(f" (version {view.version})  {view.execution_id}  ", "dim"),
            Cell(view.status, look.style),
        ]
    )
    for name, text in _facts(view, now):
        print_styled([Cell(f"  {name:<9}", "dim"), Cell(text)])
    print()
    _print_nodes(view, now)
    _print_tracebacks(view)
    if view.output is not None:
        print_styled([Cell("\noutput", "dim")])
        print(pretty(view.output))


def _facts(view: ExecutionView, now: float) -> Iterator[tuple[str, str]]:
    yield "created", local_time(view.created_at)
    if view.started_at is not None:
        took = (view.finished_at or now) - view.started_at
        yield "took" if view.finished_at else "runs for", duration(took)
    if view.rerun_of is not None:
        yield "rerun of", view.rerun_of
    if view.parent_id is not None:
        yield "parent", view.parent_id
    if shown_labels(view.labels):
        yield "labels", shown_labels(view.labels)
    if view.input not in (None, {}):
        yield "input", short(compact(view.input), 2 * VALUE_CHARS_MAX)
    if view.error is not None:
        yield "error", view.error


def _print_nodes(view: ExecutionView, now: float) -> None:
    rows = [
        [
            Cell(f"{LOOKS[node.state].glyph} {name}"),
            Cell(node.state, LOOKS[node.state].style),
            Cell(_took(node, now), "dim"),
            Cell(str(node.attempts or ""), "yellow" if node.attempts > 1 else "dim"),
            Cell(_result(node)),
        ]
        for name, node in list(view.nodes.items())[:NODES_MAX]
    ]
    print_table(["  NODE", "STATE", "TOOK", "ATTEMPTS", "RESULT"], rows)
    if len(view.nodes) > NODES_MAX:
        print(f"  and {count(len(view.nodes) - NODES_MAX, 'more node')}: --json shows all")


def _print_tracebacks(view: ExecutionView) -> None:
    """Where the user's own code failed: of the first few nodes that did."""
    failed = [(name, node.traceback) for name, node in view.nodes.items() if node.traceback]
    for name, trace in failed[:TRACEBACKS_MAX]:
        print_styled([Cell(f"\nwhere {name} failed", "dim")])
        print((trace or "").rstrip())


def _took(node: NodeView, now: float) -> str:
    if node.started_at is None or node.state is NodeState.QUEUED:
        return ""
    return duration((node.finished_at or now) - node.started_at)


def _result(node: NodeView) -> str:
    """Why, what for, or what came out: whichever tells most about this state."""
    said = node.error or node.reason or ""
    if node.waits_for is not None:
        said = f"waits for {node.waits_for}" + (f", after {node.error}" if node.error else "")
    elif node.state is NodeState.COMPLETED:
        said = _value(node.output) + (f"  ({node.reason})" if node.reason else "")
    if node.items is not None:
        said = f"{node.items_settled:,}/{node.items:,} items  {said}"
    return " ".join(said.split())


def _value(value: Json) -> str:
    return "" if value is None else short(compact(value), VALUE_CHARS_MAX)
