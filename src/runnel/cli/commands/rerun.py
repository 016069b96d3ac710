"""`runnel rerun [ID]`"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from runnel.authoring.functions import SOURCE_LABEL
from runnel.cli.errors import FAILED, OK
from runnel.cli.options import (
    AsJsonResult,
    Assignments,
    Concurrency,
    InputFile,
    OptionalExecutionId,
    SkipConfirmation,
    StoreLocation,
    configure,
    confirm,
)
from runnel.cli.render.printer import print_json_lines
from runnel.cli.render.progress import ExecutionProgress
from runnel.cli.render.sentences import describe_undone
from runnel.cli.render.text import format_count
from runnel.cli.selection import ExecutionSelection, build_filter, check_selection
from runnel.cli.session.follow import submit_and_follow
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import (
    make_importable,
    merge_assignments,
    print_warnings,
    read_input,
)
from runnel.cli.session.open_client import find_execution_id, load_workflow, open_client
from runnel.cli.session.run_locally import (
    StartedExecution,
    StartMany,
    run_locally,
    run_many_locally,
)
from runnel.cli.streams import print_to_stderr, reserve_stdout
from runnel.client.bulk import RERUNS_PER_STEP, restrict_to_rerunnable
from runnel.client.execution_lists import iter_executions
from runnel.client.protocol import Client, load_whole_input
from runnel.client.reruns import RerunSpec, is_whole_rerun
from runnel.core.ids import ExecutionId
from runnel.core.run_when import CLEAN_UP_RULES
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.engine.clock import RealClock
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings
from runnel.views.execution import ExecutionView


@dataclass(frozen=True, slots=True)
class RerunNodes:
    """The nodes to run again, as the user typed them."""

    again: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="NODE",
            help="A node to run in addition, with all nodes that depend on it; repeatable.",
        ),
    ] = None
    is_whole: Annotated[
        bool, typer.Option("--all", help="Run every node of the execution again.")
    ] = False
    is_rest: Annotated[
        bool,
        typer.Option(
            "--failed",
            help="Run only the nodes that did not complete. [dim]\\[default, unless the execution "
            "completed or gets another input][/dim]",
        ),
    ] = False
    is_newest: Annotated[
        bool, typer.Option("--newest", help="Use the newest version of the workflow.")
    ] = False

    def to_spec(self) -> RerunSpec:
        """Returns the choice of nodes for the client; raises InputError if options contradict."""
        if self.is_whole and (self.is_rest or self.again):
            other = "--failed" if self.is_rest else "--from"
            raise InputError(
                f"--all runs every node, and {other} runs only some nodes; give one of them"
            )
        is_chosen = self.is_whole or self.is_rest
        return RerunSpec(
            again=self.again or (),
            is_whole=self.is_whole if is_chosen else None,
            is_newest=self.is_newest,
        )


def rerun(
    execution_id: OptionalExecutionId = None,
    *,
    selection: ExecutionSelection,
    is_sure: SkipConfirmation = False,
    nodes: RerunNodes,
    assignments: Assignments = None,
    input_file: InputFile = None,
    concurrency: Concurrency = None,
    as_json: AsJsonResult = False,
    location: StoreLocation,
) -> int:
    """Run the failed nodes of a finished execution again, and all nodes that depend on them.

    A new execution takes over the input and the results of completed nodes. [bold]--input[/bold]
    changes values of the input, [bold]--input-file[/bold] replaces it.

    Without an id, every failed execution that matches the filters is rerun once.
    """
    rerun_spec = nodes.to_spec()
    check_selection(execution_id, selection)
    settings = configure(location, concurrency=concurrency)
    hints = CommandHints(location, settings.is_remote)
    if execution_id is not None:
        new_input = (input_file, assignments or [])
        return _rerun_one(execution_id, rerun_spec, new_input, settings, hints, as_json=as_json)
    if input_file is not None or assignments:
        raise InputError("--input and --input-file change one execution only; give its id")
    return _rerun_selected(selection, rerun_spec, settings, hints, is_sure=is_sure, as_json=as_json)


def _rerun_one(
    execution_id: str,
    rerun_spec: RerunSpec,
    new_input: tuple[str | None, list[str]],
    settings: Settings,
    hints: CommandHints,
    *,
    as_json: bool,
) -> int:
    loading = _load_former(execution_id, settings, needs_input=bool(new_input[1]))
    former, workflow = asyncio.run(loading)
    value = _build_input(former, workflow, *new_input)
    if not is_whole_rerun(rerun_spec, former.status, has_input=value is not None):
        _warn_if_undone(former, workflow, rerun_spec.again)

    async def submit(client: Client) -> StartedExecution:
        new_id = await client.rerun(ExecutionId(former.execution_id), rerun_spec, input=value)
        return StartedExecution(new_id, await load_workflow(client, new_id))

    start = submit_and_follow if settings.is_remote else run_locally
    if not settings.is_remote:
        print_warnings([workflow], settings)
    make_importable([former.labels[SOURCE_LABEL]] if SOURCE_LABEL in former.labels else [])
    with reserve_stdout() as out:
        return asyncio.run(start(submit, settings, hints, out=out, as_json=as_json))


def _warn_if_undone(former: ExecutionView, workflow: Workflow, again: Sequence[str] = ()) -> None:
    progress = ExecutionProgress(former.execution_id, workflow)
    progress.finish(former)
    undone = describe_undone(progress, again)
    if undone:
        print_to_stderr(
            f"warning: {undone} in execution {former.execution_id}, and the rerun reuses these "
            "results; --all runs every node"
        )


async def warn_about_undone_results(client: Client, rerun: StartedExecution) -> None:
    """Prints a warning if a rerun reuses results that clean-up nodes may have undone."""
    if any(node.run_when in CLEAN_UP_RULES for node in rerun.workflow.nodes):
        former_id = (await client.get(rerun.execution_id)).rerun_of
        if former_id is not None:
            _warn_if_undone(await client.get(former_id), await load_workflow(client, former_id))


def _build_input(
    former: ExecutionView, workflow: Workflow, file: str | None, assignments: list[str]
) -> Json:
    """Returns the new input; None if the rerun takes over the input of the former execution."""
    if file is None and not assignments:
        return None
    value = read_input(file, assignments, workflow.input)
    if file is not None:
        return value
    return merge_assignments(former.input, value, "the execution's input")


async def _load_former(
    text: str, settings: Settings, *, needs_input: bool
) -> tuple[ExecutionView, Workflow]:
    async with open_client(settings) as session:
        execution_id = await find_execution_id(session.client, text)
        workflow = await load_workflow(session.client, execution_id)
        former = await session.client.get(execution_id)
        if needs_input:
            former = await load_whole_input(session.client, former)
        return former, workflow


# `runnel rerun` without an id: all executions that have ended and match the filters.


def _rerun_selected(
    selection: ExecutionSelection,
    rerun_spec: RerunSpec,
    settings: Settings,
    hints: CommandHints,
    *,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Reruns the chosen executions; returns 1 if one failed again or could not be rerun."""
    reruns = BulkReruns(
        restrict_to_rerunnable(build_filter(selection, RealClock().now()), limit=RERUNS_PER_STEP),
        rerun_spec,
        None if settings.is_remote else settings,
    )
    number, folders = asyncio.run(_inspect_selected(reruns.execution_filter, settings))
    if not number:
        print("no executions to rerun")
        return OK
    how_many = format_count(number, "execution")
    if not is_sure:
        confirm(f"Rerun {how_many}?", f"{how_many} would be rerun")
    code = run_many(reruns.start_all, folders, settings, hints, as_json=as_json)
    return max(code, FAILED if reruns.failed else OK)


