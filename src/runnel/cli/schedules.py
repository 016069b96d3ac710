"""Schedules for the commands: made from what was typed, loaded, and shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runnel.cli.documents import check_functions, folder_of, load_graph, make_importable
from runnel.cli.inputs import read_input, read_labels
from runnel.cli.moments import parse_duration, parse_moment
from runnel.cli.opening import has_data, keeping_schedules, looking
from runnel.cli.streams import results
from runnel.cli.tables import Cell, print_styled, print_table
from runnel.cli.words import compact, duration, local_time, pretty, short, shown_labels
from runnel.core.checks.wording import quoted
from runnel.core.workflow import Workflow
from runnel.errors import InputError
from runnel.runtime.clock import RealClock
from runnel.runtime.sources import SOURCE_LABEL
from runnel.settings import Settings
from runnel.triggers.checking import check_schedule
from runnel.triggers.documents import coming, in_zone, schedule_document
from runnel.triggers.schedule import KeptSchedule, Overlap, Schedule
from runnel.triggers.zones import UnknownZoneError, zone_of

FILES = (".yaml", ".yml", ".json", ".py")
ERROR_CHARS = 80
Seen = tuple[KeptSchedule, float]
"""A schedule, and when it was looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
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

    def schedule(self, workflow: str, own_labels: dict[str, str]) -> Schedule:
        """Raises InputError."""
        if self.overlap not in list(Overlap):
            raise InputError(
                f"--overlap: expected allow, skip or cancel, got {quoted(self.overlap)}"
            )
        if (self.cron is None) == (self.every is None):
            both = "not both" if self.cron is not None else "got neither"
            raise InputError(f"give either --cron or --every, {both}")
        try:
            zone = zone_of(self.timezone)
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
            starts_at=None if starts is None else parse_moment(starts, "--starts-at", zone),
            ends_at=None if ends is None else parse_moment(ends, "--ends-at", zone),
            own_labels=own_labels,
        )


async def add(settings: Settings, wanted: Wanted) -> Seen:
    """A workflow that is a file is stored, too; nothing is when something is wrong."""
    file = Path(wanted.workflow)
    workflow: Workflow | None = None
    own_labels: dict[str, str] = {}
    if wanted.workflow.partition(":")[0].endswith(FILES):
        workflow, own_labels = _loaded(file, settings)
    name = wanted.workflow if workflow is None else workflow.name
    schedule = wanted.schedule(name, own_labels)
    check_schedule(schedule, RealClock().now())
    if workflow is not None:
        async with looking(settings, is_made=True) as look:
            await look.client.library.store(workflow)
    async with keeping_schedules(settings) as (schedules, clock):
        return await schedules.add(schedule), clock.now()


async def load_page(settings: Settings, limit: int) -> tuple[Sequence[KeptSchedule], float]:
    """Nothing where nothing was ever run."""
    if not has_data(settings):
        return (), 0.0
    async with keeping_schedules(settings) as (schedules, clock):
        return await schedules.list(limit=limit), clock.now()


async def load_one(settings: Settings, name: str) -> Seen:
    async with keeping_schedules(settings) as (schedules, clock):
        return (await schedules.get(name)).kept, clock.now()


async def pause(settings: Settings, name: str, *, is_paused: bool) -> Seen:
    async with keeping_schedules(settings) as (schedules, clock):
        return await schedules.pause(name, is_paused=is_paused), clock.now()


async def remove(settings: Settings, name: str) -> None:
    async with keeping_schedules(settings) as (schedules, _clock):
        await schedules.remove(name)


def print_added(kept: KeptSchedule, now: float, *, is_remote: bool, as_json: bool) -> None:
    if as_json:
        print(compact(schedule_document(kept, now)))
        return
    by = "an orchestrator" if is_remote else "'runnel dev'"
    print(f"schedule '{kept.schedule.id}' runs '{kept.schedule.workflow}' {_when(kept.schedule)}")
    _print_next_one(kept, now, f"while {by} is running")


def print_paused(kept: KeptSchedule, now: float, *, as_json: bool) -> None:
    if as_json:
        print(compact(schedule_document(kept, now)))
        return
    what = "is paused" if kept.schedule.is_paused else "goes on"
    print(f"schedule '{kept.schedule.id}' {what}")
    _print_next_one(kept, now, "")


