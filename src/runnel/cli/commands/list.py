"""`runnel list`"""

import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from runnel.app.process_signals import pid_of
from runnel.app.stores import Look
from runnel.cli import errors as exits
from runnel.cli.options import (
    AsJson,
    Chosen,
    DataDir,
    HasLabels,
    Place,
    RedisUrl,
    Search,
    Server,
    Since,
    Statuses,
    Until,
    WorkflowName,
)
from runnel.cli.render.text import LOOKS, Cell, compact, count, duration, print_styled
from runnel.cli.session.hints import Hints
from runnel.cli.session.open_client import looking
from runnel.cli.session.takeover import OF_PROGRAM, Unfinished
from runnel.core.execution import Execution
from runnel.core.states import ExecutionState, NodeState
from runnel.core.values import Json
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Header
from runnel.settings.model import Settings
from runnel.views.execution import HistoryView, moment, wait_text, waiting_items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.ports.archive import StateCount


# Up to 10,000 executions each are looked through for what is wanted, then it is said how far.
PAGES_MAX = 20


def list_executions(
    *,
    status: Statuses = None,
    workflow: WorkflowName = None,
    labels: HasLabels = None,
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
    from runnel.cli.options import configure, filter_of
    from runnel.cli.session.open_client import has_data
    from runnel.engine.clock import RealClock
    from runnel.errors import InputError

    if is_stuck and is_counted:
        raise InputError("--stuck and --count are two lists; give only one of them")
    chosen = Chosen(status, workflow, labels, since, until, search)
    known = _unfinished() if is_stuck else None
    wanted = structs.replace(
        filter_of(chosen, RealClock().now(), known=known),
        with_children=with_children,
        limit=limit,
    )
    place = Place(data_dir, redis_url, server)
    settings = configure(place)
    if not has_data(settings):
        print(NoDataError(settings.data_dir), file=sys.stderr)
    elif is_stuck:
        from runnel.cli.session.hints import Hints

        hints = Hints(place, settings.is_remote)
        asyncio.run(print_stuck(settings, wanted, hints, as_json=as_json))
    elif is_counted:
        _print_counts(asyncio.run(_count(settings, wanted)), as_json=as_json)
    else:
        _print_found(asyncio.run(_load(settings, wanted)), limit, as_json=as_json)
    return exits.OK


class Found(NamedTuple):
    """`looked_back_to` is a moment before which there is more to look through."""

    headers: "Sequence[Header]"
    looked_back_to: float | None
    now: float


def _unfinished() -> "tuple[ExecutionState, ...]":
    from runnel.core.states import EXECUTION_FINAL, ExecutionState

    return tuple(state for state in ExecutionState if state not in EXECUTION_FINAL)


async def _load(settings: "Settings", wanted: "ExecutionFilter") -> Found:
    from msgspec import structs

    from runnel.cli.session.open_client import looking
    from runnel.ports.archive import place_at

    found: list[Header] = []
    after = None
    async with looking(settings) as look:
        for _ in range(PAGES_MAX):
            left = wanted.limit - len(found)
            rest = structs.replace(wanted, after=after, limit=left)
            page = await look.client.list_executions(rest)
            found += page
            after = page.next
            if after is None or len(found) == wanted.limit:
                break
        return Found(found, None if after is None else place_at(after)[0], look.clock.now())


def _print_found(found: Found, limit: int, *, as_json: bool) -> None:
    from runnel.cli.render.text import compact
    from runnel.views.execution import header_document, moment

    if as_json:
        for header in found.headers:
            print(compact(header_document(header)))
    else:
        _print(found, limit)
    if found.looked_back_to is not None and len(found.headers) < limit:
        said = moment(found.looked_back_to)
        print(f"(looked back to {said}; go on with --until {said})", file=sys.stderr)


async def _count(
    settings: "Settings", wanted: "ExecutionFilter"
) -> "Mapping[ExecutionState, StateCount]":
    from runnel.cli.session.open_client import looking

    async with looking(settings) as look:
        return await look.client.count_executions(wanted)


def _print_counts(counts: "Mapping[ExecutionState, StateCount]", *, as_json: bool) -> None:
    from runnel.cli.render.text import LOOKS, Cell, compact, print_table

    if as_json:
        for state, count in counts.items():
            print(compact({"status": state, "count": count.number, "is_least": count.is_least}))
        return
    rows = [
        [
            Cell(f"{LOOKS[state].glyph} {state}", LOOKS[state].style),
            Cell(f"{count.number:,}{'+' if count.is_least else ''}"),
        ]
        for state, count in counts.items()
        if count.number
    ]
    if rows:
        print_table(["STATUS", "EXECUTIONS"], rows)
    else:
        print("no executions")


def _print(found: Found, limit: int) -> None:
    from runnel.cli.render.text import LOOKS, Cell, duration, local_time, print_table, shown_labels

    if not found.headers:
        print("no executions")
        return
    rows = []
    for header in found.headers:
        look = LOOKS[header.state]
        took = (header.finished_at or found.now) - (header.started_at or found.now)
        said = " ".join((header.error or shown_labels(header.labels)).split())
        rows.append(
            [
                Cell(header.execution_id),
                Cell(header.workflow, "bold"),
                Cell(f"{look.glyph} {header.state}", look.style),
                Cell(local_time(header.created_at), "dim"),
                Cell(duration(took) if header.started_at else "", "dim"),
                Cell(said, "red" if header.error else "dim"),
            ]
        )
    print_table(["ID", "WORKFLOW", "STATUS", "CREATED", "TOOK", ""], rows)
    if len(found.headers) == limit and found.looked_back_to is not None:
        print(f"(the newest {limit}; --limit shows more)")


# What each unfinished execution waits for, since when, who has it, and how it goes on.

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
            _print_stuck(each, now)


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


def _print_stuck(each: Stuck, now: float) -> None:
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
