"""Shows what unfinished executions wait for, for `runnel list --stuck`.

The module also suggests the commands that continue or end each execution.
"""

import msgspec

from runnel.app.process_signals import parse_engine_pid
from runnel.cli.render.printer import print_json_lines
from runnel.cli.render.text import (
    STATE_STYLES,
    Cell,
    format_count,
    format_duration,
    print_styled,
)
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.open_client import ClientSession
from runnel.cli.session.unfinished import PROGRAM_ONLY_MESSAGE, UnfinishedExecutions
from runnel.core.states import FINAL_NODE_STATES, ExecutionState, NodeState
from runnel.ports.archive import ExecutionFilter
from runnel.views import Timestamp
from runnel.views.execution import ExecutionSummary, ExecutionView, HistoryEvent

WAITS_SHOWN_MAX = 10


class NodeWait(msgspec.Struct, frozen=True, kw_only=True):
    """An unsettled node and its wait; `signal` names the signal that the node waits for."""

    node: str
    status: NodeState
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
    """The commands that continue the execution; empty if the execution continues by itself.

    For an execution of a program that has died, the command that ends the execution.
    """


async def print_stuck_executions(
    session: ClientSession,
    execution_filter: ExecutionFilter,
    hints: CommandHints,
    *,
    as_json: bool,
) -> None:
    """Prints each unfinished execution that matches the filter, with its waits and commands.

    Omits a child execution unless the filter includes children or the child's root has ended.
    """
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
    events = await session.client.history(execution_id)
    waits = tuple(list_node_waits(view, events, is_owned=owner is not None))
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
    """Returns the commands that continue the execution.

    Without a process, that is `resume`. A signal may have been sent already: it takes effect only
    when a process runs the execution.
    """
    if not is_owned:
        return (hints.resume(execution_id),)
    signals = dict.fromkeys(wait.signal for wait in waits if wait.signal is not None)
    return tuple(hints.signal(execution_id, name) for name in signals)


def list_node_waits(
    view: ExecutionView, events: list[HistoryEvent], *, is_owned: bool
) -> list[NodeWait]:
    """Lists the unsettled nodes that have started; all pending nodes wait for these."""
    since = {str(event.fields["node"]): event.at for event in events if "node" in event.fields}
    waits = []
    for node_id, node in view.nodes.items():
        if node.status in FINAL_NODE_STATES or node.status is NodeState.PENDING:
            continue
        texts = _WAIT_TEXTS if is_owned else _WAIT_TEXTS_WITHOUT_PROCESS
        text = node.waits_for or texts[node.status]
        waits.append(
            NodeWait(
                node=node_id,
                status=node.status,
                waits_for=text,
                since=since.get(node_id),
                due=node.due,
                signal=_read_signal_name(text),
            )
        )
    return waits


def _read_signal_name(text: str) -> str | None:
    """Returns the name in the text `signal 'NAME'`; None for any other text."""
    return text.removeprefix("signal '").removesuffix("'") if text.startswith("signal ") else None


_WAIT_TEXTS = {
    NodeState.QUEUED: "a worker",
    NodeState.RUNNING: "its own code",
    NodeState.WAITING: "something",
}
_WAIT_TEXTS_WITHOUT_PROCESS = {**_WAIT_TEXTS, NodeState.RUNNING: "a process that runs it again"}


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
        style = STATE_STYLES[wait.status].style
        print_styled(
            [
                Cell(f"    {STATE_STYLES[wait.status].glyph} ", style),
                Cell(wait.node),
                Cell(f" waits for {wait.waits_for}{_format_times(wait, now)}", "dim"),
            ]
        )
    if len(stuck.waits) > WAITS_SHOWN_MAX:
        print(f"    and {format_count(len(stuck.waits) - WAITS_SHOWN_MAX, 'more node')}")
    if stuck.status is ExecutionState.PENDING:
        print("    · the execution was never started")
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
