"""`runnel list`"""

import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from runnel.cli import exits
from runnel.cli.choosing import (
    Chosen,
    HasLabels,
    Search,
    Since,
    Statuses,
    Until,
    WorkflowName,
)
from runnel.cli.options import AsJson, DataDir, Place, RedisUrl, Server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.core.states import ExecutionState
    from runnel.ports.archive import ExecutionFilter, StateCount
    from runnel.ports.store import Header
    from runnel.settings import Settings

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

    from runnel.cli.choosing import filter_of
    from runnel.cli.opening import has_data
    from runnel.cli.options import configure
    from runnel.errors import InputError
    from runnel.runtime.clock import RealClock
    from runnel.runtime.look import NoDataError

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
        from runnel.cli.hints import Hints
        from runnel.cli.stuck import print_stuck

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

    from runnel.cli.opening import looking
    from runnel.ports.cursor import place_at

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
    from runnel.cli.words import compact
    from runnel.views import header_document, moment

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
    from runnel.cli.opening import looking

    async with looking(settings) as look:
        return await look.client.count_executions(wanted)


def _print_counts(counts: "Mapping[ExecutionState, StateCount]", *, as_json: bool) -> None:
    from runnel.cli.looks import LOOKS
    from runnel.cli.tables import Cell, print_table
    from runnel.cli.words import compact

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
    from runnel.cli.looks import LOOKS
    from runnel.cli.tables import Cell, print_table
    from runnel.cli.words import duration, local_time, shown_labels

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
