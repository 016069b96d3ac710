"""`runnel show ID`"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import errors as exits
from runnel.cli.commands.run import AsJsonResult
from runnel.cli.options import (
    AsJson,
    DataDir,
    ExecutionIdArgument,
    RedisUrl,
    Server,
    StoreLocation,
)

if TYPE_CHECKING:
    from typing import TextIO

    from runnel.core.values import Json
    from runnel.views.execution import ExecutionView, HistoryEvent
    from runnel.views.node import NodeDetail


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
ItemsAfter = Annotated[
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
    execution_id: ExecutionIdArgument,
    *,
    node: NodeName = None,
    item: ItemNumber = None,
    after: ItemsAfter = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Show one execution: its nodes, input, output and error. Or one node of it."""
    import asyncio

    from runnel.errors import InputError

    place = StoreLocation(data_dir, redis_url, server)
    if node is None and (item is not None or after is not None):
        option = "--after" if item is None else "--item"
        raise InputError(f"{option}: name the node, too: 'runnel show ID --node NODE {option} 1'")
    if node is not None:
        items_after = -1 if after is None else after
        detail, now = asyncio.run(_load_node_detail(execution_id, place, node, item, items_after))
        _print_node_detail(detail, now, as_json=as_json)
    else:
        view, now = asyncio.run(_load_view(execution_id, place))
        _print_view(view, now, as_json=as_json)
    return exits.OK


def _print_view(view: "ExecutionView", now: float, *, as_json: bool) -> None:
    if as_json:
        from runnel.cli.render.text import to_compact_json
        from runnel.views import build_document

        print(to_compact_json(build_document(view)))
    else:
        from runnel.cli.render.execution import print_execution

        print_execution(view, now)


def _print_node_detail(detail: "NodeDetail", now: float, *, as_json: bool) -> None:
    if as_json:
        from runnel.cli.render.text import to_compact_json
        from runnel.views import build_document

        print(to_compact_json(build_document(detail)))
    else:
        from runnel.cli.render.execution import print_node

        print_node(detail, now)


async def _load_view(text: str, location: StoreLocation) -> "tuple[ExecutionView, float]":
    from runnel.cli.options import configure
    from runnel.cli.session.open_client import find_execution_id, open_client

    async with open_client(configure(location)) as session:
        execution_id = await find_execution_id(session.client, text)
        return await session.client.get(execution_id), session.clock.now()


async def _load_node_detail(
    text: str, location: StoreLocation, node: str, item: int | None, after: int
) -> "tuple[NodeDetail, float]":
    from runnel.cli.options import configure
    from runnel.cli.session.open_client import find_execution_id, open_client

    async with open_client(configure(location)) as session:
        execution_id = await find_execution_id(session.client, text)
        detail = await session.client.node(execution_id, node, item=item, items_after=after)
        return detail, session.clock.now()


# `runnel watch ID`


def watch(
    execution_id: ExecutionIdArgument,
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

    from runnel.cli.streams import reserve_stdout

    with reserve_stdout() as out:
        return asyncio.run(
            _watch_execution(
                execution_id, StoreLocation(data_dir, redis_url, server), out=out, as_json=as_json
            )
        )


async def _watch_execution(
    text: str, location: StoreLocation, *, out: "TextIO", as_json: bool
) -> int:
    from runnel.cli.options import configure
    from runnel.cli.session.hints import CommandHints
    from runnel.cli.session.open_client import find_execution_id, open_client
    from runnel.cli.session.unfinished import PROGRAM_ONLY_MESSAGE, is_bound_to_program
    from runnel.cli.session.watch import follow_until_final
    from runnel.core.states import FINAL_EXECUTION_STATES

    settings = configure(location)
    hints = CommandHints(location, settings.is_remote)
    async with open_client(settings) as session:
        execution_id = await find_execution_id(session.client, text)
        summary = (await session.client.summaries([execution_id]))[execution_id]
        is_owned = await session.find_owner(execution_id) is not None
        lead = ""
        if not is_owned and summary.status not in FINAL_EXECUTION_STATES:
            lead = f"no process runs it now; go on with: {hints.resume(execution_id)}"
            if is_bound_to_program(await session.load_workflow(execution_id)):
                remedy = f"end it with: {hints.force_cancel(execution_id)}"
                lead = f"no process runs it now; {PROGRAM_ONLY_MESSAGE}; {remedy}"
        return await follow_until_final(
            session, execution_id, hints, first_message=lead, out=out, as_json=as_json
        )


# `runnel history ID`

VALUE_CHARS_MAX = 100
# Of no use to a person: who may report, and what the first columns say already.
_HIDDEN_FIELDS = frozenset({"node", "item", "nonce", "execution_id", "definition", "signal_id"})


def history(
    execution_id: ExecutionIdArgument,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Print everything that happened to an execution, in order."""
    import asyncio

    events = asyncio.run(_load_history(execution_id, StoreLocation(data_dir, redis_url, server)))
    if as_json:
        from runnel.cli.render.text import to_compact_json
        from runnel.views.execution import format_time

        for each in events:
            print(to_compact_json({"at": format_time(each.at), "event": each.event, **each.fields}))
    else:
        _print_history(events)
    return exits.OK


async def _load_history(text: str, location: StoreLocation) -> "list[HistoryEvent]":
    from runnel.cli.options import configure
    from runnel.cli.session.open_client import find_execution_id, open_client

    async with open_client(configure(location)) as session:
        return await session.client.history(await find_execution_id(session.client, text))


def _print_history(events: "list[HistoryEvent]") -> None:
    from runnel.cli.render.text import Cell, format_clock_time, print_table

    rows = [
        [
            Cell(format_clock_time(each.at), "dim"),
            Cell(each.event, _choose_style(each.event)),
            Cell(_format_node(each.fields), "bold"),
            Cell("  ".join(_format_details(each.fields)), "dim"),
        ]
        for each in events
    ]
    print_table(["TIME", "EVENT", "NODE", "DETAILS"], rows)


def _format_node(fields: "dict[str, Json]") -> str:
    item = fields.get("item")
    return str(fields.get("node", "")) + ("" if item is None else f"[{item}]")


def _format_details(fields: "dict[str, Json]") -> Iterator[str]:
    from runnel.cli.render.text import format_clock_time, shorten, to_compact_json

    for name, value in fields.items():
        if name in _HIDDEN_FIELDS or value in ({}, None, ""):
            continue
        if isinstance(value, dict) and {"type", "message"} <= value.keys():
            text = f"{value['type']}: {value['message']}"
        elif isinstance(value, dict) and "data" in value:
            text = to_compact_json(value["data"])
        elif isinstance(value, float) and (name.endswith("_at") or name == "due"):
            text = format_clock_time(value)
        else:
            text = value if isinstance(value, str) else to_compact_json(value)
        yield f"{name}={shorten(text, VALUE_CHARS_MAX)}"


def _choose_style(event: str) -> str:
    if event.endswith("Failed") or event == "TaskWasLost":
        return "red"
    if event.startswith("Execution"):
        return "cyan"
    return "green" if event.endswith("Completed") else ""
