"""`runnel rerun ID`"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from runnel.app.run import SOURCE_LABEL
from runnel.cli import errors as exits
from runnel.cli.commands.run import AsJsonResult, Assignments, Concurrency, InputFile
from runnel.cli.errors import results
from runnel.cli.options import (
    Chosen,
    DataDir,
    HasLabels,
    IdOrFilter,
    IsSure,
    Place,
    RedisUrl,
    Search,
    Server,
    Since,
    Statuses,
    Until,
    WorkflowName,
    ask,
    filter_of,
)
from runnel.cli.render.text import compact, count
from runnel.cli.session.follow import Begun, run_several_here
from runnel.cli.session.hints import Hints
from runnel.cli.session.inputs import make_importable
from runnel.cli.session.open_client import looking
from runnel.client.bulk import RERUNS, rerun_many, rerunnable
from runnel.client.listing import all_headers
from runnel.client.reruns import Rerun
from runnel.client.store_client import Client
from runnel.engine.clock import RealClock
from runnel.ports.archive import Archive, ExecutionFilter
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from runnel.core.values import Json
    from runnel.core.workflow import Workflow
    from runnel.views.execution import ExecutionView


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
    from runnel.cli.options import check_choice, configure
    from runnel.cli.session.hints import Hints
    from runnel.client.reruns import Rerun
    from runnel.errors import InputError

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

    from runnel.app.run import SOURCE_LABEL
    from runnel.cli.errors import results
    from runnel.cli.session.follow import Begun, hand_over, run_here
    from runnel.cli.session.inputs import make_importable
    from runnel.core.ids import ExecutionId

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
    from runnel.cli.session.inputs import lay_over, read_input

    if file is None and not assignments:
        return None
    given = read_input(file, assignments, workflow.input)
    return given if file is not None else lay_over(former.input, given, "the execution's input")


async def _load(text: str, settings: "Settings") -> "tuple[ExecutionView, Workflow]":
    from runnel.cli.session.open_client import find, looking

    async with looking(settings) as look:
        found = await find(look, text)
        workflow = (await look.client.load(found)).graph.workflow
        return await look.client.get(found), workflow


# `runnel rerun` without an id: all executions that the options say, and that have ended.


def rerun_chosen(
    chosen: Chosen,
    wanted: Rerun,
    settings: Settings,
    hints: Hints,
    *,
    is_sure: bool,
    as_json: bool,
) -> int:
    """The exit code: 1 when one of them failed again, or could not be rerun."""
    reruns = Reruns(rerunnable(filter_of(chosen, RealClock().now()), limit=RERUNS), wanted)
    number, folders = asyncio.run(_look_at(reruns.chosen, settings))
    if not number:
        print("no executions to rerun")
        return exits.OK
    how_many = count(number, "execution")
    if not is_sure:
        ask(f"Rerun {how_many}?", f"{how_many} would be rerun")
    if settings.is_remote:
        code = asyncio.run(_hand_over(reruns, settings, hints, as_json=as_json))
    else:
        make_importable(folders)
        with results() as out:
            running = run_several_here(reruns.begin, settings, hints, out=out, as_json=as_json)
            code = asyncio.run(running)
    return max(code, exits.FAILED if reruns.failed else exits.OK)


@dataclass(slots=True)
class Reruns:
    chosen: ExecutionFilter
    wanted: Rerun
    failed: int = field(default=0)

    async def begin(self, client: Client, archive: Archive) -> Sequence[Begun]:
        """One that can't be rerun is told, and the others are."""
        begun: list[Begun] = []
        known = 0
        chosen = self.chosen
        while True:
            step = await rerun_many(client, archive, chosen, self.wanted)
            for failure in step.failures:
                _say(f"not rerun: {failure.error}")
            begun += [Begun(each, (await client.load(each)).graph.workflow) for each in step.ids]
            self.failed += step.failed
            known += step.known
            if step.next is None:
                break
            chosen = structs.replace(chosen, after=step.next)
        if known:
            _say(f"left out: {count(known, 'execution')} that had been rerun so before")
        return begun


async def _look_at(chosen: ExecutionFilter, settings: Settings) -> tuple[int, list[str]]:
    """How many there are, and the folders that they were submitted from."""
    number, folders = 0, dict[str, None]()
    async with looking(settings) as look:
        async for header in all_headers(look.backend.archive, chosen):
            number += 1
            if SOURCE_LABEL in header.labels:
                folders[header.labels[SOURCE_LABEL]] = None
    return number, list(folders)


async def _hand_over(reruns: Reruns, settings: Settings, hints: Hints, *, as_json: bool) -> int:
    """To the workers of a server, without waiting for them: they may be many."""
    async with looking(settings) as look:
        begun = await reruns.begin(look.client, look.backend.archive)
    for each in begun if as_json else ():
        print(compact({"execution_id": each.execution_id, "workflow": each.workflow.name}))
    _say(f"rerun: {count(len(begun), 'execution')}")
    if begun and not as_json:
        _say(f"workers run them; see: {hints.return_to(begun[0].execution_id)}")
    return exits.OK


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
