"""`runnel dlq list|show|retry|purge`"""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from runnel.authoring.documents.files import read_data
from runnel.authoring.documents.yaml import write_yaml
from runnel.authoring.functions import SOURCE_LABEL
from runnel.authoring.input_schema import parse_assignments
from runnel.cli import errors as exits
from runnel.cli.command_group import make_command_group
from runnel.cli.commands.run import AsJsonResult, Concurrency
from runnel.cli.options import (
    AsJson,
    DataDir,
    RedisUrl,
    Server,
    StoreLocation,
    check_finite,
    confirm,
)
from runnel.cli.render.text import (
    DAY_S,
    STATE_STYLES,
    Cell,
    format_count,
    format_local_time,
    print_styled,
    print_table,
    to_compact_json,
    to_pretty_json,
)
from runnel.cli.session.follow import StartedExecution, run_many_locally
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import make_importable, merge_assignments, read_value
from runnel.cli.session.open_client import ClientSession, has_data, load_workflow, open_client
from runnel.cli.streams import reserve_stdout
from runnel.client.dead_letters import LettersOf, check_editable
from runnel.client.protocol import Client
from runnel.core.ids import ExecutionId, get_root_id
from runnel.core.values import Json
from runnel.errors import InputError, NotFoundError
from runnel.settings.model import Settings
from runnel.views import build_document
from runnel.views.dead_letter import DeadLetterDetail, DeadLetterView

app = make_command_group(
    "Dead letters: tasks that failed in a way that a person has to look at.",
    first_command="runnel dlq list",
)

LetterName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A dead letter, as listed: execution/node. The first characters of the execution do.",
        show_default=False,
    ),
]
LetterNames: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Dead letters, as listed.", show_default=False),
]
QueueOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAME", help="Only those of this queue.", show_default=False),
]
WorkflowOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--workflow", metavar="NAME", help="Only those of this workflow.", show_default=False
    ),
]
AllLetters: TypeAlias = Annotated[bool, typer.Option("--all", help="All of them.")]


