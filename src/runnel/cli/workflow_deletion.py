"""`runnel workflows NAME --delete`"""

import asyncio

from runnel.cli import exits
from runnel.cli.asking import ask
from runnel.cli.opening import looking
from runnel.cli.words import count
from runnel.core.checks.wording import quoted
from runnel.settings import Settings


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
