"""`runnel list`"""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
import typer

from runnel.app.process_signals import parse_engine_pid
from runnel.app.stores import NoDataError
from runnel.cli.options import AsJson, Limit, StoreLocation, configure
from runnel.cli.render.printer import print_json_lines, print_list
from runnel.cli.render.text import (
    STATE_STYLES,
    Cell,
    format_count,
    format_duration,
    format_labels,
    format_local_time,
    print_styled,
)
from runnel.cli.selection import ExecutionSelection, build_filter
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.open_client import ClientSession, has_data, open_client
from runnel.cli.session.unfinished import PROGRAM_ONLY_MESSAGE, UnfinishedExecutions
from runnel.core.states import FINAL_NODE_STATES, UNFINISHED_STATES, ExecutionState, NodeState
from runnel.engine.clock import RealClock
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter, PageCursor, decode_cursor
from runnel.views import Timestamp
from runnel.views.execution import (
    ExecutionSummary,
    ExecutionView,
    HistoryEvent,
    StateCount,
    format_time,
)

# A store searches up to 10,000 executions per page. After these pages the search stops, and a
# sentence says how far it went.
PAGES_MAX = 20


async def list_executions(
    *,
    selection: ExecutionSelection,
    limit: Limit = 20,
    with_children: Annotated[bool, typer.Option("--all", help="Include child executions.")] = False,
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
        raise InputError("--stuck and --count are two lists; give only one of them")
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
            await _print_stuck(session, execution_filter, hints, as_json=as_json)
        elif is_counted:
            counts = await session.client.count_executions(execution_filter)
            _print_counts(counts, as_json=as_json)
        else:
            executions = await _load_executions(session, execution_filter)
            _print_executions(executions, limit, as_json=as_json)


class ListedExecutions(NamedTuple):
    """The executions of a list; `searched_back_to` is None if the search is complete."""

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


# `runnel list --stuck`: what unfinished executions wait for, and the commands that continue them.

WAITS_SHOWN_MAX = 10


class NodeWait(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is not settled; `signal` is the name of the signal that it waits for."""

    node: str
    state: NodeState
    waits_for: str
    since: Timestamp | None
    due: Timestamp | None = None
    signal: str | None = None


class StuckExecution(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    workflow: str
    status: ExecutionState
    waits: tuple[NodeWait, ...]
    is_owned: bool
    owner: str | None
    pid: int | None
    is_of_program: bool
    commands: tuple[str, ...]
    """Commands that continue the execution, or end it if it `is_of_program` that has died; empty if
    the execution continues by itself.
    """


async def _print_stuck(
    session: ClientSession,
    execution_filter: ExecutionFilter,
    hints: CommandHints,
    *,
    as_json: bool,
) -> None:
    """Leaves out children, unless the filter includes them or their root has ended before them."""
    unfinished = UnfinishedExecutions(session)
    stuck: list[StuckExecution] = []
    async for summary in unfinished.iterate(execution_filter):
        if execution_filter.with_children or not await unfinished.has_unfinished_root(summary):
            stuck.append(await _diagnose(session, summary, unfinished, hints))
        if len(stuck) == execution_filter.limit:
            break
    if as_json:
        print_json_lines(stuck)
    elif not stuck:
        print("no unfinished executions")
    else:
        now = session.clock.now()
        for execution in stuck:
            _print_stuck_execution(execution, now)


async def _diagnose(
    session: ClientSession,
    summary: ExecutionSummary,
    unfinished: UnfinishedExecutions,
    hints: CommandHints,
) -> StuckExecution:
    execution_id = summary.execution_id
    view = await session.client.get(execution_id)
    owner = await unfinished.find_owner(summary)
    waits = tuple(list_node_waits(view, await session.client.history(execution_id)))
    is_of_program = await unfinished.is_bound_to_program(summary)
    if owner is None and is_of_program:
        commands: tuple[str, ...] = (hints.force_cancel(execution_id),)
    else:
        commands = suggest_commands(execution_id, waits, hints, is_owned=owner is not None)
    return StuckExecution(
        execution_id=execution_id,
        workflow=view.workflow,
        status=view.status,
        waits=waits,
        is_owned=owner is not None,
        owner=owner,
        pid=None if owner is None else parse_engine_pid(owner),
        is_of_program=is_of_program,
        commands=commands,
    )


def suggest_commands(
    execution_id: str, waits: tuple[NodeWait, ...], hints: CommandHints, *, is_owned: bool
) -> tuple[str, ...]:
    signals = dict.fromkeys(wait.signal for wait in waits if wait.signal is not None)
    commands = [hints.signal(execution_id, name) for name in signals]
    if not is_owned:
        commands.append(hints.resume(execution_id))
    return tuple(commands)


def list_node_waits(view: ExecutionView, events: list[HistoryEvent]) -> list[NodeWait]:
    """Lists the unsettled nodes that have started; all others wait for these."""
    since = {str(event.fields["node"]): event.at for event in events if "node" in event.fields}
    waits = []
    for node_id, node in view.nodes.items():
        if node.state in FINAL_NODE_STATES or node.state is NodeState.PENDING:
            continue
        text = node.waits_for or _WAIT_TEXT_BY_STATE[node.state]
        waits.append(
            NodeWait(
                node=node_id,
                state=node.state,
                waits_for=text,
                since=since.get(node_id),
                due=node.due,
                signal=_read_signal_name(text),
            )
        )
    return waits


def _read_signal_name(text: str) -> str | None:
    """Returns the name in `signal 'NAME'`; None for any other wait."""
    return text.removeprefix("signal '").removesuffix("'") if text.startswith("signal ") else None


_WAIT_TEXT_BY_STATE = {
    NodeState.QUEUED: "a worker",
    NodeState.RUNNING: "its own code",
    NodeState.WAITING: "something",
}


def _print_stuck_execution(stuck: StuckExecution, now: float) -> None:
    state_style = STATE_STYLES[stuck.status]
    print_styled(
        [
            Cell(f"{state_style.glyph} {stuck.workflow}", "bold"),
            Cell(f"  {stuck.execution_id}  ", "dim"),
            Cell(_describe_owner(stuck), "dim" if stuck.is_owned else "bold red"),
        ]
    )
    for wait in stuck.waits[:WAITS_SHOWN_MAX]:
        style = STATE_STYLES[wait.state].style
        print_styled(
            [
                Cell(f"    {STATE_STYLES[wait.state].glyph} ", style),
                Cell(wait.node),
                Cell(f" waits for {wait.waits_for}{_format_times(wait, now)}", "dim"),
            ]
        )
    if len(stuck.waits) > WAITS_SHOWN_MAX:
        print(f"    and {format_count(len(stuck.waits) - WAITS_SHOWN_MAX, 'more node')}")
    if stuck.status is ExecutionState.PENDING:
        print("    · it was never started")
    is_lost = stuck.is_of_program and not stuck.is_owned
    if is_lost:
        print(f"    · {PROGRAM_ONLY_MESSAGE}")
    for command in stuck.commands:
        lead = "end it with" if is_lost else "continue with"
        print_styled([Cell(f"    {lead}: ", "dim"), Cell(command, "cyan")])


def _describe_owner(stuck: StuckExecution) -> str:
    if not stuck.is_owned:
        return "no process runs it"
    return f"run by {stuck.owner}" if stuck.pid is None else f"run by process {stuck.pid}"


def _format_times(wait: NodeWait, now: float) -> str:
    since = "" if wait.since is None else f", for {format_duration(now - wait.since)}"
    if wait.due is None:
        return since
    remaining_s = wait.due - now
    if remaining_s <= 0:
        return f"{since}, overdue"
    return f"{since}, {format_duration(remaining_s)} more at most"
