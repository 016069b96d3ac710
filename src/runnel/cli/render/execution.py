"""Prints one execution or one node for a person: input, progress and result."""

from collections.abc import Iterator

from runnel.cli.render.printer import print_facts, print_text_section, print_value_section
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
)
from runnel.core.ids import NO_ITEM, format_node_name
from runnel.core.states import NodeState
from runnel.core.values import Json
from runnel.views.execution import ExecutionView, NodeView
from runnel.views.node import AttemptView, ItemsPage, ItemView, NodeDetail
from runnel.views.value import ValuePreview

VALUE_CHARS_MAX = 60
NODES_MAX = 200
TRACEBACKS_MAX = 3
# A map that stopped has settled all its items: the cancelled ones too.
_STOPPED_STATES = (NodeState.FAILED, NodeState.CANCELLED)


def print_execution(view: ExecutionView, now: float) -> None:
    state_style = STATE_STYLES[view.status]
    title = [
        Cell(f"{state_style.glyph} {view.workflow}", "bold"),
        Cell(f" (version {view.version})  {view.execution_id}  ", "dim"),
        Cell(view.status, state_style.style),
    ]
    print_facts(title, _list_facts(view, now), name_width=9)
    print()
    _print_nodes(view, now)
    _print_tracebacks(view)
    _print_output(view.output, view.output_preview)


def _list_facts(view: ExecutionView, now: float) -> Iterator[tuple[str, str]]:
    yield "created", format_local_time(view.created_at)
    if view.started_at is not None:
        took = (view.finished_at or now) - view.started_at
        yield "took" if view.finished_at else "runs for", format_duration(took)
    if view.rerun_of is not None:
        yield "rerun of", view.rerun_of
    if view.parent_id is not None:
        yield "parent", view.parent_id
    if view.priority:
        yield "priority", str(view.priority)
    yield "labels", format_labels(view.labels)
    if view.input not in (None, {}):
        yield "input", shorten(to_compact_json(view.input), 2 * VALUE_CHARS_MAX)
    if view.input_preview is not None:
        text = _format_preview(view.input_preview, 2 * VALUE_CHARS_MAX)
        yield "input", f"{text}; --input prints all of it"
    if view.error is not None:
        yield "error", view.error


def _print_nodes(view: ExecutionView, now: float) -> None:
    rows = [
        [
            Cell(f"{STATE_STYLES[node.status].glyph} {name}"),
            Cell(node.status, STATE_STYLES[node.status].style),
            Cell(_format_elapsed(node, now), "dim"),
            _format_attempts(node),
            Cell(_format_result(node)),
        ]
        for name, node in list(view.nodes.items())[:NODES_MAX]
    ]
    print_table(["  NODE", "STATUS", "TOOK", "ATTEMPTS", "RESULT"], rows)
    if len(view.nodes) > NODES_MAX:
        print(f"  and {format_count(len(view.nodes) - NODES_MAX, 'more node')}: --json shows all")


def _print_tracebacks(view: ExecutionView) -> None:
    """Prints the tracebacks of the first nodes whose user code failed."""
    failed = [(name, node.traceback) for name, node in view.nodes.items() if node.traceback]
    for name, traceback in failed[:TRACEBACKS_MAX]:
        print_text_section(f"where {name} failed", traceback)


def _format_elapsed(node: NodeView, now: float) -> str:
    if node.started_at is None or node.status is NodeState.QUEUED:
        return ""
    return format_duration((node.finished_at or now) - node.started_at)


def _format_result(node: NodeView) -> str:
    """Returns the error, the wait or the output of a node, depending on its state."""
    text = node.error or node.reason or ""
    if node.waits_for is not None:
        text = f"waits for {node.waits_for}" + (f", after {node.error}" if node.error else "")
    elif node.status is NodeState.COMPLETED:
        text = _format_value(node.output, node.output_preview) + (
            f"  ({node.reason})" if node.reason else ""
        )
    if node.items is not None and node.status not in _STOPPED_STATES:
        text = f"{node.items_settled:,}/{node.items:,} items  {text}"
    return " ".join(text.split())


def _format_attempts(node: NodeView) -> Cell:
    """Returns the number of attempts; empty for a map, whose items have attempts of their own."""
    is_map = node.items is not None
    text = "" if is_map or not node.attempts else str(node.attempts)
    return Cell(text, "yellow" if node.attempts > 1 else "dim")


