"""`runnel workflows [NAME]`"""

import asyncio
import getpass
import os
import shlex
import sys
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer

from runnel.app.stores import NoDataError
from runnel.cli.options import (
    AsJson,
    Limit,
    StoreLocation,
    complete_workflow,
    configure,
    confirm,
)
from runnel.cli.render.printer import print_list
from runnel.cli.render.text import Cell, format_count, print_styled, to_compact_json
from runnel.cli.session.inputs import load_valid_workflow
from runnel.cli.session.open_client import has_data, open_client
from runnel.cli.streams import print_to_stderr
from runnel.client.protocol import Workflows
from runnel.core.message_text import escape_unprintable, quote_name, suggest_name
from runnel.core.values import Json
from runnel.errors import InputError, NotFoundError
from runnel.settings.model import Settings
from runnel.views import build_document
from runnel.views.workflow import ActiveVersion, StoredWorkflow, WorkflowDocument

LIMIT_DEFAULT = 50
NEWEST = "newest"
VERSION_MAX = 2**31 - 1

WorkflowNameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="The name of a stored workflow, whose versions are listed.",
        autocompletion=complete_workflow,
    ),
]
VersionOption = Annotated[
    int | None,
    typer.Option(
        "--version",
        metavar="N",
        min=1,
        help="The number of a version of the workflow, which is printed as YAML.",
    ),
]
ActivatedArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[store FILE | activate NAME VERSION]",
        help="Store a workflow file without running it; or set the version that runs by name: for "
        "runs, webhooks and schedules without a version. VERSION is a number, or newest.",
        autocompletion=complete_workflow,
    ),
]
DiffVersion = Annotated[
    int | None,
    typer.Option(
        "--diff",
        metavar="N",
        min=1,
        help="Print the changes from version N to the newest version, or to --version.",
    ),
]


def workflows(
    name: WorkflowNameArgument = None,
    activated: ActivatedArguments = None,
    *,
    version: VersionOption = None,
    former: DiffVersion = None,
    is_deleted: Annotated[
        bool,
        typer.Option("--delete", help="Delete all versions of the workflow; its executions stay."),
    ] = False,
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Delete the workflow without confirmation.")
    ] = False,
    limit: Limit = LIMIT_DEFAULT,
    as_json: AsJson = False,
    location: StoreLocation,
) -> None:
    """List stored workflows, or the versions of one workflow.

    Every change of a workflow is stored as its next version. Executions keep their version.

    [bold]runnel workflows activate NAME VERSION[/bold] sets the version that runs by name. Until
    then, the newest version runs. Activate an earlier version to roll back.

    [bold]runnel workflows store FILE[/bold] stores a workflow without running it.
    """
    if name is None and (version is not None or former is not None):
        option = "--diff" if version is None else "--version"
        raise InputError(f"{option}: name the workflow as well: 'runnel workflows NAME {option} 1'")
    settings = configure(location)
    if activated and name == "store":
        if len(activated) > 1 or is_deleted or version is not None or former is not None:
            raise InputError("store: give one workflow file, and no other option")
        stored = asyncio.run(_store(settings, Path(activated[0])))
        print(
            to_compact_json(_summarize(stored))
            if as_json
            else f"stored: version {stored.version} of {quote_name(stored.name)}"
        )
    elif activated:
        target, number = _read_activation(name, activated)
        if is_deleted or version is not None or former is not None:
            raise InputError("activate: give the name and the version, and no other option")
        _print_activated(asyncio.run(_activate(settings, target, number)), as_json=as_json)
    elif is_deleted:
        if name is None or version is not None or former is not None:
            raise InputError("--delete: give the name of a workflow, and nothing else")
        _delete_workflow(name, settings, is_sure=is_sure)
    elif name is None and not has_data(settings):
        print(NoDataError(settings.data_dir), file=sys.stderr)
    elif name is None:
        _print_all(asyncio.run(_load_all(settings, limit)), limit, as_json=as_json)
    elif former is not None:
        definitions = asyncio.run(_load_definitions(settings, name, [former, version]))
        _print_diff(*definitions, as_json=as_json)
    elif version is not None:
        definitions = asyncio.run(_load_definitions(settings, name, [version]))
        _print_definition(*definitions, as_json=as_json)
    else:
        _print_versions(asyncio.run(_load_versions(settings, name, limit)), limit, as_json=as_json)


