"""What each unfinished execution waits for, since when, who has it, and how it goes on."""

import msgspec

from runnel.cli.hints import Hints
from runnel.cli.looks import LOOKS
from runnel.cli.opening import looking
from runnel.cli.tables import Cell, print_styled
from runnel.cli.unfinished import OF_PROGRAM, Unfinished
from runnel.cli.words import compact, count, duration
from runnel.core.execution import Execution
from runnel.core.json_types import Json
from runnel.core.states import ExecutionState, NodeState
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Header
from runnel.runtime.look import Look
from runnel.runtime.names import pid_of
from runnel.settings import Settings
from runnel.views import HistoryView, moment, wait_text, waiting_items

WAITS_MAX = 10


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """One node that is not settled, and what for; `signal` is the name of one it waits for."""

    node: str
    state: NodeState
    waits_for: str
    since: float | None
    due: float | None = None
    signal: str | None = None


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    workflow: str
    status: ExecutionState
    waits: tuple[Waits, ...]
    is_owned: bool
    owner: str | None
    pid: int | None
    is_of_program: bool
    commands: tuple[str, ...]
    """What a person can type to make it go on, or to end it when it `is_of_program` that has
    died; empty when it goes on by itself.
    """


async def print_stuck(
    settings: Settings, wanted: ExecutionFilter, hints: Hints, *, as_json: bool
) -> None:
    """Children only with `wanted.with_children`, and where they have outlived their root."""
    async with looking(settings) as look:
        unfinished = Unfinished(look)
        found: list[Stuck] = []
        async for header in unfinished.all(wanted):
            if wanted.with_children or not await unfinished.is_part(header):
                found.append(await _diagnose(look, header, unfinished, hints))
            if len(found) == wanted.limit:
                break
        now = look.clock.now()
    if as_json:
        for each in found:
            print(compact(_document(each)))
    elif not found:
        print("nothing is unfinished")
    else:
        for each in found:
            _print(each, now)


async def _diagnose(look: Look, header: Header, unfinished: Unfinished, hints: Hints) -> Stuck:
    execution_id = header.execution_id
    execution = await look.client.load(execution_id)
    record = await unfinished.owner_of(header)
    waits = tuple(waits_of(execution, await look.client.history(execution_id)))
    is_of_program = await unfinished.is_of_program(header)
    if record is None and is_of_program:
        commands: tuple[str, ...] = (hints.end(execution_id),)
    else:
        commands = commands_for(execution_id, waits, hints, is_owned=record is not None)
    return Stuck(
        execution_id=execution_id,
        workflow=execution.graph.workflow.name,
        status=execution.state,
        waits=waits,
        is_owned=record is not None,
        owner=None if record is None else record.owner,
        pid=None if record is None else pid_of(record.owner),
        is_of_program=is_of_program,
        commands=commands,
    )


def commands_for(
    execution_id: str, waits: tuple[Waits, ...], hints: Hints, *, is_owned: bool
) -> tuple[str, ...]:
    signals = dict.fromkeys(each.signal for each in waits if each.signal is not None)
    commands = [hints.signal(execution_id, name) for name in signals]
    if not is_owned:
        commands.append(hints.revive(execution_id))
    return tuple(commands)


def waits_of(execution: Execution, events: list[HistoryView]) -> list[Waits]:
    """Unsettled nodes that have begun: the others wait for these."""
    since = {str(each.fields["node"]): each.at for each in events if "node" in each.fields}
    found = []
    for compiled, run in zip(execution.graph.nodes, execution.nodes, strict=True):
        if run.is_final or run.state is NodeState.PENDING:
            continue
        items = execution.maps.get(compiled.index)
        waiting = None if items is None else waiting_items(items)
        text = wait_text(run) or (waiting.text if waiting else _AT_WORK[run.state])
        found.append(
            Waits(
                node=compiled.node.id,
                state=run.state,
                waits_for=text,
                since=since.get(compiled.node.id),
                due=waiting.due if waiting else run.due,
                signal=run.detail if text.startswith("signal ") else None,
            )
        )
    return found


_AT_WORK = {
    NodeState.QUEUED: "a worker",
    NodeState.RUNNING: "its own code",
    NodeState.WAITING: "something",
}


def _document(each: Stuck) -> dict[str, Json]:
    document: dict[str, Json] = msgspec.to_builtins(each)
    for wait in document["waits"]:
        wait["since"], wait["due"] = moment(wait["since"]), moment(wait["due"])
    return document


def _print(each: Stuck, now: float) -> None:
    look = LOOKS[each.status]
    print_styled(
        [
            Cell(f"{look.glyph} {each.workflow}", "bold"),
            Cell(f"  {each.execution_id}  ", "dim"),
            Cell(_owner(each), "dim" if each.is_owned else "bold red"),
        ]
    )
    for wait in each.waits[:WAITS_MAX]:
        style = LOOKS[wait.state].style
        print_styled(
            [
                Cell(f"    {LOOKS[wait.state].glyph} ", style),
                Cell(wait.node),
                Cell(f" waits for {wait.waits_for}{_times(wait, now)}", "dim"),
            ]
        )
    if len(each.waits) > WAITS_MAX:
        print(f"    and {count(len(each.waits) - WAITS_MAX, 'more node')}")
    if each.status is ExecutionState.PENDING:
        print("    · it was never started")
    is_lost = each.is_of_program and not each.is_owned
    if is_lost:
        print(f"    · {OF_PROGRAM}")
    for command in each.commands:
        lead = "end it with" if is_lost else "go on with"
        print_styled([Cell(f"    {lead}: ", "dim"), Cell(command, "cyan")])


def _owner(each: Stuck) -> str:
    if not each.is_owned:
        return "no process runs it"
    return f"run by {each.owner}" if each.pid is None else f"run by process {each.pid}"


def _times(wait: Waits, now: float) -> str:
    since = "" if wait.since is None else f", for {duration(now - wait.since)}"
    if wait.due is None:
        return since
    left = wait.due - now
    return since + (f", {duration(left)} more at most" if left > 0 else ", overdue")