def print_page(page: Sequence[KeptSchedule], now: float, limit: int, *, as_json: bool) -> None:
    if as_json:
        for kept in page:
            print(compact(schedule_document(kept, now)))
        return
    if not page:
        print("no schedules; make one with: runnel schedule add NAME WORKFLOW --cron '0 3 * * *'")
        return
    rows = [
        [
            Cell(kept.schedule.id, "bold"),
            Cell(kept.schedule.workflow),
            Cell(_when(kept.schedule)),
            Cell(_state(kept, now)),
            Cell(str(kept.progress.fired), "dim"),
            Cell(short(kept.progress.last_error or "", ERROR_CHARS), "red"),
        ]
        for kept in page
    ]
    print_table(["NAME", "WORKFLOW", "WHEN", "NEXT", "FIRED", "PROBLEM"], rows)
    if len(page) == limit:
        print(f"(the first {limit}; --limit shows more)")


def print_one(kept: KeptSchedule, now: float, *, as_json: bool) -> None:
    if as_json:
        print(compact(schedule_document(kept, now)))
        return
    print_styled([Cell(kept.schedule.id, "bold")])
    for name, text in _facts(kept, now):
        print_styled([Cell(f"  {name:<10}", "dim"), Cell(text)])
    if kept.schedule.input:
        print_styled([Cell("\ninput", "dim")])
        print(pretty(kept.schedule.input))


def print_next(kept: KeptSchedule, now: float, count: int, *, as_json: bool) -> None:
    ticks = [in_zone(kept.schedule, tick) for tick in coming(kept, now, count)]
    if as_json:
        print(compact({"id": kept.schedule.id, "next_ticks": ticks}))
    elif not ticks:
        print(f"none: schedule '{kept.schedule.id}' {_state(kept, now)}")
    for tick in ticks if not as_json else ():
        print(tick)


def _loaded(file: Path, settings: Settings) -> tuple[Workflow, dict[str, str]]:
    """What `runnel run` would do with it; and where an embedded engine finds its functions."""
    workflow = load_graph(file, settings).workflow
    if settings.has_redis:
        return workflow, {}
    folder = folder_of(file)
    make_importable([folder])
    with results():
        check_functions(workflow, file, settings)
    return workflow, {SOURCE_LABEL: str(folder)}


def _print_next_one(kept: KeptSchedule, now: float, where: str) -> None:
    ticks = coming(kept, now, 1)
    if ticks:
        print(f"next: {in_zone(kept.schedule, ticks[0])} {where}".rstrip())


def _when(schedule: Schedule) -> str:
    if schedule.interval_s is not None:
        return f"every {duration(schedule.interval_s)}"
    zone = "" if schedule.timezone == "UTC" else f" {schedule.timezone}"
    return f"at '{schedule.cron}'{zone}"


def _state(kept: KeptSchedule, now: float) -> str:
    if kept.schedule.is_paused:
        return "is paused"
    ticks = coming(kept, now, 1)
    return in_zone(kept.schedule, ticks[0]) if ticks else "has ended"


def _facts(kept: KeptSchedule, now: float) -> list[tuple[str, str]]:
    schedule, progress = kept.schedule, kept.progress
    version = "" if schedule.version is None else f", version {schedule.version}"
    last = "" if progress.last_tick is None else local_time(progress.last_tick)
    skipped = f"{progress.skipped:,} skipped" if progress.skipped else ""
    missed = f"{progress.missed:,} missed" if progress.missed else ""
    failed = f"{progress.failed:,} failed" if progress.failed else ""
    counts = [f"{progress.fired:,} fired", skipped, missed, failed]
    facts = [
        ("workflow", schedule.workflow + version),
        ("when", _when(schedule)),
        ("overlap", f"{schedule.overlap}, catch-up {schedule.catch_up}"),
        ("labels", shown_labels(schedule.labels)),
        ("next", _state(kept, now)),
        ("last", f"{last} {progress.last_execution or ''}".strip()),
        ("ticks", ", ".join(text for text in counts if text)),
        ("problem", progress.last_error or ""),
    ]
    return [(name, text) for name, text in facts if text]