def _read_activation(word: str | None, arguments: Sequence[str]) -> tuple[str, int | None]:
    """Returns the workflow and the version of `activate NAME VERSION`; raises InputError."""
    usage = "'runnel workflows activate NAME VERSION'"
    if [word, *arguments[2:]] != ["activate"] or not arguments[1:]:
        words = " ".join(map(escape_unprintable, [word or "", *arguments]))
        raise InputError(
            f"expected one name, 'runnel workflows store FILE' or {usage}, got 'runnel workflows "
            f"{words}'"
        )
    name, version = arguments
    if version == NEWEST:
        return name, None
    if not (version.isascii() and version.isdigit() and 0 < int(version) <= VERSION_MAX):
        raise InputError(
            f"{usage}: expected a version number or '{NEWEST}', got '{escape_unprintable(version)}'"
        )
    return name, int(version)


async def _store(settings: Settings, file: Path) -> StoredWorkflow:
    workflow = load_valid_workflow(file, settings)
    async with open_client(settings, creates_data_dir=True) as session:
        return await session.client.library.store(workflow)


async def _activate(settings: Settings, name: str, version: int | None) -> ActiveVersion:
    async with open_client(settings) as session:
        library = session.client.library
        newest = (await _find_newest(library, name)).version
        if version is not None and version > newest:
            raise _version_not_found_error(name, version, newest)
        return await library.activate(name, version, author=_find_user())


