"""`runnel history ID`"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runnel.cli import exits
from runnel.cli.options import AsJson, DataDir, Id, Place, RedisUrl, Server

if TYPE_CHECKING:
    from runnel.core.json_types import Json
    from runnel.views import HistoryView

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

    events = asyncio.run(_load(execution_id, Place(data_dir, redis_url, server)))
    if as_json:
        from runnel.cli.words import compact
        from runnel.views import moment

        for each in events:
            print(compact({"at": moment(each.at), "event": each.event, **each.fields}))
    else:
        _print(events)
    return exits.OK


async def _load(text: str, place: Place) -> "list[HistoryView]":
    from runnel.cli.finding import find
    from runnel.cli.opening import looking
    from runnel.cli.options import configure

    async with looking(configure(place)) as look:
        return await look.client.history(await find(look, text))


def _print(events: "list[HistoryView]") -> None:
    from runnel.cli.tables import Cell, print_table
    from runnel.cli.words import clock_time

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
    from runnel.cli.words import clock_time, compact, short

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
