"""`runnel dlq list|show|retry|purge`"""

from typing import Annotated, TypeAlias

import typer

from runnel.cli import exits
from runnel.cli.groups import group
from runnel.cli.options import AsJson, DataDir, Place, RedisUrl, Server, finite
from runnel.cli.run import AsJsonResult, Concurrency

app = group(
    "Dead letters: tasks that failed in a way that a person has to look at.",
    begin="runnel dlq list",
)

Name: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A dead letter, as listed: execution/node. The first characters of the execution do.",
        show_default=False,
    ),
]
Names: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Dead letters, as listed.", show_default=False),
]
Queue: TypeAlias = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAME", help="Only those of this queue.", show_default=False),
]
OfWorkflow: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--workflow", metavar="NAME", help="Only those of this workflow.", show_default=False
    ),
]
IsAll: TypeAlias = Annotated[bool, typer.Option("--all", help="All of them.")]


def list_letters(
    *,
    queue: Queue = None,
    workflow: OfWorkflow = None,
    is_counted: Annotated[
        bool, typer.Option("--count", help="Print only how many there are.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """List dead letters, the newest first, or count them."""
    import asyncio

    from runnel.cli.letters import load_count, load_page, print_count, print_page
    from runnel.cli.options import configure
    from runnel.operations.queues import queue_key
    from runnel.ports.archive import LetterFilter

    settings = configure(Place(data_dir, redis_url, server))
    wanted = LetterFilter(queue=queue_key(queue), workflow=workflow, limit=limit)
    if is_counted:
        print_count(asyncio.run(load_count(settings, wanted)), as_json=as_json)
    else:
        print_page(asyncio.run(load_page(settings, wanted)), limit, as_json=as_json)
    return exits.OK


def show_letter(
    name: Name,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Show one dead letter: its config, its error with the traceback, and how to go on."""
    import asyncio

    from runnel.cli.hints import Hints
    from runnel.cli.letters import load_one, print_one
    from runnel.cli.options import configure

    place = Place(data_dir, redis_url, server)
    settings = configure(place)
    letter, header = asyncio.run(load_one(settings, name))
    print_one(letter, header, Hints(place, settings.is_remote), as_json=as_json)
    return exits.OK


def retry_letters(
    names: Names = None,
    *,
    is_all: IsAll = False,
    queue: Queue = None,
    workflow: OfWorkflow = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Of --all, only the N oldest ones.", show_default=False
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="Changes a value of its config (repeated).",
            show_default=False,
        ),
    ] = None,
    payload_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Its whole config, as JSON or YAML; - reads stdin.",
            show_default=False,
        ),
    ] = None,
    is_edited: Annotated[
        bool, typer.Option("--edit", help="Change its config in $EDITOR first.")
    ] = False,
    concurrency: Concurrency = None,
    as_json: AsJsonResult = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Run what failed again, as a new execution that takes over what had completed.

    All dead letters of an execution are retried together, and are gone then.
    """
    from runnel.cli.hints import Hints
    from runnel.cli.letter_configs import Change
    from runnel.cli.letter_retries import retry
    from runnel.cli.letters import Choice
    from runnel.cli.options import configure

    place = Place(data_dir, redis_url, server)
    settings = configure(place, concurrency=concurrency)
    choice = Choice(names=names or [], is_all=is_all, queue=queue, workflow=workflow, oldest=count)
    change = Change(assignments or [], payload_file, is_edited=is_edited)
    return retry(choice, change, settings, Hints(place, settings.is_remote), as_json=as_json)


def purge_letters(
    names: Names = None,
    *,
    is_all: IsAll = False,
    queue: Queue = None,
    workflow: OfWorkflow = None,
    days: Annotated[
        float | None,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            min=0,
            callback=finite,
            help="Only those rejected longer ago.",
            show_default=False,
        ),
    ] = None,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Remove dead letters for good; their executions stay as they are."""
    from runnel.cli.letter_purge import purge
    from runnel.cli.letters import Choice
    from runnel.cli.options import configure

    settings = configure(Place(data_dir, redis_url, server))
    choice = Choice(
        names=names or [], is_all=is_all, queue=queue, workflow=workflow, older_than_days=days
    )
    return purge(choice, settings, is_sure=is_sure)


for _command, _example in (
    (list_letters, "runnel dlq list --queue python"),
    (show_letter, "runnel dlq show 01m7gj/parse"),
    (retry_letters, "runnel dlq retry 01m7gj/parse --config year=2026"),
    (purge_letters, "runnel dlq purge --older-than 30"),
):
    app.command(
        _command.__name__.partition("_")[0],
        epilog=f"Example:  [bold]{_example}[/bold]",
    )(_command)
