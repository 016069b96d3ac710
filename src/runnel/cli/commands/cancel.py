"""`runnel cancel ID`"""

import asyncio
from typing import Annotated

import typer

from runnel.app import stores
from runnel.cli import errors as exits
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
    configure,
    confirm,
)
from runnel.cli.render.text import format_count
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.open_client import ClientSession, find_execution_id, open_client
from runnel.client.bulk import CANCELS_PER_STEP, restrict_to_cancellable
from runnel.core.ids import ExecutionId
from runnel.engine.clock import RealClock
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings
from runnel.views.execution import ExecutionView

# How long to watch: clean-up nodes may take any time, and go on without an onlooker.
WATCH_TIMEOUT_S = 3.0
APPLY_TIMEOUT_S = 10.0
NOT_YET_CANCELLED_MESSAGE = "will be cancelled as soon as a process runs it"


def cancel(
    execution_id: OptionalExecutionId = None,
    *,
    status: StatusFilters = None,
    workflow: WorkflowName = None,
    labels: LabelFilters = None,
    since: Since = None,
    until: Until = None,
    search: Search = None,
    is_sure: SkipConfirmation = False,
    reason: Annotated[str, typer.Option(help="Why; it is kept with the execution.")] = "",
    is_forced: Annotated[
        bool, typer.Option("--force", help="Also end its clean-up nodes.")
    ] = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Cancel an execution, whichever process runs it, or none; or all that the options say.

    What runs is told to stop; clean-up nodes still run, unless [bold]--force[/bold] ends them too.
    """
    import asyncio

    from runnel.cli.options import check_selection

    place = StoreLocation(data_dir, redis_url, server)
    chosen = ExecutionSelection(status, workflow, labels, since, until, search)
    check_selection(execution_id, chosen)
    if execution_id is None:
        return cancel_selected(chosen, place, reason=reason, is_forced=is_forced, is_sure=is_sure)
    print(asyncio.run(_cancel_one(execution_id, place, reason=reason, is_forced=is_forced)))
    return exits.OK


async def _cancel_one(text: str, location: StoreLocation, *, reason: str, is_forced: bool) -> str:
    from runnel.core.ids import get_root_id

    settings = configure(location)
    hints = CommandHints(location, settings.is_remote)
    async with open_client(settings) as session:
        execution_id = await find_execution_id(session.client, text)
        partition = await session.operations.partition_of(execution_id)
        is_owned = partition.owner is not None and not partition.is_silent
        await session.client.cancel(execution_id, reason=reason, is_forced=is_forced)
        view = await _wait_until_final(session, execution_id) if is_owned else None
    if view is not None:
        return f"execution {execution_id} is {view.status.lower()}"
    if is_owned:
        return f"execution {execution_id} is being cancelled by the process that runs it"
    if settings.is_remote:
        return f"execution {execution_id} {NOT_YET_CANCELLED_MESSAGE}; go on with: {hints.resume()}"
    await apply_commands(settings, frozenset({partition.partition}))
    async with stores.open_store_session(settings) as store:
        execution = await store.client.load(execution_id)
    if execution.is_final:
        return f"execution {execution_id} is {execution.state.lower()}"
    is_applied = execution.outcome is not None
    what = "is cancelled, but its clean-up has to run" if is_applied else NOT_YET_CANCELLED_MESSAGE
    hint = hints.resume(get_root_id(execution_id))
    return f"execution {execution_id} {what}; go on with: {hint}"


async def _wait_until_final(
    session: ClientSession, execution_id: ExecutionId
) -> ExecutionView | None:
    try:
        return await session.client.wait(execution_id, timeout_s=WATCH_TIMEOUT_S)
    except TimeoutError:
        return None


async def apply_commands(settings: "Settings", partitions: frozenset[int]) -> None:
    """Nobody owns the partitions: this process does for a moment, and runs no user code.

    When that can't be done, all is as it was before.
    """
    import asyncio

    from runnel.app.wiring import build_engine

    engine = await build_engine(settings)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.run(adopts=partitions, runs_tasks=False))
            await engine.clock.wait(engine.recovered, APPLY_TIMEOUT_S)
            engine.stops.drain.set()
    finally:
        await engine.backend.close()


# `runnel cancel` without an id: all executions that the options say.


def cancel_selected(
    selection: ExecutionSelection,
    location: StoreLocation,
    *,
    reason: str,
    is_forced: bool,
    is_sure: bool,
) -> int:
    settings = configure(location)
    wanted = restrict_to_cancellable(
        build_filter(selection, RealClock().now()), limit=CANCELS_PER_STEP
    )
    how_many = asyncio.run(_describe_count(wanted, settings))
    if how_many is None:
        print("no executions to cancel")
        return exits.OK
    if not is_sure:
        confirm(f"Cancel {how_many}?", f"{how_many} would be cancelled")
    number, free = asyncio.run(_cancel_many(wanted, settings, reason=reason, is_forced=is_forced))
    print(f"asked {format_count(number, 'execution')} to end")
    if not free:
        return exits.OK
    if settings.is_remote:
        hint = CommandHints(location, settings.is_remote).resume()
        print(f"no process runs some of them; go on with: {hint}")
    else:
        asyncio.run(apply_commands(settings, free))
    return exits.OK


async def _describe_count(execution_filter: ExecutionFilter, settings: Settings) -> str | None:
    """None when there are none."""
    async with open_client(settings) as session:
        counts = (await session.client.count_executions(execution_filter)).values()
    number = sum(each.number for each in counts)
    if any(each.is_least for each in counts):
        return f"at least {format_count(number, 'execution')}"
    return format_count(number, "execution") if number else None


async def _cancel_many(
    execution_filter: ExecutionFilter, settings: Settings, *, reason: str, is_forced: bool
) -> tuple[int, frozenset[int]]:
    """How many, and the partitions of those that nobody runs."""
    number, partitions = 0, set[int]()
    async with open_client(settings) as session:
        steps = session.client.many.cancel(execution_filter, reason=reason, is_forced=is_forced)
        async for step in steps:
            number += len(step.ids)
            for execution_id in step.ids:
                partition = await session.operations.partition_of(execution_id)
                partitions.add(partition.partition)
        return number, await _filter_unowned(session, partitions)


async def _filter_unowned(session: ClientSession, partitions: set[int]) -> frozenset[int]:
    owned = {
        each.partition
        for each in await session.operations.partitions()
        if each.owner is not None and not each.is_silent
    }
    return frozenset(partitions - owned)
