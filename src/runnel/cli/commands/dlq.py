"""`runnel dlq list|show|retry|purge`"""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from runnel.authoring.documents.files import read_data
from runnel.authoring.documents.yaml import write_yaml
from runnel.authoring.functions import SOURCE_LABEL
from runnel.authoring.input_schema import parse_assignments
from runnel.cli.command_group import make_command_group
from runnel.cli.commands.rerun import run_many, warn_about_undone_results
from runnel.cli.errors import FAILED, OK
from runnel.cli.options import (
    AsJson,
    AsJsonResult,
    Concurrency,
    Limit,
    StoreLocation,
    check_finite,
    configure,
    confirm,
)
from runnel.cli.render.printer import (
    print_facts,
    print_json_lines,
    print_list,
    print_text_section,
)
from runnel.cli.render.text import (
    DAY_S,
    STATE_STYLES,
    Cell,
    format_count,
    format_local_time,
    print_styled,
    to_compact_json,
    to_pretty_json,
)
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import merge_assignments, read_value
from runnel.cli.session.open_client import ClientSession, has_data, load_workflow, open_client
from runnel.cli.session.run_locally import StartedExecution
from runnel.cli.streams import print_to_stderr
from runnel.client.dead_letters import LettersOf, check_editable
from runnel.client.protocol import Client, DeadLetters
from runnel.core.ids import ExecutionId, get_root_id
from runnel.core.values import Json
from runnel.errors import InputError, NotFoundError
from runnel.settings.model import Settings
from runnel.views.dead_letter import DeadLetterDetail, DeadLetterView

EDITOR_DEFAULT = "vi"

LetterName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The name of a dead letter: execution/node. A prefix of the execution's id is enough.",
    ),
]
QueueOption: TypeAlias = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="Only dead letters of this queue.")
]
WorkflowOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--workflow", metavar="NAME", help="Only dead letters of this workflow."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSelection:
    """The options that choose dead letters, by name or by filter."""

    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="The names of dead letters, as 'runnel dlq list' prints them."
        ),
    ] = None
    is_all: Annotated[bool, typer.Option("--all", help="Choose all dead letters.")] = False
    queue: QueueOption = None
    workflow: WorkflowOption = None

    def check(self, *, is_filtered: bool, needs_all: bool) -> None:
        """Raises InputError unless the user gave either names or filters.

        `is_filtered` means that another option of the command restricts the letters as well.
        """
        has_filter = self.queue is not None or self.workflow is not None
        if self.names and (self.is_all or has_filter or is_filtered):
            raise InputError("give the names of dead letters, or --all and filters; not both")
        if self.names or self.is_all:
            return
        if needs_all:
            raise InputError("give the names of dead letters, or --all")
        if not has_filter and not is_filtered:
            raise InputError("give the names of dead letters, or --all or a filter")

    async def load_letters(
        self, session: ClientSession, *, older_than_s: float = 0.0
    ) -> list[DeadLetterView]:
        """Loads the chosen dead letters, oldest first; raises NotFoundError for an unknown name."""
        group = session.client.dead_letters
        if self.names:
            return [await group.get(name) for name in dict.fromkeys(self.names)]
        before = session.clock.now() - older_than_s
        letters = group.list(queue=self.queue, workflow=self.workflow)
        return [letter async for letter in letters if letter.rejected_at < before][::-1]

    async def delete_letters(self, session: ClientSession, *, older_than_s: float) -> int:
        """Deletes the chosen dead letters and returns their number."""
        group = session.client.dead_letters
        if not self.names:
            return await group.purge_many(
                LettersOf(queue=self.queue, workflow=self.workflow, older_than_s=older_than_s)
            )
        deleted = 0
        for name in dict.fromkeys(self.names):
            with suppress(NotFoundError):  # another process has deleted the letter
                await group.purge(name)
                deleted += 1
        return deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """The options that change the config of a dead letter before its retry."""

    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="Change one value of the dead letter's config; repeatable.",
        ),
    ] = None
    payload_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The JSON or YAML file with the whole new config; - reads stdin."
        ),
    ] = None
    is_edited: Annotated[
        bool,
        typer.Option("--edit", help="Change the dead letter's config in $EDITOR before the retry."),
    ] = False

    def build_configs(self, letters: Sequence[DeadLetterView]) -> Mapping[str, Json]:
        """Returns the new config by node id; empty without a change. Raises InputError."""
        if not self.assignments and self.payload_file is None and not self.is_edited:
            return {}
        if len(letters) > 1:
            raise InputError(
                "only one dead letter at a time can get a new config; name that dead letter"
            )
        letter = letters[0]
        check_editable(letter.name, letter.execution_id)
        config = letter.config
        if self.payload_file is not None:
            config = read_value(self.payload_file, "the config")
        if self.assignments:
            values = parse_assignments(self.assignments, subject="the config")
            config = merge_assignments(config, values, "the config")
        if self.is_edited:
            config = _edit_config(config, letter)
        return {letter.node: config}


