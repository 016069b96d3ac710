"""`runnel cancel ID`"""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from runnel.app.stores import Look
from runnel.cli import errors as exits
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
    configure,
    filter_of,
)
from runnel.cli.render.text import count
from runnel.cli.session.hints import Hints
from runnel.cli.session.open_client import looking
from runnel.client.bulk import CANCELS, cancel_many, cancellable
from runnel.engine.clock import RealClock
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from runnel.core.ids import ExecutionId
    from runnel.ports.store import Header


# How long to watch: clean-up nodes may take any time, and go on without an onlooker.
WATCH_S = 3.0
APPLY_S = 10.0
UNAPPLIED = "will be cancelled as soon as a process runs it"


def cancel(
    execution_id: IdOrFilter = None,
    *,
    status: Statuses = None,
    workflow: WorkflowName = None,
    labels: HasLabels = None,
    since: Since = None,
    until: Until = None,
    search: Search = None,
    is_sure: IsSure = False,
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

    from runnel.cli.options import check_choice

    place = Place(data_dir, redis_url, server)
    chosen = Chosen(status, workflow, labels, since, until, search)
    check_choice(execution_id, chosen)
    if execution_id is None:
        return cancel_chosen(chosen, place, reason=reason, is_forced=is_forced, is_sure=is_sure)
    print(asyncio.run(_cancel(execution_id, place, reason=reason, is_forced=is_forced)))
    return exits.OK


async def _cancel(text: str, place: Place, *, reason: str, is_forced: bool) -> str:
    from runnel.cli.options import configure
    from runnel.cli.session.hints import Hints
    from runnel.cli.session.open_client import find, looking
    from runnel.core.ids import root_of

    settings = configure(place)
    hints = Hints(place, settings.is_remote)
    async with looking(settings) as look:
        execution_id = await find(look, text)
        is_owned = await look.owner_of(execution_id) is not None
        await look.client.cancel(execution_id, reason=reason, is_forced=is_forced)
        partition = await look.backend.store.route(execution_id)
        header = await _watch(look, execution_id) if is_owned else None
    if header is not None:
        return f"execution {execution_id} is {header.state.lower()}"
    if is_owned:
        return f"execution {execution_id} is being cancelled by the process that runs it"
    if settings.is_remote:
        return f"execution {execution_id} {UNAPPLIED}; go on with: {hints.revive()}"
    await apply_commands(settings, frozenset({partition}))
    async with looking(settings) as look:
        execution = await look.client.load(execution_id)
    if execution.is_final:
        return f"execution {execution_id} is {execution.state.lower()}"
    is_applied = execution.outcome is not None
    what = "is cancelled, but its clean-up has to run" if is_applied else UNAPPLIED
    hint = hints.revive(root_of(execution_id))
    return f"execution {execution_id} {what}; go on with: {hint}"


async def _watch(look: "Look", execution_id: "ExecutionId") -> "Header | None":
    try:
        return await look.client.wait(execution_id, timeout_s=WATCH_S)
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
            group.create_task(engine.run(adopts=partitions, works=False))
            await engine.clock.wait(engine.recovered, APPLY_S)
            engine.stops.gently.set()
    finally:
        await engine.backend.close()


# `runnel cancel` without an id: all executions that the options say.


def cancel_chosen(
    chosen: Chosen, place: Place, *, reason: str, is_forced: bool, is_sure: bool
) -> int:
    settings = configure(place)
    wanted = cancellable(filter_of(chosen, RealClock().now()), limit=CANCELS)
    how_many = asyncio.run(_count(wanted, settings))
    if how_many is None:
        print("no executions to cancel")
        return exits.OK
    if not is_sure:
        ask(f"Cancel {how_many}?", f"{how_many} would be cancelled")
    number, free = asyncio.run(_cancel_many(wanted, settings, reason=reason, is_forced=is_forced))
    print(f"asked {count(number, 'execution')} to end")
    if not free:
        return exits.OK
    if settings.is_remote:
        hint = Hints(place, settings.is_remote).revive()
        print(f"no process runs some of them; go on with: {hint}")
    else:
        asyncio.run(apply_commands(settings, free))
    return exits.OK


async def _count(wanted: ExecutionFilter, settings: Settings) -> str | None:
    """None when there are none."""
    async with looking(settings) as look:
        counts = (await look.client.count_executions(wanted)).values()
    number = sum(each.number for each in counts)
    if any(each.is_least for each in counts):
        return f"at least {count(number, 'execution')}"
    return count(number, "execution") if number else None


async def _cancel_many(
    wanted: ExecutionFilter, settings: Settings, *, reason: str, is_forced: bool
) -> tuple[int, frozenset[int]]:
    """How many, and the partitions of those that nobody runs."""
    number, partitions = 0, set[int]()
    async with looking(settings) as look:
        mailbox = look.backend.mailbox
        while True:
            step = await cancel_many(
                look.client, mailbox, wanted, reason=reason, is_forced=is_forced
            )
            number += len(step.ids)
            partitions |= {await look.backend.store.route(each) for each in step.ids}
            if step.next is None:
                return number, await _without_owner(look, partitions)
            wanted = structs.replace(wanted, after=step.next)


async def _without_owner(look: Look, partitions: set[int]) -> frozenset[int]:
    store = look.backend.store
    return frozenset([each for each in partitions if await store.observe(each) is None])
