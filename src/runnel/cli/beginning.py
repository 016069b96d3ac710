"""Begins an execution: run by this process, or handed over to the workers of a server."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TextIO

from runnel.cli import exits
from runnel.cli.hints import Hints
from runnel.client import Client
from runnel.core.ids import ExecutionId
from runnel.core.workflow import Workflow
from runnel.ports.archive import Archive
from runnel.settings import Settings


class Begun(NamedTuple):
    execution_id: ExecutionId
    workflow: Workflow


Begin = Callable[[Client], Awaitable[Begun]]
BeginSeveral = Callable[[Client, Archive], Awaitable[Sequence[Begun]]]


async def run_here(
    begin: Begin, settings: Settings, hints: Hints, *, out: TextIO, as_json: bool
) -> int:
    async def begin_one(client: Client, _archive: Archive) -> Sequence[Begun]:
        return [await begin(client)]

    return await run_several_here(begin_one, settings, hints, out=out, as_json=as_json)


async def run_several_here(
    begin: BeginSeveral, settings: Settings, hints: Hints, *, out: TextIO, as_json: bool
) -> int:
    """Submits before the engine runs: so ids are known before anything can happen to them."""
    from runnel.cli.attending import Attendance, farewell
    from runnel.cli.progress import Progress
    from runnel.cli.reporting import report
    from runnel.cli.watching import open_view
    from runnel.runtime.build import build_engine

    engine = await build_engine(settings)
    try:
        await engine.backend.claim_home(engine.name)
        begun = await begin(engine.client, engine.backend.archive)
        if not begun:
            return exits.OK
        view = open_view(engine.clock, hints)
        attendance = Attendance(engine, view, farewell=farewell(settings))
        for each in begun:
            attendance.follow(Progress(each.execution_id, each.workflow))
        await attendance.run()
        return await report(engine, attendance, hints, out=out, as_json=as_json)
    finally:
        await engine.backend.close()


async def hand_over(
    begin: Begin, settings: Settings, hints: Hints, *, out: TextIO, as_json: bool
) -> int:
    """To whoever runs executions there."""
    from runnel.cli.onlooking import onlook
    from runnel.cli.opening import looking, place_of

    async with looking(settings) as look:
        begun = await begin(look.client)
        who = "workers run it" if look.has_workers else "it runs there"
        lead = f"submitted to {place_of(settings)}: {who}, this command only watches"
        return await onlook(
            look, begun.execution_id, settings, hints, lead=lead, out=out, as_json=as_json
        )
