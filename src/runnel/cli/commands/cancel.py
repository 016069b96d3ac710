"""`runnel cancel [ID]`"""

import asyncio
from typing import Annotated

import typer

from runnel.app import stores
from runnel.app.wiring import build_engine
from runnel.cli.options import (
    OptionalExecutionId,
    SkipConfirmation,
    StoreLocation,
    configure,
    confirm,
)
from runnel.cli.render.text import format_count
from runnel.cli.selection import ExecutionSelection, build_filter, check_selection
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.open_client import ClientSession, find_execution_id, open_client
from runnel.client.bulk import CANCELS_PER_STEP, restrict_to_cancellable
from runnel.core.ids import ExecutionId, get_root_id
from runnel.engine.clock import RealClock
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings
from runnel.views.execution import ExecutionView

# The command waits this long for the end of the execution. Clean-up nodes may take longer: they
# continue after the command has ended.
WATCH_TIMEOUT_S = 3.0
APPLY_TIMEOUT_S = 10.0
NOT_YET_CANCELLED_MESSAGE = "will be cancelled as soon as a process runs it"


def cancel(
    execution_id: OptionalExecutionId = None,
    *,
    selection: ExecutionSelection,
    is_sure: SkipConfirmation = False,
    reason: Annotated[str, typer.Option(help="The reason that is stored with the execution.")] = "",
    is_forced: Annotated[bool, typer.Option("--force", help="Also cancel clean-up nodes.")] = False,
    location: StoreLocation,
) -> None:
    """Cancel one execution, or all executions that match the filters.

    Running tasks get a request to stop. Clean-up nodes still run, unless [bold]--force[/bold]
    cancels them as well.
    """
    check_selection(execution_id, selection)
    settings = configure(location)
    hints = CommandHints(location, settings.is_remote)
    if execution_id is not None:
        cancelling = _cancel_one(execution_id, settings, hints, reason=reason, is_forced=is_forced)
        print(asyncio.run(cancelling))
        return
    execution_filter = restrict_to_cancellable(
        build_filter(selection, RealClock().now()), limit=CANCELS_PER_STEP
    )
    how_many = asyncio.run(_describe_count(execution_filter, settings))
    if how_many is None:
        print("no executions to cancel")
        return
    if not is_sure:
        confirm(f"Cancel {how_many}?", f"{how_many} would be cancelled")
    asyncio.run(_cancel_all(execution_filter, settings, hints, reason=reason, is_forced=is_forced))


async def _cancel_one(
    text: str, settings: Settings, hints: CommandHints, *, reason: str, is_forced: bool
) -> str:
    """Cancels one execution and returns a sentence that describes its state."""
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
        return (
            f"execution {execution_id} {NOT_YET_CANCELLED_MESSAGE}; continue with: {hints.resume()}"
        )
    await apply_commands(settings, frozenset({partition.partition}))
    async with stores.open_store_session(settings) as store:
        execution = await store.client.load(execution_id)
    if execution.is_final:
        return f"execution {execution_id} is {execution.state.lower()}"
    if execution.outcome is not None:
        state = "is cancelled, but its clean-up has to run"
    else:
        state = NOT_YET_CANCELLED_MESSAGE
    hint = hints.resume(get_root_id(execution_id))
    return f"execution {execution_id} {state}; continue with: {hint}"


async def _wait_until_final(
    session: ClientSession, execution_id: ExecutionId
) -> ExecutionView | None:
    try:
        return await session.client.wait(execution_id, timeout_s=WATCH_TIMEOUT_S)
    except TimeoutError:
        return None


async def apply_commands(settings: Settings, partitions: frozenset[int]) -> None:
    """Takes over partitions without an owner until their commands are applied; runs no user code.

    If the takeover fails, nothing has changed.
    """
    engine = await build_engine(settings)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.run(adopts=partitions, runs_tasks=False))
            await engine.clock.wait(engine.recovered, APPLY_TIMEOUT_S)
            engine.stops.drain.set()
    finally:
        await engine.backend.close()


async def _cancel_all(
    execution_filter: ExecutionFilter,
    settings: Settings,
    hints: CommandHints,
    *,
    reason: str,
    is_forced: bool,
) -> None:
    number, partitions = 0, set[int]()
    async with open_client(settings) as session:
        steps = session.client.many.cancel(execution_filter, reason=reason, is_forced=is_forced)
        async for step in steps:
            number += len(step.ids)
            for execution_id in step.ids:
                partition = await session.operations.partition_of(execution_id)
                partitions.add(partition.partition)
        unowned = await _filter_unowned(session, partitions)
    print(f"asked {format_count(number, 'execution')} to end")
    if not unowned:
        return
    if settings.is_remote:
        print(f"no process runs some of these executions; continue with: {hints.resume()}")
    else:
        await apply_commands(settings, unowned)


async def _describe_count(execution_filter: ExecutionFilter, settings: Settings) -> str | None:
    """Returns the number of matching executions as text; None if no execution matches."""
    async with open_client(settings) as session:
        counts = (await session.client.count_executions(execution_filter)).values()
    number = sum(count.number for count in counts)
    if any(count.is_least for count in counts):
        return f"at least {format_count(number, 'execution')}"
    return format_count(number, "execution") if number else None


async def _filter_unowned(session: ClientSession, partitions: set[int]) -> frozenset[int]:
    owned = {
        view.partition
        for view in await session.operations.partitions()
        if view.owner is not None and not view.is_silent
    }
    return frozenset(partitions - owned)
