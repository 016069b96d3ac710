"""`runnel schedule add|list|show|pause|resume|remove|next`"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from runnel.authoring.functions import SOURCE_LABEL
from runnel.cli.command_group import make_command_group
from runnel.cli.options import (
    AsJson,
    Assignments,
    InputFile,
    Labels,
    Limit,
    StoreLocation,
    WorkflowVersion,
    complete_workflow,
    configure,
    parse_duration,
    parse_time,
    read_labels,
)
from runnel.cli.render.printer import (
    print_facts,
    print_json_lines,
    print_list,
    print_value_section,
)
from runnel.cli.render.text import (
    Cell,
    format_duration,
    format_labels,
    format_local_time,
    shorten,
    to_compact_json,
)
from runnel.cli.session.inputs import (
    check_functions,
    get_import_folder,
    is_workflow_file,
    load_valid_workflow,
    make_importable,
    read_input,
)
from runnel.cli.session.open_client import has_data, open_client, open_schedules
from runnel.cli.streams import reserve_stdout
from runnel.core.message_text import quote_name
from runnel.core.workflow import Workflow
from runnel.engine.clock import RealClock
from runnel.errors import InputError
from runnel.settings.model import Settings
from runnel.triggers.cron import UnknownZoneError, compute_next_ticks, load_zone
from runnel.triggers.schedule_checks import check_schedule
from runnel.triggers.schedule_store import format_in_zone
from runnel.views.trigger import Overlap, Schedule, ScheduleView

ERROR_CHARS_MAX = 80

ScheduleName: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the schedule.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleArguments:
    """A new schedule as the user typed it."""

    name: ScheduleName
    workflow: Annotated[
        str,
        typer.Argument(
            metavar="WORKFLOW",
            help="The name of a stored workflow, or a workflow file, which is then stored.",
            autocompletion=complete_workflow,
        ),
    ]
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="FIELDS",
            help="The times of the ticks, as minute hour day month weekday: '0 3 * * *'. Also "
            "@hourly, @daily, @weekly, …",
        ),
    ] = None
    every: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="The interval between two ticks: 90s, 10m, 1h30m."),
    ] = None
    timezone: Annotated[
        str,
        typer.Option(metavar="ZONE", help="The time zone of the schedule, such as Europe/Berlin."),
    ] = "UTC"
    version: WorkflowVersion = None
    assignments: Assignments = None
    input_file: InputFile = None
    labels: Labels = None
    overlap: Annotated[
        str,
        typer.Option(
            metavar="allow|skip|cancel",
            help="The effect of a tick while the last execution still runs: start another "
            "execution, skip the tick, or cancel the last execution first.",
        ),
    ] = "allow"
    catch_up: Annotated[
        int,
        typer.Option(
            metavar="N", help="The largest number of missed ticks that fire after an outage."
        ),
    ] = 1
    starts_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="The time before which no tick fires.")
    ] = None
    ends_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="The time after which no tick fires.")
    ] = None
    is_paused: Annotated[
        bool,
        typer.Option(
            "--paused", help="Add the schedule paused: no tick fires before 'schedule resume'."
        ),
    ] = False

    def to_schedule(self, workflow: str, own_labels: dict[str, str]) -> Schedule:
        """Returns the schedule that the user described; raises InputError."""
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
            input=read_input(self.input_file, self.assignments or []),
            labels=read_labels(self.labels or []),
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


async def add_schedule(
    *, arguments: ScheduleArguments, as_json: AsJson = False, location: StoreLocation
) -> None:
    """Add a schedule that runs a workflow by the clock.

    A value of the input may use the tick: [bold]--input 'day={{ tick.date }}'[/bold]. A tick has
    the fields at, local, date, time and timestamp.

    Each tick fires once, however many orchestrators run.
    """
    settings = configure(location)
    view = await _store_schedule(settings, arguments)
    if as_json:
        print_json_lines([view])
        return
    scheduler = "an orchestrator" if settings.has_redis else "'runnel dev'"
    print(f"schedule '{view.id}' runs '{view.workflow}' {_format_when(view)}")
    _print_next_tick(view, f"while {scheduler} is running")


async def list_schedules(
    *, limit: Limit = 50, as_json: AsJson = False, location: StoreLocation
) -> None:
    """List all schedules by name."""
    settings = configure(location)
    views: Sequence[ScheduleView] = ()
    if has_data(settings):
        async with open_schedules(settings) as schedules:
            views = await schedules.list(limit=limit)
    print_list(
        views,
        ["NAME", "WORKFLOW", "WHEN", "NEXT", "FIRED", "PROBLEM"],
        _build_row,
        as_json=as_json,
        empty="no schedules; make one with: runnel schedule add NAME WORKFLOW --cron '0 3 * * *'",
        limit=limit,
    )


async def show_schedule(
    name: ScheduleName, *, as_json: AsJson = False, location: StoreLocation
) -> None:
    """Show one schedule: its workflow, its next tick and the result of the last tick."""
    async with open_schedules(configure(location)) as schedules:
        view = await schedules.get(name)
    if as_json:
        print_json_lines([view])
        return
    print_facts([Cell(view.id, "bold")], _list_facts(view))
    print_value_section("input", view.input or None)


async def pause_schedule(
    name: ScheduleName, *, as_json: AsJson = False, location: StoreLocation
) -> None:
    """Pause a schedule: no tick fires until the schedule is resumed.

    Executions that the schedule has started continue.
    """
    await _set_paused(name, location, is_paused=True, as_json=as_json)


async def resume_schedule(
    name: ScheduleName, *, as_json: AsJson = False, location: StoreLocation
) -> None:
    """Resume a paused schedule with the next tick.

    Ticks that fell into the pause do not fire.
    """
    await _set_paused(name, location, is_paused=False, as_json=as_json)


async def _set_paused(
    name: str, location: StoreLocation, *, is_paused: bool, as_json: bool
) -> None:
    async with open_schedules(configure(location)) as schedules:
        view = await schedules.pause(name, is_paused=is_paused)
    if as_json:
        print_json_lines([view])
        return
    print(f"schedule '{view.id}' {'is paused' if view.is_paused else 'is resumed'}")
    _print_next_tick(view, "")


async def remove_schedule(name: ScheduleName, *, location: StoreLocation) -> None:
    """Remove a schedule for good; executions that the schedule has started continue."""
    async with open_schedules(configure(location)) as schedules:
        await schedules.remove(name)
    print(f"schedule '{name}' is removed")


async def next_schedule(
    name: ScheduleName,
    *,
    count: Annotated[
        int, typer.Option(min=1, max=1_000, help="The number of ticks to print.")
    ] = 10,
    as_json: AsJson = False,
    location: StoreLocation,
) -> None:
    """Print the next ticks of a schedule in its time zone."""
    async with open_schedules(configure(location)) as schedules:
        view = await schedules.get(name)
    ticks = _list_next_ticks(view, count)
    if as_json:
        print(to_compact_json({"id": view.id, "next_ticks": ticks}))
    elif ticks:
        print("\n".join(ticks))
    else:
        print(f"none: schedule '{view.id}' {_format_next_tick(view)}")


app = make_command_group(
    "Run workflows on a schedule.",
    first_command="runnel schedule add nightly report.yaml --cron '0 3 * * *'",
    commands={
        "add": (
            add_schedule,
            "runnel schedule add nightly report.yaml --cron '0 3 * * *' --overlap skip",
        ),
        "list": (list_schedules, "runnel schedule list"),
        "show": (show_schedule, "runnel schedule show nightly"),
        "pause": (pause_schedule, "runnel schedule pause nightly"),
        "resume": (resume_schedule, "runnel schedule resume nightly"),
        "remove": (remove_schedule, "runnel schedule remove nightly"),
        "next": (next_schedule, "runnel schedule next nightly --count 3"),
    },
)


async def _store_schedule(settings: Settings, arguments: ScheduleArguments) -> ScheduleView:
    """Stores the schedule, and its workflow if the user named a file; returns the schedule.

    Checks both before it stores either.
    """
    workflow: Workflow | None = None
    own_labels: dict[str, str] = {}
    if is_workflow_file(arguments.workflow):
        workflow, own_labels = _load_workflow(Path(arguments.workflow), settings)
    name = arguments.workflow if workflow is None else workflow.name
    schedule = arguments.to_schedule(name, own_labels)
    check_schedule(schedule, RealClock().now())
    if workflow is not None:
        async with open_client(settings, creates_data_dir=True) as session:
            await session.client.library.store(workflow)
    async with open_schedules(settings) as schedules:
        return await schedules.add(schedule)


def _load_workflow(file: Path, settings: Settings) -> tuple[Workflow, dict[str, str]]:
    """Loads and checks a workflow file; returns the workflow and the labels of its executions.

    The label names the folder from which an embedded engine imports the functions.
    """
    workflow = load_valid_workflow(file, settings)
    if settings.has_redis:
        return workflow, {}
    folder = get_import_folder(file)
    make_importable([folder])
    with reserve_stdout():
        check_functions(workflow, file, settings)
    return workflow, {SOURCE_LABEL: str(folder)}


def _list_next_ticks(view: ScheduleView, count: int) -> list[str]:
    """Returns the next `count` ticks: the first ones from the view, the later ones computed."""
    if count <= len(view.next_ticks) or not view.next_ticks:
        return list(view.next_ticks[:count])
    schedule = view.schedule
    last = datetime.fromisoformat(view.next_ticks[-1]).timestamp()
    later = compute_next_ticks(schedule, last, count - len(view.next_ticks))
    return [*view.next_ticks, *(format_in_zone(schedule, tick) for tick in later)]


def _print_next_tick(view: ScheduleView, condition: str) -> None:
    if view.next_ticks:
        print(f"next: {view.next_ticks[0]} {condition}".rstrip())


def _format_when(view: ScheduleView) -> str:
    if view.interval_s is not None:
        return f"every {format_duration(view.interval_s)}"
    zone = "" if view.timezone == "UTC" else f" {view.timezone}"
    return f"at '{view.cron}'{zone}"


def _format_next_tick(view: ScheduleView) -> str:
    if view.is_paused:
        return "is paused"
    return view.next_ticks[0] if view.next_ticks else "has ended"


def _build_row(view: ScheduleView) -> list[Cell]:
    return [
        Cell(view.id, "bold"),
        Cell(view.workflow),
        Cell(_format_when(view)),
        Cell(_format_next_tick(view)),
        Cell(str(view.fired), "dim"),
        Cell(shorten(view.last_error or "", ERROR_CHARS_MAX), "red"),
    ]


def _list_facts(view: ScheduleView) -> Iterator[tuple[str, str]]:
    yield "workflow", view.workflow + ("" if view.version is None else f", version {view.version}")
    yield "when", _format_when(view)
    yield "overlap", f"{view.overlap}, catch-up {view.catch_up}"
    yield "labels", format_labels(view.labels)
    yield "next", _format_next_tick(view)
    last = "" if view.last_tick is None else format_local_time(view.last_tick)
    yield "last", f"{last} {view.last_execution_id or ''}".strip()
    counts = {"skipped": view.skipped, "missed": view.missed, "failed": view.failed}
    other_counts = [f"{number:,} {name}" for name, number in counts.items() if number]
    yield "ticks", ", ".join([f"{view.fired:,} fired", *other_counts])
    yield "problem", view.last_error or ""
