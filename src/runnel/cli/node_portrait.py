"""One node for a person: what it got, its attempts, what came out."""

from collections.abc import Iterator

from runnel.attempts import Attempt
from runnel.cli.looks import LOOKS
from runnel.cli.tables import Cell, print_styled, print_table
from runnel.cli.words import clock_time, compact, count, duration, local_time, pretty, short
from runnel.core.json_types import Json
from runnel.node_details import ItemsPage, NodeDetail

VALUE_CHARS_MAX = 60


def print_node(detail: NodeDetail, now: float) -> None:
    look = LOOKS[detail.state]
    item = "" if detail.item is None else f"[{detail.item}]"
    print_styled(
        [
            Cell(f"{look.glyph} {detail.node_id}{item}", "bold"),
            Cell(f" ({detail.handler})  {detail.execution_id}  ", "dim"),
            Cell(detail.state, look.style),
        ]
    )
    for name, text in _facts(detail, now):
        print_styled([Cell(f"  {name:<11}", "dim"), Cell(text)])
    _print_attempts(detail, now)
    if detail.items is not None:
        _print_items(detail.items)
    for name, value in (("config", detail.config), ("inputs", detail.inputs or None)):
        _print_value(name, value)
    _print_value("output", detail.output)


def _facts(detail: NodeDetail, now: float) -> Iterator[tuple[str, str]]:
    if detail.started_at is not None:
        yield "started", local_time(detail.started_at)
        took = (detail.finished_at or now) - detail.started_at
        yield "took" if detail.finished_at else "runs for", duration(took)
    if detail.waits_for is not None:
        due = "" if detail.due is None else f", until {local_time(detail.due)} at most"
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
            Cell("" if each.queued_at is None else clock_time(each.queued_at), "dim"),
            Cell(_took(each, now), "dim"),
            Cell(each.worker, "dim"),
            Cell(_said(each)),
        ]
        for each in detail.attempts
    ]
    print_table(["ATTEMPT", "OUTCOME", "QUEUED", "TOOK", "WORKER", ""], rows)
    for each in detail.attempts:
        if each.logs:
            print_styled([Cell(f"\nlogged in attempt {each.number}", "dim")])
        for line in each.logs:
            print_styled([Cell(f"{clock_time(line.at)} {line.level:<7} ", "dim"), Cell(line.text)])
    last = detail.attempts[-1]
    if last.error is not None and last.error.traceback:
        print_styled([Cell(f"\nwhere attempt {last.number} failed", "dim")])
        print(last.error.traceback.rstrip())


def _took(attempt: Attempt, now: float) -> str:
    if attempt.started_at is None:
        return ""
    return duration((attempt.finished_at or now) - attempt.started_at)


def _said(attempt: Attempt) -> str:
    said = str(attempt.error) if attempt.error is not None else attempt.reason
    if attempt.child_id is not None:
        said = f"child execution {attempt.child_id} {said}"
    return " ".join(said.split())


def _print_items(page: ItemsPage) -> None:
    print_styled([Cell(f"\n{page.settled:,} of {count(page.count, 'item')} settled", "dim")])
    rows = [
        [
            Cell(str(each.item), "bold"),
            Cell(f"{LOOKS[each.state].glyph} {each.state}", LOOKS[each.state].style),
            Cell(str(each.attempts or ""), "dim"),
            Cell(each.worker, "dim"),
            Cell(" ".join(str(each.error or each.child_id or _value(each.output)).split())),
        ]
        for each in page.items
    ]
    print_table(["ITEM", "STATE", "ATTEMPTS", "WORKER", "RESULT"], rows)
    if page.next is not None:
        print(f"(up to item {page.next}; --item shows one, --after {page.next} the next)")


def _value(value: Json) -> str:
    return "" if value is None else short(compact(value), VALUE_CHARS_MAX)


def _print_value(name: str, value: Json) -> None:
    if value is not None:
        print_styled([Cell(f"\n{name}", "dim")])
        print(pretty(value))