def _find_user() -> str:
    """Returns the name of the user of this process, or the user's number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        return str(os.getuid())


def _print_activated(active: ActiveVersion, *, as_json: bool) -> None:
    if as_json:
        print(to_compact_json(build_document(active)))
        return
    now, *former = active.activations
    suffix = " (the newest, also in future)" if now.version is None else ""
    print(f"{active.name}: version {active.version} runs by name{suffix}")
    if former:
        previous = NEWEST if former[0].version is None else str(former[0].version)
        command = shlex.join(["runnel", "workflows", "activate", active.name, previous])
        print_to_stderr(f"roll back with: {command}")


def _version_not_found_error(name: str, version: int | None, newest: int) -> NotFoundError:
    known = "only version 1" if newest == 1 else f"1 to {newest}"
    return NotFoundError(f"version {version} of workflow", name, hint=f"it has {known}")


async def _load_all(settings: Settings, limit: int) -> Sequence[StoredWorkflow]:
    async with open_client(settings) as session:
        return await session.client.library.list(limit=limit)


async def _load_versions(settings: Settings, name: str, limit: int) -> Sequence[StoredWorkflow]:
    async with open_client(settings) as session:
        library = session.client.library
        await _find_newest(library, name)
        return await library.versions(name, limit=limit)


async def _load_definitions(
    settings: Settings, name: str, versions: Sequence[int | None]
) -> list[WorkflowDocument]:
    """Loads the given versions of a workflow; None means the newest. Raises NotFoundError."""
    definitions: list[WorkflowDocument] = []
    async with open_client(settings) as session:
        library = session.client.library
        newest = await _find_newest(library, name)
        for number in versions:
            version = newest.version if number is None else min(number, newest.version + 1)
            try:
                definitions.append(await library.get(name, version))
            except NotFoundError as error:
                raise _version_not_found_error(name, number, newest.version) from error
    return definitions


async def _find_newest(library: Workflows, name: str) -> StoredWorkflow:
    """Returns the newest version of a workflow; raises NotFoundError with a similar name."""
    try:
        return (await library.versions(name, limit=1))[0]
    except NotFoundError as error:
        known = [definition.name for definition in await library.list(limit=1_000)]
        similar = suggest_name(name, known).strip(" ()")
        hint = similar or "'runnel workflows' lists the stored workflows"
        raise NotFoundError("workflow", escape_unprintable(name), hint=hint) from error


def _print_all(definitions: Sequence[StoredWorkflow], limit: int, *, as_json: bool) -> None:
    has_active = any(definition.active_version for definition in definitions)
    print_list(
        definitions,
        ["WORKFLOW", "VERSION", "NODES", *(["ACTIVE"] if has_active else [])],
        lambda definition: [
            Cell(definition.name, "bold"),
            Cell(str(definition.version)),
            Cell(str(definition.nodes)),
            *([Cell(str(definition.active_version or ""), "green")] if has_active else []),
        ],
        as_json=as_json,
        empty="no workflows: nothing has been submitted yet",
        limit=limit,
        to_json=_summarize,
    )


def _print_versions(definitions: Sequence[StoredWorkflow], limit: int, *, as_json: bool) -> None:
    has_active = any(definition.active_version for definition in definitions)
    print_list(
        definitions,
        ["VERSION", "NODES", "HASH", *(["ACTIVE"] if has_active else [])],
        lambda definition: [
            Cell(str(definition.version), "bold"),
            Cell(str(definition.nodes)),
            Cell(definition.workflow_definition_id, "dim"),
            *(_build_active_cells(definition) if has_active else []),
        ],
        as_json=as_json,
        limit=limit,
        order="newest",
        to_json=_summarize,
    )


def _build_active_cells(definition: StoredWorkflow) -> list[Cell]:
    return [Cell("active" if definition.version == definition.active_version else "", "green")]


def _print_definition(definition: WorkflowDocument, *, as_json: bool) -> None:
    if as_json:
        print(to_compact_json({**_summarize(definition), "document": definition.document}))
    else:
        print(_to_yaml(definition), end="")


def _print_diff(former: WorkflowDocument, later: WorkflowDocument, *, as_json: bool) -> None:
    before, after = (
        f"{definition.name} (version {definition.version})" for definition in (former, later)
    )
    texts = _to_yaml(former).splitlines(), _to_yaml(later).splitlines()
    lines = list(unified_diff(*texts, fromfile=before, tofile=after, lineterm=""))
    if as_json:
        between = {"name": later.name, "from": former.version, "to": later.version}
        print(to_compact_json({**between, "diff": "\n".join(lines)}))
    elif not lines:
        print(f"no difference between versions {former.version} and {later.version}")
    for line in [] if as_json else lines:
        print_styled([Cell(line, _choose_diff_style(line))])


def _choose_diff_style(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _summarize(definition: StoredWorkflow) -> dict[str, Json]:
    return {
        "name": definition.name,
        "version": definition.version,
        "nodes": definition.nodes,
        "hash": definition.workflow_definition_id,
        "active_version": definition.active_version,
    }


def _to_yaml(definition: WorkflowDocument) -> str:
    from runnel.authoring.documents.yaml import write_yaml  # 40 ms: only for YAML

    return write_yaml(definition.document)


def _delete_workflow(name: str, settings: Settings, *, is_sure: bool) -> None:
    """Deletes a workflow; raises NotFoundError.

    Raises WrongStateError if an execution of the workflow is not final.
    """
    newest = asyncio.run(_load_newest_version(name, settings))
    subject = f"workflow {quote_name(name)} (up to version {newest})"
    if not is_sure:
        confirm(f"Delete {subject}?", f"{subject} would be deleted")
    deleted = asyncio.run(_delete(name, settings))
    print(f"deleted: {format_count(deleted, 'version')} of {quote_name(name)}")


async def _load_newest_version(name: str, settings: Settings) -> int:
    async with open_client(settings) as session:
        return (await session.client.library.versions(name, limit=1))[0].version


async def _delete(name: str, settings: Settings) -> int:
    async with open_client(settings) as session:
        return await session.client.library.delete(name)
