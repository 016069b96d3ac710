"""`runnel rerun ID`"""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.choosing import (
    Chosen,
    HasLabels,
    Search,
    Since,
    Statuses,
    Until,
    WorkflowName,
)
from runnel.cli.options import DataDir, IdOrFilter, IsSure, Place, RedisUrl, Server
from runnel.cli.run import AsJsonResult, Assignments, Concurrency, InputFile

if TYPE_CHECKING:
    from runnel.cli.hints import Hints
    from runnel.client import Client
    from runnel.core.json_types import Json
    from runnel.core.workflow import Workflow
    from runnel.reruns import Rerun
    from runnel.settings import Settings
    from runnel.views import ExecutionView


Again = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="NODE",
        help="Also run this node, and all that depend on it (repeated).",
        show_default=False,
    ),
]
IsWhole = Annotated[bool, typer.Option("--all", help="Run every node.")]
IsRest = Annotated[
    bool,
    typer.Option(
        "--failed",
        help="Run only what did not complete. [dim]\\[default, unless it completed or gets another "
        "input][/dim]",
    ),
]


def rerun(
    execution_id: IdOrFilter = None,
    *,
    status: Statuses = None,
    workflow: WorkflowName = None,
    labels: HasLabels = None,
    since: Since = None,
    until: Until = None,
    search: Search = None,
    is_sure: IsSure = False,
    again: Again = None,
    is_whole: IsWhole = False,
    is_rest: IsRest = False,
    is_newest: Annotated[
        bool, typer.Option("--newest", help="By the newest version of the workflow.")
    ] = False,
    assignments: Assignments = None,
    input_file: InputFile = None,
    concurrency: Concurrency = None,
    as_json: AsJsonResult = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Run a finished execution again: what failed, and what depends on it.

    A new execution takes over what had completed, and the input. [bold]--input[/bold] changes
    values of it, [bold]--input-file[/bold] replaces it. Without an id, all executions that the
    options say, and that failed; each once.
    """
    from runnel.cli.choosing import check_choice
    from runnel.cli.hints import Hints
    from runnel.cli.options import configure
    from runnel.errors import InputError
    from runnel.reruns import Rerun

    if is_whole and (is_rest or again):
        other = "--failed" if is_rest else "--from"
        raise InputError(f"--all runs every node, and {other} only some; give one of them")
    place = Place(data_dir, redis_url, server)
    chosen = Chosen(status, workflow, labels, since, until, search)
    check_choice(execution_id, chosen)
    settings = configure(place, concurrency=concurrency)
    hints = Hints(place, settings.is_remote)
    is_chosen = is_whole or is_rest
    wanted = Rerun(again=again or (), is_whole=is_whole if is_chosen else None, is_newest=is_newest)
    if execution_id is not None:
        given = (input_file, assignments or [])
        return _rerun_one(execution_id, wanted, given, settings, hints, as_json=as_json)
    from runnel.cli.bulk_rerun import rerun_chosen

    if input_file is not None or assignments:
        raise InputError("another input can be given to one execution only: name it by its id")
    return rerun_chosen(chosen, wanted, settings, hints, is_sure=is_sure, as_json=as_json)


def _rerun_one(
    execution_id: str,
    wanted: "Rerun",
    given: tuple[str | None, list[str]],
    settings: "Settings",
    hints: "Hints",
    *,
    as_json: bool,
) -> int:
    import asyncio

    from runnel.cli.beginning import Begun, hand_over, run_here
    from runnel.cli.documents import make_importable
    from runnel.cli.streams import results
    from runnel.core.ids import ExecutionId
    from runnel.runtime.sources import SOURCE_LABEL

    former, workflow = asyncio.run(_load(execution_id, settings))
    value = _input(former, workflow, *given)

    async def submit(client: "Client") -> Begun:
        new_id = await client.rerun(ExecutionId(former.execution_id), wanted, input_=value)
        return Begun(new_id, (await client.load(new_id)).graph.workflow)

    begin = hand_over if settings.is_remote else run_here
    make_importable([former.labels[SOURCE_LABEL]] if SOURCE_LABEL in former.labels else [])
    with results() as out:
        return asyncio.run(begin(submit, settings, hints, out=out, as_json=as_json))


def _input(
    former: "ExecutionView", workflow: "Workflow", file: str | None, assignments: list[str]
) -> "Json":
    """None for that of the former."""
    from runnel.cli.inputs import lay_over, read_input

    if file is None and not assignments:
        return None
    given = read_input(file, assignments, workflow.input)
    return given if file is not None else lay_over(former.input, given, "the execution's input")


async def _load(text: str, settings: "Settings") -> "tuple[ExecutionView, Workflow]":
    from runnel.cli.finding import find
    from runnel.cli.opening import looking

    async with looking(settings) as look:
        found = await find(look, text)
        workflow = (await look.client.load(found)).graph.workflow
        return await look.client.get(found), workflow
