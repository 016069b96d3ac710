"""`runnel dlq list|show|retry|purge`"""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import typer

from runnel.app.run import SOURCE_LABEL
from runnel.app.stores import Look
from runnel.authoring.documents.files import read_data
from runnel.authoring.documents.yaml import write_yaml
from runnel.authoring.input_schema import parse_assignments
from runnel.cli import errors as exits
from runnel.cli.commands.run import AsJsonResult, Concurrency
from runnel.cli.errors import group, results
from runnel.cli.options import AsJson, DataDir, Place, RedisUrl, Server, ask, finite
from runnel.cli.render.text import (
    DAY_S,
    LOOKS,
    Cell,
    compact,
    count,
    local_time,
    pretty,
    print_styled,
    print_table,
)
from runnel.cli.session.follow import Begun, run_several_here
from runnel.cli.session.hints import Hints
from runnel.cli.session.inputs import lay_over, make_importable, read_value
from runnel.cli.session.open_client import has_data, looking
from runnel.client.dead_letters import (
    all_letters,
    check_editable,
    find_letter,
    letter_document,
    letters_of,
    name_of,
    retry_each,
)
from runnel.client.operations import queue_key, queue_name
from runnel.client.store_client import Client
from runnel.core.effects import DeadLetter
from runnel.core.ids import ExecutionId, root_of
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.ports.archive import Archive, LetterFilter
from runnel.ports.store import Header
from runnel.settings.model import Settings

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

    from runnel.cli.options import configure
    from runnel.client.operations import queue_key
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

    from runnel.cli.options import configure
    from runnel.cli.session.hints import Hints

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
    from runnel.cli.options import configure
    from runnel.cli.session.hints import Hints

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


