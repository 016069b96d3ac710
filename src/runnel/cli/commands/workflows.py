"""`runnel workflows [NAME]`"""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import errors as exits
from runnel.cli.options import (
    AsJson,
    DataDir,
    RedisUrl,
    Server,
    StoreLocation,
    complete_workflow,
    confirm,
)
from runnel.cli.render.text import format_count
from runnel.cli.session.open_client import open_client
from runnel.core.wording import quote_name
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.client.protocol import Workflows
    from runnel.core.values import Json
    from runnel.views.workflow import StoredWorkflow, WorkflowDocument


LIMIT_DEFAULT = 50

WorkflowNameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="A workflow: its versions are listed.",
        autocompletion=complete_workflow,
        show_default=False,
    ),
]
VersionOption = Annotated[
    int | None,
    typer.Option(
        "--version",
        metavar="N",
        min=1,
        help="Print this version of it as YAML.",
        show_default=False,
    ),
]
DiffVersion = Annotated[
    int | None,
    typer.Option(
        "--diff",
        metavar="N",
        min=1,
        help="Print what has changed since version N, up to the newest or to --version.",
        show_default=False,
    ),
]


def workflows(
    name: WorkflowNameArgument = None,
    *,
    version: VersionOption = None,
    former: DiffVersion = None,
    is_deleted: Annotated[
        bool, typer.Option("--delete", help="Delete it, with all versions; executions stay.")
    ] = False,
    is_sure: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = LIMIT_DEFAULT,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """List the workflows that were submitted, or the versions of one.

    A changed workflow is the next version; executions stay on theirs.
    """
    import asyncio
    import sys

    from runnel.app.stores import NoDataError
    from runnel.cli.options import configure
    from runnel.cli.session.open_client import has_data
    from runnel.errors import InputError

    if name is None and (version is not None or former is not None):
        option = "--diff" if version is None else "--version"
        raise InputError(f"{option}: name the workflow, too: 'runnel workflows NAME {option} 1'")
    settings = configure(StoreLocation(data_dir, redis_url, server))
    if is_deleted:
        if name is None or version is not None or former is not None:
            raise InputError("--delete: give the name of a workflow, and nothing else")
        return delete_workflow(name, settings, is_sure=is_sure)
    if name is None and not has_data(settings):
        print(NoDataError(settings.data_dir), file=sys.stderr)
    elif name is None:
        _print_all(asyncio.run(_load_all(settings, limit)), limit, as_json=as_json)
    elif former is not None:
        _print_diff(
            *asyncio.run(_load_definitions(settings, name, [former, version])), as_json=as_json
        )
    elif version is not None:
        _print_definition(
            *asyncio.run(_load_definitions(settings, name, [version])), as_json=as_json
        )
    else:
        _print_versions(asyncio.run(_load_versions(settings, name, limit)), limit, as_json=as_json)
    return exits.OK


async def _load_all(settings: "Settings", limit: int) -> "Sequence[StoredWorkflow]":
    from runnel.cli.session.open_client import open_client

    async with open_client(settings) as session:
        return await session.client.library.list(limit=limit)


async def _load_versions(settings: "Settings", name: str, limit: int) -> "Sequence[StoredWorkflow]":
    from runnel.cli.session.open_client import open_client

    async with open_client(settings) as session:
        library = session.client.library
        await _find_newest(library, name)
        return await library.versions(name, limit=limit)


async def _load_definitions(
    settings: "Settings", name: str, versions: "Sequence[int | None]"
) -> "list[WorkflowDocument]":
    """None is the newest; raises NotFoundError."""
    from runnel.cli.session.open_client import open_client
    from runnel.errors import NotFoundError

    found: list[WorkflowDocument] = []
    async with open_client(settings) as session:
        library = session.client.library
        newest = await _find_newest(library, name)
        for number in versions:
            version = newest.version if number is None else min(number, newest.version + 1)
            try:
                found.append(await library.get(name, version))
            except NotFoundError as error:
                known = "only version 1" if newest.version == 1 else f"1 to {newest.version}"
                raise NotFoundError(
                    f"version {number} of workflow", name, hint=f"it has {known}"
                ) from error
    return found


async def _find_newest(library: "Workflows", name: str) -> "StoredWorkflow":
    from runnel.core.wording import escape_unprintable, suggest_name
    from runnel.errors import NotFoundError

    try:
        return (await library.versions(name, limit=1))[0]
    except NotFoundError as error:
        known = [each.name for each in await library.list(limit=1_000)]
        close = suggest_name(name, known).strip(" ()")
        hint = close or "'runnel workflows' shows those that exist"
        raise NotFoundError("workflow", escape_unprintable(name), hint=hint) from error


def _print_all(definitions: "Sequence[StoredWorkflow]", limit: int, *, as_json: bool) -> None:
    from runnel.cli.render.text import Cell, print_table

    if as_json:
        _print_json(definitions)
    elif not definitions:
        print("no workflows: nothing has been submitted yet")
    else:
        rows = [
            [Cell(each.name, "bold"), Cell(str(each.version)), Cell(str(each.nodes))]
            for each in definitions
        ]
        print_table(["WORKFLOW", "VERSION", "NODES"], rows)
        _print_more(definitions, limit, "the first")


def _print_versions(definitions: "Sequence[StoredWorkflow]", limit: int, *, as_json: bool) -> None:
    from runnel.cli.render.text import Cell, print_table

    if as_json:
        _print_json(definitions)
        return
    rows = [
        [
            Cell(str(each.version), "bold"),
            Cell(str(each.nodes)),
            Cell(each.workflow_definition_id, "dim"),
        ]
        for each in definitions
    ]
    print_table(["VERSION", "NODES", "HASH"], rows)
    _print_more(definitions, limit, "the newest")


def _print_more(definitions: "Sequence[StoredWorkflow]", limit: int, which: str) -> None:
    if len(definitions) == limit:
        print(f"({which} {limit}; --limit shows more)")


def _print_json(definitions: "Sequence[StoredWorkflow]") -> None:
    from runnel.cli.render.text import to_compact_json

    for each in definitions:
        print(to_compact_json(_summarize(each)))


def _print_definition(definition: "WorkflowDocument", *, as_json: bool) -> None:
    from runnel.cli.render.text import to_compact_json

    if as_json:
        print(to_compact_json({**_summarize(definition), "document": definition.document}))
    else:
        print(_to_yaml(definition), end="")


def _print_diff(former: "WorkflowDocument", later: "WorkflowDocument", *, as_json: bool) -> None:
    from difflib import unified_diff

    from runnel.cli.render.text import Cell, print_styled, to_compact_json

    before, after = (f"{each.name} (version {each.version})" for each in (former, later))
    texts = _to_yaml(former).splitlines(), _to_yaml(later).splitlines()
    lines = list(unified_diff(*texts, fromfile=before, tofile=after, lineterm=""))
    if as_json:
        between = {"name": later.name, "from": former.version, "to": later.version}
        print(to_compact_json({**between, "diff": "\n".join(lines)}))
    elif not lines:
        print(f"no difference between versions {former.version} and {later.version}")
    else:
        for line in lines:
            print_styled([Cell(line, _choose_diff_style(line))])


def _choose_diff_style(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _summarize(definition: "StoredWorkflow") -> "dict[str, Json]":
    return {
        "name": definition.name,
        "version": definition.version,
        "nodes": definition.nodes,
        "hash": definition.workflow_definition_id,
    }


def _to_yaml(definition: "WorkflowDocument") -> str:
    from runnel.authoring.documents.yaml import write_yaml

    return write_yaml(definition.document)


# `runnel workflows NAME --delete`


def delete_workflow(name: str, settings: Settings, *, is_sure: bool) -> int:
    """Raises NotFoundError, and WrongStateError while executions of it are not final."""
    newest = asyncio.run(_load_newest_version(name, settings))
    what = f"workflow {quote_name(name)} (up to version {newest})"
    if not is_sure:
        confirm(f"Delete {what}?", f"{what} would be deleted")
    deleted = asyncio.run(_delete(name, settings))
    print(f"deleted: {format_count(deleted, 'version')} of {quote_name(name)}")
    return exits.OK


async def _load_newest_version(name: str, settings: Settings) -> int:
    async with open_client(settings) as session:
        return (await session.client.library.versions(name, limit=1))[0].version


async def _delete(name: str, settings: Settings) -> int:
    async with open_client(settings) as session:
        return await session.client.library.delete(name)