async def list_letters(
    *,
    queue: QueueOption = None,
    workflow: WorkflowOption = None,
    is_counted: Annotated[
        bool, typer.Option("--count", help="Print only the number of dead letters.")
    ] = False,
    limit: Limit = 20,
    as_json: AsJson = False,
    location: StoreLocation,
) -> None:
    """List dead letters, newest first, or count them."""
    settings = configure(location)
    letters: list[DeadLetterView] = []
    number = 0
    if has_data(settings):
        async with open_client(settings) as session:
            group = session.client.dead_letters
            if is_counted:
                number = await group.count(queue=queue, workflow=workflow)
            else:
                letters = await _load_newest(group, queue, workflow, limit)
    if is_counted:
        print(to_compact_json({"count": number}) if as_json else number)
        return
    print_list(
        letters,
        ["NAME", "WORKFLOW", "QUEUE", "REJECTED", "ATTEMPTS", "ERROR"],
        _build_row,
        as_json=as_json,
        empty="no dead letters",
        limit=limit,
        order="newest",
    )


async def show_letter(
    name: LetterName, *, as_json: AsJson = False, location: StoreLocation
) -> None:
    """Show one dead letter: its config, its error with the traceback, and the retry command."""
    settings = configure(location)
    async with open_client(settings) as session:
        letter = await session.client.dead_letters.get(name)
    if as_json:
        print_json_lines([letter])
        return
    title = Cell(f"{STATE_STYLES['FAILED'].glyph} {letter.name}", "bold")
    print_facts([title], _list_facts(letter), name_width=11)
    print_text_section("config", to_pretty_json(letter.config))
    print_text_section("traceback", letter.traceback)
    if letter.execution_status is not None:
        command = CommandHints(location, settings.is_remote).retry(letter.name)
        print_styled([Cell("\nretry", "dim"), Cell(f"  {command}", "cyan")])


def retry_letters(
    *,
    selection: LetterSelection,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="The number of dead letters to retry with --all, oldest first."
        ),
    ] = None,
    change: ConfigChange,
    concurrency: Concurrency = None,
    as_json: AsJsonResult = False,
    location: StoreLocation,
) -> int:
    """Rerun the executions of dead letters.

    A new execution takes over the results of completed nodes and runs all other nodes. All dead
    letters of an execution are retried together and removed.

    Exit code: 1 if an execution failed again or could not be retried.
    """
    settings = configure(location, concurrency=concurrency)
    hints = CommandHints(location, settings.is_remote)
    selection.check(is_filtered=count is not None, needs_all=True)
    letters, retries = asyncio.run(_prepare_retries(selection, settings, count))
    if not letters:
        print("no dead letters")
        return OK
    retries.configs = change.build_configs(letters)
    code = run_many(retries.start_all, retries.folders, settings, hints, as_json=as_json)
    return max(code, FAILED if retries.problems else OK)


def purge_letters(
    *,
    selection: LetterSelection,
    days: Annotated[
        float | None,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            min=0,
            callback=check_finite,
            help="Only dead letters that were rejected more than this number of days ago.",
        ),
    ] = None,
    is_sure: Annotated[
        bool, typer.Option("--yes", "-y", help="Remove the dead letters without confirmation.")
    ] = False,
    location: StoreLocation,
) -> None:
    """Remove dead letters for good; their executions stay as they are."""
    settings = configure(location)
    selection.check(is_filtered=days is not None, needs_all=False)
    older_than_s = (days or 0.0) * DAY_S
    number, counted_at = asyncio.run(_count_selected(selection, settings, older_than_s))
    if not number:
        print("no dead letters")
        return
    how_many = format_count(number, "dead letter")
    if not is_sure:
        confirm(f"Remove {how_many} for good?", f"{how_many} would be removed for good")
    deleted = asyncio.run(_delete(selection, settings, older_than_s, counted_at))
    print(f"removed: {format_count(deleted, 'dead letter')}")


app = make_command_group(
    "Inspect, retry and remove dead letters.\n\nA dead letter is a task that failed for good and "
    "needs a person.",
    first_command="runnel dlq list",
    commands={
        "list": (list_letters, "runnel dlq list --queue python"),
        "show": (show_letter, "runnel dlq show 01m7gj/parse"),
        "retry": (retry_letters, "runnel dlq retry 01m7gj/parse --config year=2026"),
        "purge": (purge_letters, "runnel dlq purge --older-than 30"),
    },
)


