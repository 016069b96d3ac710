"""`runnel schedule add|list|show|pause|resume|remove|next`"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from runnel.authoring.functions import SOURCE_LABEL
from runnel.cli import errors as exits
from runnel.cli.command_group import make_command_group
from runnel.cli.commands.run import Assignments, InputFile, Labels
from runnel.cli.options import (
    AsJson,
    DataDir,
    RedisUrl,
    Server,
    StoreLocation,
    complete_workflow,
    parse_duration,
    parse_time,
    read_labels,
)
from runnel.cli.render.text import (
    Cell,
    format_duration,
    format_labels,
    format_local_time,
    print_styled,
    print_table,
    shorten,
    to_compact_json,
    to_pretty_json,
)
from runnel.cli.session.inputs import (
    check_functions,
    get_import_folder,
    load_valid_workflow,
    make_importable,
    read_input,
)
from runnel.cli.session.open_client import has_data, open_client, open_schedules
from runnel.cli.streams import reserve_stdout
from runnel.core.wording import quote_name
from runnel.core.workflow import Workflow
from runnel.engine.clock import RealClock
from runnel.errors import InputError
from runnel.settings.model import Settings
from runnel.triggers.cron import UnknownZoneError, compute_next_ticks, load_zone
from runnel.triggers.schedule_checks import check_schedule
from runnel.triggers.schedule_store import format_in_zone
from runnel.views import build_document
from runnel.views.trigger import Overlap, Schedule, ScheduleView

app = make_command_group(
    "Schedules: workflows that are run by the clock.",
    first_command="runnel schedule add nightly report.yaml --cron '0 3 * * *'",
)

ScheduleName: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the schedule.", show_default=False)
]
WorkflowOrFile: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="WORKFLOW",
        help="A workflow that was submitted, by its name; or a file, which is stored then.",
        autocompletion=complete_workflow,
        show_default=False,
    ),
]
Cron: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="FIELDS",
        help="Minute hour day month weekday: '0 3 * * *'. Or @hourly, @daily, @weekly, …",
        show_default=False,
    ),
]
Interval: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="An interval: 90s, 10m, 1h30m.", show_default=False),
]
Timezone: TypeAlias = Annotated[str, typer.Option(metavar="ZONE", help="Such as Europe/Berlin.")]
Version: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="This version of the workflow, instead of the newest.",
        show_default=False,
    ),
]
OverlapOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="allow|skip|cancel",
        help="What a tick does while the last execution still runs: start another one, "
        "nothing, or cancel that one first.",
    ),
]
CatchUp: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N", help="How many ticks that were missed are made up for after an outage."
    ),
]
StartsAt: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The first tick is not before.", show_default=False),
]
EndsAt: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The last tick is not after.", show_default=False),
]
StartPaused: TypeAlias = Annotated[
    bool, typer.Option("--paused", help="Fire nothing until resumed.")
]


def add_schedule(
    name: ScheduleName,
    workflow: WorkflowOrFile,
    *,
    cron: Cron = None,
    every: Interval = None,
    timezone: Timezone = "UTC",
    version: Version = None,
    assignments: Assignments = None,
    input_file: InputFile = None,
    labels: Labels = None,
    overlap: OverlapOption = "allow",
    catch_up: CatchUp = 1,
    starts_at: StartsAt = None,
    ends_at: EndsAt = None,
    is_paused: StartPaused = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Run a workflow by the clock.

    A value of the input may hold the tick: [bold]--input 'day={{ tick.date }}'[/bold]; there are
    tick.at, tick.local, tick.date, tick.time and tick.timestamp.

    Each tick is run once, however many orchestrators there are.
    """
    import asyncio

    from runnel.cli.options import configure

    place = StoreLocation(data_dir, redis_url, server)
    settings = configure(place)
    wanted = ScheduleArguments(
        name=name,
        workflow=workflow,
        version=version,
        cron=cron,
        every=every,
        timezone=timezone,
        assignments=assignments or [],
        input_file=input_file,
        labels=labels or [],
        overlap=overlap,
        catch_up=catch_up,
        starts_at=starts_at,
        ends_at=ends_at,
        is_paused=is_paused,
    )
    kept = asyncio.run(add_from_arguments(settings, wanted))
    print_added(kept, is_remote=settings.has_redis, as_json=as_json)
    return exits.OK