# Dead letters for the commands: found, listed and shown.


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the command line says about which letters are meant."""

    names: Sequence[str]
    is_all: bool
    queue: str | None
    workflow: str | None
    oldest: int | None = None
    older_than_days: float | None = None

    @property
    def has_filter(self) -> bool:
        chosen = (self.queue, self.workflow, self.older_than_days)
        return any(each is not None for each in chosen)

    async def letters(self, look: Look) -> list[DeadLetter]:
        """Oldest first; raises NotFoundError for a name, InputError for a contradiction."""
        if self.names:
            archive = look.backend.archive
            return [await find_letter(archive, name) for name in dict.fromkeys(self.names)]
        days = self.older_than_days or 0.0
        wanted = LetterFilter(
            queue=queue_key(self.queue),
            workflow=self.workflow,
            before=look.clock.now() - days * DAY_S,
        )
        found = [each async for each in all_letters(look.backend.archive, wanted)]
        return found[::-1][: self.oldest]

    def check(self, *, needs_all: bool) -> None:
        """Raises InputError unless it says what is meant, and only once."""
        rest = self.is_all or self.has_filter or self.oldest is not None
        if self.names and rest:
            raise InputError("give the names of dead letters, or --all and filters; not both")
        if not self.names and not self.is_all and (needs_all or not self.has_filter):
            filters = "" if needs_all else " or a filter"
            raise InputError(f"give the names of dead letters, or --all{filters}")


async def load_page(settings: Settings, wanted: LetterFilter) -> Sequence[DeadLetter]:
    """Nothing where nothing was ever run."""
    if not has_data(settings):
        return ()
    async with looking(settings) as look:
        return await look.backend.archive.list_dead_letters(wanted)


async def load_count(settings: Settings, wanted: LetterFilter) -> int:
    if not has_data(settings):
        return 0
    async with looking(settings) as look:
        return await look.backend.archive.count_dead_letters(wanted)


async def load_one(settings: Settings, name: str) -> tuple[DeadLetter, Header | None]:
    """With the execution that can be rerun; None when it was deleted."""
    async with looking(settings) as look:
        letter = await find_letter(look.backend.archive, name)
        root = root_of(letter.token.execution_id)
        return letter, await look.backend.archive.get_header(ExecutionId(root)) if root else None


def print_count(number: int, *, as_json: bool) -> None:
    print(compact({"count": number}) if as_json else number)


def print_page(letters: Sequence[DeadLetter], limit: int, *, as_json: bool) -> None:
    if as_json:
        for letter in letters:
            print(compact(letter_document(letter)))
        return
    if not letters:
        print("no dead letters")
        return
    rows = [
        [
            Cell(name_of(letter)),
            Cell(letter.workflow, "bold"),
            Cell(queue_name(letter.queue), "dim"),
            Cell(local_time(letter.rejected_at), "dim"),
            Cell(str(letter.token.attempt), "dim"),
            Cell(" ".join(str(letter.error).split()), "red"),
        ]
        for letter in letters
    ]
    print_table(["NAME", "WORKFLOW", "QUEUE", "REJECTED", "ATTEMPTS", "ERROR"], rows)
    if len(letters) == limit:
        print(f"(the newest {limit}; --limit shows more)")


def print_one(letter: DeadLetter, header: Header | None, hints: Hints, *, as_json: bool) -> None:
    if as_json:
        state = None if header is None else header.state.value
        print(compact({**letter_document(letter), "execution_status": state}))
        return
    print_styled([Cell(f"{LOOKS['FAILED'].glyph} {name_of(letter)}", "bold")])
    for name, text in _facts(letter, header):
        print_styled([Cell(f"  {name:<11}", "dim"), Cell(text)])
    print_styled([Cell("\nconfig", "dim")])
    print(pretty(msgspec.json.decode(letter.config)))
    if letter.error.traceback:
        print_styled([Cell("\ntraceback", "dim")])
        print(letter.error.traceback.rstrip())
    if header is not None:
        print_styled([Cell("\nretry", "dim"), Cell(f"  {hints.retry(name_of(letter))}", "cyan")])


def _facts(letter: DeadLetter, header: Header | None) -> list[tuple[str, str]]:
    state = "was deleted: it can't be retried" if header is None else f"is {header.state.lower()}"
    execution = root_of(letter.token.execution_id)
    facts = [
        ("workflow", letter.workflow),
        ("execution", f"{execution} {state}" if execution else ""),
        ("queue", queue_name(letter.queue)),
        ("handler", letter.handler),
        ("attempts", str(letter.token.attempt)),
        ("rejected", local_time(letter.rejected_at)),
        ("reason", letter.reason),
        ("error", str(letter.error)),
    ]
    return [(name, text) for name, text in facts if text]


# The config with which a dead letter is retried, if it is to be another one.

EDITOR_DEFAULT = "vi"


@dataclass(frozen=True, slots=True)
class Change:
    """What the command line says about it."""

    assignments: Sequence[str]
    file: str | None
    is_edited: bool = False

    def __bool__(self) -> bool:
        return bool(self.assignments) or self.file is not None or self.is_edited

    def of(self, letters: Sequence[DeadLetter]) -> Mapping[str, Json]:
        """The configs of nodes, by id; raises InputError."""
        if not self:
            return {}
        if len(letters) > 1:
            raise InputError("the config of one dead letter can be changed at a time; name it")
        letter = letters[0]
        check_editable(letter)
        config = msgspec.json.decode(letter.config)
        if self.file is not None:
            config = read_value(self.file, "the config")
        if self.assignments:
            given = parse_assignments(self.assignments, what="the config")
            config = lay_over(config, given, "the config")
        if self.is_edited:
            config = _edited(config, letter)
        return {letter.token.node_id: config}


def _edited(config: Json, letter: DeadLetter) -> Json:
    """As the user's editor leaves it; raises InputError when it was left as it was."""
    head = f"# The config of {name_of(letter)}; it is retried when you save and leave.\n"
    with tempfile.TemporaryDirectory(prefix="runnel-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(head + write_yaml(config), encoding="utf-8")
        _edit(path)
        changed = read_data(path)
    if changed == config:
        raise InputError("the config was left as it was: nothing is retried; leave out --edit")
    return changed


def _edit(path: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if editor is None and not sys.stdin.isatty():
        raise InputError("--edit: there is no terminal to edit in; give --config or --payload-file")
    editor = editor or EDITOR_DEFAULT
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode  # noqa: S603  # the user's own
    except OSError as error:
        raise InputError(f"--edit: the editor '{editor}' can't be run: set $EDITOR") from error
    if code != 0:
        raise InputError(f"--edit: the editor '{editor}' failed, nothing is retried")


# `runnel dlq purge`: dead letters are removed for good, if that is meant.


def purge(choice: Choice, settings: Settings, *, is_sure: bool) -> int:
    choice.check(needs_all=False)
    letters = asyncio.run(_choose_to_purge(choice, settings))
    if not letters:
        print("no dead letters")
        return exits.OK
    how_many = count(len(letters), "dead letter")
    if not is_sure:
        ask(f"Remove {how_many} for good?", f"{how_many} would be removed for good")
    deleted = asyncio.run(_delete(letters, settings))
    print(f"removed: {count(deleted, 'dead letter')}")
    return exits.OK


async def _choose_to_purge(choice: Choice, settings: Settings) -> list[DeadLetter]:
    async with looking(settings) as look:
        return await choice.letters(look)


async def _delete(letters: list[DeadLetter], settings: Settings) -> int:
    async with looking(settings) as look:
        return await look.backend.archive.delete_dead_letters(letters)


# `runnel dlq retry`: each execution that has dead letters is run again, what failed of it.


@dataclass(slots=True, kw_only=True)
class Retries:
    """The letters by the root of their execution, the oldest first."""

    trees: dict[ExecutionId, list[DeadLetter]] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    configs: Mapping[str, Json] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    async def begin(self, client: Client, archive: Archive) -> Sequence[Begun]:
        """One that can't be retried is told, and the others are."""
        begun = []
        async for each in retry_each(client, archive, self.trees, configs=self.configs):
            if each.error is not None and len(self.trees) == 1:
                raise each.error
            if each.execution_id is None:
                self.problems.append(str(each.error))
                _say(f"not retried: {each.error}")
                continue
            names = ", ".join(name_of(letter) for letter in each.letters)
            _say(f"retried {names}: execution {each.execution_id} is a rerun of {each.root}")
            execution = await client.load(each.execution_id)
            begun.append(Begun(each.execution_id, execution.graph.workflow))
        return begun


def retry(
    choice: Choice, change: Change, settings: Settings, hints: Hints, *, as_json: bool
) -> int:
    """The exit code: 1 when one of them failed again, or could not be retried."""
    choice.check(needs_all=True)
    chosen, retries = asyncio.run(_choose_to_retry(choice, settings))
    if not chosen:
        print("no dead letters")
        return exits.OK
    retries.configs = change.of(chosen)
    if settings.is_remote:
        return asyncio.run(_hand_over(retries, settings, hints, as_json=as_json))
    make_importable(dict.fromkeys(retries.folders))
    with results() as out:
        running = run_several_here(retries.begin, settings, hints, out=out, as_json=as_json)
        code = asyncio.run(running)
    return max(code, exits.FAILED if retries.problems else exits.OK)


async def _choose_to_retry(choice: Choice, settings: Settings) -> tuple[list[DeadLetter], Retries]:
    retries = Retries()
    async with looking(settings) as look:
        archive = look.backend.archive
        chosen = await choice.letters(look)
        for root in dict.fromkeys(root_of(letter.token.execution_id) for letter in chosen):
            retries.trees[root] = await letters_of(archive, root)
            header = await archive.get_header(root) if root else None
            if header is not None and SOURCE_LABEL in header.labels:
                retries.folders.append(header.labels[SOURCE_LABEL])
    return chosen, retries


async def _hand_over(retries: Retries, settings: Settings, hints: Hints, *, as_json: bool) -> int:
    """To the workers of a server, without waiting for them: they may be many."""
    async with looking(settings) as look:
        begun = await retries.begin(look.client, look.backend.archive)
    for each in begun:
        if as_json:
            print(compact({"execution_id": each.execution_id, "workflow": each.workflow.name}))
    if begun and not as_json:
        _say(f"workers run them; see: {hints.return_to(begun[0].execution_id)}")
    return exits.FAILED if retries.problems else exits.OK


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