def _format_value(value: Json, preview: ValuePreview | None) -> str:
    if preview is not None:
        return _format_preview(preview, VALUE_CHARS_MAX)
    return "" if value is None else shorten(to_compact_json(value), VALUE_CHARS_MAX)


def _format_preview(preview: ValuePreview, chars_max: int) -> str:
    """Returns the beginning of a large value and its size, such as `[1, 2, … (10,485,760 bytes)`.

    The text and an ellipsis have at most `chars_max` characters.
    """
    text = shorten(preview.text, chars_max).removesuffix("…")
    return f"{text}… ({preview.size:,} bytes)"


def _print_output(value: Json, preview: ValuePreview | None) -> None:
    if preview is None:
        print_value_section("output", value)
    else:
        text = _format_preview(preview, 2 * VALUE_CHARS_MAX)
        print_text_section("output", f"{text}; --output prints all of it")


def print_node(detail: NodeDetail, now: float) -> None:
    state_style = STATE_STYLES[detail.status]
    name = format_node_name(detail.node_id, NO_ITEM if detail.item is None else detail.item)
    title = [
        Cell(f"{state_style.glyph} {name}", "bold"),
        Cell(f" ({detail.handler})  {detail.execution_id}  ", "dim"),
        Cell(detail.status, state_style.style),
    ]
    print_facts(title, _list_node_facts(detail, now), name_width=11)
    _print_attempts(detail, now)
    if detail.items is not None:
        _print_items(detail.items)
    print_value_section("config", detail.config)
    print_value_section("inputs", _list_inputs(detail) or None)
    _print_output(detail.output, detail.output_preview)


def _list_inputs(detail: NodeDetail) -> dict[str, Json]:
    """Returns the inputs of a node; the text of a preview for a large input."""
    previews = {
        name: _format_preview(preview, 2 * VALUE_CHARS_MAX)
        for name, preview in detail.input_previews.items()
    }
    return {**detail.inputs, **previews}


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
        parents = [f"{name} ({state.lower()})" for name, state in detail.dependencies.items()]
        yield "depends on", ", ".join(parents)
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
            Cell(str(attempt.number), "bold"),
            Cell(attempt.outcome),
            Cell("" if attempt.queued_at is None else format_clock_time(attempt.queued_at), "dim"),
            Cell(_format_attempt_elapsed(attempt, now), "dim"),
            Cell(attempt.worker, "dim"),
            Cell(_describe_attempt(attempt)),
        ]
        for attempt in detail.attempts
    ]
    print_table(["ATTEMPT", "OUTCOME", "QUEUED", "TOOK", "WORKER", ""], rows)
    for attempt in detail.attempts:
        if attempt.logs:
            print_styled([Cell(f"\nlogged in attempt {attempt.number}", "dim")])
        for line in attempt.logs:
            print_styled(
                [Cell(f"{format_clock_time(line.at)} {line.level:<7} ", "dim"), Cell(line.text)]
            )
    last = detail.attempts[-1]
    if last.error is not None:
        print_text_section(f"where attempt {last.number} failed", last.error.traceback)


def _format_attempt_elapsed(attempt: AttemptView, now: float) -> str:
    if attempt.started_at is None:
        return ""
    return format_duration((attempt.finished_at or now) - attempt.started_at)


def _describe_attempt(attempt: AttemptView) -> str:
    text = str(attempt.error) if attempt.error is not None else attempt.reason
    if attempt.child_id is not None:
        text = f"child execution {attempt.child_id} {text}"
    return " ".join(text.split())


def _format_item_result(item: ItemView) -> str:
    text = item.error or item.child_id or _format_value(item.output, item.output_preview)
    return " ".join(str(text).split())


def _print_items(page: ItemsPage) -> None:
    print_styled([Cell(f"\n{page.settled:,} of {format_count(page.count, 'item')} settled", "dim")])
    rows = [
        [
            Cell(str(item.item), "bold"),
            Cell(
                f"{STATE_STYLES[item.status].glyph} {item.status}", STATE_STYLES[item.status].style
            ),
            Cell(str(item.attempts or ""), "dim"),
            Cell(item.worker, "dim"),
            Cell(_format_item_result(item)),
        ]
        for item in page.items
    ]
    print_table(["ITEM", "STATUS", "ATTEMPTS", "WORKER", "RESULT"], rows)
    if page.next is not None:
        print(f"(up to item {page.next}; --item shows one, --after {page.next} the next)")