@dataclass(slots=True)
class BulkReruns:
    """Reruns all executions that match a filter; `failed` counts executions that can't be rerun.

    `settings` are those of the process, if it runs the executions itself.
    """

    execution_filter: ExecutionFilter
    rerun_spec: RerunSpec
    settings: Settings | None
    failed: int = 0

    async def start_all(self, client: Client) -> Sequence[StartedExecution]:
        """Starts the reruns and returns them; prints an error for each impossible rerun."""
        started: list[StartedExecution] = []
        known = 0
        async for step in client.many.rerun(self.execution_filter, self.rerun_spec):
            for failure in step.failures:
                print_to_stderr(f"not rerun: {failure.error}")
            for execution_id in step.ids:
                rerun = StartedExecution(execution_id, await load_workflow(client, execution_id))
                if not self.rerun_spec.is_whole:
                    await warn_about_undone_results(client, rerun)
                started.append(rerun)
            self.failed += step.failed
            known += step.known
        if self.settings is not None:
            print_warnings([rerun.workflow for rerun in started], self.settings)
        if known:
            print_to_stderr(
                f"skipped: {format_count(known, 'execution')} that were already rerun in this way"
            )
        if self.settings is None:
            print_to_stderr(f"rerun: {format_count(len(started), 'execution')}")
        return started


async def _inspect_selected(
    execution_filter: ExecutionFilter, settings: Settings
) -> tuple[int, list[str]]:
    """Returns the number of matching executions, and the folders of their workflow files."""
    number, folders = 0, dict[str, None]()
    async with open_client(settings) as session:
        async for summary in iter_executions(session.client, execution_filter):
            number += 1
            if SOURCE_LABEL in summary.labels:
                folders[summary.labels[SOURCE_LABEL]] = None
    return number, list(folders)


def run_many(
    start: StartMany,
    folders: Iterable[str],
    settings: Settings,
    hints: CommandHints,
    *,
    as_json: bool,
) -> int:
    """Runs executions in this process, or submits them to a server without following them.

    A server may get more executions than one command can follow. Returns the exit code.
    """
    if settings.is_remote:
        _print_started(asyncio.run(_submit(start, settings)), hints, as_json=as_json)
        return OK
    make_importable(folders)
    with reserve_stdout() as out:
        return asyncio.run(run_many_locally(start, settings, hints, out=out, as_json=as_json))


async def _submit(start: StartMany, settings: Settings) -> Sequence[StartedExecution]:
    async with open_client(settings) as session:
        return await start(session.client)


def _print_started(
    started: Sequence[StartedExecution], hints: CommandHints, *, as_json: bool
) -> None:
    if as_json:
        print_json_lines(
            started,
            lambda execution: {
                "execution_id": execution.execution_id,
                "workflow": execution.workflow.name,
            },
        )
    elif started:
        print_to_stderr(
            f"workers run the executions; see: {hints.watch_again(started[0].execution_id)}"
        )
