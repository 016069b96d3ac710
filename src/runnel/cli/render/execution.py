"""One execution for a person: what it is, how it went, what came out."""

from collections.abc import Iterator

from runnel.cli.render.text import (
    STATE_STYLES,
    Cell,
    format_clock_time,
    format_count,
    format_duration,
    format_labels,
    format_local_time,
    print_styled,
    print_table,
    shorten,
    to_compact_json,
    to_pretty_json,
)
from runnel.core.states import NodeState
from runnel.core.values import Json
from runnel.views.execution import ExecutionView, NodeView
from runnel.views.node import AttemptView, ItemsPage, NodeDetail

VALUE_CHARS_MAX = 60
NODES_MAX = 200
TRACEBACKS_MAX = 3


def print_execution(view: ExecutionView, now: float) -> None:
    look = STATE_STYLES[view.status]
    print_styled(
        [
            Cell(f"{look.glyph} {view.workflow}", "bold"),
            Cell(f" (version {view.version})  {view.execution_id}  ", "dim"),
            Cell(view.status, look.style),
        ]
    )
    for name, text in _list_facts(view, now):
        print_styled([Cell(f"  {name:<9}", "dim"), Cell(text)])
    print()
    _print_nodes(view, now)
    _print_tracebacks(view)
    if view.output is not None:
        print_styled([Cell("\noutput", "dim")])
        print(to_pretty_json(view.output))


def _list_facts(view: ExecutionView, now: float) -> Iterator[tuple[str, str]]:
    yield "created", format_local_time(view.created_at)
    if view.started_at is not None:
        took = (view.finished_at or now) - view.started_at
        yield "took" if view.finished_at else "runs for", format_duration(took)
    if view.rerun_of is not None:
        yield "rerun of", view.rerun_of
    if view.parent_id is not None:
        yield "parent", view.parent_id
    if format_labels(view.labels):
        yield "labels", format_labels(view.labels)
    if view.input not in (None, {}):
        yield "input", shorten(to_compact_json(view.input), 2 * VALUE_CHARS_MAX)
    if view.error is not None:
        yield "error", view.error


def _print_nodes(view: ExecutionView, now: float) -> None:
    rows = [
        [
            Cell(f"{STATE_STYLES[node.state].glyph} {name}"),
            Cell(node.state, STATE_STYLES[node.state].style),
            Cell(_format_elapsed(node, now), "dim"),
            Cell(str(node.attempts or ""), "yellow" if node.attempts > 1 else "dim"),
            Cell(_format_result(node)),
        ]
        for name, node in list(view.nodes.items())[:NODES_MAX]
    ]
    print_table(["  NODE", "STATE", "TOOK", "ATTEMPTS", "RESULT"], rows)
    if len(view.nodes) > NODES_MAX:
        print(f"  and {format_count(len(view.nodes) - NODES_MAX, 'more node')}: --json shows all")


def _print_tracebacks(view: ExecutionView) -> None:
    """Where the user's own code failed: of the first few nodes that did."""
    failed = [(name, node.traceback) for name, node in view.nodes.items() if node.traceback]
    for name, trace in failed[:TRACEBACKS_MAX]:
        print_styled([Cell(f"\nwhere {name} failed", "dim")])
        print((trace or "").rstrip())


def _format_elapsed(node: NodeView, now: float) -> str:
    if node.started_at is None or node.state is NodeState.QUEUED:
        return ""
    return format_duration((node.finished_at or now) - node.started_at)


def _format_result(node: NodeView) -> str:
    """Why, what for, or what came out: whichever tells most about this state."""
    said = node.error or node.reason or ""
    if node.waits_for is not None:
        said = f"waits for {node.waits_for}" + (f", after {node.error}" if node.error else "")
    elif node.state is NodeState.COMPLETED:
        said = _format_value(node.output) + (f"  ({node.reason})" if node.reason else "")
    if node.items is not None:
        said = f"{node.items_settled:,}/{node.items:,} items  {said}"
    return " ".join(said.split())


def _format_value(value: Json) -> str:
    return "" if value is None else shorten(to_compact_json(value), VALUE_CHARS_MAX)


# One node for a person: what it got, its attempts, what came out.

NODE_VALUE_CHARS_MAX = 60


