"""`runnel show ID`"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import errors as exits
from runnel.cli.commands.run import AsJsonResult
from runnel.cli.options import AsJson, DataDir, Id, Place, RedisUrl, Server

if TYPE_CHECKING:
    from typing import TextIO

    from runnel.client.nodes import NodeDetail
    from runnel.core.values import Json
    from runnel.views.execution import ExecutionView, HistoryView


NodeName = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="NODE",
        help="Show this node: its attempts, config, inputs, output and log lines.",
        show_default=False,
    ),
]
ItemNumber = Annotated[
    int | None,
    typer.Option(
        "--item", metavar="N", min=0, help="With --node: this item of a map.", show_default=False
    ),
]
After = Annotated[
    int | None,
    typer.Option(
        "--after",
        metavar="N",
        min=0,
        help="With --node: the items of a map behind this one.",
        show_default=False,
    ),
]


def show(
    execution_id: Id,
    *,
    node: NodeName = None,
    item: ItemNumber = None,
    after: After = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Show one execution: its nodes, input, output and error. Or one node of it."""
    import asyncio

    from runnel.errors import InputError

    place = Place(data_dir, redis_url, server)
    if node is None and (item is not None or after is not None):
        option = "--after" if item is None else "--item"
        raise InputError(f"{option}: name the node, too: 'runnel show ID --node NODE {option} 1'")
    if node is not None:
        items_after = -1 if after is None else after
        detail, now = asyncio.run(_load_node(execution_id, place, node, item, items_after))
        _print_node(detail, now, as_json=as_json)
    else:
        view, now = asyncio.run(_load(execution_id, place))
        _print(view, now, as_json=as_json)
    return exits.OK


def _print(view: "ExecutionView", now: float, *, as_json: bool) -> None:
    if as_json:
        from runnel.cli.render.text import compact
        from runnel.views.execution import document_of

        print(compact(document_of(view)))
    else:
        from runnel.cli.render.execution import print_execution

        print_execution(view, now)


def _print_node(detail: "NodeDetail", now: float, *, as_json: bool) -> None:
    if as_json:
        from runnel.cli.render.text import compact
        from runnel.client.nodes import detail_document

        print(compact(detail_document(detail)))
    else:
        from runnel.cli.render.execution import print_node

        print_node(detail, now)


async def _load(text: str, place: Place) -> "tuple[ExecutionView, float]":
    from runnel.cli.options import configure
    from runnel.cli.session.open_client import find, looking

    async with looking(configure(place)) as look:
        return await look.client.get(await find(look, text)), look.clock.now()


async def _load_node(
    text: str, place: Place, node: str, item: int | None, after: int
) -> "tuple[NodeDetail, float]":
    from runnel.cli.options import configure
    from runnel.cli.session.open_client import find, looking

    async with looking(configure(place)) as look:
        found = await find(look, text)
        detail = await look.client.nodes.get(found, node, item=item, items_after=after)
        return detail, look.clock.now()


# `runnel watch ID`


def watch(
    execution_id: Id,
    *,
    as_json: AsJsonResult = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Follow an execution that another process runs, until it is final.

    Exit code as that of [bold]run[/bold]; interrupting it leaves the execution alone.
    """
    import asyncio

    from runnel.cli.errors import results

    with results() as out:
        return asyncio.run(
            _watch(execution_id, Place(data_dir, redis_url, server), out=out, as_json=as_json)
        )


async def _watch(text: str, place: Place, *, out: "TextIO", as_json: bool) -> int:
    from runnel.cli.options import configure
    from runnel.cli.session.follow import onlook
    from runnel.cli.session.hints import Hints
    from runnel.cli.session.open_client import find, looking
    from runnel.cli.session.takeover import OF_PROGRAM, is_of_program
    from runnel.core.states import EXECUTION_FINAL

    settings = configure(place)
    hints = Hints(place, settings.is_remote)
    async with looking(settings) as look:
        execution_id = await find(look, text)
        execution = await look.client.load(execution_id)
        is_owned = await look.owner_of(execution_id) is not None
        lead = ""
        if not is_owned and execution.state not in EXECUTION_FINAL:
            lead = f"no process runs it now; go on with: {hints.revive(execution_id)}"
            if is_of_program(execution.graph.workflow):
                lead = (
                    f"no process runs it now; {OF_PROGRAM}; end it with: {hints.end(execution_id)}"
                )
        return await onlook(
            look, execution_id, settings, hints, lead=lead, out=out, as_json=as_json
        )


# `runnel history ID`

VALUE_CHARS_MAX = 100
# Of no use to a person: who may report, and what the first columns say already.
_HIDDEN = frozenset({"node", "item", "nonce", "execution_id", "definition", "signal_id"})


def history(
    execution_id: Id,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Print everything that happened to an execution, in order."""
    import asyncio

    events = asyncio.run(_load_history(execution_id, Place(data_dir, redis_url, server)))
    if as_json:
        from runnel.cli.render.text import compact
        from runnel.views.execution import moment

        for each in events:
            print(compact({"at": moment(each.at), "event": each.event, **each.fields}))
    else:
        _print_history(events)
    return exits.OK


async def _load_history(text: str, place: Place) -> "list[HistoryView]":
    from runnel.cli.options import configure
    from runnel.cli.session.open_client import find, looking

    async with looking(configure(place)) as look:
        return await look.client.history(await find(look, text))


def _print_history(events: "list[HistoryView]") -> None:
    from runnel.cli.render.text import Cell, clock_time, print_table

    rows = [
        [
            Cell(clock_time(each.at), "dim"),
            Cell(each.event, _style(each.event)),
            Cell(_node(each.fields), "bold"),
            Cell("  ".join(_details(each.fields)), "dim"),
        ]
        for each in events
    ]
    print_table(["TIME", "EVENT", "NODE", "DETAILS"], rows)


def _node(fields: "dict[str, Json]") -> str:
    item = fields.get("item")
    return str(fields.get("node", "")) + ("" if item is None else f"[{item}]")


def _details(fields: "dict[str, Json]") -> Iterator[str]:
    from runnel.cli.render.text import clock_time, compact, short

    for name, value in fields.items():
        if name in _HIDDEN or value in ({}, None, ""):
            continue
        if isinstance(value, dict) and {"type", "message"} <= value.keys():
            text = f"{value['type']}: {value['message']}"
        elif isinstance(value, dict) and "data" in value:
            text = compact(value["data"])
        elif isinstance(value, float) and (name.endswith("_at") or name == "due"):
            text = clock_time(value)
        else:
            text = value if isinstance(value, str) else compact(value)
        yield f"{name}={short(text, VALUE_CHARS_MAX)}"


def _style(event: str) -> str:
    if event.endswith("Failed") or event == "TaskWasLost":
        return "red"
    if event.startswith("Execution"):
        return "cyan"
    return "green" if event.endswith("Completed") else ""
