"""`runnel list`"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import exits
from runnel.cli.options import AsJson, DataDir, Place, RedisUrl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.core.states import ExecutionState
    from runnel.ports.archive import ExecutionFilter
    from runnel.ports.store import Header
    from runnel.settings import Settings


def list_executions(
    *,
    status: Annotated[
        list[str] | None,
        typer.Option(help="Only executions in this state; may be repeated.", show_default=False),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only executions of this workflow.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    with_children: Annotated[bool, typer.Option("--all", help="Child executions too.")] = False,
    is_stuck: Annotated[
        bool,
        typer.Option("--stuck", help="What each unfinished one waits for, and how it goes on."),
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
) -> int:
    """List executions, the newest first."""
    import asyncio

    from runnel.cli.options import configure
    from runnel.ports.archive import ExecutionFilter
    from runnel.runtime.look import NoDataError, has_data

    wanted = ExecutionFilter(
        states=_states(status or [], is_stuck=is_stuck),
        workflow=workflow,
        with_children=with_children,
        limit=limit,
    )
    place = Place(data_dir, redis_url)
    settings = configure(place)
    if not has_data(settings):
        print(NoDataError(settings.data_dir), file=sys.stderr)
        return exits.OK
    if is_stuck:
        from runnel.cli.hints import Hints
        from runnel.cli.stuck import print_stuck

        hints = Hints(place, settings.has_redis)
        asyncio.run(print_stuck(settings, wanted, hints, as_json=as_json))
        return exits.OK
    headers, now = asyncio.run(_load(settings, wanted))
    if as_json:
        _print_json(headers)
    else:
        _print(headers, now, limit)
    return exits.OK


def _states(names: list[str], *, is_stuck: bool) -> "tuple[ExecutionState, ...]":
    from runnel.core.states import EXECUTION_FINAL, ExecutionState
    from runnel.errors import InputError

    known = [state for state in ExecutionState if not (is_stuck and state in EXECUTION_FINAL)]
    for name in names:
        if name.upper() not in known:
            expected = ", ".join(state.lower() for state in known)
            raise InputError(f"--status: expected one of {expected}, got '{name}'")
    if is_stuck and not names:
        return tuple(known)
    return tuple(dict.fromkeys(ExecutionState(name.upper()) for name in names))


async def _load(
    settings: "Settings", wanted: "ExecutionFilter"
) -> "tuple[Sequence[Header], float]":
    from runnel.runtime.look import looking

    async with looking(settings) as look:
        return await look.client.list_executions(wanted), look.clock.now()


def _print_json(headers: "Sequence[Header]") -> None:
    from runnel.cli.words import compact
    from runnel.views import moment

    for header in headers:
        document = {
            "execution_id": header.execution_id,
            "workflow": header.workflow,
            "version": header.version,
            "status": header.state,
            "error": header.error,
            "created_at": moment(header.created_at),
            "started_at": moment(header.started_at),
            "finished_at": moment(header.finished_at),
            "parent_id": header.parent_id,
            "rerun_of": header.rerun_of,
            "labels": header.labels,
        }
        print(compact(document))


def _print(headers: "Sequence[Header]", now: float, limit: int) -> None:
    from runnel.cli.looks import LOOKS
    from runnel.cli.tables import Cell, print_table
    from runnel.cli.words import duration, local_time, shown_labels

    if not headers:
        print("no executions")
        return
    rows = []
    for header in headers:
        look = LOOKS[header.state]
        took = (header.finished_at or now) - (header.started_at or now)
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
    if len(headers) == limit:
        print(f"(the newest {limit}; --limit shows more)")
