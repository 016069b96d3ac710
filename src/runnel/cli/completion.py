"""What a shell completes: ids of executions and names of workflows, of a data directory.

Not of a server: a shell that waits for one at each press of a key is worse than one that does not
know. Nothing here may fail or speak: whatever is wrong, there is nothing to complete.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runnel.runtime.look import Look

LATEST = 50


def complete_id(incomplete: str) -> list[str]:
    """Executions, the newest first."""
    return _beginning_with(incomplete, _ids)


def complete_workflow(incomplete: str) -> list[str]:
    return _beginning_with(incomplete, _workflows)


def _beginning_with(
    incomplete: str, load: "Callable[[Look], Awaitable[Sequence[str]]]"
) -> list[str]:
    import asyncio

    from runnel.errors import RunnelError

    async def names() -> Sequence[str]:
        from runnel.cli.opening import looking
        from runnel.cli.options import Place, configure

        settings = configure(Place())
        if settings.is_remote:
            return ()
        async with looking(settings) as look:
            return await load(look)

    with suppress(RunnelError):
        return [name for name in asyncio.run(names()) if name.startswith(incomplete)]
    return []


async def _ids(look: "Look") -> Sequence[str]:
    from runnel.ports.archive import ExecutionFilter

    found = await look.client.list_executions(ExecutionFilter(limit=LATEST))
    return ["@last", *(header.execution_id for header in found)]


async def _workflows(look: "Look") -> Sequence[str]:
    return [each.name for each in await look.backend.archive.list_workflows(limit=LATEST)]
