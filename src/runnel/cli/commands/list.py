"""`runnel list`"""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
import typer

from runnel.app.stores import NoDataError
from runnel.cli.options import AsJson, Limit, StoreLocation, configure
from runnel.cli.render.printer import print_list
from runnel.cli.render.text import (
    STATE_STYLES,
    Cell,
    format_duration,
    format_labels,
    format_local_time,
)
from runnel.cli.selection import ExecutionSelection, build_filter
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.open_client import ClientSession, has_data, open_client
from runnel.cli.session.stuck import print_stuck_executions
from runnel.core.states import UNFINISHED_STATES, ExecutionState
from runnel.engine.clock import RealClock
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter, PageCursor, decode_cursor
from runnel.views.execution import ExecutionSummary, StateCount, format_time

# A store searches up to 10,000 executions per page. After this number of pages the search stops,
# and the command prints the time back to which it searched.
PAGES_MAX = 20


async def list_executions(
    *,
    selection: ExecutionSelection,
    limit: Limit = 20,
    with_children: Annotated[
        bool, typer.Option("--all", help="List child executions as well.")
    ] = False,
    is_stuck: Annotated[
        bool,
        typer.Option(
            "--stuck", help="Show what unfinished executions wait for, and how to continue them."
        ),
    ] = False,
    is_counted: Annotated[
        bool, typer.Option("--count", help="Print only the number of executions in each state.")
    ] = False,
    as_json: AsJson = False,
    location: StoreLocation,
) -> None:
    """List executions, newest first."""
    if is_stuck and is_counted:
        raise InputError("--stuck and --count print different lists; give only one of them")
    allowed = UNFINISHED_STATES if is_stuck else ()
    execution_filter = msgspec.structs.replace(
        build_filter(selection, RealClock().now(), allowed_states=allowed),
        with_children=with_children,
        limit=limit,
    )
    settings = configure(location)
    if not has_data(settings):
        print(NoDataError(settings.data_dir), file=sys.stderr)
        return
    async with open_client(settings) as session:
        if is_stuck:
            hints = CommandHints(location, settings.is_remote)
            await print_stuck_executions(session, execution_filter, hints, as_json=as_json)
        elif is_counted:
            counts = await session.client.count_executions(execution_filter)
            _print_counts(counts, as_json=as_json)
        else:
            executions = await _load_executions(session, execution_filter)
            _print_executions(executions, limit, as_json=as_json)


class ListedExecutions(NamedTuple):
    """The executions of a list; `searched_back_to` is None if all executions were searched."""

    summaries: Sequence[ExecutionSummary]
    searched_back_to: float | None
    now: float


async def _load_executions(
    session: ClientSession, execution_filter: ExecutionFilter
) -> ListedExecutions:
    summaries: list[ExecutionSummary] = []
    after = None
    for _ in range(PAGES_MAX):
        missing = execution_filter.limit - len(summaries)
        page_filter = msgspec.structs.replace(execution_filter, after=after, limit=missing)
        page = await session.client.list_executions(page_filter)
        summaries += page
        after = None if page.next is None else PageCursor(page.next)
        if after is None or len(summaries) == execution_filter.limit:
            break
    searched_back_to = None if after is None else decode_cursor(after)[0]
    return ListedExecutions(summaries, searched_back_to, session.clock.now())


def _print_executions(executions: ListedExecutions, limit: int, *, as_json: bool) -> None:
    searched_back_to = executions.searched_back_to
    print_list(
        executions.summaries,
        ["ID", "WORKFLOW", "STATUS", "CREATED", "TOOK", ""],
        lambda summary: _build_execution_row(summary, executions.now),
        as_json=as_json,
        empty="no executions",
        limit=None if searched_back_to is None else limit,
        order="newest",
    )
    if searched_back_to is not None and len(executions.summaries) < limit:
        time = format_time(searched_back_to)
        print(f"(searched back to {time}; continue with --until {time})", file=sys.stderr)


def _build_execution_row(summary: ExecutionSummary, now: float) -> list[Cell]:
    style = STATE_STYLES[summary.status]
    took = (summary.finished_at or now) - (summary.started_at or now)
    note = " ".join((summary.error or format_labels(summary.labels)).split())
    return [
        Cell(summary.execution_id),
        Cell(summary.workflow, "bold"),
        Cell(f"{style.glyph} {summary.status}", style.style),
        Cell(format_local_time(summary.created_at), "dim"),
        Cell(format_duration(took) if summary.started_at else "", "dim"),
        Cell(note, "red" if summary.error else "dim"),
    ]


def _print_counts(counts: Mapping[ExecutionState, StateCount], *, as_json: bool) -> None:
    print_list(
        [(state, count) for state, count in counts.items() if as_json or count.number],
        ["STATUS", "EXECUTIONS"],
        lambda item: [
            Cell(f"{STATE_STYLES[item[0]].glyph} {item[0]}", STATE_STYLES[item[0]].style),
            Cell(f"{item[1].number:,}{'+' if item[1].is_least else ''}"),
        ],
        as_json=as_json,
        empty="no executions",
        to_json=lambda item: {
            "status": item[0],
            "count": item[1].number,
            "is_least": item[1].is_least,
        },
    )
