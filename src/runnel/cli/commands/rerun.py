"""`runnel rerun ID`"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.authoring.functions import SOURCE_LABEL
from runnel.cli import errors as exits
from runnel.cli.commands.run import AsJsonResult, Assignments, Concurrency, InputFile
from runnel.cli.options import (
    DataDir,
    ExecutionSelection,
    LabelFilters,
    OptionalExecutionId,
    RedisUrl,
    Search,
    Server,
    Since,
    SkipConfirmation,
    StatusFilters,
    StoreLocation,
    Until,
    WorkflowName,
    build_filter,
    confirm,
)
from runnel.cli.render.text import format_count, to_compact_json
from runnel.cli.session.follow import StartedExecution, run_many_locally
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import make_importable
from runnel.cli.session.open_client import find_execution_id, load_workflow, open_client
from runnel.cli.streams import reserve_stdout
from runnel.client.bulk import RERUNS_PER_STEP, restrict_to_rerunnable
from runnel.client.listing import iter_executions
from runnel.client.protocol import Client
from runnel.client.reruns import RerunSpec
from runnel.engine.clock import RealClock
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from runnel.core.values import Json
    from runnel.core.workflow import Workflow
    from runnel.views.execution import ExecutionView


FromNodes = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="NODE",
        help="Also run this node, and all that depend on it (repeated).",
        show_default=False,
    ),
]
AllNodes = Annotated[bool, typer.Option("--all", help="Run every node.")]
OnlyFailed = Annotated[
    bool,
    typer.Option(
        "--failed",
        help="Run only what did not complete. [dim]\\[default, unless it completed or gets another "
        "input][/dim]",
    ),
]


def rerun(
    execution_id: OptionalExecutionId = None,
    *,
    status: StatusFilters = None,
    workflow: WorkflowName = None,
    labels: LabelFilters = None,
    since: Since = None,
    until: Until = None,
    search: Search = None,
    is_sure: SkipConfirmation = False,
    again: FromNodes = None,
    is_whole: AllNodes = False,
    is_rest: OnlyFailed = False,
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
    from runnel.cli.options import check_selection, configure
    from runnel.cli.session.hints import CommandHints
    from runnel.client.reruns import RerunSpec
    from runnel.errors import InputError

    if is_whole and (is_rest or again):
        other = "--failed" if is_rest else "--from"
        raise InputError(f"--all runs every node, and {other} only some; give one of them")
    place = StoreLocation(data_dir, redis_url, server)
    chosen = ExecutionSelection(status, workflow, labels, since, until, search)
    check_selection(execution_id, chosen)
    settings = configure(place, concurrency=concurrency)
    hints = CommandHints(place, settings.is_remote)
    is_chosen = is_whole or is_rest
    wanted = RerunSpec(
        again=again or (), is_whole=is_whole if is_chosen else None, is_newest=is_newest
    )
    if execution_id is not None:
        given = (input_file, assignments or [])
        return _rerun_one(execution_id, wanted, given, settings, hints, as_json=as_json)

    if input_file is not None or assignments:
        raise InputError("another input can be given to one execution only: name it by its id")
    return rerun_selected(chosen, wanted, settings, hints, is_sure=is_sure, as_json=as_json)


def _rerun_one(
    execution_id: str,
    rerun_spec: "RerunSpec",
    new_input: tuple[str | None, list[str]],
    settings: "Settings",
    hints: "CommandHints",
    *,
    as_json: bool,
) -> int:
    import asyncio

    from runnel.authoring.functions import SOURCE_LABEL
    from runnel.cli.session.follow import StartedExecution, run_locally
    from runnel.cli.session.inputs import make_importable
    from runnel.cli.session.watch import submit_and_follow
    from runnel.cli.streams import reserve_stdout
    from runnel.core.ids import ExecutionId

    former, workflow = asyncio.run(_load_former(execution_id, settings))
    value = _build_input(former, workflow, *new_input)

    async def submit(client: Client) -> StartedExecution:
        new_id = await client.rerun(ExecutionId(former.execution_id), rerun_spec, input=value)
        return StartedExecution(new_id, await load_workflow(client, new_id))

    begin = submit_and_follow if settings.is_remote else run_locally
    make_importable([former.labels[SOURCE_LABEL]] if SOURCE_LABEL in former.labels else [])
    with reserve_stdout() as out:
        return asyncio.run(begin(submit, settings, hints, out=out, as_json=as_json))


def _build_input(
    former: "ExecutionView", workflow: "Workflow", file: str | None, assignments: list[str]
) -> "Json":
    """None for that of the former."""
    from runnel.cli.session.inputs import merge_assignments, read_input

    if file is None and not assignments:
        return None
    given = read_input(file, assignments, workflow.input)
    return (
        given
        if file is not None
        else merge_assignments(former.input, given, "the execution's input")
    )


async def _load_former(text: str, settings: "Settings") -> "tuple[ExecutionView, Workflow]":
    async with open_client(settings) as session:
        execution_id = await find_execution_id(session.client, text)
        workflow = await session.load_workflow(execution_id)
        return await session.client.get(execution_id), workflow


# `runnel rerun` without an id: all executions that the options say, and that have ended.


def rerun_selected(
    selection: ExecutionSelection,
    rerun_spec: RerunSpec,
    settings: Settings,
    hints: CommandHints,
    *,
    is_sure: bool,
    as_json: bool,
) -> int:
    """The exit code: 1 when one of them failed again, or could not be rerun."""
    reruns = BulkReruns(
        restrict_to_rerunnable(build_filter(selection, RealClock().now()), limit=RERUNS_PER_STEP),
        rerun_spec,
    )
    number, folders = asyncio.run(_inspect_selected(reruns.execution_filter, settings))
    if not number:
        print("no executions to rerun")
        return exits.OK
    how_many = format_count(number, "execution")
    if not is_sure:
        confirm(f"Rerun {how_many}?", f"{how_many} would be rerun")
    if settings.is_remote:
        code = asyncio.run(_submit_to_server(reruns, settings, hints, as_json=as_json))
    else:
        make_importable(folders)
        with reserve_stdout() as out:
            running = run_many_locally(reruns.start_all, settings, hints, out=out, as_json=as_json)
            code = asyncio.run(running)
    return max(code, exits.FAILED if reruns.failed else exits.OK)


@dataclass(slots=True)
class BulkReruns:
    execution_filter: ExecutionFilter
    rerun_spec: RerunSpec
    failed: int = field(default=0)

    async def start_all(self, client: Client) -> Sequence[StartedExecution]:
        """One that can't be rerun is told, and the others are."""
        begun: list[StartedExecution] = []
        known = 0
        async for step in client.many.rerun(self.execution_filter, self.rerun_spec):
            for failure in step.failures:
                _print_to_stderr(f"not rerun: {failure.error}")
            begun += [
                StartedExecution(execution_id, await load_workflow(client, execution_id))
                for execution_id in step.ids
            ]
            self.failed += step.failed
            known += step.known
        if known:
            _print_to_stderr(
                f"left out: {format_count(known, 'execution')} that had been rerun so before"
            )
        return begun


async def _inspect_selected(
    execution_filter: ExecutionFilter, settings: Settings
) -> tuple[int, list[str]]:
    """How many there are, and the folders that they were submitted from."""
    number, folders = 0, dict[str, None]()
    async with open_client(settings) as session:
        async for header in iter_executions(session.client, execution_filter):
            number += 1
            if SOURCE_LABEL in header.labels:
                folders[header.labels[SOURCE_LABEL]] = None
    return number, list(folders)


async def _submit_to_server(
    reruns: BulkReruns, settings: Settings, hints: CommandHints, *, as_json: bool
) -> int:
    """To the workers of a server, without waiting for them: they may be many."""
    async with open_client(settings) as session:
        begun = await reruns.start_all(session.client)
    for each in begun if as_json else ():
        print(to_compact_json({"execution_id": each.execution_id, "workflow": each.workflow.name}))
    _print_to_stderr(f"rerun: {format_count(len(begun), 'execution')}")
    if begun and not as_json:
        _print_to_stderr(f"workers run them; see: {hints.watch_again(begun[0].execution_id)}")
    return exits.OK


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