async def _load_newest(
    group: DeadLetters, queue: str | None, workflow: str | None, limit: int
) -> list[DeadLetterView]:
    letters: list[DeadLetterView] = []
    async for letter in group.list(queue=queue, workflow=workflow):
        letters.append(letter)
        if len(letters) == limit:
            break
    return letters


def _build_row(letter: DeadLetterView) -> list[Cell]:
    return [
        Cell(letter.name),
        Cell(letter.workflow, "bold"),
        Cell(letter.queue, "dim"),
        Cell(format_local_time(letter.rejected_at), "dim"),
        Cell(str(letter.attempts), "dim"),
        Cell(" ".join(letter.error.split()), "red"),
    ]


def _list_facts(letter: DeadLetterDetail) -> Iterator[tuple[str, str]]:
    status = letter.execution_status
    state = "was deleted: it can't be retried" if status is None else f"is {status.lower()}"
    execution = get_root_id(letter.execution_id)
    yield "workflow", letter.workflow
    yield "execution", f"{execution} {state}" if execution else ""
    yield "queue", letter.queue
    yield "handler", letter.handler
    yield "attempts", str(letter.attempts)
    yield "rejected", format_local_time(letter.rejected_at)
    yield "reason", letter.reason
    yield "error", letter.error


def _edit_config(config: Json, letter: DeadLetterView) -> Json:
    """Opens the config in the user's editor and returns the result.

    Raises InputError if the config is unchanged.
    """
    head = f"# The config of {letter.name}. Save and leave to retry this dead letter.\n"
    with tempfile.TemporaryDirectory(prefix="runnel-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(head + write_yaml(config), encoding="utf-8")
        _run_editor(path)
        changed = read_data(path)
    if changed == config:
        raise InputError(
            "--edit: the config did not change and nothing is retried; omit --edit to "
            "retry it unchanged"
        )
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


async def _count_selected(
    selection: LetterSelection, settings: Settings, older_than_s: float
) -> tuple[int, float]:
    """Returns the number of chosen dead letters, and the time of the count."""
    async with open_client(settings) as session:
        now = session.clock.now()
        return len(await selection.load_letters(session, older_than_s=older_than_s)), now


async def _delete(
    selection: LetterSelection, settings: Settings, older_than_s: float, counted_at: float
) -> int:
    """Deletes the dead letters that were counted before; letters rejected after the count stay."""
    async with open_client(settings) as session:
        # Above zero, so that the age counts as a filter even without --all.
        age_s = max(session.clock.now() - counted_at, 0.001)
        return await selection.delete_letters(session, older_than_s=older_than_s + age_s)


# `runnel dlq retry`: each execution that has dead letters is rerun once.


@dataclass(slots=True, kw_only=True)
class LetterRetries:
    """The retries of dead letters: one for each root execution, oldest first.

    `name_by_root` maps each root execution to the name of one of its dead letters. A retry of that
    letter includes all letters of the root execution.
    """

    name_by_root: dict[ExecutionId, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    configs: Mapping[str, Json] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    async def start_all(self, client: Client) -> Sequence[StartedExecution]:
        """Starts the retries and returns them; prints an error for each impossible retry.

        Raises the InputError instead if there is only one letter.
        """
        started = []
        for name in self.name_by_root.values():
            try:
                retried = await client.dead_letters.retry(name, self.configs)
            except InputError as error:
                if len(self.name_by_root) == 1:
                    raise
                self.problems.append(str(error))
                print_to_stderr(f"not retried: {error}")
                continue
            names = ", ".join(retried.letters)
            print_to_stderr(
                f"retried {names}: execution {retried.execution_id} is a rerun of "
                f"{retried.rerun_of}"
            )
            workflow = await load_workflow(client, retried.execution_id)
            started.append(StartedExecution(retried.execution_id, workflow))
            await warn_about_undone_results(client, started[-1])
        return started


async def _prepare_retries(
    selection: LetterSelection, settings: Settings, oldest: int | None
) -> tuple[list[DeadLetterView], LetterRetries]:
    retries = LetterRetries()
    async with open_client(settings) as session:
        letters = (await selection.load_letters(session))[:oldest]
        for letter in letters:
            retries.name_by_root.setdefault(get_root_id(letter.execution_id), letter.name)
        roots = [root for root in retries.name_by_root if root]
        for summary in (await session.client.summaries(roots)).values():
            if SOURCE_LABEL in summary.labels:
                retries.folders.append(summary.labels[SOURCE_LABEL])
    return letters, retries