def list_schedules(
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """List all schedules, by name."""
    import asyncio

    from runnel.cli.options import configure

    page = asyncio.run(load_page(configure(StoreLocation(data_dir, redis_url, server)), limit))
    print_page(page, limit, as_json=as_json)
    return exits.OK


def show_schedule(
    name: ScheduleName,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Show one schedule: what it runs, when next, and what became of the last tick."""
    import asyncio

    from runnel.cli.options import configure

    kept = asyncio.run(load_schedule(configure(StoreLocation(data_dir, redis_url, server)), name))
    print_schedule(kept, as_json=as_json)
    return exits.OK


def pause_schedule(
    name: ScheduleName,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Fire nothing until it is resumed; what runs goes on."""
    return _set_paused(
        name, StoreLocation(data_dir, redis_url, server), is_paused=True, as_json=as_json
    )


def resume_schedule(
    name: ScheduleName,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Go on with the next tick from now on: what fell into the pause is not made up for."""
    return _set_paused(
        name, StoreLocation(data_dir, redis_url, server), is_paused=False, as_json=as_json
    )


def remove_schedule(
    name: ScheduleName,
    *,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Remove a schedule for good; what it has started stays, and goes on."""
    import asyncio

    from runnel.cli.options import configure

    asyncio.run(delete_schedule(configure(StoreLocation(data_dir, redis_url, server)), name))
    print(f"schedule '{name}' is removed")
    return exits.OK


def next_schedule(
    name: ScheduleName,
    *,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="How many ticks.")] = 10,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Print when a schedule fires next, in its time zone."""
    import asyncio

    from runnel.cli.options import configure

    kept = asyncio.run(load_schedule(configure(StoreLocation(data_dir, redis_url, server)), name))
    print_next_ticks(kept, count, as_json=as_json)
    return exits.OK


def _set_paused(name: str, location: StoreLocation, *, is_paused: bool, as_json: bool) -> int:
    import asyncio

    from runnel.cli.options import configure

    kept = asyncio.run(set_paused(configure(location), name, is_paused=is_paused))
    print_paused(kept, as_json=as_json)
    return exits.OK


for _command, _example in (
    (add_schedule, "runnel schedule add nightly report.yaml --cron '0 3 * * *' --overlap skip"),
    (list_schedules, "runnel schedule list"),
    (show_schedule, "runnel schedule show nightly"),
    (pause_schedule, "runnel schedule pause nightly"),
    (resume_schedule, "runnel schedule resume nightly"),
    (remove_schedule, "runnel schedule remove nightly"),
    (next_schedule, "runnel schedule next nightly --count 3"),
):
    app.command(
        _command.__name__.partition("_")[0],
        epilog=f"Example:  [bold]{_example}[/bold]",
    )(_command)


# Schedules for the commands: made from what was typed, loaded, and shown.

FILE_SUFFIXES = (".yaml", ".yml", ".json", ".py")
ERROR_CHARS_MAX = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleArguments:
    """What the command line says about a new schedule."""

    name: str
    workflow: str
    version: int | None
    cron: str | None
    every: str | None
    timezone: str
    assignments: Sequence[str]
    input_file: str | None
    labels: Sequence[str]
    overlap: str
    catch_up: int
    starts_at: str | None
    ends_at: str | None
    is_paused: bool

    def to_schedule(self, workflow: str, own_labels: dict[str, str]) -> Schedule:
        """Raises InputError."""
        if self.overlap not in list(Overlap):
            raise InputError(
                f"--overlap: expected allow, skip or cancel, got {quote_name(self.overlap)}"
            )
        if (self.cron is None) == (self.every is None):
            both = "not both" if self.cron is not None else "got neither"
            raise InputError(f"give either --cron or --every, {both}")
        try:
            zone = load_zone(self.timezone)
        except UnknownZoneError as error:
            raise InputError(f"--timezone: {error}") from error
        starts, ends = self.starts_at, self.ends_at
        return Schedule(
            id=self.name,
            workflow=workflow,
            version=self.version,
            input=read_input(self.input_file, self.assignments),
            labels=read_labels(self.labels),
            cron=self.cron,
            interval_s=None if self.every is None else parse_duration(self.every, "--every"),
            timezone=self.timezone,
            overlap=Overlap(self.overlap),
            catch_up=self.catch_up,
            is_paused=self.is_paused,
            starts_at=None if starts is None else parse_time(starts, "--starts-at", zone),
            ends_at=None if ends is None else parse_time(ends, "--ends-at", zone),
            own_labels=own_labels,
        )


async def add_from_arguments(settings: Settings, arguments: ScheduleArguments) -> ScheduleView:
    """A workflow that is a file is stored, too; nothing is when something is wrong."""
    file = Path(arguments.workflow)
    workflow: Workflow | None = None
    own_labels: dict[str, str] = {}
    if arguments.workflow.partition(":")[0].endswith(FILE_SUFFIXES):
        workflow, own_labels = _load_workflow(file, settings)
    name = arguments.workflow if workflow is None else workflow.name
    schedule = arguments.to_schedule(name, own_labels)
    check_schedule(schedule, RealClock().now())
    if workflow is not None:
        async with open_client(settings, creates_data_dir=True) as session:
            await session.client.library.store(workflow)
    async with open_schedules(settings) as schedules:
        return await schedules.add(schedule)


async def load_page(settings: Settings, limit: int) -> Sequence[ScheduleView]:
    """Nothing where nothing was ever run."""
    if not has_data(settings):
        return ()
    async with open_schedules(settings) as schedules:
        return await schedules.list(limit=limit)


async def load_schedule(settings: Settings, name: str) -> ScheduleView:
    async with open_schedules(settings) as schedules:
        return await schedules.get(name)


async def set_paused(settings: Settings, name: str, *, is_paused: bool) -> ScheduleView:
    async with open_schedules(settings) as schedules:
        return await schedules.pause(name, is_paused=is_paused)


async def delete_schedule(settings: Settings, name: str) -> None:
    async with open_schedules(settings) as schedules:
        await schedules.remove(name)


def print_added(kept: ScheduleView, *, is_remote: bool, as_json: bool) -> None:
    if as_json:
        print(to_compact_json(build_document(kept)))
        return
    by = "an orchestrator" if is_remote else "'runnel dev'"
    print(f"schedule '{kept.id}' runs '{kept.workflow}' {_format_when(kept)}")
    _print_next_tick(kept, f"while {by} is running")


def print_paused(kept: ScheduleView, *, as_json: bool) -> None:
    if as_json:
        print(to_compact_json(build_document(kept)))
        return
    what = "is paused" if kept.is_paused else "goes on"
    print(f"schedule '{kept.id}' {what}")
    _print_next_tick(kept, "")


def print_page(page: Sequence[ScheduleView], limit: int, *, as_json: bool) -> None:
    if as_json:
        for kept in page:
            print(to_compact_json(build_document(kept)))
        return
    if not page:
        print("no schedules; make one with: runnel schedule add NAME WORKFLOW --cron '0 3 * * *'")
        return
    rows = [
        [
            Cell(kept.id, "bold"),
            Cell(kept.workflow),
            Cell(_format_when(kept)),
            Cell(_format_next_tick(kept)),
            Cell(str(kept.fired), "dim"),
            Cell(shorten(kept.last_error or "", ERROR_CHARS_MAX), "red"),
        ]
        for kept in page
    ]
    print_table(["NAME", "WORKFLOW", "WHEN", "NEXT", "FIRED", "PROBLEM"], rows)
    if len(page) == limit:
        print(f"(the first {limit}; --limit shows more)")


def print_schedule(kept: ScheduleView, *, as_json: bool) -> None:
    if as_json:
        print(to_compact_json(build_document(kept)))
        return
    print_styled([Cell(kept.id, "bold")])
    for name, text in _list_facts(kept):
        print_styled([Cell(f"  {name:<10}", "dim"), Cell(text)])
    if kept.input:
        print_styled([Cell("\ninput", "dim")])
        print(to_pretty_json(kept.input))


def print_next_ticks(kept: ScheduleView, count: int, *, as_json: bool) -> None:
    ticks = _list_next_ticks(kept, count)
    if as_json:
        print(to_compact_json({"id": kept.id, "next_ticks": ticks}))
    elif not ticks:
        print(f"none: schedule '{kept.id}' {_format_next_tick(kept)}")
    for tick in ticks if not as_json else ():
        print(tick)


def _load_workflow(file: Path, settings: Settings) -> tuple[Workflow, dict[str, str]]:
    """What `runnel run` would do with it; and where an embedded engine finds its functions."""
    workflow = load_valid_workflow(file, settings)
    if settings.has_redis:
        return workflow, {}
    folder = get_import_folder(file)
    make_importable([folder])
    with reserve_stdout():
        check_functions(workflow, file, settings)
    return workflow, {SOURCE_LABEL: str(folder)}


def _list_next_ticks(kept: ScheduleView, count: int) -> list[str]:
    """The view has the first few: those after them follow from the schedule."""
    if count <= len(kept.next_ticks) or not kept.next_ticks:
        return list(kept.next_ticks[:count])
    schedule = kept.schedule
    last = datetime.fromisoformat(kept.next_ticks[-1]).timestamp()
    rest = compute_next_ticks(schedule, last, count - len(kept.next_ticks))
    return [*kept.next_ticks, *(format_in_zone(schedule, tick) for tick in rest)]


def _print_next_tick(kept: ScheduleView, where: str) -> None:
    if kept.next_ticks:
        print(f"next: {kept.next_ticks[0]} {where}".rstrip())


def _format_when(schedule: ScheduleView) -> str:
    if schedule.interval_s is not None:
        return f"every {format_duration(schedule.interval_s)}"
    zone = "" if schedule.timezone == "UTC" else f" {schedule.timezone}"
    return f"at '{schedule.cron}'{zone}"


def _format_next_tick(kept: ScheduleView) -> str:
    if kept.is_paused:
        return "is paused"
    return kept.next_ticks[0] if kept.next_ticks else "has ended"


def _list_facts(kept: ScheduleView) -> list[tuple[str, str]]:
    version = "" if kept.version is None else f", version {kept.version}"
    last = "" if kept.last_tick is None else format_local_time(kept.last_tick)
    skipped = f"{kept.skipped:,} skipped" if kept.skipped else ""
    missed = f"{kept.missed:,} missed" if kept.missed else ""
    failed = f"{kept.failed:,} failed" if kept.failed else ""
    counts = [f"{kept.fired:,} fired", skipped, missed, failed]
    facts = [
        ("workflow", kept.workflow + version),
        ("when", _format_when(kept)),
        ("overlap", f"{kept.overlap}, catch-up {kept.catch_up}"),
        ("labels", format_labels(kept.labels)),
        ("next", _format_next_tick(kept)),
        ("last", f"{last} {kept.last_execution_id or ''}".strip()),
        ("ticks", ", ".join(text for text in counts if text)),
        ("problem", kept.last_error or ""),
    ]
    return [(name, text) for name, text in facts if text]
