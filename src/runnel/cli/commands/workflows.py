"""`runnel workflows [NAME]`"""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import errors as exits
from runnel.cli.options import AsJson, DataDir, Place, RedisUrl, Server, ask, complete_workflow
from runnel.cli.render.text import count
from runnel.cli.session.open_client import looking
from runnel.core.wording import quoted
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.core.values import Json
    from runnel.ports.archive import Archive, Definition


LIMIT = 50

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="A workflow: its versions are listed.",
        autocompletion=complete_workflow,
        show_default=False,
    ),
]
Version = Annotated[
    int | None,
    typer.Option(
        "--version",
        metavar="N",
        min=1,
        help="Print this version of it as YAML.",
        show_default=False,
    ),
]
Former = Annotated[
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
    name: Name = None,
    *,
    version: Version = None,
    former: Former = None,
    is_deleted: Annotated[
        bool, typer.Option("--delete", help="Delete it, with all versions; executions stay.")
    ] = False,
    is_sure: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = LIMIT,
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
    settings = configure(Place(data_dir, redis_url, server))
    if is_deleted:
        if name is None or version is not None or former is not None:
            raise InputError("--delete: give the name of a workflow, and nothing else")
        return delete_workflow(name, settings, is_sure=is_sure)
    if name is None and not has_data(settings):
        print(NoDataError(settings.data_dir), file=sys.stderr)
    elif name is None:
        _print_all(asyncio.run(_load_all(settings, limit)), limit, as_json=as_json)
    elif former is not None:
        _print_diff(*asyncio.run(_load_some(settings, name, [former, version])), as_json=as_json)
    elif version is not None:
        _print_one(*asyncio.run(_load_some(settings, name, [version])), as_json=as_json)
    else:
        _print_versions(asyncio.run(_load_versions(settings, name, limit)), limit, as_json=as_json)
    return exits.OK


async def _load_all(settings: "Settings", limit: int) -> "Sequence[Definition]":
    from runnel.cli.session.open_client import looking

    async with looking(settings) as look:
        return await look.backend.archive.list_workflows(limit=limit)


async def _load_versions(settings: "Settings", name: str, limit: int) -> "Sequence[Definition]":
    from runnel.cli.session.open_client import looking

    async with looking(settings) as look:
        archive = look.backend.archive
        await _newest(archive, name)
        return await archive.list_versions(name, limit=limit)


async def _load_some(
    settings: "Settings", name: str, versions: "Sequence[int | None]"
) -> "list[Definition]":
    """None is the newest; raises NotFoundError."""
    from runnel.cli.session.open_client import looking
    from runnel.errors import NotFoundError

    found: list[Definition] = []
    async with looking(settings) as look:
        archive = look.backend.archive
        newest = await _newest(archive, name)
        for wanted in versions:
            version = newest.version if wanted is None else min(wanted, newest.version + 1)
            each = await archive.find_version(name, version)
            if each is None:
                there = "only version 1" if newest.version == 1 else f"1 to {newest.version}"
                raise NotFoundError(f"version {wanted} of workflow", name, hint=f"it has {there}")
            found.append(each)
    return found


async def _newest(archive: "Archive", name: str) -> "Definition":
    from runnel.core.wording import did_you_mean, printable
    from runnel.errors import NotFoundError

    for newest in await archive.list_versions(name, limit=1):
        return newest
    known = [each.name for each in await archive.list_workflows(limit=1_000)]
    close = did_you_mean(name, known).strip(" ()")
    hint = close or "'runnel workflows' shows those that exist"
    raise NotFoundError("workflow", printable(name), hint=hint)


def _print_all(found: "Sequence[Definition]", limit: int, *, as_json: bool) -> None:
    from runnel.cli.render.text import Cell, print_table

    if as_json:
        _print_json(found)
    elif not found:
        print("no workflows: nothing has been submitted yet")
    else:
        rows = [
            [Cell(each.name, "bold"), Cell(str(each.version)), Cell(str(_nodes(each)))]
            for each in found
        ]
        print_table(["WORKFLOW", "VERSION", "NODES"], rows)
        _print_more(found, limit, "the first")


def _print_versions(found: "Sequence[Definition]", limit: int, *, as_json: bool) -> None:
    from runnel.cli.render.text import Cell, print_table

    if as_json:
        _print_json(found)
        return
    rows = [
        [Cell(str(each.version), "bold"), Cell(str(_nodes(each))), Cell(each.hash, "dim")]
        for each in found
    ]
    print_table(["VERSION", "NODES", "HASH"], rows)
    _print_more(found, limit, "the newest")


def _print_more(found: "Sequence[Definition]", limit: int, which: str) -> None:
    if len(found) == limit:
        print(f"({which} {limit}; --limit shows more)")


def _print_json(found: "Sequence[Definition]") -> None:
    from runnel.cli.render.text import compact

    for each in found:
        print(compact(_about(each)))


def _print_one(definition: "Definition", *, as_json: bool) -> None:
    from runnel.cli.render.text import compact

    if as_json:
        print(compact({**_about(definition), "document": _document(definition)}))
    else:
        print(_yaml(definition), end="")


def _print_diff(former: "Definition", later: "Definition", *, as_json: bool) -> None:
    from difflib import unified_diff

    from runnel.cli.render.text import Cell, compact, print_styled

    before, after = (f"{each.name} (version {each.version})" for each in (former, later))
    texts = _yaml(former).splitlines(), _yaml(later).splitlines()
    lines = list(unified_diff(*texts, fromfile=before, tofile=after, lineterm=""))
    if as_json:
        between = {"name": later.name, "from": former.version, "to": later.version}
        print(compact({**between, "diff": "\n".join(lines)}))
    elif not lines:
        print(f"no difference between versions {former.version} and {later.version}")
    else:
        for line in lines:
            print_styled([Cell(line, _style(line))])


def _style(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _about(definition: "Definition") -> "dict[str, Json]":
    return {
        "name": definition.name,
        "version": definition.version,
        "nodes": _nodes(definition),
        "hash": definition.hash,
    }


def _nodes(definition: "Definition") -> int:
    from runnel.core.workflow import decode_workflow

    return len(decode_workflow(definition.document).nodes)


def _yaml(definition: "Definition") -> str:
    from runnel.authoring.documents.yaml import write_yaml

    return write_yaml(_document(definition))


def _document(definition: "Definition") -> "dict[str, Json]":
    from runnel.authoring.documents.export import to_document
    from runnel.core.workflow import decode_workflow

    return to_document(decode_workflow(definition.document))


# `runnel workflows NAME --delete`


def delete_workflow(name: str, settings: Settings, *, is_sure: bool) -> int:
    """Raises NotFoundError, and WrongStateError while executions of it are not final."""
    newest = asyncio.run(_newest_version(name, settings))
    what = f"workflow {quoted(name)} (up to version {newest})"
    if not is_sure:
        ask(f"Delete {what}?", f"{what} would be deleted")
    deleted = asyncio.run(_delete(name, settings))
    print(f"deleted: {count(deleted, 'version')} of {quoted(name)}")
    return exits.OK


async def _newest_version(name: str, settings: Settings) -> int:
    async with looking(settings) as look:
        return (await look.client.library.versions(name, limit=1))[0].version


async def _delete(name: str, settings: Settings) -> int:
    async with looking(settings) as look:
        return await look.client.library.delete(name)