def print_node(detail: NodeDetail, now: float) -> None:
    look = STATE_STYLES[detail.state]
    item = "" if detail.item is None else f"[{detail.item}]"
    print_styled(
        [
            Cell(f"{look.glyph} {detail.node_id}{item}", "bold"),
            Cell(f" ({detail.handler})  {detail.execution_id}  ", "dim"),
            Cell(detail.state, look.style),
        ]
    )
    for name, text in _list_node_facts(detail, now):
        print_styled([Cell(f"  {name:<11}", "dim"), Cell(text)])
    _print_attempts(detail, now)
    if detail.items is not None:
        _print_items(detail.items)
    for name, value in (("config", detail.config), ("inputs", detail.inputs or None)):
        _print_value(name, value)
    _print_value("output", detail.output)


def _list_node_facts(detail: NodeDetail, now: float) -> Iterator[tuple[str, str]]:
    if detail.started_at is not None:
        yield "started", format_local_time(detail.started_at)
        took = (detail.finished_at or now) - detail.started_at
        yield "took" if detail.finished_at else "runs for", format_duration(took)
    if detail.waits_for is not None:
        due = "" if detail.due is None else f", until {format_local_time(detail.due)} at most"
        yield "waits for", detail.waits_for + due
    if detail.is_cached:
        yield "cache", "its output is that of an earlier task"
    elif detail.reason is not None:
        yield "reason", detail.reason
    if detail.dependencies:
        said = [f"{name} ({state.lower()})" for name, state in detail.dependencies.items()]
        yield "depends on", ", ".join(said)
    if detail.error is not None:
        yield "error", str(detail.error)
    if detail.config_error is not None:
        yield "config", f"can't be shown: {detail.config_error}"


def _print_attempts(detail: NodeDetail, now: float) -> None:
    if not detail.attempts:
        return
    print()
    rows = [
        [
            Cell(str(each.number), "bold"),
            Cell(each.outcome),
            Cell("" if each.queued_at is None else format_clock_time(each.queued_at), "dim"),
            Cell(_format_attempt_elapsed(each, now), "dim"),
            Cell(each.worker, "dim"),
            Cell(_describe_attempt(each)),
        ]
        for each in detail.attempts
    ]
    print_table(["ATTEMPT", "OUTCOME", "QUEUED", "TOOK", "WORKER", ""], rows)
    for each in detail.attempts:
        if each.logs:
            print_styled([Cell(f"\nlogged in attempt {each.number}", "dim")])
        for line in each.logs:
            print_styled(
                [Cell(f"{format_clock_time(line.at)} {line.level:<7} ", "dim"), Cell(line.text)]
            )
    last = detail.attempts[-1]
    if last.error is not None and last.error.traceback:
        print_styled([Cell(f"\nwhere attempt {last.number} failed", "dim")])
        print(last.error.traceback.rstrip())


def _format_attempt_elapsed(attempt: AttemptView, now: float) -> str:
    if attempt.started_at is None:
        return ""
    return format_duration((attempt.finished_at or now) - attempt.started_at)


def _describe_attempt(attempt: AttemptView) -> str:
    said = str(attempt.error) if attempt.error is not None else attempt.reason
    if attempt.child_id is not None:
        said = f"child execution {attempt.child_id} {said}"
    return " ".join(said.split())


def _print_items(page: ItemsPage) -> None:
    print_styled([Cell(f"\n{page.settled:,} of {format_count(page.count, 'item')} settled", "dim")])
    rows = [
        [
            Cell(str(each.item), "bold"),
            Cell(f"{STATE_STYLES[each.state].glyph} {each.state}", STATE_STYLES[each.state].style),
            Cell(str(each.attempts or ""), "dim"),
            Cell(each.worker, "dim"),
            Cell(
                " ".join(
                    str(each.error or each.child_id or _format_node_value(each.output)).split()
                )
            ),
        ]
        for each in page.items
    ]
    print_table(["ITEM", "STATE", "ATTEMPTS", "WORKER", "RESULT"], rows)
    if page.next is not None:
        print(f"(up to item {page.next}; --item shows one, --after {page.next} the next)")


def _format_node_value(value: Json) -> str:
    return "" if value is None else shorten(to_compact_json(value), NODE_VALUE_CHARS_MAX)


def _print_value(name: str, value: Json) -> None:
    if value is not None:
        print_styled([Cell(f"\n{name}", "dim")])
        print(to_pretty_json(value))
