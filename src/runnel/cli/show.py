"""`runnel show ID`"""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import exits
from runnel.cli.options import AsJson, DataDir, Id, Place, RedisUrl, Server

if TYPE_CHECKING:
    from runnel.node_details import NodeDetail
    from runnel.views import ExecutionView

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
        from runnel.cli.words import compact
        from runnel.views import document_of

        print(compact(document_of(view)))
    else:
        from runnel.cli.portrait import print_execution

        print_execution(view, now)


def _print_node(detail: "NodeDetail", now: float, *, as_json: bool) -> None:
    if as_json:
        from runnel.cli.words import compact
        from runnel.node_details import detail_document

        print(compact(detail_document(detail)))
    else:
        from runnel.cli.node_portrait import print_node

        print_node(detail, now)


async def _load(text: str, place: Place) -> "tuple[ExecutionView, float]":
    from runnel.cli.finding import find
    from runnel.cli.opening import looking
    from runnel.cli.options import configure

    async with looking(configure(place)) as look:
        return await look.client.get(await find(look, text)), look.clock.now()


async def _load_node(
    text: str, place: Place, node: str, item: int | None, after: int
) -> "tuple[NodeDetail, float]":
    from runnel.cli.finding import find
    from runnel.cli.opening import looking
    from runnel.cli.options import configure

    async with looking(configure(place)) as look:
        found = await find(look, text)
        detail = await look.client.nodes.get(found, node, item=item, items_after=after)
        return detail, look.clock.now()
