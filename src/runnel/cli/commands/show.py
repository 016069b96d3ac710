"""`runnel show ID` and `runnel history ID`"""

import re
import sys
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import typer

from runnel.cli.options import AsJson, ExecutionIdArgument, StoreLocation, configure
from runnel.cli.render.execution import print_execution, print_node
from runnel.cli.render.printer import print_list
from runnel.cli.render.text import Cell, format_clock_time, shorten, to_compact_json
from runnel.cli.session.open_client import find_execution_id, open_client
from runnel.client.protocol import Client
from runnel.core.ids import NO_ITEM, ExecutionId, format_node_name
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.views import build_document
from runnel.views.execution import (
    ExecutionView,
    HistoryEvent,
    format_time,
)
from runnel.views.node import NodeDetail

NodeName = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="NODE",
        help="The node to show, with its attempts, config, inputs, output and log lines; 'each[2]' "
        "is one item of a map.",
    ),
]
ItemNumber = Annotated[
    int | None,
    typer.Option(
        "--item", metavar="N", min=0, help="The number of the map item to show, with --node."
    ),
]
ItemsAfter = Annotated[
    int | None,
    typer.Option(
        "--after",
        metavar="N",
        min=0,
        help="The number of the map item after which the list of items begins, with --node.",
    ),
]
WholeOutput = Annotated[
    bool,
    typer.Option(
        "--output",
        help="Print only the whole output as JSON: of the execution, or of --node and --item.",
    ),
]
WholeInput = Annotated[
    bool, typer.Option("--input", help="Print only the whole input of the execution as JSON.")
]


async def show(
    execution_id: ExecutionIdArgument,
    *,
    node: NodeName = None,
    item: ItemNumber = None,
    after: ItemsAfter = None,
    only_output: WholeOutput = False,
    only_input: WholeInput = False,
    as_json: AsJson = False,
    location: StoreLocation,
) -> None:
    """Show an execution or one of its nodes."""
    _check_options(node, item, after, only_output=only_output, only_input=only_input)
    async with open_client(configure(location)) as session:
        client = session.client
        full_id = await find_execution_id(client, execution_id)
        if node is not None:
            node, item = await _find_item(client, full_id, node, item)
        if only_output:
            await _print_chunks(client.values.stream_output(full_id, node, item=item))
        elif only_input:
            await _print_chunks(client.values.stream_input(full_id))
        elif node is None:
            view = await client.get(full_id)
            _print_view(view, session.clock.now(), as_json=as_json)
        else:
            items_after = -1 if after is None else after
            detail = await client.node(full_id, node, item=item, items_after=items_after)
            _print_detail(detail, session.clock.now(), as_json=as_json)


def _check_options(
    node: str | None, item: int | None, after: int | None, *, only_output: bool, only_input: bool
) -> None:
    """Raises InputError for options that exclude each other, or that need --node."""
    if node is None and (item is not None or after is not None):
        option = "--after" if item is None else "--item"
        raise InputError(
            f"{option}: name the node as well: 'runnel show ID --node NODE {option} 1'"
        )
    if only_output and only_input:
        raise InputError("--output and --input: choose one of them")
    if only_output and after is not None:
        raise InputError("--after: not possible with --output, which prints one value: use --item")
    if only_input and node is not None:
        raise InputError(
            "--input prints the input of the execution, not of a node: leave out --node; "
            "'runnel show ID --node NODE' shows the inputs of a node"
        )


async def _print_chunks(chunks: AsyncIterator[bytes]) -> None:
    """Prints the JSON of a value as it arrives; a chunk may end within a character."""
    decoder = getincrementaldecoder("utf-8")()
    async for chunk in chunks:
        sys.stdout.write(decoder.decode(chunk))
    print()


_ITEM_NAME = re.compile(r"(?s)(.+)\[(\d+)\]")


async def _find_item(
    client: Client, execution_id: ExecutionId, node: str, item: int | None
) -> tuple[str, int | None]:
    """Splits a name like `each[2]`, as errors print it, unless a node is called so."""
    name = _ITEM_NAME.fullmatch(node)
    if name is None or item is not None or node in (await client.get(execution_id)).nodes:
        return node, item
    return name[1], int(name[2])


def _print_view(view: ExecutionView, now: float, *, as_json: bool) -> None:
    if as_json:
        print(to_compact_json(build_document(view)))
    else:
        print_execution(view, now)


def _print_detail(detail: NodeDetail, now: float, *, as_json: bool) -> None:
    if as_json:
        print(to_compact_json(build_document(detail)))
    else:
        print_node(detail, now)


# `runnel history ID`

VALUE_CHARS_MAX = 100
# Event fields that are not printed as details: tokens of attempts, and fields with a column.
_HIDDEN_FIELDS = frozenset({"node", "item", "nonce", "execution_id", "definition", "signal_id"})


async def history(
    execution_id: ExecutionIdArgument, *, as_json: AsJson = False, location: StoreLocation
) -> None:
    """Print all events of an execution in order."""
    async with open_client(configure(location)) as session:
        full_id = await find_execution_id(session.client, execution_id)
        events = await session.client.history(full_id)
    print_list(
        events,
        ["TIME", "EVENT", "NODE", "DETAILS"],
        _build_event_row,
        as_json=as_json,
        to_json=lambda event: {"at": format_time(event.at), "event": event.event, **event.fields},
    )


def _build_event_row(event: HistoryEvent) -> list[Cell]:
    return [
        Cell(format_clock_time(event.at), "dim"),
        Cell(event.event, _choose_style(event.event)),
        Cell(_format_node(event.fields), "bold"),
        Cell("  ".join(_format_details(event.fields)), "dim"),
    ]


def _format_node(fields: dict[str, Json]) -> str:
    item = fields.get("item")
    return format_node_name(str(fields.get("node", "")), NO_ITEM if item is None else int(item))


def _format_details(fields: dict[str, Json]) -> Iterator[str]:
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
