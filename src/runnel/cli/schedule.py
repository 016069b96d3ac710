"""`runnel schedule add|list|show|pause|resume|remove|next`"""

from typing import Annotated, TypeAlias

import typer

from runnel.cli import exits
from runnel.cli.completion import complete_workflow
from runnel.cli.groups import group
from runnel.cli.options import AsJson, DataDir, Place, RedisUrl, Server
from runnel.cli.run import Assignments, InputFile, Labels

app = group(
    "Schedules: workflows that are run by the clock.",
    begin="runnel schedule add nightly report.yaml --cron '0 3 * * *'",
)

Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the schedule.", show_default=False)
]
OfWorkflow: TypeAlias = Annotated[
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
Every: TypeAlias = Annotated[
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
OnOverlap: TypeAlias = Annotated[
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
Paused: TypeAlias = Annotated[bool, typer.Option("--paused", help="Fire nothing until resumed.")]


def add_schedule(
    name: Name,
    workflow: OfWorkflow,
    *,
    cron: Cron = None,
    every: Every = None,
    timezone: Timezone = "UTC",
    version: Version = None,
    assignments: Assignments = None,
    input_file: InputFile = None,
    labels: Labels = None,
    overlap: OnOverlap = "allow",
    catch_up: CatchUp = 1,
    starts_at: StartsAt = None,
    ends_at: EndsAt = None,
    is_paused: Paused = False,
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
    from runnel.cli.schedules import Wanted, add, print_added

    place = Place(data_dir, redis_url, server)
    settings = configure(place)
    wanted = Wanted(
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
    kept, now = asyncio.run(add(settings, wanted))
    print_added(kept, now, is_remote=settings.has_redis, as_json=as_json)
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
    from runnel.cli.schedules import load_page, print_page

    page, now = asyncio.run(load_page(configure(Place(data_dir, redis_url, server)), limit))
    print_page(page, now, limit, as_json=as_json)
    return exits.OK


def show_schedule(
    name: Name,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Show one schedule: what it runs, when next, and what became of the last tick."""
    import asyncio

    from runnel.cli.options import configure
    from runnel.cli.schedules import load_one, print_one

    kept, now = asyncio.run(load_one(configure(Place(data_dir, redis_url, server)), name))
    print_one(kept, now, as_json=as_json)
    return exits.OK


def pause_schedule(
    name: Name,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Fire nothing until it is resumed; what runs goes on."""
    return _pause(name, Place(data_dir, redis_url, server), is_paused=True, as_json=as_json)


def resume_schedule(
    name: Name,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Go on with the next tick from now on: what fell into the pause is not made up for."""
    return _pause(name, Place(data_dir, redis_url, server), is_paused=False, as_json=as_json)


def remove_schedule(
    name: Name, *, data_dir: DataDir = None, redis_url: RedisUrl = None, server: Server = None
) -> int:
    """Remove a schedule for good; what it has started stays, and goes on."""
    import asyncio

    from runnel.cli.options import configure
    from runnel.cli.schedules import remove

    asyncio.run(remove(configure(Place(data_dir, redis_url, server)), name))
    print(f"schedule '{name}' is removed")
    return exits.OK


def next_schedule(
    name: Name,
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
    from runnel.cli.schedules import load_one, print_next

    kept, now = asyncio.run(load_one(configure(Place(data_dir, redis_url, server)), name))
    print_next(kept, now, count, as_json=as_json)
    return exits.OK


def _pause(name: str, place: Place, *, is_paused: bool, as_json: bool) -> int:
    import asyncio

    from runnel.cli.options import configure
    from runnel.cli.schedules import pause, print_paused

    kept, now = asyncio.run(pause(configure(place), name, is_paused=is_paused))
    print_paused(kept, now, as_json=as_json)
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