def list_letters(
    *,
    queue: QueueOption = None,
    workflow: WorkflowOption = None,
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

    settings = configure(StoreLocation(data_dir, redis_url, server))
    if is_counted:
        print_count(asyncio.run(load_count(settings, queue, workflow)), as_json=as_json)
    else:
        letters = asyncio.run(load_page(settings, queue, workflow, limit))
        print_page(letters, limit, as_json=as_json)
    return exits.OK


def show_letter(
    name: LetterName,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Show one dead letter: its config, its error with the traceback, and how to go on."""
    import asyncio

    from runnel.cli.options import configure
    from runnel.cli.session.hints import CommandHints

    place = StoreLocation(data_dir, redis_url, server)
    settings = configure(place)
    letter = asyncio.run(load_letter(settings, name))
    print_letter(letter, CommandHints(place, settings.is_remote), as_json=as_json)
    return exits.OK


def retry_letters(
    names: LetterNames = None,
    *,
    is_all: AllLetters = False,
    queue: QueueOption = None,
    workflow: WorkflowOption = None,
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
    from runnel.cli.session.hints import CommandHints

    place = StoreLocation(data_dir, redis_url, server)
    settings = configure(place, concurrency=concurrency)
    choice = LetterSelection(
        names=names or [], is_all=is_all, queue=queue, workflow=workflow, oldest=count
    )
    change = ConfigChange(assignments or [], payload_file, opens_editor=is_edited)
    return retry(choice, change, settings, CommandHints(place, settings.is_remote), as_json=as_json)


def purge_letters(
    names: LetterNames = None,
    *,
    is_all: AllLetters = False,
    queue: QueueOption = None,
    workflow: WorkflowOption = None,
    days: Annotated[
        float | None,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            min=0,
            callback=check_finite,
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

    settings = configure(StoreLocation(data_dir, redis_url, server))
    choice = LetterSelection(
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
class LetterSelection:
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

    async def load_letters(self, session: ClientSession) -> list[DeadLetterView]:
        """Oldest first; raises NotFoundError for a name, InputError for a contradiction."""
        group = session.client.dead_letters
        if self.names:
            return [await group.get(name) for name in dict.fromkeys(self.names)]
        before = session.clock.now() - self.older_than_s
        letters = group.list(queue=self.queue, workflow=self.workflow)
        newest_first = [letter async for letter in letters if letter.rejected_at < before]
        return newest_first[::-1][: self.oldest]

    async def delete_letters(self, session: ClientSession, *, loaded_at: float) -> int:
        """How many; of those that match, only those that were there when they were loaded."""
        group = session.client.dead_letters
        if not self.names:
            # Never nothing: an age says which letters are meant, without --all.
            age_s = max(session.clock.now() - loaded_at, 0.001)
            selection = LettersOf(
                queue=self.queue, workflow=self.workflow, older_than_s=self.older_than_s + age_s
            )
            return await group.purge_many(selection)
        deleted = 0
        for name in dict.fromkeys(self.names):
            with suppress(NotFoundError):  # another process was faster
                await group.purge(name)
                deleted += 1
        return deleted

    @property
    def older_than_s(self) -> float:
        return (self.older_than_days or 0.0) * DAY_S

    def check(self, *, needs_all: bool) -> None:
        """Raises InputError unless it says what is meant, and only once."""
        rest = self.is_all or self.has_filter or self.oldest is not None
        if self.names and rest:
            raise InputError("give the names of dead letters, or --all and filters; not both")
        if not self.names and not self.is_all and (needs_all or not self.has_filter):
            filters = "" if needs_all else " or a filter"
            raise InputError(f"give the names of dead letters, or --all{filters}")


async def load_page(
    settings: Settings, queue: str | None, workflow: str | None, limit: int
) -> Sequence[DeadLetterView]:
    """Nothing where nothing was ever run."""
    if not has_data(settings):
        return ()
    letters: list[DeadLetterView] = []
    async with open_client(settings) as session:
        group = session.client.dead_letters
        async for letter in group.list(queue=queue, workflow=workflow):
            letters.append(letter)
            if len(letters) == limit:
                break
    return letters


async def load_count(settings: Settings, queue: str | None, workflow: str | None) -> int:
    if not has_data(settings):
        return 0
    async with open_client(settings) as session:
        return await session.client.dead_letters.count(queue=queue, workflow=workflow)


async def load_letter(settings: Settings, name: str) -> DeadLetterDetail:
    async with open_client(settings) as session:
        return await session.client.dead_letters.get(name)


def print_count(number: int, *, as_json: bool) -> None:
    print(to_compact_json({"count": number}) if as_json else number)


def print_page(letters: Sequence[DeadLetterView], limit: int, *, as_json: bool) -> None:
    if as_json:
        for letter in letters:
            print(to_compact_json(build_document(letter)))
        return
    if not letters:
        print("no dead letters")
        return
    rows = [
        [
            Cell(letter.name),
            Cell(letter.workflow, "bold"),
            Cell(letter.queue, "dim"),
            Cell(format_local_time(letter.rejected_at), "dim"),
            Cell(str(letter.attempts), "dim"),
            Cell(" ".join(letter.error.split()), "red"),
        ]
        for letter in letters
    ]
    print_table(["NAME", "WORKFLOW", "QUEUE", "REJECTED", "ATTEMPTS", "ERROR"], rows)
    if len(letters) == limit:
        print(f"(the newest {limit}; --limit shows more)")


def print_letter(letter: DeadLetterDetail, hints: CommandHints, *, as_json: bool) -> None:
    if as_json:
        print(to_compact_json(build_document(letter)))
        return
    print_styled([Cell(f"{STATE_STYLES['FAILED'].glyph} {letter.name}", "bold")])
    for name, text in _list_facts(letter):
        print_styled([Cell(f"  {name:<11}", "dim"), Cell(text)])
    print_styled([Cell("\nconfig", "dim")])
    print(to_pretty_json(letter.config))
    if letter.traceback:
        print_styled([Cell("\ntraceback", "dim")])
        print(letter.traceback.rstrip())
    if letter.execution_status is not None:
        print_styled([Cell("\nretry", "dim"), Cell(f"  {hints.retry(letter.name)}", "cyan")])


def _list_facts(letter: DeadLetterDetail) -> list[tuple[str, str]]:
    status = letter.execution_status
    state = "was deleted: it can't be retried" if status is None else f"is {status.lower()}"
    execution = get_root_id(letter.execution_id)
    facts = [
        ("workflow", letter.workflow),
        ("execution", f"{execution} {state}" if execution else ""),
        ("queue", letter.queue),
        ("handler", letter.handler),
        ("attempts", str(letter.attempts)),
        ("rejected", format_local_time(letter.rejected_at)),
        ("reason", letter.reason),
        ("error", letter.error),
    ]
    return [(name, text) for name, text in facts if text]


# The config with which a dead letter is retried, if it is to be another one.

EDITOR_DEFAULT = "vi"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """What the command line says about it."""

    assignments: Sequence[str]
    file: str | None
    opens_editor: bool = False

    def __bool__(self) -> bool:
        return bool(self.assignments) or self.file is not None or self.opens_editor

    def build_configs(self, letters: Sequence[DeadLetterView]) -> Mapping[str, Json]:
        """The configs of nodes, by id; raises InputError."""
        if not self:
            return {}
        if len(letters) > 1:
            raise InputError("the config of one dead letter can be changed at a time; name it")
        letter = letters[0]
        check_editable(letter.name, letter.execution_id)
        config = letter.config
        if self.file is not None:
            config = read_value(self.file, "the config")
        if self.assignments:
            given = parse_assignments(self.assignments, subject="the config")
            config = merge_assignments(config, given, "the config")
        if self.opens_editor:
            config = _edit_config(config, letter)
        return {letter.node: config}


def _edit_config(config: Json, letter: DeadLetterView) -> Json:
    """As the user's editor leaves it; raises InputError when it was left as it was."""
    head = f"# The config of {letter.name}; it is retried when you save and leave.\n"
    with tempfile.TemporaryDirectory(prefix="runnel-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(head + write_yaml(config), encoding="utf-8")
        _run_editor(path)
        changed = read_data(path)
    if changed == config:
        raise InputError("the config was left as it was: nothing is retried; leave out --edit")
    return changed


def _run_editor(path: Path) -> None:
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


def purge(selection: LetterSelection, settings: Settings, *, is_sure: bool) -> int:
    selection.check(needs_all=False)
    number, loaded_at = asyncio.run(_count_selected(selection, settings))
    if not number:
        print("no dead letters")
        return exits.OK
    how_many = format_count(number, "dead letter")
    if not is_sure:
        confirm(f"Remove {how_many} for good?", f"{how_many} would be removed for good")
    deleted = asyncio.run(_delete(selection, settings, loaded_at))
    print(f"removed: {format_count(deleted, 'dead letter')}")
    return exits.OK


async def _count_selected(selection: LetterSelection, settings: Settings) -> tuple[int, float]:
    """How many there are, and when they were counted."""
    async with open_client(settings) as session:
        now = session.clock.now()
        return len(await selection.load_letters(session)), now


async def _delete(selection: LetterSelection, settings: Settings, loaded_at: float) -> int:
    async with open_client(settings) as session:
        return await selection.delete_letters(session, loaded_at=loaded_at)


# `runnel dlq retry`: each execution that has dead letters is run again, what failed of it.


@dataclass(slots=True, kw_only=True)
class LetterRetries:
    """One letter of each root execution, the oldest first: a retry takes all letters of a root."""

    name_by_root: dict[ExecutionId, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    configs: Mapping[str, Json] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    async def start_all(self, client: Client) -> Sequence[StartedExecution]:
        """One that can't be retried is told, and the others are."""
        begun = []
        for name in self.name_by_root.values():
            try:
                retried = await client.dead_letters.retry(name, self.configs)
            except InputError as error:
                if len(self.name_by_root) == 1:
                    raise
                self.problems.append(str(error))
                _print_to_stderr(f"not retried: {error}")
                continue
            names = ", ".join(retried.letters)
            _print_to_stderr(
                f"retried {names}: execution {retried.execution_id} is a rerun of "
                f"{retried.rerun_of}"
            )
            workflow = await load_workflow(client, retried.execution_id)
            begun.append(StartedExecution(retried.execution_id, workflow))
        return begun


def retry(
    selection: LetterSelection,
    change: ConfigChange,
    settings: Settings,
    hints: CommandHints,
    *,
    as_json: bool,
) -> int:
    """The exit code: 1 when one of them failed again, or could not be retried."""
    selection.check(needs_all=True)
    chosen, retries = asyncio.run(_prepare_retries(selection, settings))
    if not chosen:
        print("no dead letters")
        return exits.OK
    retries.configs = change.build_configs(chosen)
    if settings.is_remote:
        return asyncio.run(_submit_to_server(retries, settings, hints, as_json=as_json))
    make_importable(dict.fromkeys(retries.folders))
    with reserve_stdout() as out:
        running = run_many_locally(retries.start_all, settings, hints, out=out, as_json=as_json)
        code = asyncio.run(running)
    return max(code, exits.FAILED if retries.problems else exits.OK)


async def _prepare_retries(
    selection: LetterSelection, settings: Settings
) -> tuple[list[DeadLetterView], LetterRetries]:
    retries = LetterRetries()
    async with open_client(settings) as session:
        chosen = await selection.load_letters(session)
        for letter in chosen:
            retries.name_by_root.setdefault(get_root_id(letter.execution_id), letter.name)
        roots = [root for root in retries.name_by_root if root]
        for header in (await session.client.summaries(roots)).values():
            if SOURCE_LABEL in header.labels:
                retries.folders.append(header.labels[SOURCE_LABEL])
    return chosen, retries


async def _submit_to_server(
    retries: LetterRetries, settings: Settings, hints: CommandHints, *, as_json: bool
) -> int:
    """To the workers of a server, without waiting for them: they may be many."""
    async with open_client(settings) as session:
        begun = await retries.start_all(session.client)
    for each in begun:
        if as_json:
            print(
                to_compact_json({"execution_id": each.execution_id, "workflow": each.workflow.name})
            )
    if begun and not as_json:
        _print_to_stderr(f"workers run them; see: {hints.watch_again(begun[0].execution_id)}")
    return exits.FAILED if retries.problems else exits.OK


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
