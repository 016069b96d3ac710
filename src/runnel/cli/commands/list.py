"""`runnel list`"""

import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from runnel.app.process_signals import parse_engine_pid
from runnel.cli import errors as exits
from runnel.cli.options import (
    AsJson,
    DataDir,
    ExecutionSelection,
    LabelFilters,
    RedisUrl,
    Search,
    Server,
    Since,
    StatusFilters,
    StoreLocation,
    Until,
    WorkflowName,
)
from runnel.cli.render.text import (
    STATE_STYLES,
    Cell,
    format_count,
    format_duration,
    print_styled,
    to_compact_json,
)
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.open_client import ClientSession, open_client
from runnel.cli.session.unfinished import PROGRAM_ONLY_MESSAGE, UnfinishedExecutions
from runnel.core.states import FINAL_NODE_STATES, ExecutionState, NodeState
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings
from runnel.views import Timestamp, build_document
from runnel.views.execution import ExecutionSummary, ExecutionView, HistoryEvent, format_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.views.execution import StateCount


# Up to 10,000 executions each are looked through for what is wanted, then it is said how far.
PAGES_MAX = 20


def list_executions(
    *,
    status: StatusFilters = None,
    workflow: WorkflowName = None,
    labels: LabelFilters = None,
    since: Since = None,
    until: Until = None,
    search: Search = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    with_children: Annotated[bool, typer.Option("--all", help="Child executions too.")] = False,
    is_stuck: Annotated[
        bool,
        typer.Option("--stuck", help="What each unfinished one waits for, and how it goes on."),
    ] = False,
    is_counted: Annotated[
        bool, typer.Option("--count", help="Only how many there are in each state.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """List executions, the newest first."""
    import asyncio

    from msgspec import structs

    from runnel.app.stores import NoDataError
    from runnel.cli.options import build_filter, configure
    from runnel.cli.session.open_client import has_data
    from runnel.engine.clock import RealClock
    from runnel.errors import InputError

    if is_stuck and is_counted:
        raise InputError("--stuck and --count are two lists; give only one of them")
    chosen = ExecutionSelection(status, workflow, labels, since, until, search)
    known = _list_unfinished_states() if is_stuck else None
    wanted = structs.replace(
        build_filter(chosen, RealClock().now(), allowed_states=known),
        with_children=with_children,
        limit=limit,
    )
    place = StoreLocation(data_dir, redis_url, server)
    settings = configure(place)
    if not has_data(settings):
        print(NoDataError(settings.data_dir), file=sys.stderr)
    elif is_stuck:
        from runnel.cli.session.hints import CommandHints

        hints = CommandHints(place, settings.is_remote)
        asyncio.run(print_stuck(settings, wanted, hints, as_json=as_json))
    elif is_counted:
        _print_counts(asyncio.run(_count_by_state(settings, wanted)), as_json=as_json)
    else:
        _print_list(asyncio.run(_load_executions(settings, wanted)), limit, as_json=as_json)
    return exits.OK


class ListedExecutions(NamedTuple):
    """`searched_back_to` is a moment before which there is more to look through."""

    headers: "Sequence[ExecutionSummary]"
    searched_back_to: float | None
    now: float


def _list_unfinished_states() -> "tuple[ExecutionState, ...]":
    from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState

    return tuple(state for state in ExecutionState if state not in FINAL_EXECUTION_STATES)


async def _load_executions(
    settings: "Settings", execution_filter: "ExecutionFilter"
) -> ListedExecutions:
    from msgspec import structs

    from runnel.cli.session.open_client import open_client
    from runnel.ports.archive import PageCursor, decode_cursor

    found: list[ExecutionSummary] = []
    after = None
    async with open_client(settings) as session:
        for _ in range(PAGES_MAX):
            missing = execution_filter.limit - len(found)
            rest = structs.replace(execution_filter, after=after, limit=missing)
            page = await session.client.list_executions(rest)
            found += page
            after = None if page.next is None else PageCursor(page.next)
            if after is None or len(found) == execution_filter.limit:
                break
        return ListedExecutions(
            found, None if after is None else decode_cursor(after)[0], session.clock.now()
        )


def _print_list(executions: ListedExecutions, limit: int, *, as_json: bool) -> None:
    from runnel.cli.render.text import to_compact_json

    if as_json:
        for header in executions.headers:
            print(to_compact_json(build_document(header)))
    else:
        _print_executions(executions, limit)
    if executions.searched_back_to is not None and len(executions.headers) < limit:
        said = format_time(executions.searched_back_to)
        print(f"(looked back to {said}; go on with --until {said})", file=sys.stderr)


async def _count_by_state(
    settings: "Settings", execution_filter: "ExecutionFilter"
) -> "Mapping[ExecutionState, StateCount]":
    from runnel.cli.session.open_client import open_client

    async with open_client(settings) as session:
        return await session.client.count_executions(execution_filter)


def _print_counts(counts: "Mapping[ExecutionState, StateCount]", *, as_json: bool) -> None:
    from runnel.cli.render.text import STATE_STYLES, Cell, print_table, to_compact_json

    if as_json:
        for state, count in counts.items():
            print(
                to_compact_json(
                    {"status": state, "count": count.number, "is_least": count.is_least}
                )
            )
        return
    rows = [
        [
            Cell(f"{STATE_STYLES[state].glyph} {state}", STATE_STYLES[state].style),
            Cell(f"{count.number:,}{'+' if count.is_least else ''}"),
        ]
        for state, count in counts.items()
        if count.number
    ]
    if rows:
        print_table(["STATUS", "EXECUTIONS"], rows)
    else:
        print("no executions")


def _print_executions(executions: ListedExecutions, limit: int) -> None:
    from runnel.cli.render.text import (
        STATE_STYLES,
        Cell,
        format_duration,
        format_labels,
        format_local_time,
        print_table,
    )

    if not executions.headers:
        print("no executions")
        return
    rows = []
    for header in executions.headers:
        look = STATE_STYLES[header.status]
        took = (header.finished_at or executions.now) - (header.started_at or executions.now)
        said = " ".join((header.error or format_labels(header.labels)).split())
        rows.append(
            [
                Cell(header.execution_id),
                Cell(header.workflow, "bold"),
                Cell(f"{look.glyph} {header.status}", look.style),
                Cell(format_local_time(header.created_at), "dim"),
                Cell(format_duration(took) if header.started_at else "", "dim"),
                Cell(said, "red" if header.error else "dim"),
            ]
        )
    print_table(["ID", "WORKFLOW", "STATUS", "CREATED", "TOOK", ""], rows)
    if len(executions.headers) == limit and executions.searched_back_to is not None:
        print(f"(the newest {limit}; --limit shows more)")


# What each unfinished execution waits for, since when, who has it, and how it goes on.

WAITS_SHOWN_MAX = 10


class NodeWait(msgspec.Struct, frozen=True, kw_only=True):
    """One node that is not settled, and what for; `signal` is the name of one it waits for."""

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
    """What a person can type to make it go on, or to end it when it `is_of_program` that has
    died; empty when it goes on by itself.
    """


async def print_stuck(
    settings: Settings, execution_filter: ExecutionFilter, hints: CommandHints, *, as_json: bool
) -> None:
    """Children only with `wanted.with_children`, and where they have outlived their root."""
    async with open_client(settings) as session:
        unfinished = UnfinishedExecutions(session)
        found: list[StuckExecution] = []
        async for header in unfinished.iterate(execution_filter):
            if execution_filter.with_children or not await unfinished.has_unfinished_root(header):
                found.append(await _diagnose(session, header, unfinished, hints))
            if len(found) == execution_filter.limit:
                break
        now = session.clock.now()
    if as_json:
        for each in found:
            print(to_compact_json(build_document(each)))
    elif not found:
        print("nothing is unfinished")
    else:
        for each in found:
            _print_stuck_execution(each, now)


async def _diagnose(
    session: ClientSession,
    header: ExecutionSummary,
    unfinished: UnfinishedExecutions,
    hints: CommandHints,
) -> StuckExecution:
    execution_id = header.execution_id
    view = await session.client.get(execution_id)
    owner = await unfinished.find_owner(header)
    waits = tuple(list_node_waits(view, await session.client.history(execution_id)))
    is_of_program = await unfinished.is_bound_to_program(header)
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
    signals = dict.fromkeys(each.signal for each in waits if each.signal is not None)
    commands = [hints.signal(execution_id, name) for name in signals]
    if not is_owned:
        commands.append(hints.resume(execution_id))
    return tuple(commands)


def list_node_waits(view: ExecutionView, events: list[HistoryEvent]) -> list[NodeWait]:
    """Unsettled nodes that have begun: the others wait for these."""
    since = {str(each.fields["node"]): each.at for each in events if "node" in each.fields}
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
    """The name in `signal 'NAME'`; None for any other wait."""
    return text.removeprefix("signal '").removesuffix("'") if text.startswith("signal ") else None


_WAIT_TEXT_BY_STATE = {
    NodeState.QUEUED: "a worker",
    NodeState.RUNNING: "its own code",
    NodeState.WAITING: "something",
}


def _print_stuck_execution(stuck: StuckExecution, now: float) -> None:
    look = STATE_STYLES[stuck.status]
    print_styled(
        [
            Cell(f"{look.glyph} {stuck.workflow}", "bold"),
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
        lead = "end it with" if is_lost else "go on with"
        print_styled([Cell(f"    {lead}: ", "dim"), Cell(command, "cyan")])


def _describe_owner(stuck: StuckExecution) -> str:
    if not stuck.is_owned:
        return "no process runs it"
    return f"run by {stuck.owner}" if stuck.pid is None else f"run by process {stuck.pid}"


def _format_times(wait: NodeWait, now: float) -> str:
    since = "" if wait.since is None else f", for {format_duration(now - wait.since)}"
    if wait.due is None:
        return since
    left = wait.due - now
    return since + (f", {format_duration(left)} more at most" if left > 0 else ", overdue")
